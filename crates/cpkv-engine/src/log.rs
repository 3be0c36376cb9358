//! The operation log: every call that changes the engine, as plain data, so that a run can be written down.

use crate::control::Key;
use cpkv_core::{HoldId, LaneCounts, LockId, OpId, Owner, RequestId};

/// A call that changed the engine (or was refused and changed nothing), with the names that it gave out.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum LoggedCall<'a> {
    /// `insert`.
    Insert {
        /// The key.
        key: Key<'a>,
        /// Explicit owners.
        owners: Option<&'a [Owner]>,
    },
    /// `lock`, with the lock if one was taken.
    Lock {
        /// The key.
        key: Key<'a>,
        /// The lock.
        lock: Option<LockId>,
    },
    /// `unlock`.
    Unlock {
        /// The lock.
        lock: LockId,
    },
    /// `hold`, with the hold if pages were taken.
    Hold {
        /// One owner per page.
        owners: &'a [Owner],
        /// The hold.
        hold: Option<HoldId>,
    },
    /// `release`.
    Release {
        /// The hold.
        hold: HoldId,
    },
    /// `backup`, with the copy if one was started.
    Backup {
        /// The key.
        key: Key<'a>,
        /// The copy.
        op: Option<OpId>,
    },
    /// `load_back`, with the copy if one was started.
    LoadBack {
        /// The key.
        key: Key<'a>,
        /// The copy.
        op: Option<OpId>,
    },
    /// `ack`.
    Ack {
        /// The copy.
        op: OpId,
    },
    /// `fail`.
    Fail {
        /// The copy.
        op: OpId,
    },
    /// `evict_device`.
    EvictDevice {
        /// Pages wanted per lane.
        deficits: &'a LaneCounts,
    },
    /// `evict_host`.
    EvictHost {
        /// Pages wanted per lane.
        deficits: &'a LaneCounts,
    },
    /// `submit`, with the request if it was queued.
    Submit {
        /// The key.
        key: Key<'a>,
        /// Most tokens that it will generate.
        max_new: u32,
        /// Its priority.
        priority: i64,
        /// Explicit owners.
        owners: Option<&'a [Owner]>,
        /// The request.
        request: Option<RequestId>,
    },
    /// `step` and the forward pass after it.
    Step,
    /// `finish`.
    Finish {
        /// The request.
        request: RequestId,
        /// The prompt and what was generated after it.
        sequence: Option<&'a [u32]>,
    },
    /// `abort`.
    Abort {
        /// The request.
        request: RequestId,
    },
    /// `retract`.
    Retract {
        /// The request.
        request: RequestId,
    },
    /// `reset`.
    Reset,
}

/// Where calls are written down.
pub trait OperationLog {
    /// Takes a call after it returned. `error` is the name of the error that refused it.
    fn record(&mut self, call: LoggedCall<'_>, error: Option<&'static str>);
}
