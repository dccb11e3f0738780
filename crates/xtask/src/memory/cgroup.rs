//! A memory cgroup, version 1 where it is mounted, else version 2.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// Where version 1 keeps its memory groups.
const V1: &str = "/sys/fs/cgroup/memory";
/// The root of version 2.
const V2: &str = "/sys/fs/cgroup";

/// A group that is removed when it is dropped.
pub struct Cgroup {
    path: PathBuf,
    is_v1: bool,
}

impl Cgroup {
    /// Makes an empty group.
    pub fn new(name: &str) -> anyhow::Result<Cgroup> {
        let is_v1 = Path::new(V1).join("memory.limit_in_bytes").exists();
        let root = Path::new(if is_v1 { V1 } else { V2 });
        ensure!(
            is_v1 || root.join("cgroup.controllers").exists(),
            "this system has no cgroups"
        );
        let path = root.join(format!("ouzel-{name}-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        let group = Cgroup { path, is_v1 };
        let peak = group
            .peak()
            .context("the memory controller does not count here")?;
        ensure!(peak < 1 << 20, "a new group holds {peak} bytes already");
        Ok(group)
    }

    /// The file that a process writes its number into to join.
    pub fn processes(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Allows the group `bytes` and no swap.
    pub fn limit(&self, bytes: u64) -> anyhow::Result<()> {
        // Limits are whole pages, rounded down.
        let bytes = bytes.to_string();
        if self.is_v1 {
            self.write("memory.limit_in_bytes", &bytes)?;
            // Only where swap is counted there is something to forbid; elsewhere swap is off or the peak shows it.
            if self.path.join("memory.memsw.limit_in_bytes").exists() {
                self.write("memory.memsw.limit_in_bytes", &bytes)?;
            }
            self.write("memory.swappiness", "0")
        } else {
            self.write("memory.max", &bytes)?;
            self.write("memory.swap.max", "0")
        }
    }

    /// The most bytes the group ever held.
    pub fn peak(&self) -> anyhow::Result<u64> {
        let name = if self.is_v1 {
            "memory.max_usage_in_bytes"
        } else {
            "memory.peak"
        };
        let text = fs::read_to_string(self.path.join(name)).with_context(|| name.to_owned())?;
        text.trim().parse().with_context(|| name.to_owned())
    }

    fn write(&self, name: &str, value: &str) -> anyhow::Result<()> {
        fs::write(self.path.join(name), value).with_context(|| format!("{name} = {value}"))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A group that stays behind is empty and costs nothing; pages that a file left in it go to its parent.
        let _ = fs::remove_dir(&self.path);
    }
}
