//! How much memory the control groups of this process leave: a container may have less than its machine.
//!
//! Both layouts: one tree with `memory.max`, and the older one with a tree for each controller. Every group up to the root may have a
//! limit. Files in the page cache count towards a group but make room when asked, so they are not held against it.

use std::path::{Path, PathBuf};

/// Where the groups are mounted nearly everywhere.
const ROOT: &str = "/sys/fs/cgroup";

/// The files of one layout.
struct Layout {
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat` that count what the page cache holds.
    cached: [&'static str; 2],
}

const UNIFIED: Layout = Layout {
    limit: "memory.max",
    usage: "memory.current",
    cached: ["inactive_file ", "active_file "],
};
const SPLIT: Layout = Layout {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cached: ["total_inactive_file ", "total_active_file "],
};

/// Bytes that may still be taken; `None` where no group has a limit.
pub fn room() -> Option<u64> {
    room_of(&|path| std::fs::read_to_string(path).ok())
}

/// The same with the files that `read` gives.
fn room_of(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let rooms = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (layout, mount) = match controllers {
            "" => (&UNIFIED, PathBuf::from(ROOT)),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (&SPLIT, Path::new(ROOT).join("memory"))
            }
            _ => return None,
        };
        // A container may see a path of its machine that is not there; the mount itself is then its group.
        let group = mount.join(path.trim_start_matches('/'));
        let of_one = |group: &Path| layout.room(group, read);
        let groups = group.ancestors().take_while(|at| at.starts_with(&mount));
        groups.filter_map(of_one).min()
    });
    rooms.min()
}

impl Layout {
    fn room(&self, group: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
        let number = |file| -> Option<u64> { read(&group.join(file))?.trim().parse().ok() };
        let (limit, usage) = (number(self.limit)?, number(self.usage)?);
        let stat = read(&group.join("memory.stat")).unwrap_or_default();
        let cached = self.cached.iter().filter_map(|key| {
            let value = stat.lines().find_map(|line| line.strip_prefix(key))?;
            value.parse::<u64>().ok()
        });
        let held = usage.saturating_sub(cached.sum());
        Some(limit.saturating_sub(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: Option<u64>) {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        assert_eq!(room_of(&read), expected, "{files:?}");
    }

    #[test]
    fn the_tightest_group_counts() {
        check(
            &[
                ("/proc/self/cgroup", "0::/user/session\n"),
                ("/sys/fs/cgroup/user/session/memory.max", "max\n"),
                ("/sys/fs/cgroup/user/session/memory.current", "10\n"),
                ("/sys/fs/cgroup/user/memory.max", "3000\n"),
                ("/sys/fs/cgroup/user/memory.current", "1500\n"),
                (
                    "/sys/fs/cgroup/user/memory.stat",
                    "anon 500\ninactive_file 600\nactive_file 400\n",
                ),
                ("/sys/fs/cgroup/memory.max", "2600\n"),
                ("/sys/fs/cgroup/memory.current", "2000\n"),
            ],
            Some(600),
        );
    }

    #[test]
    fn the_older_layout_counts_too() {
        check(
            &[
                ("/proc/self/cgroup", "4:cpu,memory:/job\n1:cpu:/\n0::/\n"),
                ("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n"),
                ("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "2000\n"),
                (
                    "/sys/fs/cgroup/memory/job/memory.stat",
                    "active_file 7\ntotal_inactive_file 100\ntotal_active_file 200\n",
                ),
            ],
            Some(3300),
        );
    }

    #[test]
    fn no_limit_or_nonsense_is_no_room_to_tell() {
        check(&[], None);
        check(&[("/proc/self/cgroup", "0::/\n")], None);
        check(
            &[
                ("/proc/self/cgroup", "nonsense\n0::/a\n"),
                ("/sys/fs/cgroup/a/memory.max", "max\n"),
                ("/sys/fs/cgroup/a/memory.current", "10\n"),
            ],
            None,
        );
    }

    #[test]
    fn a_full_group_leaves_nothing() {
        check(
            &[
                ("/proc/self/cgroup", "0::/a\n"),
                ("/sys/fs/cgroup/a/memory.max", "100\n"),
                ("/sys/fs/cgroup/a/memory.current", "120\n"),
            ],
            Some(0),
        );
    }
}
