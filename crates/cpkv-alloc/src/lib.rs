//! Page allocators: owner lanes for the device tier, extents for the host tier.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
