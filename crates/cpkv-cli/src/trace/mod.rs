//! Recorded traces: what was asked when, and which blocks of the prompts are the same.

mod error;
mod mooncake;

pub use error::RowError;
pub use mooncake::{BlockTokens, Trace, TraceOptions, TraceRow, read_rows, read_trace};
