//! Candidates and their evictable ancestors in one dense table, each asked of the forest once.

use crate::score::{Score, contribution};
use crate::{Forest, PlanCounters};
use cpkv_core::{LaneCounts, NodeId, RetentionKey};
use rustc_hash::FxHashMap;

/// One node, fetched from the forest.
pub(crate) struct Entry {
    pub(crate) id: NodeId,
    pub(crate) retention: RetentionKey,
    pub(crate) counts: LaneCounts,
    /// The entry of the parent, when that is evictable.
    above: Option<usize>,
}

/// Candidates and their evictable ancestors, each fetched once.
#[derive(Default)]
pub(crate) struct Fetched {
    entries: Vec<Entry>,
    places: FxHashMap<NodeId, usize>,
}

impl Fetched {
    /// The entry of `id`, fetched with all its evictable ancestors if it is new.
    pub(crate) fn entry<F: Forest>(&mut self, forest: &F, id: NodeId) -> usize {
        let place = self.place(forest, id);
        let mut below = place;
        // Climb until the link upward is known: the ancestors of a known entry are known.
        while self.entries[below].above.is_none() {
            let Some(parent) = forest.parent(self.entries[below].id).filter(|parent| forest.evictable(*parent)) else {
                break;
            };
            let above = self.place(forest, parent);
            self.entries[below].above = Some(above);
            below = above;
        }
        place
    }

    fn place<F: Forest>(&mut self, forest: &F, id: NodeId) -> usize {
        let Self { entries, places } = self;
        *places.entry(id).or_insert_with(|| {
            let (retention, counts) = (forest.retention(id), forest.counts(id).into_owned());
            entries.push(Entry { id, retention, counts, above: None });
            entries.len() - 1
        })
    }

    /// The entry at a place that [`entry`](Fetched::entry) gave.
    pub(crate) fn at(&self, place: usize) -> &Entry {
        &self.entries[place]
    }

    /// The score of the entry at `place`. O(depth x lanes).
    pub(crate) fn score(&self, place: usize, deficits: &LaneCounts, counters: &mut PlanCounters) -> Score {
        let entry = &self.entries[place];
        let mut score = Score { contribution: contribution(&entry.counts, deficits), unlock: 0 };
        counters.scored += 1;
        counters.visited += 1;
        let mut above = entry.above;
        while let Some(place) = above {
            let ancestor = &self.entries[place];
            score.unlock = score.unlock.saturating_add(contribution(&ancestor.counts, deficits));
            counters.visited += 1;
            above = ancestor.above;
        }
        score
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PlanNode, VecForest};

    #[test]
    fn ancestors_are_fetched_once_and_end_at_a_lock() {
        let node = |id, parent, evictable| PlanNode { id, parent, counts: vec![1], retention: [0, 0], evictable };
        let forest = VecForest::new(
            1,
            vec![node(1, None, false), node(2, Some(1), true), node(3, Some(2), true), node(4, Some(2), true)],
        )
        .unwrap();
        let mut fetched = Fetched::default();
        let (three, four) = (fetched.entry(&forest, NodeId(3)), fetched.entry(&forest, NodeId(4)));
        assert_eq!(fetched.entries.len(), 3, "2, 3 and 4; 1 is locked");
        assert_eq!(fetched.entries[three].above, fetched.entries[four].above);
        assert_eq!(fetched.entry(&forest, NodeId(2)), fetched.entries[three].above.unwrap());
        assert_eq!(fetched.entries.len(), 3);
    }
}
