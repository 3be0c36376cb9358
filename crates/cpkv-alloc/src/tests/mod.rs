//! Histories against the naive model, costs by counters, and the faults that allocators are known for.

mod cost;
mod extents;
mod faults;
mod host;
mod host_lanes;
mod lanes;

use cpkv_core::PageRun;

/// Whether a call that was refused left everything as it was: all of the state, not only what is public.
fn unchanged<T: std::fmt::Debug>(before: &T, after: &T) -> bool {
    format!("{before:?}") == format!("{after:?}")
}

/// Each entry once, in the order given.
fn distinct<T: Copy + PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

/// A small generator of numbers for long histories (SplitMix64, Steele, Lea and Flood 2014).
struct Rng(u64);

impl Rng {
    /// A number below `end`.
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % u64::from(end)) as u32
    }
}

fn run(start: u32, len: u32) -> PageRun {
    PageRun { start, len }
}
