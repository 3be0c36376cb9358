//! What a candidate is worth, with the deficits as they are, and how candidates rank.

use crate::{EvictOrder, Forest};
use cpkv_core::{LaneCounts, NodeId, RetentionKey};
use std::cmp::Reverse;

/// Pages of a candidate, and of what its eviction leads to, that meet a deficit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Score {
    /// The candidate's own pages that meet a deficit.
    pub(crate) contribution: u64,
    /// The same of its evictable ancestors, siblings ignored.
    pub(crate) unlock: u64,
}

impl Score {
    /// Whether evicting the candidate leads to any page that is missing.
    pub(crate) fn helps(self) -> bool {
        self.contribution > 0 || self.unlock > 0
    }
}

/// Where a candidate stands: the largest goes first. Total, since it ends in the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Contribution and unlock; 0 in retention order.
    worth: (u64, u64),
    retention: Reverse<(u64, u64)>,
    id: Reverse<NodeId>,
}

impl Rank {
    /// The rank of a candidate that helps.
    pub(crate) fn new(order: EvictOrder, score: Score, RetentionKey([high, low]): RetentionKey, id: NodeId) -> Self {
        let worth = match order {
            EvictOrder::Contribution => (score.contribution, score.unlock),
            EvictOrder::Retention => (0, 0),
        };
        Self { worth, retention: Reverse((high, low)), id: Reverse(id) }
    }

    /// The score it was made from, in contribution order.
    pub(crate) fn score(self) -> Score {
        Score { contribution: self.worth.0, unlock: self.worth.1 }
    }

    /// The retention key it was made from.
    pub(crate) fn retention(self) -> RetentionKey {
        RetentionKey([self.retention.0.0, self.retention.0.1])
    }

    /// The candidate.
    pub(crate) fn id(self) -> NodeId {
        self.id.0
    }
}

/// The sum over lanes of `min(counts, deficits)`. At most 64 lanes of u32 each: no overflow.
pub(crate) fn contribution(counts: &LaneCounts, deficits: &LaneCounts) -> u64 {
    counts.as_slice().iter().zip(deficits.as_slice()).map(|(have, want)| u64::from(*have.min(want))).sum()
}

/// The score of `id`, with the contribution of a node as `contribution_of` gives it. O(depth) calls.
pub(crate) fn score<F: Forest>(forest: &F, id: NodeId, mut contribution_of: impl FnMut(NodeId) -> u64) -> Score {
    let own = contribution_of(id);
    let mut unlock = 0u64;
    let mut ancestor = forest.parent(id);
    while let Some(above) = ancestor.filter(|above| forest.evictable(*above)) {
        unlock = unlock.saturating_add(contribution_of(above));
        ancestor = forest.parent(above);
    }
    Score { contribution: own, unlock }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PlanNode, VecForest};

    #[test]
    fn contribution_is_capped_by_each_lanes_deficit() {
        let counts = LaneCounts::from([5, 2, 7, u32::MAX]);
        assert_eq!(contribution(&counts, &LaneCounts::from([3, 4, 0, u32::MAX])), 5 + u64::from(u32::MAX));
    }

    #[test]
    fn unlock_stops_below_the_first_ancestor_that_is_locked() {
        let node = |id, parent, evictable| PlanNode { id, parent, counts: vec![1], retention: [0, 0], evictable };
        let forest = VecForest::new(
            1,
            vec![node(1, None, false), node(2, Some(1), true), node(3, Some(2), true), node(4, Some(2), true)],
        )
        .unwrap();
        // Node 2 stands over two children and counts for both.
        let score = score(&forest, NodeId(3), |id| 10 * id.0);
        assert_eq!(score, Score { contribution: 30, unlock: 20 });
    }

    #[test]
    fn the_smaller_key_ranks_higher_among_equals() {
        let score = |contribution, unlock| Score { contribution, unlock };
        let key = |segment| RetentionKey([segment, 0]);
        let order = EvictOrder::Contribution;
        assert!(Rank::new(order, score(2, 0), key(9), NodeId(9)) > Rank::new(order, score(1, 9), key(0), NodeId(0)));
        assert!(Rank::new(order, score(2, 1), key(9), NodeId(9)) > Rank::new(order, score(2, 0), key(0), NodeId(0)));
        assert!(Rank::new(order, score(2, 1), key(0), NodeId(9)) > Rank::new(order, score(2, 1), key(1), NodeId(0)));
        assert!(Rank::new(order, score(2, 1), key(0), NodeId(1)) > Rank::new(order, score(2, 1), key(0), NodeId(2)));
        assert_eq!(Rank::new(order, score(2, 7), key(1), NodeId(3)).score(), score(2, 7));
        let order = EvictOrder::Retention;
        assert!(Rank::new(order, score(1, 0), key(0), NodeId(9)) > Rank::new(order, score(9, 9), key(1), NodeId(0)));
    }
}
