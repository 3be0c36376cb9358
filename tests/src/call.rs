//! The calls of the engine's interface as plain data, so that one run can be made on several engines.

use cpkv_core::{HoldId, LaneCounts, LockId, OpId, Owner, RequestId};

/// A prompt with its namespace.
#[derive(Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The namespace.
    pub namespace: Option<&'static str>,
    /// The tokens.
    pub tokens: Vec<u32>,
}

impl std::fmt::Debug for Prompt {
    /// Runs of tokens that count up, as ranges.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let runs = self.tokens.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[0] + run.len() as u32);
        write!(f, "{} {:?}", self.namespace.unwrap_or(""), runs.collect::<Vec<_>>())
    }
}

impl Prompt {
    /// As the engine takes it.
    #[must_use]
    pub fn key(&self) -> cpkv_engine::Key<'_> {
        cpkv_engine::Key { namespace: self.namespace, tokens: &self.tokens }
    }
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the engine's interface")]
pub enum Call {
    Insert {
        prompt: Prompt,
        owners: Option<Vec<Owner>>,
    },
    Match {
        prompt: Prompt,
    },
    WhatIf {
        prompt: Prompt,
        max_new: u32,
    },
    Lock {
        prompt: Prompt,
    },
    Unlock {
        lock: LockId,
    },
    Hold {
        owners: Vec<Owner>,
    },
    Release {
        hold: HoldId,
    },
    Backup {
        prompt: Prompt,
    },
    LoadBack {
        prompt: Prompt,
    },
    /// Ends a copy: as its bytes ended, or as failed where `agreed_failure`.
    End {
        op: OpId,
        agreed_failure: bool,
    },
    EvictDevice {
        deficits: LaneCounts,
    },
    EvictHost {
        deficits: LaneCounts,
    },
    Submit {
        prompt: Prompt,
        max_new: u32,
        priority: i64,
        owners: Option<Vec<Owner>>,
    },
    Step,
    Finish {
        request: RequestId,
        sequence: Option<Prompt>,
    },
    Abort {
        request: RequestId,
    },
    Retract {
        request: RequestId,
    },
    Reset,
}

impl Call {
    /// The operation's name in scenario files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Insert { .. } => "insert",
            Self::Match { .. } => "match",
            Self::WhatIf { .. } => "what_if",
            Self::Lock { .. } => "lock",
            Self::Unlock { .. } => "unlock",
            Self::Hold { .. } => "hold",
            Self::Release { .. } => "release",
            Self::Backup { .. } => "backup",
            Self::LoadBack { .. } => "load_back",
            Self::End { agreed_failure: false, .. } => "ack",
            Self::End { .. } => "fail",
            Self::EvictDevice { .. } => "evict_device",
            Self::EvictHost { .. } => "evict_host",
            Self::Submit { .. } => "submit",
            Self::Step => "step",
            Self::Finish { .. } => "finish",
            Self::Abort { .. } => "abort",
            Self::Retract { .. } => "retract",
            Self::Reset => "reset",
        }
    }
}

/// What a call that succeeded handed out or decided.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the calls")]
pub enum Reply {
    Nothing,
    Lock(Option<LockId>),
    Hold(Option<HoldId>),
    Request(Option<RequestId>),
    Step(cpkv_engine::StepPlan),
}
