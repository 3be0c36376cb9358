//! The table of copies in flight: an operation's pages go in once, and come out once, after the copy has ended.
//!
//! Life cycle: reserved (the caller has the pages) -> [`InFlight::insert`] -> submitted -> complete on all local lanes
//! ([`InFlight::poll_done`]) -> agreed on by all ranks -> [`InFlight::end`], which hands the pages back. An abort only
//! turns the outcome: the pages stay until nothing reads or writes them (contract C4).

use crate::Part;
use cpkv_core::{FenceStatus, OpId, Owner};
use std::collections::BTreeMap;

/// How an operation ended on the local lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// All bytes are there.
    Done,
    /// At least one lane's part failed, or the operation was aborted: nothing that was written counts. Why, for logs.
    Failed(String),
}

/// Why an operation wasn't taken into the table. The payload comes back, and so do the parts: their copies are on the
/// streams all the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("operation {op} is in flight already, or has two parts on one lane")]
pub struct InsertError<F, P> {
    /// The operation.
    pub op: OpId,
    /// What it reserved.
    pub payload: P,
    /// Its parts.
    pub parts: Vec<(Owner, Part<F>)>,
}

/// Why an operation can't be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndError {
    /// It was never there or has ended: a late completion, to be ignored. It is counted.
    #[error("operation {op} is unknown, or has ended")]
    Unknown {
        /// The operation.
        op: OpId,
    },
    /// A part was still running when the table was last polled: its pages are read or written.
    #[error("operation {op} is still running")]
    Running {
        /// The operation.
        op: OpId,
    },
}

/// A lane's part: what is polled, or how it ended.
#[derive(Debug, Clone)]
enum Lane<F> {
    Running(Part<F>),
    Ended(Result<(), String>),
}

#[derive(Debug, Clone)]
struct Entry<F, P> {
    payload: P,
    lanes: Vec<(Owner, Lane<F>)>,
    aborted: bool,
}

impl<F, P> Entry<F, P> {
    /// The outcome, `None` while a part runs. The first failure by lane is the one that is told.
    fn completion(&self) -> Option<Completion> {
        let mut failed = self.aborted.then(|| "aborted".to_owned());
        for (lane, state) in &self.lanes {
            match state {
                Lane::Running(_) => return None,
                Lane::Ended(Ok(())) => {}
                Lane::Ended(Err(why)) => {
                    failed.get_or_insert_with(|| format!("lane {lane}: {why}"));
                }
            }
        }
        Some(failed.map_or(Completion::Done, Completion::Failed))
    }
}

/// Operations in flight on the local lanes, by id. `F` is the backend's fence, `P` what an operation owns until its
/// end: its pages.
#[derive(Debug, Clone)]
pub struct InFlight<F, P> {
    operations: BTreeMap<OpId, Entry<F, P>>,
    inserted: u64,
    ended: u64,
    late: u64,
}

impl<F, P> Default for InFlight<F, P> {
    fn default() -> Self {
        Self { operations: BTreeMap::new(), inserted: 0, ended: 0, late: 0 }
    }
}

impl<F: Copy, P> InFlight<F, P> {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes over an operation whose parts were submitted, one per local lane. Without parts it is complete at
    /// once. O(parts + log operations).
    ///
    /// # Errors
    /// [`InsertError`] for an id in flight or a lane with two parts; the table is as it was.
    pub fn insert(&mut self, op: OpId, payload: P, parts: Vec<(Owner, Part<F>)>) -> Result<(), InsertError<F, P>> {
        if self.operations.contains_key(&op) || has_twins(&parts) {
            return Err(InsertError { op, payload, parts });
        }
        let lanes = parts.into_iter().map(|(lane, part)| (lane, Lane::Running(part))).collect();
        self.operations.insert(op, Entry { payload, lanes, aborted: false });
        self.inserted += 1;
        Ok(())
    }

