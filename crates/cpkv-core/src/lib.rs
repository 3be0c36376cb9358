//! The vocabulary of cpkv and the contracts of its backends.
//!
//! Everything here is plain data or a trait; nothing decides. Names and meanings follow the field: a *page* is the
//! unit of caching, its *owner* the one rank that stores it, a *lane* the pool of one rank in one tier.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod assert;
#[doc(hidden)]
pub use assert::__broken_invariant;
#[cfg(feature = "testing")]
pub mod conformance;
mod device;
mod geometry;
mod id;
mod lanes;
mod page;
mod placement;

pub use device::{
    Capabilities, CopyDescriptor, CopyRequest, DeviceError, DeviceMemory, FenceStatus, MemoryInfo, StreamKind,
};
pub use geometry::{Geometry, GeometryError, HostLayout, Preset, RowPool};
pub use id::{HoldId, LockId, NodeId, OpId, Owner, PageId, RequestId, Tick};
pub use lanes::LaneCounts;
pub use page::{PageRun, Striping, StripingError, coalesce};
pub use placement::{Placement, choose_base, rotated_owner, zigzag_owners};

/// The most lanes a system has: ranks 0..64.
pub const LANES_MAX: usize = 64;

/// A tier of memory that holds pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// L1: GPU memory.
    Device,
    /// L2: pinned host memory.
    Host,
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Tier::Device => "device",
            Tier::Host => "host",
        })
    }
}

/// What a retention policy makes of a node: the smaller key gives way first.
///
/// Two numbers compared in order, the more significant first, e.g. `[segment, last access]`. Keys may be equal; every
/// order that uses them ends in the node id and is total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RetentionKey(pub [u64; 2]);
