//! The engine's errors, split by what the caller does next. None of them changes anything.

use cpkv_core::{LaneCounts, Owner, Tier};

/// Why a call was refused. The engine's state is as it was before the call (contract C11).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Not now: device lanes are full of what can't be evicted at once. Try again after an end, an ack or a step.
    #[error("device lanes are full: {missing:?} pages are missing per lane")]
    LaneFull {
        /// Pages missing per lane.
        missing: LaneCounts,
    },
    /// Not now: the host tier is full of what can't be evicted. Try again after an ack.
    #[error("host lanes are full: {missing:?} pages are missing per lane")]
    HostFull {
        /// Pages missing per lane.
        missing: LaneCounts,
    },
    /// Never: the request needs more than a whole lane has.
    #[error("the request needs {need} pages on lane {lane} of the {tier} pool, which has {capacity}")]
    RequestTooLarge {
        /// The limiting pool.
        tier: Tier,
        /// The limiting lane.
        lane: Owner,
        /// Pages that the request needs there.
        need: u32,
        /// Pages that the lane has.
        capacity: u32,
    },
    /// The caller's fault: owners that don't fit the key or the lanes.
    #[error("owners don't fit: {what}")]
    OwnerMismatch {
        /// What doesn't fit.
        what: String,
    },
    /// Not now: a copy of that kind is in flight on the path, or the request waits for one.
    #[error("a copy is in flight on this path")]
    InFlight,
    /// The caller's fault: no such lock, hold, copy or request (any more).
    #[error("unknown {what}")]
    UnknownName {
        /// What was asked for.
        what: &'static str,
    },
    /// The caller's fault: a request is finished with tokens that don't begin with its prompt, or before all of its
    /// prompt was computed.
    #[error("the sequence doesn't begin with the request's prompt")]
    NotItsPrompt,
    /// Nothing to do: no pages on the host beyond the device part, or fewer than are worth a load.
    #[error("nothing to load")]
    NothingToLoad,
}

impl EngineError {
    /// The error's name in scenario files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::LaneFull { .. } => "lane_full",
            Self::HostFull { .. } => "host_full",
            Self::RequestTooLarge { .. } => "request_too_large",
            Self::OwnerMismatch { .. } => "owner_mismatch",
            Self::InFlight => "in_flight",
            Self::UnknownName { .. } => "unknown_name",
            Self::NotItsPrompt => "not_its_prompt",
            Self::NothingToLoad => "nothing_to_load",
        }
    }
}
