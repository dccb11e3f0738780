//! https through a proxy: two hosts that exist nowhere, behind a tunnel on loopback.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ouzel_hub::{COMMIT, Hub as Loopback, Options, REPOSITORY};
use ouzel_install::{Hub, HubOptions, InstallError, Patience, Proxy, Token};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{checkpoint, disk, install_on, output};

fn data(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tls");
    root.join(name)
}

/// What a proxy was asked, line by line.
type Heard = Arc<Mutex<Vec<String>>>;

/// A proxy that takes every host for the hub on loopback and encrypts with the certificate of the tests.
struct Tunnel {
    /// Ends it when it is dropped.
    _runtime: Runtime,
    port: u16,
    heard: Heard,
}

impl Tunnel {
    fn to(endpoint: &str) -> Tunnel {
        let runtime = Runtime::new().expect("threads");
        let target = endpoint.trim_start_matches("http://").to_owned();
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let heard = Heard::default();
        let own = heard.clone();
        runtime.spawn(async move {
            let acceptor = acceptor();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, target, heard) = (acceptor.clone(), target.clone(), own.clone());
                tokio::spawn(serve(stream, acceptor, target, heard));
            }
        });
        Tunnel {
            _runtime: runtime,
            port,
            heard,
        }
    }
}

fn acceptor() -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(data("certificate.pem")).expect("a file");
    let chain = chain.map(|der| der.expect("a certificate")).collect();
    let key = PrivateKeyDer::from_pem_file(data("key.pem")).expect("a key");
    let provider = Arc::new(rustls_graviola::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate and its key");
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(mut stream: TcpStream, acceptor: TlsAcceptor, target: String, heard: Heard) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a question"));
    }
    let head = String::from_utf8(head).expect("text");
    heard.lock().expect("a list").push(head);
    let answer = b"HTTP/1.1 200 Connection established\r\n\r\n";
    stream.write_all(answer).await.expect("a client");
    // One that does not like the certificate hangs up.
    let Ok(mut stream) = acceptor.accept(stream).await else {
        return;
    };
    let mut plain = TcpStream::connect(target).await.expect("a hub");
    let _ = copy_bidirectional(&mut stream, &mut plain).await;
}

#[test]
fn https_through_a_proxy_gives_the_same_bytes_and_keeps_the_token() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    let terms = Options {
        token: Some("hf_secret".to_owned()),
        storage: Some("https://storage.test".to_owned()),
        ..Options::default()
    };
    let loopback = Loopback::serve(&root, terms).expect("a port");
    let tunnel = Tunnel::to(&loopback.endpoint());
    let proxy = format!("http://me:secret@127.0.0.1:{}", tunnel.port);
    let mut options = HubOptions {
        endpoint: "https://hub.test".to_owned(),
        token: Some(Token::parse("hf_secret").expect("a token")),
        proxy: Some(Proxy::parse(&proxy, "").expect("a proxy")),
        patience: Patience {
            tries: 2,
            first_wait: std::time::Duration::from_millis(1),
            longest_wait: std::time::Duration::from_millis(1),
        },
        ..HubOptions::new(REPOSITORY, COMMIT)
    };
    let error = Hub::open(&options)
        .err()
        .expect("nobody trusts the certificate");
    assert!(matches!(error, InstallError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");

    options.certificates = Some(fs::read(data("authority.pem")).expect("a file"));
    let hub = Hub::open(&options).expect("a hub");
    let (fetched, expected) = (disk(), disk());
    install_on(&fetched, &hub);
    install_on(&expected, &checkpoint("models/demo"));
    let payload = |disk: &ouzel_storage::sim::SimDisk| {
        let mut files = disk.files_below(&output());
        files.remove(Path::new("verified-install.json"));
        files
    };
    assert!(payload(&fetched) == payload(&expected));
    for ask in loopback.asks() {
        assert_eq!(ask.has_token, ask.host == "hub.test", "{ask:?}");
    }
    let heard = tunnel.heard.lock().expect("a list");
    for host in ["CONNECT hub.test:443 ", "CONNECT storage.test:443 "] {
        let asked = heard.iter().find(|head| head.starts_with(host));
        let asked = asked.unwrap_or_else(|| panic!("{host}"));
        assert!(asked.contains("Proxy-Authorization: Basic bWU6c2VjcmV0"));
        assert!(!asked.contains("hf_secret"));
    }
}
