//! The eviction planner: which cached prefixes give way, lane by lane.
//!
//! Input is a [`Forest`] of cached nodes, each with its pages per lane, and the [deficits](PlanRequest::deficits): how
//! many pages each lane is missing. Output is a [`Plan`]: the victims in order, what they free and what stays missing.
//! A plan is pure, it changes nothing, and it is a function of its input alone: equal forests and deficits give equal
//! plans on every rank.
//!
//! A node is *eligible* when it is resident, evictable and has no resident child left, victims counted as gone. Each
//! step takes the eligible node with the best score among those that help:
//!
//! - `contribution(n)`: the sum over lanes of `min(pages of n, deficit)`, with the deficits as they are now;
//! - `unlock(n)`: the sum of the contributions of the evictable ancestors of `n`, walking up and stopping at the first
//!   that isn't evictable. Siblings are ignored.
//!
//! A node *helps* when contribution + unlock > 0. [`EvictOrder::Contribution`] takes the largest contribution, then
//! the largest unlock, then the smallest `(retention, id)`; [`EvictOrder::Retention`] the smallest `(retention, id)`.
//!
//! # Why the algorithms agree
//!
//! [`Algorithm::Greedy`] and [`Algorithm::Memo`] scan every eligible node at every step, so they are the definition.
//! [`Algorithm::Heap`] looks at few nodes, and is right because *a score never improves*:
//!
//! 1. Deficits only shrink, so `min(pages, deficit)` only shrinks, and with it every contribution. The ancestors over
//!    which unlock sums are the same for as long as the node is there: nobody above an evictable node can go before it.
//!    So unlock only shrinks too, and a node that helps nothing now never helps later: it can be dropped for good.
//! 2. A queued score is therefore at least as good as the true one. When the best queued score turns out to be still
//!    true, every other node's true score is no better than its queued one, which is no better than this one: it is
//!    the best of all, ties included, since the order ends in the unique id. When it isn't true any more the node goes
//!    back with its true score.
//! 3. In retention order the key doesn't change at all. The next node in order that helps is the one to take, and those
//!    before it that don't help are dropped.
//!
//! An unlock that counted only parents which *this* eviction exposes would break this: evicting a node raises the score
//! of its last sibling. It would also give up on two empty siblings under a parent that could meet the deficit.
//!
//! Evictable nodes are closed downward (below an evictable node everything is evictable), so everything evictable can be
//! reached leaf by leaf and a deficit remains only where the evictable pages of that lane don't suffice.
//!
//! ```
//! use cpkv_core::{LaneCounts, NodeId};
//! use cpkv_plan::{Algorithm, EvictOrder, PlanNode, PlanRequest, VecForest, plan};
//!
//! let node = |id, parent, counts: [u32; 2]| PlanNode {
//!     id, parent, counts: counts.to_vec(), retention: [0, id], evictable: true,
//! };
//! // Lane 1 is short of two pages. Node 2 alone frees one there, and its parent, which it unlocks, the other.
//! let forest = VecForest::new(2, vec![node(1, None, [3, 1]), node(2, Some(1), [0, 1]), node(3, None, [9, 0])])?;
//! let deficits = LaneCounts::from([0, 2]);
//! let plan = plan(&forest, &PlanRequest::new(&deficits, EvictOrder::Contribution, Algorithm::Heap));
//! assert_eq!(plan.victims, [NodeId(2), NodeId(1)]);
//! assert_eq!(plan.planned_freed, LaneCounts::from([3, 2]));
//! assert!(plan.remaining.is_zero());
//! # Ok::<(), cpkv_plan::ForestError>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod feasibility;
mod fetched;
mod forest;
mod greedy;
mod heap;
mod memo;
mod plan;
mod progress;
mod score;
mod vec_forest;

pub use feasibility::{EvictAmount, Feasibility, deficits, missing};
pub use forest::Forest;
pub use plan::{Algorithm, EvictOrder, Plan, PlanCounters, PlanRequest, Step, UnknownName, plan};
pub use vec_forest::{ForestError, PlanNode, VecForest};
