//! One connection: TCP, perhaps through a proxy, TLS where the address asks for it, and HTTP/1.1 on top.
//!
//! Each worker has its own, so there is no pool: what a connection may hold in memory is what one request holds.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::address::{Authority, host_and_port};
use crate::InstallError;

/// The HTTP library reads into a buffer of at most this size, headers included.
pub const READ_BUFFER_BYTES: usize = 64 << 10;
/// The longest answer of a proxy before the tunnel begins.
const MAX_PROXY_ANSWER_BYTES: usize = 8 << 10;

/// A request without a body can be sent here.
pub type Sender = SendRequest<Empty<Bytes>>;

/// A proxy that tunnels encrypted connections.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    host_and_port: String,
    /// The value of a `Proxy-Authorization` header.
    credentials: Option<String>,
    /// Hosts, or ends of hosts, that are reached without it.
    except: Vec<String>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({})", self.host_and_port)
    }
}

impl Proxy {
    /// A proxy as environments name it, `http://[user:password@]host:port`, and a list of hosts without it, as `NO_PROXY` has it.
    ///
    /// # Errors
    /// [`InstallError::Address`].
    pub fn parse(text: &str, no_proxy: &str) -> Result<Proxy, InstallError> {
        let refuse = || InstallError::Address {
            text: super::address::shown(text),
            reason: "a proxy is named http://host:port; other kinds are not supported".to_owned(),
        };
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return Err(refuse()),
            None => text,
        };
        let rest = rest.trim_end_matches('/');
        let (credentials, host) = match rest.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, rest),
        };
        let (host, port) = host_and_port(host, 80).ok_or_else(refuse)?;
        let credentials = credentials.map(decode_percent);
        let except = no_proxy.split(',').map(|host| {
            let host = host.trim().trim_start_matches("*.").trim_start_matches('.');
            host.to_ascii_lowercase()
        });
        let proxy = Authority {
            is_https: false,
            host,
            port,
        };
        Ok(Proxy {
            host_and_port: proxy.host_and_port(),
            credentials: credentials.map(|both| format!("Basic {}", base64(&both))),
            except: except.filter(|host| !host.is_empty()).collect(),
        })
    }

    fn serves(&self, authority: &Authority) -> bool {
        let host = authority.host.as_str();
        let is_excepted = |except: &String| {
            except == "*"
                || host == except
                || host
                    .strip_suffix(except.as_str())
                    .is_some_and(|rest| rest.ends_with('.'))
        };
        authority.is_https && !authority.is_loopback() && !self.except.iter().any(is_excepted)
    }
}

/// How connections are made.
#[derive(Clone)]
pub struct Connector {
    tls: Option<Arc<ClientConfig>>,
    proxy: Option<Proxy>,
    stall: Duration,
}

