//! Copies between the tiers, from reservation to end.
//!
//! An operation owns what it reserved until it ends, and it ends exactly once: it is taken out of the table by value
//! (`submitted -> acknowledged | failed`), so a second end finds nothing. The nodes that it concerns are not listed:
//! they are the pieces of the path up from `tail`, which stays right through any split (contract C5).

use cpkv_alloc::LaneReservation;
use cpkv_core::{NodeId, OpId, Owner, PageId, RequestId};
use cpkv_transfer::PagePair;

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyKind {
    /// Device to host.
    Backup,
    /// Host to device.
    LoadBack,
}

/// Who asked for a copy: gives it its name in scenarios and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpOrigin {
    /// A call of the embedding engine.
    Caller,
    /// The load-back of a waiting request: `load:REQUEST`.
    Request(RequestId),
    /// The K-th backup by write policy, from 1: `backup:K`.
    Policy(u64),
}

/// A copy that the engine started, as a result reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartedCopy {
    /// The copy.
    pub op: OpId,
    /// Its direction.
    pub kind: CopyKind,
    /// Who asked for it.
    pub origin: OpOrigin,
}

/// What one copy moves on each lane: handed to the memory of the local lanes, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOrder {
    /// The copy.
    pub op: OpId,
    /// Its direction.
    pub kind: CopyKind,
    /// Pairs of physical pages per lane, in path order. A lane without pages takes part with none.
    pub pairs: Vec<(Owner, Vec<PagePair>)>,
}

/// What an operation reserved and has to give back or hand over at its end.
#[derive(Debug, Clone)]
pub(crate) enum Reserved {
    /// A backup's host pages.
    Host(LaneReservation),
    /// A load-back's device pages are in `Operation::device`.
    Device,
}

/// A copy in flight.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Its direction.
    pub kind: CopyKind,
    /// Who asked for it.
    pub origin: OpOrigin,
    /// The deepest node concerned. It keeps its id through splits.
    pub tail: NodeId,
    /// The position in the chain, in pages, of the first page that is copied; the last is the tail's last.
    pub from: u32,
    /// Device pages, in path order: a backup's source, a load-back's destination.
    pub device: Vec<PageId>,
    /// Host pages, in path order: a backup's destination, a load-back's source.
    pub host: Vec<PageId>,
    pub(crate) reserved: Reserved,
    /// Requests that wait for this load-back.
    pub(crate) waiters: Vec<RequestId>,
    /// Write-back: the tail leaves the device at the ack.
    pub(crate) demote: bool,
}
