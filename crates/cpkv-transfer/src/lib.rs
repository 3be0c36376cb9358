//! Moves pages between the tiers through [`DeviceMemory`](cpkv_core::DeviceMemory): descriptors, backups, load-backs.
//!
//! Knows nothing of the tree or of requests: it is given pairs of physical pages and moves their bytes, in all layers
//! and row pools. One [`LaneMemory`] holds the pools of one local lane; one [`InFlight`] holds what is on the way on
//! all of them, and gives each operation's pages back once.
//!
//! Ordering, on each lane: backups run on one stream and load-backs on another, and both wait for the forward passes
//! that were reported before they were submitted ([`LaneMemory::after_forward`]). A backup has one fence at its end; a
//! load-back has one per layer, which covers every row pool of that layer, so that a reader of any pool of layer i
//! waits for fence i and for nothing else. Backups and load-backs aren't ordered among themselves: whoever submits
//! them keeps the pages of a copy in flight out of the next one (contract C4).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod backup;
mod descriptor;
mod error;
mod inflight;
mod lane;
mod load_back;
mod stats;
mod submitted;

pub use descriptor::{Direction, PagePair, PoolPages, all_layers, one_layer, split};
pub use error::TransferError;
pub use inflight::{Completion, EndError, InFlight, InsertError};
pub use lane::{LaneMemory, TransferConfig};
pub use stats::{DirectionStats, TransferStats};
pub use submitted::{Part, Submitted};
