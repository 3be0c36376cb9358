//! The engine: tree, allocators, planner, admission and transfers behind one facade.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
