//! The macOS app: a folder that the Finder starts by a double click.
//!
//! What is started is a script that starts the program beside it and ends: the Finder starts no app that runs already, and the page has no window of its
//! own that could be brought to the front. So a second double click starts the program a second time, which opens the page of the first.

use anyhow::Context;

use super::Release;
use super::tree::Tree;

/// Pictures of an icon by their size, and what `icns` calls them.
const ICONS: &[(&[u8; 4], &str)] = &[
    (b"ic07", "icon-128.png"),
    (b"ic08", "icon-256.png"),
    (b"ic09", "icon-512.png"),
];

/// The folder.
pub fn app(release: &Release) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    let contents = "Ouzel.app/Contents";
    tree.file(
        &format!("{contents}/Info.plist"),
        release.template("Info.plist")?,
    );
    tree.file(&format!("{contents}/PkgInfo"), b"APPL????".to_vec());
    let start = release.packaging("start-macos.sh")?;
    tree.program(&format!("{contents}/MacOS/Ouzel"), start);
    // A file system there tells no `ouzel` from `Ouzel`.
    tree.program(
        &format!("{contents}/MacOS/bin/ouzel"),
        release.binary.clone(),
    );
    tree.file(&format!("{contents}/Resources/Ouzel.icns"), icns(release)?);
    for name in [
        "LICENSE",
        "THIRD_PARTY_NOTICES.md",
        "THIRD_PARTY_LICENSES.txt",
    ] {
        let bytes = release.common.get(name).with_context(|| name.to_owned())?;
        tree.file(&format!("{contents}/Resources/{name}"), bytes.to_vec());
    }
    Ok(tree)
}

/// An icon is a list of PNG files, each with its kind and its length.
fn icns(release: &Release) -> anyhow::Result<Vec<u8>> {
    let mut list = Vec::new();
    for (kind, name) in ICONS {
        let png = release.packaging(name)?;
        list.extend(*kind);
        list.extend(u32::try_from(png.len() + 8)?.to_be_bytes());
        list.extend(png);
    }
    let mut icns = b"icns".to_vec();
    icns.extend(u32::try_from(list.len() + 8)?.to_be_bytes());
    icns.extend(list);
    Ok(icns)
}
