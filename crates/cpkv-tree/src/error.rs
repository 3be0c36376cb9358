//! What a tree refuses. Every refusal leaves the tree as it was.

use cpkv_core::{NodeId, OpId, Owner, PageId, StripingError};

/// Why a call on the tree was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The configuration's number of lanes is out of range.
    #[error(transparent)]
    Lanes(#[from] StripingError),
    /// The configuration's page size is 0.
    #[error("page_size: 0 is out of range, at least 1")]
    PageSize,
    /// No node has this id: it was never given out, or the node is gone. Ids are never used again.
    #[error("node {node} is unknown")]
    UnknownNode {
        /// The id asked for.
        node: NodeId,
    },
    /// A split must leave at least one page on each side.
    #[error("node {node} of {len} pages can't be split at page {at}")]
    SplitPoint {
        /// The node.
        node: NodeId,
        /// Where it should have been split, in pages from its start.
        at: u32,
        /// The node's pages.
        len: u32,
    },
    /// A call gave another number of pages than there are positions.
    #[error("{given} pages were given for {positions} positions")]
    PageCount {
        /// Positions to fill: pages of the node or of the key.
        positions: u32,
        /// Pages given.
        given: usize,
    },
    /// More pages of a match were asked for than it has.
    #[error("page {asked} of a match of {matched} pages was asked for")]
    BeyondMatch {
        /// Pages asked for.
        asked: u32,
        /// Pages of the match.
        matched: u32,
    },
    /// A page on one tier must have the owner of the page at the same position on the other (contract C9).
    #[error("page {page} of owner {owner} can't lie over page {other} of owner {expected}, at position {position}")]
    OwnerMismatch {
        /// The position in the chain, in pages.
        position: u32,
        /// The page that was given.
        page: PageId,
        /// Its owner.
        owner: Owner,
        /// The page of the other tier at that position.
        other: PageId,
        /// The owner that it has.
        expected: Owner,
    },
    /// The node is on the device already.
    #[error("node {node} is on the device already")]
    AlreadyResident {
        /// The node.
        node: NodeId,
    },
    /// The node isn't on the device.
    #[error("node {node} isn't on the device")]
    NotResident {
        /// The node.
        node: NodeId,
    },
    /// The parent isn't on the device, so neither may the node be (contract C2).
    #[error("node {node} can't be on the device: its parent {parent} isn't")]
    ParentNotResident {
        /// The node.
        node: NodeId,
        /// Its parent.
        parent: NodeId,
    },
    /// The node has a valid host copy already: it is demoted, not dropped, and not saved again.
    #[error("node {node} has a valid host copy")]
    AlreadySaved {
        /// The node.
        node: NodeId,
    },
    /// The node has no valid host copy.
    #[error("node {node} has no valid host copy")]
    NotSaved {
        /// The node.
        node: NodeId,
    },
    /// The parent has no valid host copy, so neither may the node have one: save the parent first.
    #[error("node {node} can't be saved: its parent {parent} isn't")]
    ParentNotSaved {
        /// The node.
        node: NodeId,
        /// Its parent.
        parent: NodeId,
    },
    /// A child on the same tier would be left behind: evict leaf first.
    #[error("node {node} has {children} children on the same tier")]
    HasChildren {
        /// The node.
        node: NodeId,
        /// Its children on that tier.
        children: u32,
    },
    /// A path lock covers the node (contract C6).
    #[error("node {node} is under {locks} locks")]
    Locked {
        /// The node.
        node: NodeId,
        /// Locks that cover it.
        locks: u32,
    },
    /// A host lock covers the node.
    #[error("node {node} is under {locks} host locks")]
    HostLocked {
        /// The node.
        node: NodeId,
        /// Host locks that cover it.
        locks: u32,
    },
    /// No lock was taken at this very node: each lock is given back where it was taken, and once.
    #[error("no lock was taken at node {node}")]
    NotLocked {
        /// The node.
        node: NodeId,
    },
    /// A copy in flight reads or fills the node (contract C4).
    #[error("copy {op} is in flight on node {node}")]
    InFlight {
        /// The node.
        node: NodeId,
        /// The copy.
        op: OpId,
    },
}
