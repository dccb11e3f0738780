//! What the machine and its system call themselves, for reports. Each system keeps that in another place; what is not found is unknown.

use std::process::{Command, Stdio};

/// What stands for what no place knows.
const UNKNOWN: &str = "unknown";

/// The processor's name.
pub fn processor() -> String {
    field("/proc/cpuinfo", "model name")
        .or_else(|| said_by("sysctl", &["-n", "machdep.cpu.brand_string"]))
        .or_else(|| std::fs::read_to_string("/proc/device-tree/model").ok())
        .or_else(|| std::env::var("PROCESSOR_IDENTIFIER").ok())
        .map_or_else(|| UNKNOWN.to_owned(), |name| plain(&name))
}

/// Bytes of memory in the machine.
pub fn memory() -> Option<u64> {
    let kib = field("/proc/meminfo", "MemTotal");
    let kib = kib.and_then(|text| text.trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .or_else(|| said_by("sysctl", &["-n", "hw.memsize"])?.parse().ok())
}

/// The operating system with its release, and the family of the processor.
pub fn system() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .ok()
        .or_else(|| said_by("sw_vers", &["-productVersion"]))
        .or_else(|| said_by("cmd", &["/C", "ver"]))
        .map_or_else(|| UNKNOWN.to_owned(), |release| plain(&release));
    format!(
        "{} {release}, {}",
        std::env::consts::OS,
        std::env::consts::ARCH
    )
}

/// The value of the first line `key: value` of a file.
fn field(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// What a program prints, if it is there and succeeds.
fn said_by(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.args(args).stdin(Stdio::null()).output().ok()?;
    let text = plain(&String::from_utf8_lossy(&output.stdout));
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// One line of printable text that no table takes for its own.
fn plain(text: &str) -> String {
    let is_kept = |c: &char| !c.is_control() && *c != '|';
    text.chars()
        .filter(is_kept)
        .collect::<String>()
        .trim()
        .to_owned()
}
