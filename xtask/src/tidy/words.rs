//! Words that no file may hold: tests switched off, work left undone, waiting by sleeping, paths of one machine.

use super::{Files, is_source, line_of};

/// Banned in source, comments included, with what to do about it. Joined from halves so that this file may stand.
const IN_SOURCE: [(&str, &str); 3] = [
    (concat!("#[", "ignore"), "a test runs or goes"),
    (concat!("todo", "!"), "finish it"),
    (concat!("thread::", "sleep"), "nothing waits by sleeping"),
];

/// Folders that exist on one machine only; an absolute path into one is of no use to anybody else.
const MACHINE_FOLDERS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

/// Every banned word with its place.
pub(super) fn check(files: &Files) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in files {
        if is_source(path) {
            for (word, advice) in IN_SOURCE {
                let found = text.match_indices(word);
                findings.extend(found.map(|(at, _)| format!("word: {path}:{}: `{word}`: {advice}", line_of(text, at))));
            }
        }
        for folder in MACHINE_FOLDERS {
            let found = text.match_indices(folder).filter(|(at, _)| starts_a_path(&text[..*at]));
            findings.extend(found.map(|(at, _)| {
                format!(
                    "path: {path}:{}: an absolute path below `{folder}` exists on one machine only",
                    line_of(text, at)
                )
            }));
        }
    }
    findings
}

/// Whether a `/` after `before` is the root: `a/b`, `../b`, `$VAR/b`, `~/b` and `${VAR}/b` are not rooted here.
fn starts_a_path(before: &str) -> bool {
    before.chars().next_back().is_none_or(|last| !last.is_alphanumeric() && !"._-~}*)>".contains(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many findings there are; each tells the file and that it is in line 2.
    fn found(path: &str, line: String) -> usize {
        let findings = check(&Files::from([(path.to_owned(), format!("//! A.\n{line}\n"))]));
        assert!(findings.iter().all(|finding| finding.contains(&format!("{path}:2:"))), "{findings:?}");
        findings.len()
    }

    #[test]
    fn each_banned_word_is_found_in_source_only() {
        for (word, _) in IN_SOURCE {
            assert_eq!(found("crates/a/src/lib.rs", format!("fn f() {{ {word} }}")), 1, "{word}");
            assert_eq!(found("docs/a.md", format!("never `{word}`")), 0, "{word}");
        }
    }

    #[test]
    fn rooted_paths_are_found_in_any_file() {
        for folder in MACHINE_FOLDERS {
            for before in ["", "see ", "\"", "file://", "DIR="] {
                assert_eq!(found("docs/a.md", format!("{before}{folder}x")), 1, "{before}{folder}");
            }
            for before in ["src", "..", "$DIR", "${DIR}", "~"] {
                assert_eq!(found("docs/a.md", format!("{before}{folder}x")), 0, "{before}{folder}");
            }
        }
    }
}
