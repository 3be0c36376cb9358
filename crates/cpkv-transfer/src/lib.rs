//! Moves pages between the tiers through [`DeviceMemory`](cpkv_core::DeviceMemory): descriptors, backups, load-backs.
//!
//! Knows nothing of the tree or of requests: it is given pairs of physical pages and moves their bytes, in all layers
//! and row pools. One [`LaneMemory`] holds the pools of one local lane.
//!
//! Ordering, on each lane: backups run on one stream and load-backs on another, and both wait for the forward passes
//! that were reported before they were submitted ([`LaneMemory::after_forward`]). A backup has one fence at its end; a
//! load-back has one per layer, which covers every row pool of that layer, so that a reader of any pool of layer i
//! waits for fence i and for nothing else.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod descriptor;
mod lane;
mod stats;

pub use descriptor::{Direction, PagePair, PoolPages, all_layers, one_layer, split};
pub use lane::{LaneMemory, Submitted, TransferConfig};
pub use stats::{DirectionStats, TransferStats};
