//! A page that says why there is no page: for a person who started the program without a terminal and would see nothing else.
//!
//! It comes over loopback and not from a file, because browsers that live in a sandbox open no files of hidden folders. It is shown once, at an address
//! that nobody can guess, and then it is over. One connection is served after the other: there is one reader.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::page::secret;

/// A request's head that is longer is not a browser's.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// A connection that says nothing for this long is one that a browser keeps in reserve.
const SILENCE: Duration = Duration::from_millis(500);
/// Between two looks for a connection.
const PAUSE: Duration = Duration::from_millis(20);

/// What went wrong, in words.
pub struct Problem<'a> {
    /// What could not be done.
    pub title: &'a str,
    /// Why.
    pub error: &'a str,
    /// What helps, or where more is written down.
    pub advice: &'a str,
}

/// The page, listening.
pub struct ProblemPage {
    listener: TcpListener,
    path: String,
    document: String,
}

impl ProblemPage {
    /// Listens on a free port of loopback.
    ///
    /// # Errors
    /// What the system says where it gives no port or no random numbers.
    pub fn new(problem: &Problem<'_>) -> io::Result<ProblemPage> {
        let path = secret().map_err(|error| io::Error::other(error.to_string()))?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        Ok(ProblemPage {
            listener,
            path: format!("/{path}"),
            document: document(problem),
        })
    }

    /// What a browser opens.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> io::Result<String> {
        Ok(format!(
            "http://{}{}",
            self.listener.local_addr()?,
            self.path
        ))
    }

    /// Waits until it was shown; whether it was, in this time.
    pub fn show(&self, patience: Duration) -> bool {
        let began = Instant::now();
        while began.elapsed() < patience {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // Whoever breaks off has not seen it.
                    if self.serve(stream).unwrap_or(false) {
                        return true;
                    }
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        false
    }

    /// Answers one request; whether it was for the page.
    fn serve(&self, mut stream: TcpStream) -> io::Result<bool> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        let mut head = Vec::new();
        let mut part = [0; 1024];
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let n = stream.read(&mut part)?;
            if n == 0 || head.len() > MAX_HEAD_BYTES {
                return Ok(false);
            }
            head.extend_from_slice(&part[..n]);
        }
        let is_asked = head.starts_with(format!("GET {} ", self.path).as_bytes());
        let (status, body) = if is_asked {
            ("200 OK", self.document.as_str())
        } else {
            ("404 Not Found", "")
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nReferrer-Policy: no-referrer\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        // What was sent is lost if the connection is closed over something unread.
        let _ = stream.read(&mut part);
        Ok(is_asked)
    }
}

fn document(problem: &Problem<'_>) -> String {
    let [title, error, advice] = [problem.title, problem.error, problem.advice].map(escaped);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n\
         :root {{ color-scheme: light dark; font: 1rem/1.55 system-ui, sans-serif }}\n\
         body {{ max-width: 38rem; margin: 12vh auto; padding: 0 1.25rem; overflow-wrap: anywhere }}\n\
         h1 {{ font-size: 1.5rem; line-height: 1.25 }}\n\
         .error {{ border-left: 4px solid #b3541e; padding: .5rem 1rem; white-space: pre-wrap }}\n\
         </style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n<p class=\"error\">{error}</p>\n<p>{advice}</p>\n</main>\n</body>\n</html>\n"
    )
}

/// Text as HTML shows it.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut all, c| {
        match c {
            '&' => all.push_str("&amp;"),
            '<' => all.push_str("&lt;"),
            '>' => all.push_str("&gt;"),
            '"' => all.push_str("&quot;"),
            _ => all.push(c),
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(address: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn it_is_shown_once_as_text_and_to_nobody_who_guesses() {
        let problem = Problem {
            title: "Ouzel could not start",
            error: "<b>\"disk\" & more</b>",
            advice: "See the log.",
        };
        let page = ProblemPage::new(&problem).unwrap();
        let address = page.address().unwrap();
        let (at, path) = address
            .strip_prefix("http://")
            .unwrap()
            .split_once('/')
            .unwrap();
        let shown = std::thread::scope(|scope| {
            let shown = scope.spawn(|| page.show(Duration::from_secs(60)));
            // One that says nothing holds it up for a moment only.
            let silent = TcpStream::connect(at).unwrap();
            assert!(get(at, "/favicon.ico").starts_with("HTTP/1.1 404 "));
            let answer = get(at, &format!("/{path}"));
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            assert!(
                answer.contains("&lt;b&gt;&quot;disk&quot; &amp; more&lt;/b&gt;"),
                "{answer}"
            );
            drop(silent);
            shown.join().unwrap()
        });
        assert!(shown);
        assert!(!page.show(Duration::ZERO));
    }
}
