//! A checkpoint at a model hub: the only place of the program from which connections go out.
//!
//! It speaks the protocol of Hugging Face and its mirrors: a listing names the commit of a revision and its files, `resolve` leads to where
//! a file is stored, range requests bring its bytes. Everything is held to the commit that the listing named. The calls here
//! block; what is asynchronous stays below.

mod address;
mod connection;
mod exchange;
mod fetch;
mod files;
mod listing;
mod pipe;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hyper::Method;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::checkpoint::may_need;
use crate::installation::check;
use crate::{InstallError, Request, Sink, Source};
use address::{Address, encode};
use connection::Connector;
use exchange::{Connections, Origin, Trouble};
use fetch::{CHECK_EVERY, bring_patiently};
use files::{File, Files, Part, Place};
use listing::{Listed, Listing};
use pipe::Out;

pub use connection::Proxy;
pub use exchange::Token;
pub use fetch::Patience;
pub use pipe::SCRATCH_BYTES;

/// Where the hub is, unless said otherwise.
pub const ENDPOINT: &str = "https://huggingface.co";
/// Threads that talk to the network; decryption is what they mostly do.
const N_THREADS: usize = 2;

/// Which hub, what of it, and how.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// The hub's address.
    pub endpoint: String,
    /// `owner/name`.
    pub repository: String,
    /// A branch, a tag or a commit.
    pub revision: String,
    /// For repositories that are not shown to everyone.
    pub token: Option<Token>,
    /// For encrypted connections.
    pub proxy: Option<Proxy>,
    /// Certificate authorities that are trusted beside those of browsers, as PEM.
    pub certificates: Option<Vec<u8>>,
    /// Requests at once.
    pub connections: usize,
    /// The longest time without a byte.
    pub stall: Duration,
    /// How failures are met.
    pub patience: Patience,
    /// Set to true from elsewhere, it ends every wait for the hub.
    pub cancel: Arc<AtomicBool>,
}

impl HubOptions {
    /// Everything but the repository and its revision as usual.
    pub fn new(repository: &str, revision: &str) -> HubOptions {
        HubOptions {
            endpoint: ENDPOINT.to_owned(),
            repository: repository.to_owned(),
            revision: revision.to_owned(),
            token: None,
            proxy: None,
            certificates: None,
            connections: 8,
            stall: Duration::from_secs(30),
            patience: Patience::default(),
            cancel: Arc::default(),
        }
    }
}

/// One commit of a repository.
pub struct Hub {
    runtime: Runtime,
    files: Arc<Files>,
    patience: Patience,
    connections: usize,
    cancel: Arc<AtomicBool>,
    licence: Option<String>,
}

impl Hub {
    /// Asks for the commit of the revision and for the files of it.
    ///
    /// # Errors
    /// [`InstallError::Address`], [`InstallError::Refused`], [`InstallError::Unreachable`], [`InstallError::Foreign`],
    /// [`InstallError::Paused`].
    pub fn open(options: &HubOptions) -> Result<Hub, InstallError> {
        check_repository(&options.repository)?;
        if options.revision.is_empty() {
            return Err(InstallError::Address {
                text: "the revision".to_owned(),
                reason: "is empty".to_owned(),
            });
        }
        let mut endpoint = Address::parse(&options.endpoint)?;
        if !endpoint.path.ends_with('/') {
            endpoint.path.push('/');
        }
        let connector = Connector::new(
            options.certificates.as_deref(),
            options.proxy.clone(),
            options.stall,
        )?;
        let origin = Origin {
            endpoint,
            repository: options.repository.clone(),
            token: options.token.clone(),
            connector,
            stall: options.stall,
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(N_THREADS)
            .thread_name("ouzel-fetch")
            .enable_all()
            .build()
            .map_err(|error| InstallError::Network {
                file: options.repository.clone(),
                reason: format!("no threads: {error}"),
            })?;
        let opening = unless(&options.cancel, open(origin, options));
        let (listing, files) = runtime.block_on(opening)?;
        Ok(Hub {
            runtime,
            files: Arc::new(files),
            patience: options.patience,
            connections: options.connections.max(1),
            cancel: options.cancel.clone(),
            licence: listing.licence,
        })
    }

    /// The commit that everything is held to.
    pub fn commit(&self) -> &str {
        &self.files.commit
    }

    /// The licence, as the repository states it.
    pub fn licence(&self) -> Option<&str> {
        self.licence.as_deref()
    }

    /// `owner/name`.
    pub fn repository(&self) -> &str {
        &self.files.origin.repository
    }

    /// The endpoint's host.
    pub fn host(&self) -> String {
        self.files.origin.endpoint.authority.host_header()
    }

    /// The repository's page.
    pub fn page(&self) -> String {
        let mut address = self.files.origin.endpoint.clone();
        address.path.push_str(&self.files.origin.repository);
        address.shown()
    }
}

impl Source for Hub {
    fn files(&self) -> Vec<String> {
        self.files.files.keys().cloned().collect()
    }

