//! Contract C10: index entries touched follow the pages and extents asked for, never the pool.

use super::{Rng, run};
use crate::{Contiguity, Counters, HostPool, OwnerLanes};
use cpkv_core::{LaneCounts, Owner, PageId, PageRun, Striping, coalesce};
use proptest::prelude::*;

/// Counts since `before`.
fn since(now: Counters, before: Counters) -> (u64, u64, u64, u64) {
    (
        now.extents - before.extents,
        now.touched_taking - before.touched_taking,
        now.touched_returning - before.touched_returning,
        now.touched_merging - before.touched_merging,
    )
}

proptest! {
    // Few cases: each is a history of 400 calls on a pool of a thousand and on one of a million pages.
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// At most 3 entries per extent handed out, which are at most as many as pages, 1 per run that comes back, and 4
    /// per run that was merged, whatever the size of the pool.
    #[test]
    fn lanes_touch_what_was_asked_whatever_the_pool(seed in any::<u64>(), largest in 1u32..64) {
        for pages in [1_000, 1_000_000] {
            let mut rng = Rng(seed);
            let striping = Striping::new(2).unwrap();
            let mut lanes = OwnerLanes::new(striping, pages, Contiguity::Preferred).unwrap();
            // Fill all but a few pages, so that the large pool is as full as the small one and merges are needed.
            lanes.alloc_counts(&LaneCounts::splat(2, pages - 200)).unwrap();
            let mut held: Vec<Vec<PageId>> = Vec::new();
            for _ in 0..400 {
                let (before, released) = (lanes.counters(), lanes.released().total());
                if rng.below(2) == 0 || held.is_empty() {
                    let owners: Vec<Owner> = (0..=rng.below(largest)).map(|_| Owner(rng.below(2) as u8)).collect();
                    let Ok(got) = lanes.alloc(&owners) else { continue };
                    held.push(got);
                    let (extents, taking, returning, merging) = since(lanes.counters(), before);
                    prop_assert!(extents <= owners.len() as u64);
                    prop_assert!(taking <= 3 * extents && returning == 0);
                    prop_assert!(merging <= 4 * released);
                } else {
                    let at = rng.below(held.len() as u32) as usize;
                    let call = &mut held[at];
                    let part = call.split_off(call.len().saturating_sub(1 + rng.below(largest) as usize));
                    if call.is_empty() {
                        held.swap_remove(at);
                    }
                    lanes.free(&part).unwrap();
                    let (_, taking, returning, merging) = since(lanes.counters(), before);
                    prop_assert!(returning <= part.len() as u64 && taking == 0 && merging == 0);
                }
            }
            // All that is free can't be had without the release buckets.
            lanes.free(&held.concat()).unwrap();
            let before = lanes.counters();
            let all = lanes.free_pages().clone();
            lanes.alloc_counts(&all).unwrap();
            let now = lanes.counters();
            prop_assert_eq!((now.merges - before.merges, now.extents - before.extents), (2, 2));
            // A page is merged once for each time that it comes back.
            prop_assert!(now.touched_merging <= 4 * now.touched_returning);
        }
    }

    /// At most 3 entries per extent reserved, 1 per run that comes back and 4 to merge it, whatever the size of the
    /// pool.
    #[test]
    fn host_touches_what_was_asked_whatever_the_pool(seed in any::<u64>(), largest in 1u32..64) {
        for pages in [1_000, 1_000_000] {
            let mut rng = Rng(seed);
            let mut pool = HostPool::new(pages, Contiguity::Preferred).unwrap();
            let mut held: Vec<PageRun> = Vec::new();
            let first = pool.reserve(pages - 300).unwrap();
            pool.commit(&first).unwrap();
            held.extend(first.runs);
            for _ in 0..400 {
                let (before, released) = (pool.counters(), u64::from(pool.released()));
                if rng.below(2) == 0 || held.is_empty() {
                    let asked = 1 + rng.below(largest);
                    let Ok(got) = pool.reserve(asked) else { continue };
                    let (extents, taking, returning, merging) = since(pool.counters(), before);
                    prop_assert_eq!((extents, returning), (got.runs.len() as u64, 0));
                    prop_assert!(merging <= 4 * released);
                    prop_assert!(taking <= 3 * extents && extents <= u64::from(asked));
                    pool.commit(&got).unwrap();
                    held.extend(got.runs);
                } else {
                    let at = rng.below(held.len() as u32) as usize;
                    let whole = held.swap_remove(at);
                    let part = run(whole.start, whole.len.min(1 + rng.below(largest)));
                    if part.len < whole.len {
                        held.push(run(part.end(), whole.len - part.len));
                    }
                    pool.release(&[part]).unwrap();
                    let (_, taking, returning, merging) = since(pool.counters(), before);
                    prop_assert!(returning <= 1 && taking == 0 && merging == 0);
                }
            }
        }
    }
}

