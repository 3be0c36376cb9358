//! The contract ledger: every contract and directive has its row, every row names tests, every named test exists.

use std::collections::BTreeSet;

use super::{Files, Package, line_of};

const LEDGER: &str = "docs/contract.md";
const SCENARIOS: &str = "tests/scenarios/";
/// Stands where a test's name is still due.
const PLACEHOLDER: &str = "(lead fills in)";

/// The contracts and the directives.
fn ids() -> impl Iterator<Item = String> {
    (1..=18).map(|i| format!("C{i}")).chain((1..=9).map(|i| format!("D{i}")))
}

/// What is wrong with the ledger.
///
/// A row is `| id | contract | enforced in | pinned by |`. The last column holds names in backticks and commas, no more:
/// `crate_name::module::tests::name`, `crate-name/tests/file.rs::name`, or a file below `tests/scenarios/`.
pub(super) fn check(files: &Files, packages: &[Package]) -> Vec<String> {
    let Some(ledger) = files.get(LEDGER) else {
        return vec![format!("ledger: there is no {LEDGER}")];
    };
    let mut findings = Vec::new();
    for (at, _) in ledger.match_indices(PLACEHOLDER) {
        findings.push(format!("ledger: {LEDGER}:{}: `{PLACEHOLDER}` still stands for a test", line_of(ledger, at)));
    }
    let wanted: Vec<String> = ids().collect();
    let mut seen = BTreeSet::new();
    for (line, cells) in rows(ledger) {
        let place = format!("ledger: {LEDGER}:{line}: {}", cells[0]);
        if !wanted.contains(&cells[0]) {
            findings.push(format!("{place}: no contract or directive has this id"));
        } else if !seen.insert(cells[0].clone()) {
            findings.push(format!("{place}: the row is there twice"));
        }
        if cells.len() != 4 || cells[1..3].iter().any(String::is_empty) {
            findings.push(format!("{place}: a row has four columns, all filled"));
            continue;
        }
        let (inside, outside): (Vec<_>, Vec<_>) = cells[3].split('`').enumerate().partition(|(i, _)| i % 2 == 1);
        if inside.is_empty() {
            findings.push(format!("{place}: no test pins it"));
        }
        let rest: String = outside.into_iter().map(|(_, text)| text).collect();
        if !rest.replace("<br>", "").replace(PLACEHOLDER, "").chars().all(|c| c == ',' || c.is_whitespace()) {
            findings.push(format!("{place}: the column of tests holds names in backticks and commas, no more"));
        }
        let missing = inside.into_iter().filter_map(|(_, name)| missing(name, files, packages));
        findings.extend(missing.map(|what| format!("{place}: {what}")));
    }
    let absent = wanted.iter().filter(|id| !seen.contains(*id));
    findings.extend(absent.map(|id| format!("ledger: {LEDGER}: {id} has no row")));
    findings
}

/// The table's rows, header and rule left out, with their line numbers.
fn rows(ledger: &str) -> impl Iterator<Item = (usize, Vec<String>)> {
    ledger.lines().enumerate().filter_map(|(index, line)| {
        let line = line.trim().strip_prefix('|')?;
        let cells: Vec<String> = line.trim_end_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        let is_row = cells[0] != "id" && !cells[0].chars().all(|c| "-: ".contains(c));
        is_row.then_some((index + 1, cells))
    })
}

/// Why the test or scenario of this name can't be found, `None` if it can.
fn missing(name: &str, files: &Files, packages: &[Package]) -> Option<String> {
    if name.ends_with(".jsonl") {
        let there = name.starts_with(SCENARIOS) && files.contains_key(name);
        return (!there).then(|| format!("there is no scenario `{name}` (below {SCENARIOS})"));
    }
    let holds = |path: &str, text: &str| -> Option<bool> {
        let of_package = |package: &Package| prefix(package, path.strip_prefix(&package.dir)?.strip_prefix('/')?);
        let rest = name.strip_prefix(&packages.iter().find_map(of_package)?)?.strip_prefix("::")?;
        holds_test(text, rest)
    };
    let found = files.iter().any(|(path, text)| holds(path, text) == Some(true));
    (!found).then(|| format!("there is no test `{name}`"))
}

/// What the names of a source file's tests start with: `src/a/b.rs` and `src/a/b/mod.rs` are `crate_name::a::b`, and
/// every other file goes by its path, `crate-name/tests/file.rs`.
fn prefix(package: &Package, inner: &str) -> Option<String> {
    let Some(module) = inner.strip_suffix(".rs")?.strip_prefix("src/") else {
        return Some(format!("{}/{inner}", package.name));
    };
    let full = format!("{}/{module}", package.name.replace('-', "_"));
    let ends = ["/mod", "/lib", "/main"].iter().find_map(|end| full.strip_suffix(end));
    Some(ends.unwrap_or(&full).replace('/', "::"))
}

