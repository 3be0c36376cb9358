//! Every source file opens by saying its one idea.

use super::{Files, is_source};

/// Every source file whose first line is not a `//!` line with a text.
pub(super) fn check(files: &Files) -> Vec<String> {
    let opens = |text: &str| {
        text.lines().next().and_then(|line| line.strip_prefix("//!")).is_some_and(|idea| !idea.trim().is_empty())
    };
    let bare = files.iter().filter(|(path, text)| is_source(path) && !opens(text));
    bare.map(|(path, _)| format!("header: {path}:1: no `//!` line that says the file's idea")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_header_is_named() {
        let files = Files::from([
            ("crates/a/src/good.rs".to_owned(), "//! An idea.\nfn f() {}\n".to_owned()),
            ("crates/a/src/late.rs".to_owned(), "use std::fmt;\n//! Too late.\n".to_owned()),
            ("tests/tests/mute.rs".to_owned(), "//!\n".to_owned()),
            ("xtask/src/empty.rs".to_owned(), String::new()),
            ("docs/sketch.rs".to_owned(), "fn f() {}\n".to_owned()),
        ]);
        let findings = check(&files);
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(findings.iter().zip(["late.rs", "mute.rs", "empty.rs"]).all(|(finding, name)| finding.contains(name)));
    }
}
