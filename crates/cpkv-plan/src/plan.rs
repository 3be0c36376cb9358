//! What is asked of the planner, what it answers, and the choice of algorithm.

use crate::progress::Progress;
use crate::{Forest, greedy, heap, memo};
use cpkv_core::{LaneCounts, NodeId, RetentionKey};
use std::str::FromStr;

/// Which eligible node that helps goes first. The argument for either is in the [crate docs](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum EvictOrder {
    /// The largest contribution, then unlock, then the smallest `(retention, id)`: fewest victims for a lane.
    #[default]
    Contribution,
    /// The smallest `(retention, id)`: leaf-first LRU or SLRU, restricted to what helps.
    Retention,
}

/// How the plan is found. All give the same plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// Scans all candidates at every step and counts their pages each time: the reference. O(victims x candidates x
    /// pages of a candidate and its ancestors).
    Greedy,
    /// Scans all candidates at every step, counts once. O(victims x candidates x depth x lanes).
    Memo,
    /// A heap with lazy re-evaluation. In contribution order it scores each candidate once and a few again; in
    /// retention order it looks at no candidate past the last one needed.
    #[default]
    Heap,
}

/// A name that stands for nothing here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{name}\" is unknown; one of {known}")]
pub struct UnknownName {
    /// The name.
    pub name: String,
    /// The names that are known, separated by commas.
    pub known: String,
}

/// Finds what is called `name` among `all`.
pub(crate) fn by_name<T: Copy>(name: &str, all: &[T], name_of: impl Fn(T) -> &'static str) -> Result<T, UnknownName> {
    all.iter().copied().find(|each| name_of(*each) == name).ok_or_else(|| UnknownName {
        name: name.to_owned(),
        known: all.iter().map(|each| name_of(*each)).collect::<Vec<_>>().join(", "),
    })
}

impl EvictOrder {
    /// Both orders.
    pub const ALL: &'static [EvictOrder] = &[EvictOrder::Contribution, EvictOrder::Retention];

    /// The name in files and options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            EvictOrder::Contribution => "contribution",
            EvictOrder::Retention => "retention",
        }
    }
}

impl FromStr for EvictOrder {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        by_name(name, Self::ALL, Self::name)
    }
}

impl Algorithm {
    /// All algorithms, the reference first.
    pub const ALL: &'static [Algorithm] = &[Algorithm::Greedy, Algorithm::Memo, Algorithm::Heap];

    /// The name in files and options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Greedy => "greedy",
            Algorithm::Memo => "memo",
            Algorithm::Heap => "heap",
        }
    }
}

impl FromStr for Algorithm {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        by_name(name, Self::ALL, Self::name)
    }
}

/// What a plan is to achieve, and how.
#[derive(Debug, Clone, Copy)]
pub struct PlanRequest<'a> {
    /// Pages that each lane is missing.
    pub deficits: &'a LaneCounts,
    /// Which node goes first.
    pub order: EvictOrder,
    /// How the plan is found.
    pub algorithm: Algorithm,
    /// Whether the plan lists its [`Step`]s.
    pub explain: bool,
}

impl<'a> PlanRequest<'a> {
    /// A request that isn't explained.
    #[must_use]
    pub fn new(deficits: &'a LaneCounts, order: EvictOrder, algorithm: Algorithm) -> Self {
        Self { deficits, order, algorithm, explain: false }
    }
}

/// What finding a plan took, in entries touched: the evidence for its cost (contract C10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanCounters {
    /// Scores computed, those of the same node again included.
    pub scored: u64,
    /// Scores computed again for a queued node (heap in contribution order).
    pub reevaluated: u64,
    /// Entries put in a queue (heap).
    pub pushed: u64,
    /// Nodes whose pages were looked at for a score, ancestors included, each time counted.
    pub visited: u64,
}

/// Why one victim was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The victim.
    pub node: NodeId,
    /// Pages of it that met a deficit.
    pub contribution: u64,
    /// Pages of its evictable ancestors that met a deficit at that time. Held at `u64::MAX`.
    pub unlock: u64,
    /// Its retention key.
    pub retention: RetentionKey,
    /// All its pages.
    pub freed: LaneCounts,
    /// The deficits after it.
    pub deficits_after: LaneCounts,
}

/// Victims in order, and what they achieve. Two plans are equal when they decide the same; what finding them took, and
/// whether they are explained, isn't compared.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The nodes to evict, in this order: each has no resident child when its turn comes.
    pub victims: Vec<NodeId>,
    /// All pages of the victims, per lane, wanted or not. Held at `u32::MAX`.
    pub planned_freed: LaneCounts,
    /// The deficits that stay: on these lanes nothing evictable is left.
    pub remaining: LaneCounts,
    /// The largest retention key among the victims: the most valuable prefix that is given up.
    pub given_up: Option<RetentionKey>,
    /// What finding the plan took.
    pub counters: PlanCounters,
    /// One step per victim when the request asked to explain, else none.
    pub steps: Vec<Step>,
}

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        self.victims == other.victims
            && self.planned_freed == other.planned_freed
            && self.remaining == other.remaining
            && self.given_up == other.given_up
    }
}

impl Eq for Plan {}

/// Plans which nodes of `forest` to evict so that the deficits are met. Changes nothing.
///
/// No deficit is an empty plan, found without looking at a node.
///
/// # Panics
/// When the deficits have another number of lanes than the forest: a fault of the caller that no plan can answer.
#[must_use]
pub fn plan<F: Forest>(forest: &F, request: &PlanRequest<'_>) -> Plan {
    assert_eq!(request.deficits.lanes(), forest.lanes(), "deficits have the lanes of the forest");
    let progress = Progress::new(forest, request);
    match request.algorithm {
        Algorithm::Greedy => greedy::run(progress, request.order),
        Algorithm::Memo => memo::run(progress, request.order),
        Algorithm::Heap => heap::run(progress, request.order),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_what_they_name() {
        for each in Algorithm::ALL {
            assert_eq!(each.name().parse(), Ok(*each));
        }
        for each in EvictOrder::ALL {
            assert_eq!(each.name().parse(), Ok(*each));
        }
        assert_eq!(
            "fast".parse::<Algorithm>().unwrap_err().to_string(),
            "\"fast\" is unknown; one of greedy, memo, heap"
        );
    }
}
