//! The prefix tree: which prefixes are cached, on which tier, and what may give way.
//!
//! A [`Tree`] is an arena of radix-tree nodes with ids that are never used again. Each [node](NodeRef) is a run of
//! whole pages of one key: its tokens, its device pages, its valid host copy, and the facts that decisions read. Keys
//! are token ids in whole pages under a namespace; hashes find candidates and tokens decide, so that two different
//! keys never match whatever the hash function does (contract C17).
//!
//! The tree owns no memory and knows no allocator: pages come in by [`insert`](Tree::insert),
//! [`attach_device`](Tree::attach_device) and [`attach_host`](Tree::attach_host) and go out as the return value of
//! the call that drops them. Residency is closed under prefix on both tiers (contract C2): below a node that is off
//! the device nothing is on the device, and below a node without a valid host copy nothing has one. So everything that
//! may be evicted is reached leaf by leaf, and the leaves are two maintained ordered sets,
//! [`device_frontier`](Tree::device_frontier) and [`host_frontier`](Tree::host_frontier), never searched for.
//!
//! # Splits
//! A node may split at any page border at any time, also while a copy reads or fills it (contract C5). The tail keeps
//! the old id and the new upper half gets the next one. That is what makes names stable: a lock, an operation or a
//! request that remembers the *last* node of its path goes on meaning the same pages, and [`Tree::pieces`] gives the
//! nodes that its path consists of by now.
//!
//! # Cost
//! A look-up costs the tokens compared, a change the nodes of the path and the pages that move, plus `log` of the
//! frontier for each node that enters or leaves it. Figures and frontiers are read in O(1). Nothing recurses: chains
//! of thousands of nodes are walked by loops.
//!
//! With the feature `testing`, `model::Model` is the same tree written naively, page by page, for property tests.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod arena;
mod check;
mod children;
mod error;
#[cfg(test)]
mod fixture;
mod frontier;
mod insert;
mod locks;
mod matching;
#[cfg(any(test, feature = "testing"))]
pub mod model;
mod node;
mod pin;
#[cfg(test)]
mod property;
mod residency;
mod retention;
mod split;
mod tree;

pub use error::TreeError;
pub use insert::{Duplicate, Insert, Inserted};
pub use matching::{Key, Match, PathStep};
pub use node::NodeRef;
pub use retention::{NodeFacts, Retention, RetentionPolicy};
pub use tree::{Tree, TreeConfig};
