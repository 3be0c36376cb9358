//! The virtual clock: nanoseconds that pass only when someone says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock in nanoseconds since the start of the simulation. Clones share the time; it never runs backwards.
#[derive(Debug, Clone, Default)]
pub struct SimClock {
    now_ns: Arc<AtomicU64>,
}

impl SimClock {
    /// A clock at 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The time, nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        // Relaxed: the clock orders nothing but itself. A world that spreads over threads hands devices over by
        // means of its own, which order memory.
        self.now_ns.load(Ordering::Relaxed)
    }

    /// Moves the time to `ns`, or leaves it where that has passed already. Returns the time.
    pub fn advance_to(&self, ns: u64) -> u64 {
        self.now_ns.fetch_max(ns, Ordering::Relaxed).max(ns)
    }

    /// Moves the time on by `ns`, at most to the end of time. Returns the time.
    pub fn advance_by(&self, ns: u64) -> u64 {
        self.advance_to(self.now().saturating_add(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_a_time_that_never_runs_backwards() {
        let clock = SimClock::new();
        let other = clock.clone();
        assert_eq!(clock.advance_to(50), 50);
        assert_eq!(other.now(), 50);
        assert_eq!(other.advance_to(20), 50, "the past is no place to go");
        assert_eq!(other.advance_by(5), 55);
        assert_eq!(clock.now(), 55);
        assert_eq!(clock.advance_by(u64::MAX), u64::MAX, "the end of time");
    }
}
