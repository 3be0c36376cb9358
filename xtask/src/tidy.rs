//! What no compiler checks, as pure functions over the text of the repository and the figures of `cargo metadata`.

mod headers;
mod layering;
mod ledger;
mod words;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Text of every file that is tracked or about to be (not ignored), by path from the root with `/` between.
pub(crate) type Files = BTreeMap<String, String>;

/// One package of the workspace: its folder from the root, and its dependencies on others of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dir: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency on a package of the workspace; a `dev` one is seen by tests, examples and benches only.
#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) dev: bool,
}

/// Runs all checks and prints every finding.
///
/// # Errors
/// When there is a finding, or git or cargo can't be asked.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let files = files(root)?;
    let metadata = stdout(&mut crate::ci::cargo(root, &["metadata", "--format-version", "1", "--no-deps"]))?;
    let packages = packages(&serde_json::from_str(&metadata)?)?;
    let mut findings = layering::check(&packages);
    findings.extend(headers::check(&files));
    findings.extend(words::check(&files));
    findings.extend(ledger::check(&files, &packages));
    for finding in &findings {
        println!("{finding}");
    }
    ensure!(findings.is_empty(), "tidy: {} finding(s)", findings.len());
    println!("tidy: {} files, {} packages, nothing found", files.len(), packages.len());
    Ok(())
}

/// Whether the file is Rust source of this project.
fn is_source(path: &str) -> bool {
    path.ends_with(".rs") && ["crates/", "xtask/", "benches/", "tests/"].iter().any(|dir| path.starts_with(dir))
}

/// The 1-based number of the line in which byte `at` lies.
fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn files(root: &Path) -> anyhow::Result<Files> {
    // A container's clone often belongs to another user, which git refuses unless told that it is fine.
    let args = ["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let mut files = Files::new();
    for path in stdout(Command::new("git").args(args).current_dir(root))?.split_terminator('\0') {
        match std::fs::read(root.join(path)) {
            Ok(bytes) => drop(files.insert(path.to_owned(), String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => {} // deleted, and not yet in the index
            Err(error) => return Err(error).context(format!("can't read {path}")),
        }
    }
    Ok(files)
}

fn stdout(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("{} does not start", command.get_program().display()))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// The packages of the workspace out of the answer of `cargo metadata --no-deps`.
fn packages(metadata: &serde_json::Value) -> anyhow::Result<Vec<Package>> {
    let text = |value: &serde_json::Value, key: &str| -> anyhow::Result<String> {
        Ok(value[key].as_str().with_context(|| format!("cargo metadata: no {key}"))?.to_owned())
    };
    let root = text(metadata, "workspace_root")?;
    let listed = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    let names = listed.iter().map(|package| text(package, "name")).collect::<anyhow::Result<Vec<_>>>()?;
    let mut packages = Vec::new();
    for package in listed {
        let manifest = text(package, "manifest_path")?;
        let dir = Path::new(&manifest).parent().and_then(|dir| dir.strip_prefix(&root).ok());
        let mut dependencies = Vec::new();
        for dependency in package["dependencies"].as_array().context("cargo metadata: no dependencies")? {
            let name = text(dependency, "name")?;
            if names.contains(&name) {
                dependencies.push(Dependency { name, dev: dependency["kind"] == "dev" });
            }
        }
        let dir = dir.with_context(|| format!("{manifest} is not below {root}"))?;
        let dir = dir.display().to_string().replace('\\', "/");
        packages.push(Package { name: text(package, "name")?, dir, dependencies });
    }
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_keep_edges_of_the_workspace_with_their_kind() {
        let metadata = serde_json::json!({
            "workspace_root": "/r",
            "packages": [
                {"name": "a", "manifest_path": "/r/crates/a/Cargo.toml", "dependencies": []},
                {"name": "b", "manifest_path": "/r/b/Cargo.toml", "dependencies": [
                    {"name": "serde", "kind": null},
                    {"name": "a", "kind": null, "rename": "other"},
                    {"name": "a", "kind": "dev"},
                    {"name": "a", "kind": "build"},
                ]},
            ],
        });
        let packages = packages(&metadata).unwrap();
        assert_eq!(packages[0].dir, "crates/a");
        let kinds: Vec<bool> = packages[1].dependencies.iter().map(|dependency| dependency.dev).collect();
        assert_eq!(kinds, [false, true, false], "serde is not ours, and a build dependency counts as normal");
        assert!(super::packages(&serde_json::json!({"workspace_root": "/r"})).is_err());
    }
}
