//! One suite per backend trait, as macros that a backend instantiates in one line.

pub mod device;
