//! The browser that the person has, by the program with which each system opens addresses.

use std::io;
use std::process::{Command, Stdio};

/// Opens an address, and does not wait for it.
pub fn open(address: &str) -> io::Result<()> {
    let mut command = opener();
    let child = command
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // Somebody has to take its exit status; what it is does not matter, because the address was printed.
    std::thread::spawn(move || {
        let mut child = child;
        child.wait()
    });
    Ok(())
}

#[cfg(target_os = "macos")]
fn opener() -> Command {
    Command::new("open")
}

/// `start` is part of the shell, which would take `&` in an address for its own.
#[cfg(windows)]
fn opener() -> Command {
    let mut command = Command::new("rundll32");
    command.arg("url.dll,FileProtocolHandler");
    command
}

#[cfg(not(any(target_os = "macos", windows)))]
fn opener() -> Command {
    Command::new("xdg-open")
}
