//! The command line's errors: bad input (exit status 2) and failed expectations (exit status 1).

use std::fmt::Display;

/// Why a command ended without its result. Each is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CliError {
    /// The input is at fault: exit status 2. Names file, line, field and the allowed range as far as they apply.
    #[error("{0}")]
    BadInput(String),
    /// An expectation or an invariant failed: exit status 1.
    #[error("{0}")]
    Failed(String),
}

impl CliError {
    /// A fault of the input: `FILE:LINE: field: what`, without the parts that don't apply.
    pub fn bad(file: impl Display, line: Option<u64>, field: &str, what: impl Display) -> Self {
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        let field = if field.is_empty() { String::new() } else { format!("{field}: ") };
        // One line, whatever the cause's own text looks like.
        let what = what.to_string().replace('\n', " ");
        Self::BadInput(format!("{file}{line}: {field}{what}"))
    }

    /// The process's exit status.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::BadInput(_) => 2,
            Self::Failed(_) => 1,
        }
    }
}
