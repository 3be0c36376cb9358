//! Byte arenas and the copy engine: the one place on the CPU with unsafe code.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
