//! The rolling digest of decisions: equal on all ranks after every step, or a divergence is caught there (C7).

use std::hash::Hasher;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// A decision's kind, the first word of its digest entry.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
pub(crate) enum Decision {
    Config = 1,
    Insert,
    Lock,
    Unlock,
    Hold,
    Release,
    BackupStart,
    LoadStart,
    EvictDevice,
    EvictHost,
    Stage,
    Submit,
    Admit,
    Chunk,
    Finish,
    Abort,
    Retract,
    Refuse,
    Stop,
    Reset,
}

/// A running 64-bit hash over decisions. Acks between two decisions enter as a sum, so that their order among
/// themselves doesn't show: only what they lead to does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Digest {
    value: u64,
    acks: u64,
}

impl Digest {
    /// Enters a decision with its numbers.
    pub(crate) fn record(&mut self, decision: Decision, words: impl IntoIterator<Item = u64>) {
        let mut hasher = Xxh3::new();
        hasher.write_u64(self.value);
        hasher.write_u64(std::mem::take(&mut self.acks));
        hasher.write_u64(decision as u64);
        for word in words {
            hasher.write_u64(word);
        }
        self.value = hasher.finish();
    }

    /// Enters the end of a copy.
    pub(crate) fn ended(&mut self, op: u64, done: bool) {
        self.end_word((op << 1) | u64::from(done));
    }

    /// Enters what the end of a copy led to at once, a node that was staged and left the device. It belongs to the
    /// end, and has no order among other ends either.
    pub(crate) fn left_when_ended(&mut self, node: u64) {
        self.end_word(!node);
    }

    fn end_word(&mut self, word: u64) {
        self.acks = self.acks.wrapping_add(xxh3_64(&word.to_le_bytes()));
    }

    /// The digest of all decisions so far.
    pub(crate) fn value(&self) -> u64 {
        self.value.wrapping_add(self.acks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_decisions_shows_and_order_of_acks_does_not() {
        let run = |decisions: &[u64], acks: &[u64]| {
            let mut digest = Digest::default();
            for word in decisions {
                digest.record(Decision::Insert, [*word]);
            }
            for op in acks {
                digest.ended(*op, true);
            }
            digest.value()
        };
        assert_ne!(run(&[1, 2], &[]), run(&[2, 1], &[]));
        assert_eq!(run(&[1], &[1, 2]), run(&[1], &[2, 1]));
        assert_ne!(run(&[1], &[1]), run(&[1], &[2]));
    }
}
