//! What the planner sees of one tier: a read-only forest of resident nodes.

use cpkv_core::{LaneCounts, NodeId, Owner, RetentionKey};
use std::borrow::Cow;

/// A read-only view of the nodes that are resident in one tier.
///
/// The planner asks about ids that came from [`eligible`](Forest::eligible) and [`parent`](Forest::parent) of the same
/// forest, nothing else. The implementer guarantees, for the whole of one plan:
/// - answers don't change;
/// - evictable nodes are closed downward: every resident descendant of an evictable node is evictable;
/// - `counts` and `owners` describe the same pages, on lanes `0..lanes`.
///
/// Ids must be unique, retention keys needn't be.
pub trait Forest {
    /// The number of lanes, which is that of every count.
    fn lanes(&self) -> usize;

    /// The nodes that are eligible now: resident, evictable and without a resident child. Each once, in ascending
    /// `(retention, id)` order, lazily: a plan in retention order pulls no further than it needs.
    fn eligible(&self) -> Box<dyn Iterator<Item = NodeId> + '_>;

    /// The parent that is resident in this tier; `None` for a node that hangs under the root.
    fn parent(&self, id: NodeId) -> Option<NodeId>;

    /// Whether the node may be evicted once its resident children are gone.
    fn evictable(&self, id: NodeId) -> bool;

    /// How many children are resident in this tier, evictable or not.
    fn children(&self, id: NodeId) -> u32;

    /// Pages per lane, as stored: borrowed wherever they are stored as such, since every score asks for them. For memo
    /// and heap.
    fn counts(&self, id: NodeId) -> Cow<'_, LaneCounts>;

    /// The owner of each page, in any order. For greedy, which counts them anew each time.
    fn owners(&self, id: NodeId) -> Box<dyn Iterator<Item = Owner> + '_>;

    /// What the retention policy makes of the node: the smaller gives way first.
    fn retention(&self, id: NodeId) -> RetentionKey;
}
