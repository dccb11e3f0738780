//! As much of HTTP/1.1 as a hub needs.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;

/// A question as it came.
#[derive(Debug)]
pub struct Question {
    /// `GET` or `HEAD`.
    pub method: String,
    /// Path and query.
    pub target: String,
    headers: Vec<(String, String)>,
}

impl Question {
    /// Reads the next question; `None` when the client closed the connection.
    pub fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Question>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (method, target) = (words.next(), words.next());
        let mut question = Question {
            method: method.unwrap_or_default().to_owned(),
            target: target.unwrap_or_default().to_owned(),
            headers: Vec::new(),
        };
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim_end();
            if line.is_empty() {
                return Ok(Some(question));
            }
            if let Some((name, value)) = line.split_once(':') {
                let header = (name.to_ascii_lowercase(), value.trim().to_owned());
                question.headers.push(header);
            }
        }
    }

    /// A header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The first and the last byte of a range.
    pub fn range(&self) -> Option<(u64, u64)> {
        let range = self.header("range")?.strip_prefix("bytes=")?;
        let (first, last) = range.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    }
}

/// The head of an answer.
#[derive(Debug)]
pub struct Head(String);

impl Head {
    /// With this status.
    pub fn new(status: u16) -> Head {
        Head(format!("HTTP/1.1 {status} Whatever\r\n"))
    }

    /// And this header.
    pub fn with(mut self, name: &str, value: impl std::fmt::Display) -> Head {
        self.0.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Sends it.
    pub fn send(self, stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(format!("{}\r\n", self.0).as_bytes())
    }
}
