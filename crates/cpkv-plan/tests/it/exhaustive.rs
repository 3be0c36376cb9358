//! All small forests: every algorithm, in both orders, against the definition.
//!
//! Plans depend on retention and id only through the total order `(retention, id)`. All labelled forests with equal
//! retention therefore cover every order of every shape; a second pass, with retention against the ids, shows that
//! retention goes first.

use crate::support::{Unlock, decision, naive};
use cpkv_core::LaneCounts;
use cpkv_plan::{Algorithm, EvictOrder, PlanNode, PlanRequest, VecForest, plan};

/// Counts up in base `base`; false after the last.
fn next(digits: &mut [u32], base: u32) -> bool {
    for digit in digits {
        *digit += 1;
        if *digit < base {
            return true;
        }
        *digit = 0;
    }
    false
}

/// All forests of `size` nodes over `lanes` lanes with counts below `counts_base`, under all deficits below
/// `deficits_base`. Returns how many plans were compared.
fn compare(size: usize, lanes: usize, counts_base: u32, deficits_base: u32, against_ids: bool) -> u64 {
    let mut compared = 0;
    // Per node: its parent, 0 for none. Then per node: whether it is locked.
    let (mut parents, mut locked) = (vec![0; size], vec![0; size]);
    loop {
        let node = |at: usize| PlanNode {
            id: at as u64 + 1,
            parent: (parents[at] > 0).then(|| u64::from(parents[at])),
            counts: vec![0; lanes],
            retention: [0, if against_ids { (size - at) as u64 } else { 0 }],
            evictable: locked[at] == 0,
        };
        let nodes: Vec<PlanNode> = (0..size).map(node).collect();
        // Cycles and forests that aren't closed are refused, and left out.
        if VecForest::new(lanes, nodes.clone()).is_ok() {
            compared += compare_counts(nodes, lanes, counts_base, deficits_base);
        }
        if !next(&mut locked, 2) && !next(&mut parents, size as u32 + 1) {
            return compared;
        }
    }
}

fn compare_counts(mut nodes: Vec<PlanNode>, lanes: usize, counts_base: u32, deficits_base: u32) -> u64 {
    let mut compared = 0;
    let mut counts = vec![0; nodes.len() * lanes];
    loop {
        for (at, node) in nodes.iter_mut().enumerate() {
            node.counts.copy_from_slice(&counts[at * lanes..][..lanes]);
        }
        let forest = VecForest::new(lanes, nodes.clone()).expect("validity doesn't depend on small counts");
        compared += compare_plans(&forest, &nodes, lanes, deficits_base);
        if !next(&mut counts, counts_base) {
            return compared;
        }
    }
}

fn compare_plans(forest: &VecForest, nodes: &[PlanNode], lanes: usize, deficits_base: u32) -> u64 {
    let mut compared = 0;
    let mut deficits = vec![0; lanes];
    while next(&mut deficits, deficits_base) {
        // Every forest comes with its lanes swapped too, so deficits need only come in descending order.
        if !deficits.is_sorted_by(|a, b| a >= b) {
            continue;
        }
        let wanted = LaneCounts::from(deficits.clone());
        for order in EvictOrder::ALL {
            let expected = naive(nodes, &deficits, *order, Unlock::AllAncestors);
            for algorithm in Algorithm::ALL {
                let plan = plan(forest, &PlanRequest::new(&wanted, *order, *algorithm));
                assert_eq!(decision(&plan), expected, "{algorithm:?} {order:?} {deficits:?} {nodes:#?}");
                compared += 1;
            }
        }
    }
    compared
}

#[test]
fn all_forests_of_up_to_three_nodes() {
    let mut compared = 0;
    for size in 0..=3 {
        for against_ids in [false, true] {
            compared += compare(size, 1, 3, 5, against_ids);
            compared += compare(size, 2, 2, 3, against_ids);
        }
    }
    assert!(compared > 100_000, "{compared}");
}

#[test]
fn all_forests_of_four_nodes_on_one_lane() {
    let compared = compare(4, 1, 3, 5, false);
    assert!(compared > 1_000_000, "{compared}");
}

#[test]
fn all_forests_of_four_nodes_on_two_lanes() {
    let compared = compare(4, 2, 2, 3, false);
    assert!(compared > 1_000_000, "{compared}");
}
