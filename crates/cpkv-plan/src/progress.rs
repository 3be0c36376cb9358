//! A plan in the making: deficits left, victims so far, and which parents they have exposed.

use crate::score::{Score, contribution, score};
use crate::{Forest, Plan, PlanCounters, PlanRequest, Step};
use cpkv_core::{LaneCounts, NodeId, RetentionKey, strict_assert};
use rustc_hash::FxHashMap;

/// What all algorithms share. It keeps maps of its own over what it looked at, never a copy of the forest.
pub(crate) struct Progress<'f, F> {
    pub(crate) forest: &'f F,
    /// Deficits not met yet.
    pub(crate) deficits: LaneCounts,
    pub(crate) counters: PlanCounters,
    /// Resident children left, of parents of victims alone.
    children_left: FxHashMap<NodeId, u32>,
    victims: Vec<NodeId>,
    freed: LaneCounts,
    given_up: Option<RetentionKey>,
    explain: bool,
    steps: Vec<Step>,
}

impl<'f, F: Forest> Progress<'f, F> {
    pub(crate) fn new(forest: &'f F, request: &PlanRequest<'_>) -> Self {
        Self {
            forest,
            deficits: request.deficits.clone(),
            counters: PlanCounters::default(),
            children_left: FxHashMap::default(),
            victims: Vec::new(),
            freed: LaneCounts::zero(forest.lanes()),
            given_up: None,
            explain: request.explain,
            steps: Vec::new(),
        }
    }

    /// Whether a deficit is left.
    pub(crate) fn open(&self) -> bool {
        !self.deficits.is_zero()
    }

    /// How many victims there are: the version of the deficits.
    pub(crate) fn version(&self) -> usize {
        self.victims.len()
    }

    /// The score of `id` from stored counts.
    pub(crate) fn score_stored(&mut self, id: NodeId) -> Score {
        let Self { forest, deficits, counters, .. } = self;
        counters.scored += 1;
        score(*forest, id, |node| {
            counters.visited += 1;
            contribution(&forest.counts(node), deficits)
        })
    }

    /// The score of `id`, pages counted one by one.
    pub(crate) fn score_recounted(&mut self, id: NodeId) -> Score {
        let Self { forest, deficits, counters, .. } = self;
        counters.scored += 1;
        score(*forest, id, |node| {
            counters.visited += 1;
            contribution(&LaneCounts::of_owners(forest.lanes(), forest.owners(node)), deficits)
        })
    }

    /// Makes `id`, with these counts, the next victim. Returns its parent when that becomes eligible by it.
    pub(crate) fn take(&mut self, id: NodeId, score: Score, counts: &LaneCounts) -> Option<NodeId> {
        strict_assert!(score.helps(), "victim {id} helps");
        let retention = self.forest.retention(id);
        self.deficits = self.deficits.saturating_sub(counts);
        self.freed = self.freed.saturating_add(counts);
        self.given_up = self.given_up.max(Some(retention));
        self.victims.push(id);
        if self.explain {
            self.steps.push(Step {
                node: id,
                contribution: score.contribution,
                unlock: score.unlock,
                retention,
                freed: counts.clone(),
                deficits_after: self.deficits.clone(),
            });
        }
        let parent = self.forest.parent(id).filter(|parent| self.forest.evictable(*parent))?;
        let left = self.children_left.entry(parent).or_insert_with(|| self.forest.children(parent));
        strict_assert!(*left > 0, "parent {parent} of victim {id} counts it among its children");
        *left = left.saturating_sub(1);
        (*left == 0).then_some(parent)
    }

    pub(crate) fn finish(self) -> Plan {
        Plan {
            victims: self.victims,
            planned_freed: self.freed,
            remaining: self.deficits,
            given_up: self.given_up,
            counters: self.counters,
            steps: self.steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, EvictOrder, PlanNode, VecForest};

    #[test]
    fn a_parent_is_exposed_by_its_last_child_alone() {
        let node = |id, parent, evictable| PlanNode { id, parent, counts: vec![1], retention: [id, 0], evictable };
        let forest = VecForest::new(
            1,
            vec![
                node(1, None, false),
                node(2, Some(1), true),
                node(3, Some(2), true),
                node(4, Some(2), true),
                node(5, Some(1), true),
            ],
        )
        .unwrap();
        let deficits = LaneCounts::from([9]);
        let request =
            PlanRequest { explain: true, ..PlanRequest::new(&deficits, EvictOrder::Contribution, Algorithm::Heap) };
        let mut progress = Progress::new(&forest, &request);
        let one = LaneCounts::from([1]);
        for (victim, exposed) in [(4, None), (3, Some(NodeId(2))), (2, None), (5, None)] {
            let score = progress.score_stored(NodeId(victim));
            assert_eq!(score, progress.score_recounted(NodeId(victim)));
            assert_eq!(progress.take(NodeId(victim), score, &one), exposed, "victim {victim}");
        }
        let plan = progress.finish();
        assert_eq!(plan.remaining, LaneCounts::from([5]));
        assert_eq!(plan.planned_freed, LaneCounts::from([4]));
        assert_eq!(plan.given_up, Some(RetentionKey([5, 0])));
        assert_eq!(plan.steps[1].deficits_after, LaneCounts::from([7]));
        assert_eq!(plan.counters.scored, 8);
    }
}
