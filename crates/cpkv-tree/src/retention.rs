//! Retention policies: what a node's history says about how long it should stay.

use cpkv_core::{RetentionKey, Tick};

/// The facts of a node that a retention policy may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeFacts {
    /// Finished inserts that went through the node.
    pub uses: u32,
    /// The last access.
    pub tick: Tick,
    /// The insert that made it. A split copies it.
    pub created: Tick,
    /// The highest priority of an insert that went through it.
    pub priority: i64,
}

/// Maps node facts to a key of fixed size: the smaller key gives way first, and equal keys in the order of node ids.
///
/// The first number must stay below `2^63`: the host frontier puts its own distinction above it.
pub trait RetentionPolicy {
    /// The key of a node with these facts. A pure function.
    fn key(&self, facts: &NodeFacts) -> RetentionKey;
}

/// The policies built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Retention {
    /// Least recently used: `[0, tick]`.
    Lru,
    /// Segmented: nodes used once go before those used at least twice, then as LRU. `[uses >= 2, tick]`.
    #[default]
    Slru,
    /// Least frequently used, then as LRU: `[uses, tick]`.
    Lfu,
    /// First in, first out: `[0, created]`.
    Fifo,
    /// Lowest priority first, then as LRU: `[priority, tick]`, the priority shifted so that its order is kept.
    /// Priorities beyond plus or minus `2^62` count as that.
    Priority,
}

impl RetentionPolicy for Retention {
    fn key(&self, facts: &NodeFacts) -> RetentionKey {
        RetentionKey(match self {
            Retention::Lru => [0, facts.tick.0],
            Retention::Slru => [u64::from(facts.uses >= 2), facts.tick.0],
            Retention::Lfu => [facts.uses.into(), facts.tick.0],
            Retention::Fifo => [0, facts.created.0],
            Retention::Priority => {
                // 63 bits, so that the host frontier has the top bit for itself.
                let shifted = facts.priority.clamp(-(1 << 62), (1 << 62) - 1) + (1 << 62);
                [shifted as u64, facts.tick.0]
            }
        })
    }
}

/// The key on the host tier: copies of nodes that are on the device too (mirrors) go first, then by retention.
///
/// A mirror costs nothing but a copy to restore; a node that is on the host alone must be computed again.
pub(crate) fn host_key(device: RetentionKey, mirror: bool) -> RetentionKey {
    let [first, second] = device.0;
    RetentionKey([(u64::from(!mirror) << 63) | first.min((1 << 63) - 1), second])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(uses: u32, tick: u64, created: u64, priority: i64) -> NodeFacts {
        NodeFacts { uses, tick: Tick(tick), created: Tick(created), priority }
    }

    #[test]
    fn each_policy_orders_by_its_facts() {
        let (a, b) = (facts(1, 9, 2, -1), facts(2, 5, 3, 4));
        for (policy, a_first) in [
            (Retention::Lru, false),
            (Retention::Slru, true),
            (Retention::Lfu, true),
            (Retention::Fifo, true),
            (Retention::Priority, true),
        ] {
            assert_eq!(policy.key(&a) < policy.key(&b), a_first, "{policy:?}");
        }
    }

    #[test]
    fn priorities_keep_their_order_on_both_tiers() {
        let of = |priority| Retention::Priority.key(&facts(0, 1, 1, priority));
        let ascending = [i64::MIN, -(1 << 61), -7, -1, 0, 1, 7, 1 << 61, i64::MAX];
        for pair in ascending.windows(2) {
            assert!(of(pair[0]) < of(pair[1]), "{pair:?}");
            for mirror in [false, true] {
                assert!(host_key(of(pair[0]), mirror) < host_key(of(pair[1]), mirror), "{pair:?}");
            }
        }
        assert!(host_key(of(i64::MAX), true) < host_key(of(i64::MIN), false), "a mirror goes before any other copy");
    }
}
