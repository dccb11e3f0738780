//! What an installation will do, before it does: for people, and the same for programs.

use std::fmt::Write as _;

use ouzel_install::Installation;
use ouzel_storage::ShowPath;
use serde_json::{Value, json};

use super::Origin;
use super::target::Target;
use crate::report::bytes;

/// In a form that people read.
pub fn text(target: &Target, origin: &Origin, installation: &Installation<'_>) -> String {
    let mut text = String::new();
    let mut line = |what: &str, value: String| {
        let _ = writeln!(text, "  {what:<9} {value}");
    };
    match origin {
        Origin::Folder(folder) => line("from", folder.dir().shown().to_string()),
        Origin::Hub { hub, is_pinned } => {
            line("from", format!("{} at {}", hub.repository(), hub.host()));
            let kind = if *is_pinned {
                "pinned"
            } else {
                "not pinned: nobody has vouched for it; this installation is held to this commit"
            };
            line("revision", format!("{} ({kind})", hub.commit()));
            let licence = hub.licence().unwrap_or("not stated");
            line(
                "licence",
                format!(
                    "{licence}, says the repository; the terms are at {}",
                    hub.page()
                ),
            );
        }
    }
    if let Some(n @ 1..) = installation.discarded_bytes {
        line(
            "removes",
            format!(
                "{} of an unfinished installation of another checkpoint or revision",
                bytes(n)
            ),
        );
    }
    let mut transfer = exact(installation.transfer_bytes());
    if installation.claimed_bytes > 0 {
        let _ = write!(
            transfer,
            ", {} of them have come already",
            bytes(installation.claimed_bytes)
        );
    }
    line("transfer", transfer);
    line(
        "on disk",
        format!(
            "{} in {}",
            exact(installation.size_bytes()),
            target.output.shown()
        ),
    );
    line(
        "free",
        format!(
            "{}, of which {} stay free in any case",
            bytes(installation.room.free_bytes),
            bytes(installation.room.reserve_bytes)
        ),
    );
    text
}

/// In a form that programs read.
pub fn json(target: &Target, origin: &Origin, installation: &Installation<'_>) -> Value {
    let mut plan = json!({
        "event": "plan",
        "path": target.path(),
        "transfer_bytes": installation.transfer_bytes(),
        "claimed_bytes": installation.claimed_bytes,
        "disk_bytes": installation.size_bytes(),
        "free_bytes": installation.room.free_bytes,
        "reserve_bytes": installation.room.reserve_bytes,
    });
    match origin {
        Origin::Folder(folder) => plan["from"] = json!(folder.dir().display().to_string()),
        Origin::Hub { hub, is_pinned } => {
            plan["repository"] = json!(hub.repository());
            plan["revision"] = json!(hub.commit());
            plan["is_pinned"] = json!(is_pinned);
            plan["licence"] = json!(hub.licence());
            plan["page"] = json!(hub.page());
        }
    }
    plan
}

fn exact(n: u64) -> String {
    format!("{n} bytes ({})", bytes(n))
}