/// Pages freed one by one in any order wait in the bucket; nothing is merged before an allocation needs it.
#[test]
fn merging_waits_for_a_need() {
    let mut lanes = OwnerLanes::new(Striping::new(1).unwrap(), 100, Contiguity::Preferred).unwrap();
    let pages = lanes.alloc(&[Owner(0); 50]).unwrap();
    for at in [7usize, 3, 5, 4, 6] {
        lanes.free(&[pages[at]]).unwrap();
    }
    assert_eq!((lanes.released()[Owner(0)], lanes.largest_run(Owner(0))), (5, 50));
    // 50 fit in one extent without the bucket.
    let tail = lanes.alloc(&[Owner(0); 50]).unwrap();
    assert_eq!(lanes.counters().merges, 0);
    // 5 don't, and come as one ascending run.
    let again = lanes.alloc(&[Owner(0); 5]).unwrap();
    assert_eq!(again, pages[3..8]);
    assert_eq!((lanes.counters().merges, lanes.counters().extents), (1, 3));
    // Two that would come in pieces without the bucket don't.
    lanes.free(&[tail[0], tail[9]]).unwrap();
    let one = lanes.alloc(&[Owner(0)]).unwrap();
    lanes.free(&[tail[10], tail[20]]).unwrap();
    let two = lanes.alloc(&[Owner(0); 2]).unwrap();
    assert_eq!(coalesce(two.iter().map(|page| page.0)).len(), 1);
    assert_eq!(lanes.counters().merges, 3);
    assert_ne!(one[0], two[0]);
    lanes.self_check().unwrap();
}

/// The number of runs is what the copies pay for: few with contiguous preference, many with a stack (FAULTS J9).
#[test]
fn contiguity_preferred_gives_far_fewer_runs_than_a_stack() {
    let runs = |contiguity| {
        let mut rng = Rng(1);
        let mut pool = HostPool::new(10_000, contiguity).unwrap();
        let mut held: Vec<Vec<PageRun>> = Vec::new();
        for _ in 0..20_000 {
            let pages = 1 + rng.below(64);
            while pool.available() < 500.max(pages) {
                let at = rng.below(held.len() as u32) as usize;
                pool.release(&held.swap_remove(at)).unwrap();
            }
            let got = pool.reserve(pages).unwrap();
            pool.commit(&got).unwrap();
            held.push(got.runs);
        }
        pool.self_check().unwrap();
        pool.reserve(193).unwrap().runs.len()
    };
    let (preferred, off) = (runs(Contiguity::Preferred), runs(Contiguity::Off));
    println!("193 pages at 95 % full: {preferred} runs preferred, {off} runs off");
    assert!(off >= 5 * preferred, "{preferred} runs preferred, {off} runs off");
}

proptest! {
    /// C7: what an allocation hands out depends on which pages came back before it, not on the order in which they did.
    #[test]
    fn the_order_of_returns_doesnt_show(
        back in prop::collection::vec(any::<bool>(), 60),
        shuffled in Just((0..60usize).collect::<Vec<_>>()).prop_shuffle(),
        asked in prop::collection::vec(1u32..12, 6),
    ) {
        for contiguity in [Contiguity::Preferred, Contiguity::Off] {
            let hand_out = |order: &mut dyn Iterator<Item = usize>| {
                let mut lanes = OwnerLanes::new(Striping::new(1).unwrap(), 64, contiguity).unwrap();
                let mut pool = HostPool::new(64, contiguity).unwrap();
                let pages = lanes.alloc(&[Owner(0); 60]).unwrap();
                let first = pool.reserve(60).unwrap();
                pool.commit(&first).unwrap();
                for at in order.filter(|at| back[*at]) {
                    lanes.free(&[pages[at]]).unwrap();
                    pool.release(&[run(at as u32, 1)]).unwrap();
                }
                let taken = |asked: &u32| {
                    let host = pool.reserve(*asked).ok().map(|reserved| reserved.runs);
                    (lanes.alloc(&vec![Owner(0); *asked as usize]).ok(), host)
                };
                asked.iter().map(taken).collect::<Vec<_>>()
            };
            prop_assert_eq!(hand_out(&mut (0..60)), hand_out(&mut shuffled.iter().copied()));
        }
    }
}
