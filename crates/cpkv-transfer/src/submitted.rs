//! A copy that a backend has: its fences, and what they say about the whole of it.

use crate::TransferError;
use cpkv_core::FenceStatus;

/// A copy that was handed to the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted<F> {
    /// A backup: one fence, behind everything. A load-back: one per layer, in the order of layers, each behind all row
    /// pools of that layer.
    pub fences: Vec<F>,
    /// Pages that it moves.
    pub pages: u32,
    /// Bytes that it moves, in all layers and row pools.
    pub bytes: u64,
    /// Descriptors that it took.
    pub descriptors: u64,
}

impl<F: Copy> Submitted<F> {
    pub(crate) fn new(pages: usize) -> Self {
        // Destinations are distinct pages of a pool, so their number fits.
        Self { fences: Vec::new(), pages: pages as u32, bytes: 0, descriptors: 0 }
    }

    /// How far the copy has come, by what `poll` says of its fences. Failed if any of them has failed, with the first
    /// failure; never before all of them have ended, so that nothing writes any more. One poll while it runs, since
    /// the last fence is the last to be reached; one per fence after that.
    pub fn status(&self, mut poll: impl FnMut(F) -> FenceStatus) -> FenceStatus {
        let Some((last, others)) = self.fences.split_last() else { return FenceStatus::Done };
        let last = poll(*last);
        if last == FenceStatus::Pending {
            return last;
        }
        let mut whole = FenceStatus::Done;
        for status in others.iter().map(|fence| poll(*fence)).chain([last]) {
            match status {
                FenceStatus::Pending => return FenceStatus::Pending,
                FenceStatus::Failed(_) if whole == FenceStatus::Done => whole = status,
                FenceStatus::Failed(_) | FenceStatus::Done => {}
            }
        }
        whole
    }
}

/// What became of the submission of an operation's part on one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part<F> {
    /// The backend has it.
    Submitted(Submitted<F>),
    /// It was refused, or broken off half-way: it ends as failed, once what was enqueued has ended.
    Refused {
        /// Why.
        why: String,
        /// Behind what was enqueued; `None`: nothing that can be waited for.
        rest: Option<F>,
    },
}

impl<F> From<Result<Submitted<F>, TransferError<F>>> for Part<F> {
    fn from(result: Result<Submitted<F>, TransferError<F>>) -> Self {
        match result {
            Ok(submitted) => Part::Submitted(submitted),
            Err(error) => {
                let why = error.to_string();
                let rest = if let TransferError::BrokenOff { rest, .. } = error { rest } else { None };
                Part::Refused { why, rest }
            }
        }
    }
}

impl<F: Copy> Part<F> {
    /// Whether the part has ended, and how: `None` while it runs, `Some(Err(why))` where it failed. Cost as
    /// [`Submitted::status`].
    pub(crate) fn end(&self, mut poll: impl FnMut(F) -> FenceStatus) -> Option<Result<(), String>> {
        match self {
            Part::Submitted(submitted) => match submitted.status(poll) {
                FenceStatus::Pending => None,
                FenceStatus::Done => Some(Ok(())),
                FenceStatus::Failed(error) => Some(Err(error.to_string())),
            },
            Part::Refused { why, rest } => match rest.map(&mut poll) {
                Some(FenceStatus::Pending) => None,
                Some(FenceStatus::Done | FenceStatus::Failed(_)) | None => Some(Err(why.clone())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpkv_core::DeviceError;

    fn failed(what: &str) -> FenceStatus {
        FenceStatus::Failed(DeviceError::CopyFailed { what: what.to_owned() })
    }

    fn copy(fences: usize) -> Submitted<usize> {
        Submitted { fences: (0..fences).collect(), ..Submitted::new(0) }
    }

    #[test]
    fn a_copy_has_failed_only_when_all_of_it_has_ended() {
        let status = |of: &[FenceStatus]| copy(of.len()).status(|fence| of[fence].clone());
        assert_eq!(status(&[failed("a"), FenceStatus::Pending]), FenceStatus::Pending);
        assert_eq!(status(&[FenceStatus::Done, failed("a"), FenceStatus::Done]), failed("a"));
        assert_eq!(status(&[failed("a"), failed("b")]), failed("a"), "the first failure");
        assert_eq!(status(&[FenceStatus::Done, failed("b")]), failed("b"));
        assert_eq!(status(&[FenceStatus::Done, FenceStatus::Done]), FenceStatus::Done);
        assert_eq!(status(&[failed("a"), FenceStatus::Pending, FenceStatus::Done]), FenceStatus::Pending);
    }

    #[test]
    fn a_running_copy_costs_one_poll() {
        let mut polls = 0;
        let status = copy(78).status(|_| {
            polls += 1;
            FenceStatus::Pending
        });
        assert_eq!((status, polls), (FenceStatus::Pending, 1));
    }

    #[test]
    fn what_was_broken_off_ends_behind_its_rest() {
        let error = DeviceError::CopyFailed { what: "no".to_owned() };
        let part = |rest| Part::from(Err(TransferError::BrokenOff { error: error.clone(), rest }));
        assert_eq!(part(Some(3)).end(|_| FenceStatus::Pending), None);
        let why = Some(Err("broken off: copy failed: no".to_owned()));
        assert_eq!(part(Some(3)).end(|_| FenceStatus::Done), why);
        assert_eq!(part(Some(3)).end(|_| failed("another")), why, "why it was broken off counts");
        assert_eq!(part(None).end(|_| FenceStatus::Pending), why);
    }
}
