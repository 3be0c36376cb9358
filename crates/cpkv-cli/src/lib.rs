//! The cpkv command: replay, plan, scenario.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
