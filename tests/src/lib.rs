//! What the tests of the whole share: random worlds by seed, the calls that a run makes, and what they are made on.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod call;
pub mod chance;
pub mod target;

use std::path::{Path, PathBuf};

/// A folder of the shared files: below `$CPKV_SHARED`, else below `../shared` beside the workspace. `None`, said on
/// stderr, where it isn't there.
#[must_use]
pub fn shared(folder: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("CPKV_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"), PathBuf::from);
    let folder = shared.join(folder);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: {} is not there (set CPKV_SHARED)", folder.display());
    None
}

/// The seeds of a random test: `$CPKV_SEED` alone, or the first `$CPKV_SEEDS`, or the first `count`.
///
/// # Panics
/// If one of them is no number.
pub fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a seed is a number"));
    let count = number("CPKV_SEEDS").unwrap_or(count);
    number("CPKV_SEED").map_or(0..count, |seed| seed..seed + 1)
}

/// Says how to run a seed again when what it is given to panics.
#[derive(Debug)]
pub struct Reproduce {
    /// The seed.
    pub seed: u64,
    /// The test's file.
    pub test: &'static str,
}

impl Drop for Reproduce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("CPKV_SEED={} cargo test -p cpkv-tests --test {}", self.seed, self.test);
        }
    }
}
