//! Byte arenas and the copy engine: the one place on the CPU where unsafe code is allowed.
//!
//! At present nothing here needs it: whole-slice copies are `memcpy`. Streaming stores, which do, belong here.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod arena;
mod copy;

pub use arena::{Arena, ArenaError};
pub use copy::{copy_between, copy_within};
