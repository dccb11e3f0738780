//! The read loop against a reader that says what a system may say.

use std::fs::File;
use std::io;
use std::path::Path;

use super::{IoMode, PositionedFile, ReadMode, fill};
use crate::StorageError;

/// One answer of the system to one read.
enum Answer {
    Bytes(usize),
    Error(io::ErrorKind),
}

use Answer::{Bytes, Error};

/// How many bytes came, or how many came before the error or the end.
type Outcome = Result<usize, (usize, Option<io::ErrorKind>)>;
/// The reads that were made, as (offset, length).
type Reads = Vec<(u64, usize)>;

/// Asks for `expected` of 16 bytes at offset 100.
fn check(answers: Vec<Answer>, expected: usize, granularity: usize) -> (Outcome, Reads) {
    let mut answers = answers.into_iter();
    let mut reads = Vec::new();
    let mut buf = [0; 16];
    let result = fill(
        |buf, at| {
            reads.push((at, buf.len()));
            match answers.next().expect("one read too many") {
                Bytes(n) => Ok(n),
                Error(kind) => Err(kind.into()),
            }
        },
        &mut buf,
        100,
        expected,
        granularity,
    );
    let result = result.map_err(|stop| (stop.done, stop.error.map(|error| error.kind())));
    (result, reads)
}

#[test]
fn short_and_interrupted_reads_go_on_where_they_stopped() {
    let answers = vec![
        Bytes(5),
        Error(io::ErrorKind::Interrupted),
        Bytes(1),
        Bytes(10),
    ];
    let (result, reads) = check(answers, 16, 1);
    assert_eq!(result, Ok(16));
    assert_eq!(reads, [(100, 16), (105, 11), (105, 11), (106, 10)]);
}

#[test]
fn the_end_of_the_file_and_errors_say_how_far_it_went() {
    assert_eq!(check(vec![Bytes(0)], 16, 1).0, Err((0, None)));
    assert_eq!(check(vec![Bytes(7), Bytes(0)], 16, 1).0, Err((7, None)));
    let kind = io::ErrorKind::Other;
    let (result, _) = check(vec![Bytes(7), Error(kind)], 16, 1);
    assert_eq!(result, Err((7, Some(kind))));
}

#[test]
fn the_last_direct_read_may_be_short_only_behind_what_was_asked_for() {
    assert_eq!(check(vec![Bytes(9)], 9, 4).0, Ok(9));
    assert_eq!(check(vec![Bytes(9)], 10, 4).0, Err((9, None)));
    assert_eq!(check(vec![Bytes(8), Bytes(2)], 10, 4).0, Ok(10));
    assert_eq!(check(vec![], 0, 4).0, Ok(0));
}

#[test]
fn auto_goes_through_the_page_cache_where_direct_reads_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("file");
    let bytes: Vec<u8> = (0..9000u32).map(|i| i as u8).collect();
    std::fs::write(&path, &bytes).expect("a file");
    let refused = |_: &Path| -> io::Result<File> { Err(io::ErrorKind::InvalidInput.into()) };
    let file = PositionedFile::open_with(&path, IoMode::Auto, refused).expect("the other way");
    assert_eq!(file.mode(), ReadMode::Dropping);
    // No alignment is asked for, and reading again what was dropped gives the same.
    for _ in 0..2 {
        let mut buf = vec![0; 5000];
        file.read_exact_at(&mut buf, 3001).expect("a read");
        assert_eq!(buf, bytes[3001..8001]);
    }
    let error = PositionedFile::open_with(&path, IoMode::Direct, refused).expect_err("a demand");
    assert!(error.to_string().contains("file"), "{error}");
    let file = PositionedFile::open_with(&path, IoMode::Buffered, refused).expect("as asked");
    assert_eq!(file.mode(), ReadMode::Buffered);
}

/// The only file of a healthy Linux that fails with EIO: the process's own memory, where nothing is mapped.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_error_names_file_and_place() {
    let path = Path::new("/proc/self/mem");
    let file = PositionedFile::open(path, IoMode::Buffered).expect("every process has one");
    let error = file.read_exact_at(&mut [0; 16], 0).expect_err("EIO");
    let StorageError::Read {
        path: at,
        offset: 0,
        expected: 16,
        actual: 0,
        source,
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((at.as_path(), source.raw_os_error()), (path, Some(5)));
    assert!(error.to_string().contains("/proc/self/mem"), "{error}");
}
