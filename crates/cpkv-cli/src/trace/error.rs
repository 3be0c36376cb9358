//! What can be wrong with one row of a trace, in words that name the field and what it allows.

use crate::error::CliError;
use std::fmt::Display;

/// Block sizes in use today, tried where the ids of a row don't fit its length.
const BLOCK_SIZES: [u32; 7] = [16, 32, 64, 128, 256, 512, 1024];

/// Why a row was refused. Without file and line, which [`at`](Self::at) adds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// The line is no text.
    #[error("not UTF-8, from byte {column} of the line on")]
    NotUtf8 {
        /// The first bad byte, counted from 1.
        column: usize,
    },
    /// The line is no JSON, or names a field twice.
    #[error("not a JSON row: {what} (column {column}){}", if *.cut { "; is the line cut?" } else { "" })]
    NotJson {
        /// The parser's words.
        what: String,
        /// Where, in bytes from 1.
        column: usize,
        /// Whether the line ends in the middle of a value.
        cut: bool,
    },
    /// The line is JSON of another shape.
    #[error("a row must be a JSON object, {{\"timestamp\": .., \"input_length\": .., ..}}")]
    NotAnObject,
    /// A field isn't there, or null.
    #[error("missing, must be {allowed}")]
    Missing {
        /// The field.
        field: &'static str,
        /// What it allows.
        allowed: &'static str,
    },
    /// A field has a wrong type or is out of its range.
    #[error("{got} is out of range, must be {allowed}")]
    OutOfRange {
        /// The field, with the place in a list.
        field: String,
        /// What stands there, as JSON and cut where it is long.
        got: String,
        /// What the field allows.
        allowed: &'static str,
    },
    /// The row has more or fewer ids than its length needs.
    #[error("{ids} ids, but {input_tokens} tokens in blocks of {block_size} need {}{}",
        .input_tokens.div_ceil(u64::from(*.block_size)), other_block_size(*.ids, *.input_tokens))]
    BlockCount {
        /// The ids of the row.
        ids: u64,
        /// The row's `input_length`.
        input_tokens: u64,
        /// The block size that was asked for.
        block_size: u32,
    },
    /// The row is earlier than the one above it.
    #[error("{time_ms} is before the row above, {above_ms}; sort the file or pass --lenient, which sorts")]
    Backwards {
        /// The row's time, milliseconds.
        time_ms: String,
        /// The time of the row above, milliseconds.
        above_ms: String,
    },
}

impl RowError {
    /// The field at fault; empty where it is the line as a whole.
    #[must_use]
    pub fn field(&self) -> &str {
        match self {
            Self::NotUtf8 { .. } | Self::NotJson { .. } | Self::NotAnObject => "",
            Self::Missing { field, .. } => field,
            Self::OutOfRange { field, .. } => field,
            Self::BlockCount { .. } => "hash_ids",
            Self::Backwards { .. } => "timestamp",
        }
    }

    /// The error with its place: `FILE:LINE: field: what`.
    #[must_use]
    pub fn at(&self, file: impl Display, line: u64) -> CliError {
        CliError::bad(file, Some(line), self.field(), self)
    }
}

/// The block size is not in the file, so the wrong flag is the likely cause: name the one that this row fits.
fn other_block_size(ids: u64, input_tokens: u64) -> String {
    let fits = BLOCK_SIZES.iter().find(|size| input_tokens.div_ceil(u64::from(**size)) == ids);
    fits.map(|size| format!("; --block-size {size} would fit")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_size_that_fits_is_suggested() {
        let error = RowError::BlockCount { ids: 100, input_tokens: 6390, block_size: 512 };
        assert_eq!(
            error.at("t.jsonl", 7).to_string(),
            "t.jsonl:7: hash_ids: 100 ids, but 6390 tokens in blocks of 512 need 13; --block-size 64 would fit"
        );
        let error = RowError::BlockCount { ids: 3, input_tokens: 6390, block_size: 512 };
        assert!(!error.to_string().contains("would fit"), "{error}");
    }
}
