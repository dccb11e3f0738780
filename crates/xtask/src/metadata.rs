//! What `cargo metadata` says, as far as the checks want it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::process::{cargo, output};

/// The answer of `cargo metadata`.
pub struct Metadata(Value);

/// One package.
pub struct Package<'a>(&'a Value);

/// A dependency as a manifest declares it.
pub struct Dependency<'a> {
    /// The package it names.
    pub name: &'a str,
    /// Whether tests alone use it.
    pub is_dev: bool,
}

impl Metadata {
    /// The workspace's own packages; needs nothing downloaded.
    pub fn of_members() -> anyhow::Result<Metadata> {
        Metadata::ask(&["metadata", "--format-version=1", "--locked", "--no-deps"])
    }

    /// All packages of the lockfile that some target may use.
    pub fn of_all() -> anyhow::Result<Metadata> {
        Metadata::ask(&["metadata", "--format-version=1", "--locked"])
    }

    fn ask(args: &[&str]) -> anyhow::Result<Metadata> {
        Ok(Metadata(
            serde_json::from_slice(&output(&mut cargo(args)?)?).context("cargo metadata")?,
        ))
    }

    /// From the text that cargo would give.
    #[cfg(test)]
    pub fn parse(text: &str) -> Metadata {
        Metadata(serde_json::from_str(text).unwrap())
    }

    /// Where cargo puts what it builds.
    pub fn target_dir(&self) -> anyhow::Result<&str> {
        self.0["target_directory"]
            .as_str()
            .context("cargo metadata names no target directory")
    }

    /// A package's version.
    pub fn version_of(&self, name: &str) -> anyhow::Result<&str> {
        let packages = self.packages();
        let package = packages.iter().find(|package| package.name() == name);
        Ok(package
            .with_context(|| format!("there is no package {name}"))?
            .version())
    }

    /// The packages.
    pub fn packages(&self) -> Vec<Package<'_>> {
        items(&self.0["packages"]).iter().map(Package).collect()
    }

    /// The packages whose code ends up in the binary of `package`: its normal dependencies on any target, without procedural
    /// macros, which run in the compiler, and what only they need.
    pub fn in_binary_of(&self, package: &str) -> Vec<Package<'_>> {
        let by_id: BTreeMap<&str, &Value> = items(&self.0["packages"])
            .iter()
            .map(|p| (text(&p["id"]), p))
            .collect();
        let nodes: BTreeMap<&str, &Value> = items(&self.0["resolve"]["nodes"])
            .iter()
            .map(|node| (text(&node["id"]), node))
            .collect();
        let mut found = BTreeSet::new();
        let mut waiting: Vec<&str> = by_id
            .iter()
            .filter(|(_, p)| p["name"] == package)
            .map(|(id, _)| *id)
            .collect();
        while let Some(id) = waiting.pop() {
            let is_macro = by_id.get(id).is_some_and(|p| Package(p).is_proc_macro());
            if is_macro || !found.insert(id) {
                continue;
            }
            let dependencies = nodes.get(id).map_or(&[][..], |node| items(&node["deps"]));
            let normal = dependencies.iter().filter(|d| {
                items(&d["dep_kinds"])
                    .iter()
                    .any(|kind| kind["kind"].is_null())
            });
            waiting.extend(normal.map(|d| text(&d["pkg"])));
        }
        let mut packages: Vec<_> = found
            .iter()
            .filter_map(|id| by_id.get(id))
            .map(|p| Package(p))
            .collect();
        packages.sort_by(|a, b| (a.name(), a.version()).cmp(&(b.name(), b.version())));
        packages
    }
}

impl<'a> Package<'a> {
    /// Its name.
    pub fn name(&self) -> &'a str {
        text(&self.0["name"])
    }

    /// Its version.
    pub fn version(&self) -> &'a str {
        text(&self.0["version"])
    }

    /// Where its manifest lies.
    pub fn folder(&self) -> anyhow::Result<&'a Path> {
        let manifest = Path::new(text(&self.0["manifest_path"]));
        manifest.parent().context("a manifest lies in a folder")
    }

    /// The SPDX expression of its licence.
    pub fn license(&self) -> Option<&'a str> {
        self.0["license"].as_str()
    }

    /// Where it came from; a folder of this repository has none.
    pub fn source(&self) -> Option<&'a str> {
        self.0["source"].as_str()
    }

    /// What its manifest declares.
    pub fn dependencies(&self) -> Vec<Dependency<'a>> {
        let dependency = |d: &'a Value| Dependency {
            name: text(&d["name"]),
            is_dev: d["kind"] == "dev",
        };
        items(&self.0["dependencies"])
            .iter()
            .map(dependency)
            .collect()
    }

    /// Whether it is one of the rooms.
    pub fn is_ours(&self) -> bool {
        self.name() == "ouzel" || self.name().starts_with("ouzel-")
    }

    fn is_proc_macro(&self) -> bool {
        items(&self.0["targets"]).iter().any(|target| {
            items(&target["kind"])
                .iter()
                .any(|kind| kind == "proc-macro")
        })
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_and_what_only_tests_use_are_not_in_the_binary() {
        let package = |name: &str, kind: &str| {
            format!(
                r#"{{"id":"{name}","name":"{name}","version":"1.0.0","license":"MIT","targets":[{{"kind":["{kind}"]}}]}}"#
            )
        };
        let edge =
            |to: &str, kind: &str| format!(r#"{{"pkg":"{to}","dep_kinds":[{{"kind":{kind}}}]}}"#);
        let packages = [
            package("app", "bin"),
            package("lib", "lib"),
            package("derive", "proc-macro"),
            package("syn", "lib"),
        ];
        let metadata = Metadata::parse(&format!(
            r#"{{"packages":[{},{}],"resolve":{{"nodes":[{{"id":"app","deps":[{},{},{}]}},{{"id":"derive","deps":[{}]}}]}}}}"#,
            packages.join(","),
            package("proptest", "lib"),
            edge("lib", "null"),
            edge("derive", "null"),
            edge("proptest", r#""dev""#),
            edge("syn", "null"),
        ));
        let names: Vec<_> = metadata
            .in_binary_of("app")
            .iter()
            .map(Package::name)
            .collect();
        assert_eq!(names, ["app", "lib"]);
    }
}
