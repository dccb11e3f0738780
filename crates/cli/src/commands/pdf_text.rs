//! `ouzel pdf-text`: the text of a PDF file, in a process of its own, because a file from anywhere may take any memory and any time.

use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use lopdf::Document;
use ouzel_server::documents::{Documents, MAX_DOCUMENT_BYTES, MAX_TEXT_BYTES};

use crate::exit::usage;

/// The command's name.
const NAME: &str = "pdf-text";
/// A file that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at the process.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs the command.
pub fn run() -> anyhow::Result<()> {
    let mut pdf = Vec::new();
    let mut limited = io::stdin().lock().take(MAX_DOCUMENT_BYTES as u64);
    limited.read_to_end(&mut pdf).context("standard input")?;
    let text = text_of(&pdf)?;
    io::stdout()
        .write_all(text.as_bytes())
        .context("standard output")
}

fn text_of(pdf: &[u8]) -> anyhow::Result<String> {
    let document =
        Document::load_mem(pdf).map_err(|_| usage("this is no PDF file, or a damaged one"))?;
    if document.is_encrypted() {
        return Err(usage("this PDF file wants a password; save it without one"));
    }
    let mut text = String::new();
    for page in document.get_pages().into_keys() {
        // A page whose fonts say nothing of letters has no text; others may.
        let found = document.extract_text(&[page]).unwrap_or_default();
        let found = found.trim();
        if !found.is_empty() {
            text.push_str(found);
            text.push_str("\n\n");
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(usage(
                "the text of this PDF file is too long for any conversation",
            ));
        }
    }
    if text.trim().is_empty() {
        return Err(usage(
            "this PDF file has no text: its pages may be pictures",
        ));
    }
    Ok(text)
}

/// Has another process of this program read them.
pub struct InProcess;

impl Documents for InProcess {
    fn text_of_pdf(&self, pdf: Vec<u8>) -> Result<String, String> {
        let failed = |error: io::Error| format!("the PDF file could not be read: {error}");
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .arg(NAME)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            scope.spawn(move || {
                // One that gives the file up reads no more of it.
                stdin.map(|mut stdin| stdin.write_all(&pdf))
            });
            let text = scope.spawn(move || whole(stdout));
            let line = scope.spawn(move || whole(stderr));
            let is_done = wait(&mut child).map_err(failed)?;
            let join = |read: thread::ScopedJoinHandle<'_, String>| read.join().unwrap_or_default();
            let (text, line) = (join(text), join(line));
            match is_done {
                Some(true) => Ok(text),
                Some(false) => Err(line.trim().trim_start_matches("ouzel: ").to_owned()),
                None => Err(format!(
                    "the PDF file was given up after {} s",
                    PATIENCE.as_secs()
                )),
            }
        })
    }
}

/// Whether it ended well; nothing where it was ended, because it took too long.
fn wait(child: &mut Child) -> io::Result<Option<bool>> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if since.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
}

/// All that it says, up to more than is taken.
fn whole(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    // What cannot be read is what there is.
    let _ = pipe.map(|pipe| pipe.take(2 * MAX_TEXT_BYTES as u64).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_pdf_is_refused_in_words() {
        for bytes in [b"".as_slice(), b"%PDF-1.7\n", b"\x89PNG\r\n"] {
            let error = text_of(bytes).expect_err("it is none");
            assert!(error.to_string().contains("no PDF file"), "{error}");
        }
    }
}
