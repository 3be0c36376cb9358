//! Every scenario file holds: ours in `tests/scenarios`, and the shared ones where they are. A file that fails names the
//! command that repeats it.

use cpkv_cli::scenario::run_lines;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// The scenario files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    files
}

/// Runs them all, so that one run tells of every file that fails.
fn all_hold(files: &[PathBuf]) {
    let mut failures = Vec::new();
    for path in files {
        let name = path.display().to_string();
        let file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{name}: {error}"));
        if let Err(error) = run_lines(&name, BufReader::new(file), &mut |_| {}) {
            failures.push(format!("{error}\n    cargo run --release -- scenario {name}"));
        }
    }
    assert!(failures.is_empty(), "{} of {} scenarios fail:\n{}", failures.len(), files.len(), failures.join("\n"));
}

fn ours() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

#[test]
fn our_scenarios_hold() {
    let files = files(&ours());
    assert!(files.len() >= 35, "only {} scenario files in {}", files.len(), ours().display());
    all_hold(&files);
}

#[test]
fn the_shared_scenarios_hold() {
    let Some(folder) = cpkv_tests::shared("scenarios") else { return };
    let mut all = files(&folder);
    all.extend(files(&folder.join("examples")));
    assert!(!all.is_empty(), "{} has no scenario", folder.display());
    all_hold(&all);
}

/// A scenario that expects nothing shows nothing.
#[test]
fn each_of_ours_says_what_it_is_for_and_expects_something() {
    for path in files(&ours()) {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        assert!(text.starts_with("# "), "{} doesn't open with a line on what it shows", path.display());
        assert!(text.contains("\"expect"), "{} expects nothing", path.display());
    }
}

/// A runner that no wrong expectation fails would make all of the above worthless.
#[test]
fn a_wrong_expectation_is_reported_with_file_and_line() {
    let text =
        "{\"op\":\"config\",\"lanes\":1}\n\n{\"op\":\"insert\",\"key\":[\"A:0..3\"],\"expect\":{\"new_pages\":2}}\n";
    let error = run_lines("wrong.jsonl", text.as_bytes(), &mut |_| {}).expect_err("it is wrong");
    assert_eq!(error.to_string(), "wrong.jsonl:3: new_pages: expected 2, came 3");
}
