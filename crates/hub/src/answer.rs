//! The answers of the hub and of its storage, right or wrong.

use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::content::Content;
use crate::http::{Head, Question};
use crate::{Ask, COMMIT, Fault, Kind, REPOSITORY, Shared};

/// Answers every question of a connection.
pub fn serve(shared: &Shared, mut stream: TcpStream) -> io::Result<()> {
    let result = serve_all(shared, &mut stream);
    shared.close(&stream)?;
    result
}

fn serve_all(shared: &Shared, stream: &mut TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    stream.set_nodelay(true)?;
    while let Some(question) = Question::read(&mut reader)? {
        let mut answer = Answer {
            shared,
            stream,
            question: &question,
        };
        if !answer.give()? {
            return Ok(());
        }
    }
    Ok(())
}

struct Answer<'a> {
    shared: &'a Shared,
    stream: &'a mut TcpStream,
    question: &'a Question,
}

/// Which bytes are sent, and what is said about them.
struct Body<'a> {
    content: &'a Content,
    offset: u64,
    len: u64,
    /// The length that is announced.
    announced: u64,
    tag: String,
}

impl Answer<'_> {
    /// Answers; false closes the connection.
    fn give(&mut self) -> io::Result<bool> {
        let (path, query) = self
            .question
            .target
            .split_once('?')
            .unwrap_or((&self.question.target, ""));
        let api = format!("/api/models/{REPOSITORY}/revision/");
        let resolve = format!("/{REPOSITORY}/resolve/{COMMIT}/");
        if let Some(revision) = path.strip_prefix(&api) {
            return self.listing(revision);
        }
        if let Some(name) = path.strip_prefix(&resolve) {
            return self.resolve(name);
        }
        if let Some(name) = path.strip_prefix("/stored/") {
            return self.stored(name, query);
        }
        self.refuse(404, None)
    }

    fn ask(&self, kind: Kind, file: &str) -> Ask {
        Ask {
            n: 0,
            kind,
            file: file.to_owned(),
            range: self.question.range(),
            host: self.question.header("host").unwrap_or_default().to_owned(),
            has_token: self.question.header("authorization").is_some(),
        }
    }

    /// Whether the token is the right one, where one is needed.
    fn is_welcome(&self) -> bool {
        let given = self.question.header("authorization");
        self.shared.options.token.as_ref().is_none_or(|token| {
            given.is_some_and(|given| given.strip_prefix("Bearer ") == Some(token.as_str()))
        })
    }

    fn listing(&mut self, revision: &str) -> io::Result<bool> {
        let fault = self.shared.note(self.ask(Kind::Listing, ""));
        if !self.is_welcome() {
            return self.refuse(401, None);
        }
        if ![COMMIT, "main"].contains(&revision) {
            Head::new(404)
                .with("X-Error-Code", "RevisionNotFound")
                .with("Content-Length", 0)
                .send(self.stream)?;
            return Ok(true);
        }
        let is_terse = self.shared.options.is_terse;
        let siblings = self.shared.files.iter().map(|(name, content)| {
            if is_terse {
                return json!({ "rfilename": name });
            }
            let mut sibling = json!({ "rfilename": name, "size": content.size });
            if content.is_large {
                sibling["lfs"] = json!({ "sha256": content.sha256, "size": content.size });
            } else {
                sibling["blobId"] = json!(content.sha256[..40]);
            }
            sibling
        });
        let commit = match fault {
            Some(Fault::OtherCommit) => "0".repeat(40),
            _ => COMMIT.to_owned(),
        };
        let body = json!({
            "id": REPOSITORY,
            "sha": commit,
            "siblings": siblings.collect::<Vec<_>>(),
            "cardData": { "license": "apache-2.0" },
        })
        .to_string();
        match fault {
            Some(Fault::Answers(status, wait)) => return self.refuse(status, wait),
            Some(Fault::WebPage) => return self.web_page(),
            Some(Fault::Stalls(_)) => {
                self.shared.stall();
                return Ok(false);
            }
            _ => {}
        }
        Head::new(200)
            .with("Content-Type", "application/json")
            .with("Content-Length", body.len())
            .send(self.stream)?;
        self.stream.write_all(body.as_bytes())?;
        Ok(true)
    }

    fn resolve(&mut self, name: &str) -> io::Result<bool> {
        let is_head = self.question.method == "HEAD";
        let kind = if is_head { Kind::Resolve } else { Kind::Data };
        let fault = self.shared.note(self.ask(kind, name));
        if !self.is_welcome() {
            return self.refuse(403, None);
        }
        let Some(content) = self.shared.files.get(name) else {
            return self.refuse(404, None);
        };
        if let Some(Fault::Answers(status, wait)) = fault {
            return self.refuse(status, wait);
        }
        let commit = match fault {
            Some(Fault::OtherCommit) => "0".repeat(40),
            _ => COMMIT.to_owned(),
        };
        if content.is_large {
            let generation = self.shared.generation.load(Ordering::Relaxed);
            let storage = self.shared.options.storage.clone();
            let storage =
                storage.unwrap_or_else(|| format!("http://localhost:{}", self.shared.port));
            let size = content.size + u64::from(fault == Some(Fault::OtherSize));
            let tag = match fault {
                Some(Fault::Swapped) => "f".repeat(64),
                _ => content.sha256.clone(),
            };
            Head::new(302)
                .with("X-Repo-Commit", commit)
                .with("X-Linked-Size", size)
                .with("X-Linked-Etag", format!("\"{tag}\""))
                .with(
                    "Location",
                    format!("{storage}/stored/{name}?signature={generation}"),
                )
                .with("Content-Length", 0)
                .send(self.stream)?;
            return Ok(true);
        }
        if is_head {
            Head::new(200)
                .with("X-Repo-Commit", commit)
                .with("ETag", format!("\"{}\"", &content.sha256[..40]))
                .with("Content-Length", content.size)
                .send(self.stream)?;
            return Ok(true);
        }
        self.data(content, fault, Some(commit), &content.sha256[..40])
    }

    /// The storage: signed addresses at the other host name, and no token ever.
    fn stored(&mut self, name: &str, query: &str) -> io::Result<bool> {
        let fault = self.shared.note(self.ask(Kind::Data, name));
        if fault == Some(Fault::Expires) {
            self.shared.generation.fetch_add(1, Ordering::Relaxed);
        }
        let generation = self.shared.generation.load(Ordering::Relaxed);
        let Some(content) = self.shared.files.get(name) else {
            return self.refuse(404, None);
        };
        if query != format!("signature={generation}") {
            return self.refuse(403, None);
        }
        let commit = (fault == Some(Fault::OtherCommit)).then(|| "0".repeat(40));
        self.data(content, fault, commit, &content.sha256)
    }

    fn data(
        &mut self,
        content: &Content,
        fault: Option<Fault>,
        commit: Option<String>,
        tag: &str,
    ) -> io::Result<bool> {
        let range = self.question.range();
        let (offset, last) = range.unwrap_or((0, content.size.saturating_sub(1)));
        if last >= content.size && content.size > 0 {
            return self.refuse(416, None);
        }
        let len = if content.size == 0 {
            0
        } else {
            last - offset + 1
        };
        let mut body = Body {
            content,
            offset,
            len,
            announced: len,
            tag: tag.to_owned(),
        };
        let mut status = if range.is_some() { 206 } else { 200 };
        match &fault {
            Some(Fault::Answers(status, wait)) => return self.refuse(*status, *wait),
            Some(Fault::WebPage) => return self.web_page(),
            Some(Fault::WholeForRange) => {
                (status, body.offset, body.len) = (200, 0, content.size);
                body.announced = content.size;
            }
            Some(Fault::OtherRange) => body.offset = offset.saturating_sub(1),
            Some(Fault::Fewer(n)) => {
                body.len = len.saturating_sub(*n);
                body.announced = body.len;
            }
            Some(Fault::More(n)) => {
                body.len = (len + n).min(content.size - offset);
                body.announced = body.len;
            }
            Some(Fault::Swapped) => body.tag = "f".repeat(tag.len()),
            _ => {}
        }
        let end = (body.offset + body.len).saturating_sub(1);
        let mut head = Head::new(status)
            .with("ETag", format!("\"{}\"", body.tag))
            .with("Accept-Ranges", "bytes")
            .with("Content-Type", "binary/octet-stream")
            .with("Content-Length", body.announced);
        if status == 206 {
            let range = format!("bytes {}-{end}/{}", body.offset, content.size);
            head = head.with("Content-Range", range);
        }
        if fault == Some(Fault::Compressed) {
            head = head.with("Content-Encoding", "gzip");
        }
        if let Some(commit) = commit {
            head = head.with("X-Repo-Commit", commit);
        }
        head.send(self.stream)?;
        self.send(&body, fault)
    }

    fn send(&mut self, body: &Body<'_>, fault: Option<Fault>) -> io::Result<bool> {
        let until = match fault {
            Some(Fault::Truncates(n) | Fault::Stalls(n) | Fault::Resets(n)) => n.min(body.len),
            _ => body.len,
        };
        let rate = match fault {
            Some(Fault::Slow(rate)) => Some(rate),
            _ => self.shared.options.bytes_per_s,
        };
        let (begun, mut sent) = (Instant::now(), 0_u64);
        let (shared, stream) = (self.shared, &mut *self.stream);
        body.content.send(body.offset, until, &mut |bytes| {
            // A hub that is slow sends small pieces.
            for piece in bytes.chunks(if rate.is_some() {
                16 << 10
            } else {
                bytes.len()
            }) {
                stream.write_all(piece)?;
                sent += piece.len() as u64;
                let counted = &shared.bytes_sent;
                counted.fetch_add(piece.len() as u64, Ordering::Relaxed);
                if let Some(rate) = rate {
                    let due = Duration::from_secs_f64(sent as f64 / rate as f64);
                    thread::sleep(due.saturating_sub(begun.elapsed()));
                }
            }
            Ok(())
        })?;
        match fault {
            Some(Fault::Truncates(_)) => Ok(false),
            Some(Fault::Resets(_)) => {
                // Without lingering, the close is a reset.
                socket2::SockRef::from(&*stream).set_linger(Some(Duration::ZERO))?;
                Ok(false)
            }
            Some(Fault::Stalls(_)) => {
                shared.stall();
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    fn refuse(&mut self, status: u16, wait: Option<u64>) -> io::Result<bool> {
        let mut head = Head::new(status).with("Content-Length", 0);
        if let Some(seconds) = wait {
            head = head.with("Retry-After", seconds);
        }
        head.send(self.stream)?;
        Ok(true)
    }

    fn web_page(&mut self) -> io::Result<bool> {
        let page = "<!doctype html><title>Welcome to the hotel</title>";
        let (status, head) = match self.question.range() {
            Some((first, last)) => (206, Some(format!("bytes {first}-{last}/{}", page.len()))),
            None => (200, None),
        };
        let mut answer = Head::new(status)
            .with("Content-Type", "text/html; charset=utf-8")
            .with("Content-Length", page.len());
        if let Some(range) = head {
            answer = answer.with("Content-Range", range);
        }
        answer.send(self.stream)?;
        self.stream.write_all(page.as_bytes())?;
        Ok(true)
    }
}