    /// Asks how far the copies have come, and returns all that are complete on every local lane and haven't been
    /// ended, in the order of their ids, which is that of their submission. Ends nothing, never blocks; a part that
    /// was seen ended isn't polled again. `poll` is [`DeviceMemory::poll`](cpkv_core::DeviceMemory::poll) of the
    /// lane's backend. O(parts that run + operations).
    pub fn poll_done(&mut self, mut poll: impl FnMut(Owner, F) -> FenceStatus) -> Vec<(OpId, Completion)> {
        let mut done = Vec::new();
        for (op, entry) in &mut self.operations {
            for (lane, state) in &mut entry.lanes {
                if let Lane::Running(part) = state
                    && let Some(end) = part.end(|fence| poll(*lane, fence))
                {
                    *state = Lane::Ended(end);
                }
            }
            done.extend(entry.completion().map(|completion| (*op, completion)));
        }
        done
    }

    /// Whether an operation was complete when the table was last polled, and how; `None` while it runs, and for one
    /// that isn't there.
    #[must_use]
    pub fn completion(&self, op: OpId) -> Option<Completion> {
        self.operations.get(&op).and_then(Entry::completion)
    }

    /// Makes an operation end as failed, whatever its copy does. It runs on until its parts have ended. Returns
    /// whether it is there; aborting twice is once.
    pub fn abort(&mut self, op: OpId) -> bool {
        self.operations.get_mut(&op).map(|entry| entry.aborted = true).is_some()
    }

    /// Takes a complete operation out, with its outcome here, and hands its pages over: once.
    ///
    /// # Errors
    /// [`EndError::Running`], the table is as it was; [`EndError::Unknown`], counted in [`late`](Self::late).
    pub fn end(&mut self, op: OpId) -> Result<(P, Completion), EndError> {
        let Some(entry) = self.operations.get(&op) else {
            self.late += 1;
            return Err(EndError::Unknown { op });
        };
        let completion = entry.completion().ok_or(EndError::Running { op })?;
        let entry = self.operations.remove(&op).expect("it was found above");
        self.ended += 1;
        Ok((entry.payload, completion))
    }

    /// What an operation owns.
    #[must_use]
    pub fn payload(&self, op: OpId) -> Option<&P> {
        self.operations.get(&op).map(|entry| &entry.payload)
    }

    /// The parts of an operation that were running when the table was last polled: a load-back's fences per layer.
    pub fn running(&self, op: OpId) -> impl Iterator<Item = (Owner, &Part<F>)> {
        self.operations.get(&op).into_iter().flat_map(|entry| &entry.lanes).filter_map(|(lane, state)| match state {
            Lane::Running(part) => Some((*lane, part)),
            Lane::Ended(_) => None,
        })
    }

    /// The operations in flight, ascending.
    pub fn ids(&self) -> impl Iterator<Item = OpId> {
        self.operations.keys().copied()
    }

    /// How many are in flight.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Ends of operations that weren't there. Monotone.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Operations that were ended. Monotone.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Recounts what went in and came out.
    ///
    /// # Errors
    /// What differs.
    pub fn self_check(&self) -> Result<(), String> {
        if self.inserted != self.ended + self.operations.len() as u64 {
            let (inserted, ended) = (self.inserted, self.ended);
            return Err(format!("{inserted} operations came, {ended} ended and {} are in flight", self.len()));
        }
        match self.operations.iter().find(|(_, entry)| has_twins(&entry.lanes)) {
            Some((op, _)) => Err(format!("operation {op} has two parts on one lane")),
            None => Ok(()),
        }
    }
}

/// Whether a lane is there twice. At most 64 lanes.
fn has_twins<T>(lanes: &[(Owner, T)]) -> bool {
    let mut seen = 0u64;
    lanes.iter().any(|(lane, _)| {
        let bit = 1u64.checked_shl(lane.0.into()).unwrap_or(0);
        let twin = seen & bit != 0;
        seen |= bit;
        twin
    })
}

#[cfg(test)]
mod tests;
