//! Page allocators: owner lanes for the device tier, reservable extents for the host tier.
//!
//! Who owns which free page, and nothing else: no device, no clock, no randomness. The same calls give the same pages
//! on every rank (contract C7). An operation that fails leaves everything as it was and says per lane what was missing
//! (C11). Costs follow the pages or extents asked for, never the size of the pool (C10, pinned by [`Counters`]).
//!
//! - [`OwnerLanes`]: the device tier. Each page asked for names its owner; freed pages wait in a release bucket and
//!   are merged only when an allocation would otherwise fail or lose its contiguity.
//! - [`HostPool`] and [`HostLanes`]: the host tier. Space is reserved, then committed or forfeited, once.
//!
//! Memory: 12 bytes per page for the index of free extents (4 with [`Contiguity::Off`], and 4 more per released page),
//! 1 bit per page of the device tier and 2 of the host tier. Beyond that 4 KiB per pool, at most 16 bytes per free
//! extent of 1,024 pages and more, 8 bytes per run of the largest call, and the table of reservations that are live.
//!
//! ```
//! use cpkv_alloc::{AllocError, Contiguity, HostLanes, OwnerLanes};
//! use cpkv_core::{LaneCounts, Owner, PageId, Striping};
//!
//! // Two ranks with 8 device pages and 4 host pages each.
//! let striping = Striping::new(2)?;
//! let mut device = OwnerLanes::new(striping, 8, Contiguity::Preferred)?;
//! let mut host = HostLanes::new(striping, 4, Contiguity::Preferred)?;
//!
//! // A prompt of three pages whose owners alternate. Logical pages 0 and 1 are the padding pages.
//! let owners = [Owner(0), Owner(1), Owner(0)];
//! let pages = device.alloc(&owners)?;
//! assert_eq!(pages, [PageId(2), PageId(3), PageId(4)]);
//! assert_eq!(device.free_pages(), &LaneCounts::from([6, 7]));
//!
//! // Its backup: host pages on the same lanes, reserved first, committed when the copy is acknowledged.
//! let backup = host.reserve(&owners)?;
//! host.commit(&backup)?;
//! assert_eq!(host.forfeit(&backup), Err(AllocError::StaleReservation));
//!
//! // The device copy goes; a second time is refused by name.
//! device.free(&pages)?;
//! assert_eq!(device.free(&pages), Err(AllocError::DoubleFree { page: PageId(2) }));
//!
//! // Nothing is taken when one lane is short, whatever the other has.
//! let full = AllocError::HostFull { missing: LaneCounts::from([1, 0]) };
//! assert_eq!(host.reserve(&[Owner(1), Owner(0), Owner(0), Owner(0)]), Err(full));
//! host.release(&backup.pages)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bits;
mod counters;
mod error;
mod extents;
mod host;
mod host_lanes;
mod index;
mod interleave;
mod lanes;
mod lengths;
#[cfg(any(test, feature = "testing"))]
pub mod model;
mod stack;
#[cfg(test)]
mod tests;

pub use counters::Counters;
pub use error::AllocError;
pub use host::{HostPool, Reservation};
pub use host_lanes::{HostLanes, LaneReservation};
pub use index::Contiguity;
pub use lanes::OwnerLanes;

/// The most pages of one pool, padding not counted: 2^22.
pub const PAGES_MAX: u32 = 1 << 22;
