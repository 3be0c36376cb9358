//! The lazy heap: few candidates are looked at, because a score never improves (see the crate docs).

use crate::progress::Progress;
use crate::score::Rank;
use crate::{EvictOrder, Forest, Plan};
use cpkv_core::strict_assert;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// The plan by heap.
pub(crate) fn run<F: Forest>(mut progress: Progress<'_, F>, order: EvictOrder) -> Plan {
    if progress.open() {
        match order {
            EvictOrder::Contribution => by_contribution(&mut progress),
            EvictOrder::Retention => by_retention(&mut progress),
        }
    }
    progress.finish()
}

/// Scores all candidates once; then pops, scores again what was scored with older deficits, and takes what is still
/// true. O(candidates + (victims + re-evaluations) x log candidates) scores and comparisons.
fn by_contribution<F: Forest>(progress: &mut Progress<'_, F>) {
    let order = EvictOrder::Contribution;
    let forest = progress.forest;
    // Entries carry the version of the deficits they were scored with. It never decides: ranks are unique.
    let mut first = Vec::new();
    for id in forest.eligible() {
        let score = progress.score_stored(id);
        if score.helps() {
            first.push((Rank::new(order, score, forest.retention(id), id), 0));
        }
    }
    progress.counters.pushed += first.len() as u64;
    let mut queue = BinaryHeap::from(first);
    while progress.open() {
        let Some(mut top) = queue.peek_mut() else { break };
        let (queued, version) = *top;
        let (id, mut score) = (queued.id(), queued.score());
        if version != progress.version() {
            score = progress.score_stored(id);
            progress.counters.reevaluated += 1;
            let now = Rank::new(order, score, queued.retention(), id);
            strict_assert!(now <= queued, "the score of queued node {id} has not improved");
            if now != queued {
                if score.helps() {
                    // Written over in place, it sinks from the top: cheaper than a pop and a push.
                    progress.counters.pushed += 1;
                    *top = (now, progress.version());
                } else {
                    PeekMut::pop(top);
                }
                continue;
            }
        }
        PeekMut::pop(top);
        if let Some(exposed) = progress.take(id, score, &forest.counts(id)) {
            let score = progress.score_stored(exposed);
            if score.helps() {
                progress.counters.pushed += 1;
                queue.push((Rank::new(order, score, forest.retention(exposed), exposed), progress.version()));
            }
        }
    }
}

/// Merges the forest's candidates, pulled one by one, with the parents that victims expose, and takes each that helps.
/// What doesn't help is dropped for good. O(nodes looked at + exposed x log exposed).
fn by_retention<F: Forest>(progress: &mut Progress<'_, F>) {
    let forest = progress.forest;
    let mut last = None;
    let mut listed = forest
        .eligible()
        .map(|id| {
            let key = (forest.retention(id), id);
            strict_assert!(last < Some(key), "eligible node {id} comes in (retention, id) order");
            last = Some(key);
            key
        })
        .peekable();
    let mut exposed = BinaryHeap::new();
    while progress.open() {
        let from_exposed = match (exposed.peek(), listed.peek()) {
            (Some(Reverse(up)), Some(next)) => up < next,
            (up, _) => up.is_some(),
        };
        let next = if from_exposed { exposed.pop().map(|Reverse(key)| key) } else { listed.next() };
        let Some((_, id)) = next else { break };
        let score = progress.score_stored(id);
        if !score.helps() {
            continue;
        }
        if let Some(parent) = progress.take(id, score, &forest.counts(id)) {
            progress.counters.pushed += 1;
            exposed.push(Reverse((forest.retention(parent), parent)));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, EvictOrder, PlanNode, PlanRequest, VecForest, plan};
    use cpkv_core::{LaneCounts, NodeId};

    /// `n` stand-alone nodes of one page, on lane `id mod 2`.
    fn flat(n: u64) -> VecForest {
        let node = |id: u64| PlanNode {
            id,
            parent: None,
            counts: vec![1 - (id % 2) as u32, (id % 2) as u32],
            retention: [0, id],
            evictable: true,
        };
        VecForest::new(2, (1..=n).map(node).collect()).unwrap()
    }

    #[test]
    fn retention_order_looks_no_further_than_it_needs() {
        let deficits = LaneCounts::from([0, 3]);
        let request = PlanRequest::new(&deficits, EvictOrder::Retention, Algorithm::Heap);
        for n in [10, 10_000] {
            let plan = plan(&flat(n), &request);
            assert_eq!(plan.victims, [1, 3, 5].map(NodeId));
            assert_eq!(plan.counters.scored, 5, "nodes 1 to 5, whatever the size of the forest");
        }
    }

    #[test]
    fn contribution_order_scores_each_candidate_once_while_deficits_are_large() {
        let deficits = LaneCounts::from([0, 3]);
        let plan = plan(&flat(1000), &PlanRequest::new(&deficits, EvictOrder::Contribution, Algorithm::Heap));
        assert_eq!(plan.victims, [1, 3, 5].map(NodeId));
        assert_eq!(plan.counters.scored, 1000 + plan.counters.reevaluated);
        assert_eq!(plan.counters.reevaluated, 2, "the second and the third victim");
        assert_eq!(plan.counters.pushed, 500, "nodes of the other lane are never queued");
    }

    #[test]
    fn no_deficit_looks_at_no_node() {
        for order in EvictOrder::ALL {
            let plan = plan(&flat(10), &PlanRequest::new(&LaneCounts::zero(2), *order, Algorithm::Heap));
            assert!(plan.victims.is_empty());
            assert_eq!(plan.counters, Default::default());
        }
    }
}
