//! The simulator backend: real bytes on a virtual clock.
//!
//! [`SimDevice`] moves real bytes, but only when the shared [`SimClock`] passes the end that a copy was given when it
//! was enqueued. Memory is poisoned at allocation, so a missing wait shows as poison or as old bytes, and
//! [`PagePattern`] says what every page must hold. All times are modelled, none is measured.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod clock;
mod config;
mod device;
mod fault;
mod memory;
mod model;
mod pattern;
mod stream;

pub use clock::SimClock;
pub use config::SimConfig;
pub use device::SimDevice;
pub use fault::{Fault, FaultPlan, FaultRates};
pub use memory::{POISON, SimBuffer};
pub use model::ComputeModel;
pub use pattern::PagePattern;
pub use stream::{SimFence, SimStream};