impl Connector {
    /// Trusts the certificate authorities that browsers trust, and those of a PEM file.
    ///
    /// # Errors
    /// [`InstallError::Address`] about a file that holds no certificate.
    pub fn new(
        extra_certificates: Option<&[u8]>,
        proxy: Option<Proxy>,
        stall: Duration,
    ) -> Result<Connector, InstallError> {
        let mut roots = RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        if let Some(pem) = extra_certificates {
            let found = CertificateDer::pem_slice_iter(pem).flatten();
            let (added, _) = roots.add_parsable_certificates(found);
            if added == 0 {
                return Err(InstallError::Address {
                    text: "the file of certificates".to_owned(),
                    reason: "holds no PEM certificate".to_owned(),
                });
            }
        }
        let tls = has_instructions().then(|| {
            let provider = Arc::new(rustls_graviola::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("the provider has the suites of TLS 1.2 and 1.3")
                .with_root_certificates(roots)
                .with_no_client_auth();
            Arc::new(config)
        });
        Ok(Connector { tls, proxy, stall })
    }

    /// Connects; the connection lives until its sender is dropped.
    ///
    /// # Errors
    /// What went wrong, in words; all of it may go better next time.
    pub async fn connect(&self, authority: &Authority) -> Result<Sender, String> {
        let connecting = timeout(self.stall, self.open(authority));
        connecting
            .await
            .map_err(|_| format!("no connection within {} s", self.stall.as_secs()))?
    }

    async fn open(&self, authority: &Authority) -> Result<Sender, String> {
        let proxy = self.proxy.as_ref().filter(|proxy| proxy.serves(authority));
        let target = authority.host_and_port();
        let reached = proxy.map_or(&target, |proxy| &proxy.host_and_port);
        let kind = if proxy.is_some() { "proxy " } else { "" };
        let mut tcp = TcpStream::connect(reached)
            .await
            .map_err(|error| format!("{kind}{reached}: {error}"))?;
        // Requests are one small write each; waiting for a second one only delays them.
        let _ = tcp.set_nodelay(true);
        if let Some(proxy) = proxy {
            tunnel(&mut tcp, proxy, &target).await?;
        }
        if !authority.is_https {
            return handshake(tcp).await;
        }
        let tls = self.tls.clone().ok_or(
            "https needs a processor with AES, AVX2, BMI2 and ADX instructions; download the checkpoint with \
             another tool and use --from",
        )?;
        let name =
            ServerName::try_from(authority.host.clone()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(tls)
            .connect(name, tcp)
            .await
            .map_err(|error| format!("{}: {error}", authority.host))?;
        handshake(stream).await
    }
}

async fn handshake<S>(stream: S) -> Result<Sender, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(READ_BUFFER_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    // What goes wrong there is told to whoever waits for an answer.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

async fn tunnel(tcp: &mut TcpStream, proxy: &Proxy, target: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("proxy {}: {error}", proxy.host_and_port);
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(credentials) = &proxy.credentials {
        request.push_str(&format!("Proxy-Authorization: {credentials}\r\n"));
    }
    request.push_str("\r\n");
    tcp.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    // Byte by byte: what follows the empty line belongs to the tunnel.
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() == MAX_PROXY_ANSWER_BYTES {
            return Err(format!(
                "proxy {}: its answer has no end",
                proxy.host_and_port
            ));
        }
        answer.push(tcp.read_u8().await.map_err(failed)?);
    }
    let line = String::from_utf8_lossy(&answer);
    let line = line.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some("200") => Ok(()),
        _ => Err(format!(
            "proxy {} answered {:?}",
            proxy.host_and_port,
            line.chars().take(80).collect::<String>()
        )),
    }
}

/// Whether the processor has what the cryptography is written in: x86-64 since 2014, ARM with the cryptographic extension.
fn has_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("aes")
        && is_x86_feature_detected!("ssse3")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("adx");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("sha2")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

fn decode_percent(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let digits = others
            .get(..2)
            .and_then(|two| std::str::from_utf8(two).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(code) if *first == b'%' => {
                bytes.push(code);
                rest = &others[2..];
            }
            _ => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    bytes
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut three = [0; 3];
        three[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= chunk.len() { digit.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_read() {
        let proxy = Proxy::parse(
            "http://me:p%40ss@Proxy.example:3128/",
            "a.example, .b.example",
        )
        .expect("a proxy");
        assert_eq!(proxy.host_and_port, "proxy.example:3128");
        assert_eq!(proxy.credentials.as_deref(), Some("Basic bWU6cEBzcw=="));
        for (host, expected) in [
            ("a.example", false),
            ("x.b.example", false),
            ("xb.example", true),
            ("hub.example", true),
            ("localhost", false),
        ] {
            let authority = Authority {
                is_https: true,
                host: host.to_owned(),
                port: 443,
            };
            assert_eq!(proxy.serves(&authority), expected, "{host}");
        }
        assert!(
            !format!("{proxy:?}").contains("bWU6"),
            "credentials stay out of logs"
        );
        let proxy = Proxy::parse("http://[::1]:3128", "").expect("a proxy");
        assert_eq!(proxy.host_and_port, "[::1]:3128");
        let error = Proxy::parse("socks5://me:secret@h:1", "").expect_err("another kind");
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn base64_has_its_padding() {
        for (bytes, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(bytes.as_bytes()), expected);
        }
    }
}
