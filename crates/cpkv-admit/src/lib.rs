//! Prefill admission: the batch that fits, decided on plain numbers.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
