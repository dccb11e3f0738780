//! The files of one revision: where each is stored at the moment, and how its bytes are asked for.

use std::collections::BTreeMap;

use hyper::Method;
use tokio::sync::Mutex;

use super::address::{Address, Authority, encode, shown};
use super::exchange::{Connections, Followed, Origin, Trouble, Wanted, entity, text, unquoted};
use super::pipe::Out;
use crate::InstallError;

/// The files of a commit.
pub struct Files {
    /// Who has them.
    pub origin: Origin,
    /// Which commit.
    pub commit: String,
    /// By name.
    pub files: BTreeMap<String, File>,
}

/// One file.
pub struct File {
    /// In bytes.
    pub size: u64,
    /// What the hub calls its content.
    pub entity: Option<String>,
    /// Where it is stored; one worker at a time asks.
    pub place: Mutex<Place>,
}

/// Where a file is stored, and what was seen of it.
#[derive(Default)]
pub struct Place {
    /// Perhaps signed, and then good for a while only.
    address: Option<Address>,
    /// What the hub called its content.
    named: Option<String>,
    /// What each host called its content.
    entities: BTreeMap<Authority, String>,
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Of which file.
    pub file: &'a str,
    /// Where they start.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

impl Files {
    /// The address of a file at the hub itself.
    pub fn address_of(&self, name: &str) -> Address {
        resolve_address(&self.origin, &self.commit, name)
    }

    /// The file of that name, which the caller knows to be there.
    fn file(&self, name: &str) -> Result<&File, Trouble> {
        let missing = || InstallError::Source {
            file: name.to_owned(),
            reason: "is not in the repository".to_owned(),
        };
        Ok(self.files.get(name).ok_or_else(missing)?)
    }

    /// Where a file is stored now.
    async fn locate(&self, connections: &mut Connections, name: &str) -> Result<Address, Trouble> {
        let file = self.file(name)?;
        let mut place = file.place.lock().await;
        if let Some(address) = &place.address {
            return Ok(address.clone());
        }
        let start = self.address_of(name);
        let followed = self
            .origin
            .follow(connections, &Method::HEAD, &start, None, true)
            .await?;
        if let Some(response) = &followed.response
            && !response.status().is_success()
        {
            let refusal =
                self.origin
                    .refusal(&followed.address, response.status(), response.headers());
            return Err(refusal);
        }
        let named = self.check(name, file, &followed)?;
        if let (Some(before), Some(now)) = (&place.named, &named)
            && before != now
        {
            return Err(foreign(name, "its content changed at the hub").into());
        }
        place.named = place.named.take().or(named);
        place.address = Some(followed.address.clone());
        Ok(followed.address)
    }

    /// Compares what the hub says about a file with what it said before, and gives the name of its content.
    fn check(
        &self,
        name: &str,
        file: &File,
        followed: &Followed,
    ) -> Result<Option<String>, Trouble> {
        let headers = &followed.headers;
        match text(headers, "x-repo-commit") {
            Some(commit) if commit == self.commit => {}
            Some(commit) => {
                let reason = format!("commit {} came instead of {}", shown(commit), self.commit);
                return Err(foreign(name, &reason).into());
            }
            None => return Err(Trouble::passing("the hub did not say which commit it is")),
        }
        let length = || text(headers, "content-length").filter(|_| followed.response.is_some());
        let size = text(headers, "x-linked-size").or_else(length);
        if let Some(size) = size.filter(|size| *size != file.size.to_string()) {
            let reason = format!("has {} bytes instead of {}", shown(size), file.size);
            return Err(foreign(name, &reason).into());
        }
        let direct = || entity(headers).filter(|_| followed.response.is_some());
        let linked = text(headers, "x-linked-etag").map(unquoted);
        let named = linked.or_else(direct).map(str::to_owned);
        if let (Some(listed), Some(named)) = (&file.entity, &named)
            && listed.len() == named.len()
            && listed != named
        {
            let reason = format!("has the content {} instead of {listed}", shown(named));
            return Err(foreign(name, &reason).into());
        }
        Ok(named)
    }

    /// Forgets where a file is stored, if it is still there.
    pub async fn forget(&self, name: &str, address: Option<&Address>) {
        if let Some(file) = self.files.get(name) {
            let mut place = file.place.lock().await;
            if place.address.as_ref() == address {
                place.address = None;
            }
        }
    }

    /// Asks for bytes once and hands them to `out`, without the first `skip` of them. `done` counts what was handed over.
    pub async fn bring(
        &self,
        connections: &mut Connections,
        part: &Part<'_>,
        out: &mut Out<'_>,
        done: &mut u64,
    ) -> Result<(), Trouble> {
        let address = self.locate(connections, part.file).await?;
        let result = self
            .bring_from(&address, connections, part, out, done)
            .await;
        if result.is_err() {
            self.forget(part.file, Some(&address)).await;
        }
        result
    }

    async fn bring_from(
        &self,
        address: &Address,
        connections: &mut Connections,
        part: &Part<'_>,
        out: &mut Out<'_>,
        done: &mut u64,
    ) -> Result<(), Trouble> {
        let file = self.file(part.file)?;
        let is_whole = part.len == file.size;
        // A whole file is asked for as such and its beginning is passed over; of another one only what is missing.
        let mut skip = if is_whole { *done } else { 0 };
        let missing = part.len - *done;
        let mut wanted = Wanted {
            offset: if is_whole { 0 } else { part.offset + *done },
            len: if is_whole { part.len } else { missing },
            size: file.size,
            entity: None,
            commit: &self.commit,
        };
        let followed = self
            .origin
            .follow(connections, &Method::GET, address, wanted.range(), false)
            .await?;
        let response = followed.response.expect("only HEAD stops at the hub");
        if !response.status().is_success() {
            let refusal =
                self.origin
                    .refusal(&followed.address, response.status(), response.headers());
            return Err(refusal);
        }
        let authority = &followed.address.authority;
        let known = file.place.lock().await.entities.get(authority).cloned();
        wanted.entity = known.as_deref();
        wanted.check(&response)?;
        if known.is_none()
            && let Some(now) = entity(response.headers())
        {
            let mut place = file.place.lock().await;
            place.entities.insert(authority.clone(), now.to_owned());
        }
        let mut body = response.into_body();
        let mut came = 0;
        while let Some(bytes) = self.origin.next(&mut body).await? {
            came += bytes.len() as u64;
            if came > wanted.len {
                return Err(Trouble::passing("more bytes came than were announced"));
            }
            let passed = skip.min(bytes.len() as u64);
            skip -= passed;
            let bytes = &bytes[passed as usize..];
            out.put(bytes).await?;
            *done += bytes.len() as u64;
        }
        match came == wanted.len {
            true => Ok(()),
            false => Err(Trouble::passing(format!(
                "the answer ended after {came} of {} bytes",
                wanted.len
            ))),
        }
    }
}

/// The address of a file of a revision at the hub itself.
pub fn resolve_address(origin: &Origin, revision: &str, name: &str) -> Address {
    let Address { authority, path } = &origin.endpoint;
    Address {
        authority: authority.clone(),
        path: format!(
            "{path}{}/resolve/{}/{}",
            origin.repository,
            encode(revision),
            encode(name)
        ),
    }
}

fn foreign(name: &str, reason: &str) -> InstallError {
    InstallError::Foreign {
        file: name.to_owned(),
        reason: reason.to_owned(),
    }
}