/// Whether the file has, for `inline::modules::name`, a function `name` under a `#[test]` after those modules' heads.
fn holds_test(text: &str, path: &str) -> Option<bool> {
    let mut inline: Vec<&str> = path.split("::").collect();
    let head = format!("fn {}(", inline.pop()?);
    let text = inline.iter().try_fold(text, |text, module| Some(text.split_once(&format!("mod {module} {{"))?.1))?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.starts_with("//")).collect();
    Some(lines.iter().enumerate().filter(|(_, line)| line.contains(&head)).any(|(at, line)| {
        // Attributes stand between the function and the end of what comes before it.
        let above = lines[..at].iter().rev().take_while(|line| !line.is_empty() && !line.ends_with(['{', '}', ';']));
        above.chain([line]).any(|line| line.contains("#[test]"))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: &str = "`cpkv_a::deep::tests::holds`";
    const DEEP: &str = "//! D.\nfn helper() {}\nmod tests {\n proptest! {\n  /// Why.\n  #[test]\n  #[expect(\n   lint,\n  )]\n  \
        fn holds(a in 0..9) {}\n }\n #[test]\n fn other() {}\n fn no_test() {}\n // #[test]\n fn off() {}\n}\n";

    /// A ledger in which `C1` is pinned by `pinned`, and everything else rightly.
    fn findings(pinned: &str) -> Vec<String> {
        let mut ledger = String::from("| id | contract | enforced in | pinned by |\n|---|---|---|---|\n");
        for id in ids() {
            let pinned = if id == "C1" { pinned } else { TEST };
            ledger += &format!("| {id} | text | crate | {pinned} |\n");
        }
        check_ledger(&ledger)
    }

    fn check_ledger(ledger: &str) -> Vec<String> {
        let files = Files::from(
            [
                (LEDGER, ledger),
                ("crates/cpkv-a/src/lib.rs", "//! A.\nmod deep;\n"),
                ("crates/cpkv-a/src/deep/mod.rs", DEEP),
                ("crates/cpkv-a/tests/whole.rs", "//! W.\n#[test]\nfn runs() {}\n"),
                ("tests/scenarios/one.jsonl", "{}\n"),
            ]
            .map(|(path, text)| (path.to_owned(), text.to_owned())),
        );
        let package = Package { name: "cpkv-a".to_owned(), dir: "crates/cpkv-a".to_owned(), dependencies: Vec::new() };
        check(&files, &[package])
    }

    #[test]
    fn tests_that_exist_pass() {
        let all = format!(
            "{TEST}, `cpkv_a::deep::tests::other`,<br>`cpkv-a/tests/whole.rs::runs`, `tests/scenarios/one.jsonl`"
        );
        assert_eq!(findings(&all), [""; 0]);
    }

    #[test]
    fn a_name_without_a_test_is_an_error() {
        for name in [
            "cpkv_a::deep::tests::gone",
            "cpkv_a::deep::holds_not",
            "cpkv_a::other::tests::holds",
            "cpkv_a::tests::holds",
            "cpkv_a::deep::helper",
            "cpkv_a::deep::tests::no_test",
            "cpkv_a::deep::tests::off",
            "cpkv_b::deep::tests::holds",
            "cpkv-a/tests/gone.rs::runs",
            "cpkv-a/tests/whole.rs::gone",
            "tests/scenarios/two.jsonl",
            "docs/contract.jsonl",
            "holds",
        ] {
            let findings = findings(&format!("{TEST}, `{name}`"));
            assert_eq!(findings.len(), 1, "{name}: {findings:?}");
            assert!(findings[0].contains(": C1: ") && findings[0].contains(name.split("::").next().unwrap()));
        }
    }

    #[test]
    fn a_row_without_a_test_or_with_the_placeholder_is_an_error() {
        assert!(findings("").iter().any(|finding| finding.contains("C1: no test pins it")));
        let by_prose = findings("by inspection");
        assert_eq!(by_prose.len(), 2, "{by_prose:?}");
        assert!(findings(&format!("{TEST} and more"))[0].contains("no more"));
        let due = findings(&format!("{TEST} {PLACEHOLDER}"));
        assert!(due.len() == 1 && due[0].contains("docs/contract.md:3: `(lead"), "{due:?}");
    }

    #[test]
    fn rows_are_there_once_each() {
        let row = |id: &str| format!("| {id} | text | crate | {TEST} |\n");
        let findings = check_ledger(&(row("C1") + &row("C1") + &row("C19") + "| D1 | text |\n"));
        for wanted in
            ["C1: the row is there twice", "C19: no contract", "D1: a row has four", "C2 has no row", "D9 has no row"]
        {
            assert!(findings.iter().any(|finding| finding.contains(wanted)), "{wanted}: {findings:?}");
        }
        assert!(check(&Files::new(), &[])[0].contains("there is no docs/contract.md"));
    }
}
