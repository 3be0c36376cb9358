//! The full rescan over counts that are fetched once: what a careful port of the reference does.

use crate::fetched::Fetched;
use crate::progress::Progress;
use crate::score::Rank;
use crate::{EvictOrder, Forest, Plan};

/// The plan by full rescans.
pub(crate) fn run<F: Forest>(mut progress: Progress<'_, F>, order: EvictOrder) -> Plan {
    let forest = progress.forest;
    let mut fetched = Fetched::default();
    let mut candidates: Vec<usize> = Vec::new();
    if progress.open() {
        candidates.extend(forest.eligible().map(|id| fetched.entry(forest, id)));
    }
    while progress.open() {
        let mut best = None;
        for (at, place) in candidates.iter().copied().enumerate() {
            let score = fetched.score(place, &progress.deficits, &mut progress.counters);
            if !score.helps() {
                continue;
            }
            let entry = fetched.at(place);
            let rank = Rank::new(order, score, entry.retention, entry.id);
            if best.is_none_or(|(_, _, best)| rank > best) {
                best = Some((at, score, rank));
            }
        }
        let Some((at, score, _)) = best else { break };
        let entry = fetched.at(candidates.swap_remove(at));
        if let Some(exposed) = progress.take(entry.id, score, &entry.counts) {
            candidates.push(fetched.entry(forest, exposed));
        }
    }
    progress.finish()
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, EvictOrder, PlanNode, PlanRequest, VecForest, plan};
    use cpkv_core::{LaneCounts, NodeId};

    #[test]
    fn every_step_scores_every_candidate_as_the_reference_does() {
        let node = |id, parent| PlanNode { id, parent, counts: vec![1], retention: [0, 0], evictable: true };
        let forest = VecForest::new(1, vec![node(1, None), node(2, Some(1)), node(3, None)]).unwrap();
        let deficits = LaneCounts::from([3]);
        let by = |algorithm| plan(&forest, &PlanRequest::new(&deficits, EvictOrder::Contribution, algorithm));
        let (memo, greedy) = (by(Algorithm::Memo), by(Algorithm::Greedy));
        assert_eq!(memo.victims, [NodeId(2), NodeId(1), NodeId(3)]);
        assert_eq!(memo, greedy);
        assert_eq!(memo.counters, greedy.counters);
    }
}
