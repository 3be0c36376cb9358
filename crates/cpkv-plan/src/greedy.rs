//! The reference: every candidate is scored anew at every step, page by page.

use crate::progress::Progress;
use crate::score::Rank;
use crate::{EvictOrder, Forest, Plan};
use cpkv_core::LaneCounts;

/// The plan, straight from the definition.
pub(crate) fn run<F: Forest>(mut progress: Progress<'_, F>, order: EvictOrder) -> Plan {
    let forest = progress.forest;
    let mut candidates = Vec::new();
    if progress.open() {
        candidates.extend(forest.eligible());
    }
    while progress.open() {
        let mut best = None;
        for (at, id) in candidates.iter().copied().enumerate() {
            let score = progress.score_recounted(id);
            if !score.helps() {
                continue;
            }
            let rank = Rank::new(order, score, forest.retention(id), id);
            if best.is_none_or(|(_, _, best)| rank > best) {
                best = Some((at, score, rank));
            }
        }
        let Some((at, score, _)) = best else { break };
        let id = candidates.swap_remove(at);
        let counts = LaneCounts::of_owners(forest.lanes(), forest.owners(id));
        candidates.extend(progress.take(id, score, &counts));
    }
    progress.finish()
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, EvictOrder, PlanNode, PlanRequest, VecForest, plan};
    use cpkv_core::{LaneCounts, NodeId};

    #[test]
    fn every_step_scores_every_candidate() {
        let node = |id, parent| PlanNode { id, parent, counts: vec![1], retention: [0, 0], evictable: true };
        let forest = VecForest::new(1, vec![node(1, None), node(2, Some(1)), node(3, None)]).unwrap();
        let deficits = LaneCounts::from([3]);
        let request = PlanRequest::new(&deficits, EvictOrder::Contribution, Algorithm::Greedy);
        let plan = plan(&forest, &request);
        assert_eq!(plan.victims, [NodeId(2), NodeId(1), NodeId(3)]);
        assert_eq!((plan.counters.scored, plan.counters.visited), (2 + 2 + 1, 3 + 2 + 1));
    }
}