    fn size(&self, name: &str) -> Option<u64> {
        self.files.files.get(name).map(|file| file.size)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<(), InstallError> {
        if buf.is_empty() {
            return Ok(());
        }
        let part = Part {
            file: name,
            offset,
            len: buf.len() as u64,
        };
        let mut bytes = Vec::with_capacity(buf.len());
        let (mut connections, mut out) = (Connections::default(), Out::Memory(&mut bytes));
        let mut unheard = |_: &str, _| {};
        let bringing = bring_patiently(
            &self.files,
            &self.patience,
            &mut connections,
            &part,
            &mut out,
            &mut unheard,
        );
        self.runtime.block_on(unless(&self.cancel, bringing))?;
        buf.copy_from_slice(&bytes);
        Ok(())
    }

    fn version(&self, name: &str) -> String {
        let files = &self.files;
        let entity = files.files.get(name).and_then(|file| file.entity.as_ref());
        format!("{} {} {entity:?}", files.origin.repository, files.commit)
    }

    fn bring(&self, requests: &[Request<'_>], sink: &mut dyn Sink) -> Result<(), InstallError> {
        let how = (self.patience, self.connections);
        fetch::bring(&self.runtime, &self.files, how, requests, sink)
    }
}

/// Waits for `work` until it is cancelled: a hub that says nothing holds nobody who pressed Ctrl-C.
async fn unless<T>(
    cancel: &AtomicBool,
    work: impl Future<Output = Result<T, InstallError>>,
) -> Result<T, InstallError> {
    let mut work = pin!(work);
    loop {
        check(cancel)?;
        if let Ok(result) = timeout(CHECK_EVERY, work.as_mut()).await {
            return result;
        }
    }
}

/// `owner/name` of letters that names have.
fn check_repository(name: &str) -> Result<(), InstallError> {
    let is_part = |part: &str| {
        let is_letter = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        !part.is_empty()
            && part.len() <= 96
            && !part.starts_with('.')
            && part.bytes().all(is_letter)
    };
    match name.split_once('/') {
        Some((owner, name)) if is_part(owner) && is_part(name) => Ok(()),
        _ => Err(InstallError::Address {
            text: address::shown(name),
            reason:
                "a repository is named OWNER/NAME, in letters, digits, dots, dashes and underscores"
                    .to_owned(),
        }),
    }
}

async fn open(origin: Origin, options: &HubOptions) -> Result<(Listing, Files), InstallError> {
    let mut connections = Connections::default();
    let listing = listing(&origin, options, &mut connections).await?;
    let asked = options.revision.as_str();
    let is_commit = asked.len() == 40 && asked.bytes().all(|b| b.is_ascii_hexdigit());
    if is_commit && !asked.eq_ignore_ascii_case(&listing.commit) {
        return Err(InstallError::Foreign {
            file: options.repository.clone(),
            reason: format!("commit {} came instead of {asked}", listing.commit),
        });
    }
    let mut files = Files {
        origin,
        commit: listing.commit.clone(),
        files: BTreeMap::new(),
    };
    for (name, listed) in listing.files.iter().filter(|(name, _)| may_need(name)) {
        let size = match listed.size {
            Some(size) => size,
            None => size_of(&files, options, &mut connections, name).await?,
        };
        let Listed { entity, .. } = listed.clone();
        let file = File {
            size,
            entity,
            place: Mutex::new(Place::default()),
        };
        files.files.insert(name.clone(), file);
    }
    Ok((listing, files))
}

async fn listing(
    origin: &Origin,
    options: &HubOptions,
    connections: &mut Connections,
) -> Result<Listing, InstallError> {
    let mut address = origin.endpoint.clone();
    address.path.push_str(&format!(
        "api/models/{}/revision/{}?blobs=true",
        options.repository,
        encode(&options.revision)
    ));
    patiently(&options.patience, &options.repository, async || {
        let followed = origin
            .follow(connections, &Method::GET, &address, None, false)
            .await?;
        let response = followed.response.expect("only HEAD stops at the hub");
        if !response.status().is_success() {
            return Err(origin.refusal(&followed.address, response.status(), response.headers()));
        }
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        while let Some(more) = origin.next(&mut body).await? {
            if bytes.len() + more.len() > listing::MAX_BYTES {
                return Err(Trouble::passing("the list of files has no end"));
            }
            bytes.extend_from_slice(&more);
        }
        Listing::parse(&bytes)
            .ok_or_else(|| Trouble::passing("the answer is not the list of files of a model hub"))
    })
    .await
}

/// The size of a file that the listing has not.
async fn size_of(
    files: &Files,
    options: &HubOptions,
    connections: &mut Connections,
    name: &str,
) -> Result<u64, InstallError> {
    let address = files.address_of(name);
    patiently(&options.patience, name, async || {
        let origin = &files.origin;
        let followed = origin
            .follow(connections, &Method::HEAD, &address, None, true)
            .await?;
        if let Some(response) = &followed.response
            && !response.status().is_success()
        {
            return Err(origin.refusal(&followed.address, response.status(), response.headers()));
        }
        let size = exchange::text(&followed.headers, "x-linked-size")
            .or_else(|| exchange::text(&followed.headers, "content-length"));
        size.and_then(|size| size.parse().ok())
            .ok_or_else(|| Trouble::passing("the hub did not say how large it is"))
    })
    .await
}

/// Asks until there is an answer, or patience ends.
async fn patiently<T>(
    patience: &Patience,
    what: &str,
    mut ask: impl AsyncFnMut() -> Result<T, Trouble>,
) -> Result<T, InstallError> {
    let mut failures = 0;
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(Trouble::Final(error)) => return Err(error),
            Err(Trouble::Passing { reason, wait }) => {
                failures += 1;
                if failures >= patience.tries_to_begin() {
                    return Err(InstallError::Unreachable {
                        repository: what.to_owned(),
                        reason,
                    });
                }
                tokio::time::sleep(patience.wait(failures, wait)).await;
            }
        }
    }
}
