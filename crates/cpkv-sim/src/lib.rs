//! The simulator backend: real bytes on a virtual clock.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
