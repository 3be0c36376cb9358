//! The prefix tree: whole pages, namespaces, residency per tier, locks and pins.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
