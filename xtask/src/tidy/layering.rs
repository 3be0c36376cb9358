//! Who may import whom: a table, so that a new edge is a decision with a commit of its own.

use super::Package;

/// What a package may import of the workspace.
enum Imports {
    /// These and no others.
    Only(&'static [&'static str]),
    /// Any crate of the project: for what composes the engine and its backends.
    Any,
}
use Imports::{Any, Only};

/// Normal and build dependencies. The parts below the engine speak core's types and never each other's; the engine
/// is generic over its backend and imports none.
const TABLE: &[(&str, Imports)] = &[
    ("cpkv-core", Only(&[])),
    ("cpkv-alloc", Only(&["cpkv-core"])),
    ("cpkv-tree", Only(&["cpkv-core"])),
    ("cpkv-plan", Only(&["cpkv-core"])),
    ("cpkv-admit", Only(&["cpkv-core"])),
    ("cpkv-copy", Only(&["cpkv-core"])),
    ("cpkv-transfer", Only(&["cpkv-core"])),
    ("cpkv-sim", Only(&["cpkv-core", "cpkv-copy"])),
    ("cpkv-engine", Only(&["cpkv-core", "cpkv-alloc", "cpkv-tree", "cpkv-plan", "cpkv-admit", "cpkv-transfer"])),
    ("cpkv-cli", Any),
    ("cpkv-bench", Any),
    ("cpkv-tests", Any),
    ("xtask", Only(&[])),
];

/// What tests, examples and benches may import on top: themselves with other features, and a backend to run on.
const TABLE_DEV: &[(&str, &[&str])] = &[("cpkv-transfer", &["cpkv-sim"]), ("cpkv-engine", &["cpkv-sim"])];

/// Every edge that the tables don't allow, and every package that they don't know.
pub(super) fn check(packages: &[Package]) -> Vec<String> {
    let mut findings = Vec::new();
    for package in packages {
        let Some((_, imports)) = TABLE.iter().find(|(name, _)| *name == package.name) else {
            findings.push(format!("layering: {} has no row in xtask/src/tidy/layering.rs", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let to = dependency.name.as_str();
            let in_table = match imports {
                Only(names) => names.contains(&to),
                Any => to != "xtask" && to != "cpkv-tests",
            };
            let allowed = in_table || (dependency.dev && allowed_in_tests(&package.name, to));
            if !allowed {
                let kind = if dependency.dev { "dev-dependency" } else { "dependency" };
                findings.push(format!(
                    "layering: {} -> {to} ({kind}) is not in the table of xtask/src/tidy/layering.rs",
                    package.name
                ));
            }
        }
    }
    findings
}

fn allowed_in_tests(from: &str, to: &str) -> bool {
    from == to || TABLE_DEV.iter().any(|(name, imports)| *name == from && imports.contains(&to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Dependency;

    fn package(name: &str, dependencies: &[(&str, bool)]) -> Package {
        let dependencies =
            dependencies.iter().map(|(name, dev)| Dependency { name: (*name).to_owned(), dev: *dev }).collect();
        Package { name: name.to_owned(), dir: format!("crates/{name}"), dependencies }
    }

    #[test]
    fn edges_of_the_table_pass_also_unused() {
        let packages = [
            package("cpkv-core", &[]),
            package("cpkv-sim", &[("cpkv-core", false)]),
            package("cpkv-transfer", &[("cpkv-core", false), ("cpkv-sim", true)]),
            package("cpkv-alloc", &[("cpkv-alloc", true)]),
            package("cpkv-cli", &[("cpkv-engine", false), ("cpkv-sim", false), ("cpkv-bench", false)]),
        ];
        assert_eq!(check(&packages), [""; 0]);
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_is_named() {
        for (from, to, dev) in [
            ("cpkv-alloc", "cpkv-tree", false),
            ("cpkv-alloc", "cpkv-tree", true),
            ("cpkv-engine", "cpkv-sim", false),
            ("xtask", "cpkv-core", false),
            ("cpkv-cli", "xtask", false),
        ] {
            let findings = check(&[package(from, &[(to, dev)])]);
            assert_eq!(findings.len(), 1, "{from} -> {to}");
            assert!(findings[0].contains(&format!("{from} -> {to} ")), "{findings:?}");
        }
        assert!(check(&[package("cpkv-new", &[])])[0].contains("cpkv-new has no row"));
    }
}
