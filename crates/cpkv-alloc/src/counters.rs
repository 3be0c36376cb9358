//! Counted work: what makes a cost claim testable without a clock.

use std::ops::AddAssign;

/// What an allocator did since it was made. All counts are monotone; refused calls count nowhere.
///
/// A *touched* index entry is one free extent (or, with contiguity off, one page) that was looked up, linked or
/// unlinked; the bounds below are for contiguity preferred, with it off there is one entry per page. For a tier the
/// lanes are summed, so one call on k lanes counts k `reservations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Lanes served by calls that hand pages out: `alloc` on the device tier, `reserve` on the host tier.
    pub reservations: u64,
    /// Runs of contiguous pages handed out.
    pub extents: u64,
    /// Pages handed out.
    pub pages_taken: u64,
    /// Pages given back, by `free`, `release` or `forfeit`.
    pub pages_returned: u64,
    /// How often a release bucket was merged into the index.
    pub merges: u64,
    /// Index entries touched to hand pages out. At most 3 per extent.
    pub touched_taking: u64,
    /// Index entries touched to take pages back. At most 1 per run of contiguous pages.
    pub touched_returning: u64,
    /// Index entries touched by merges. At most 4 per run in the release bucket.
    pub touched_merging: u64,
}

impl Counters {
    /// Index entries touched, by all kinds of calls.
    #[must_use]
    pub fn touched(&self) -> u64 {
        self.touched_taking + self.touched_returning + self.touched_merging
    }
}

impl AddAssign<&Counters> for Counters {
    fn add_assign(&mut self, other: &Counters) {
        self.reservations += other.reservations;
        self.extents += other.extents;
        self.pages_taken += other.pages_taken;
        self.pages_returned += other.pages_returned;
        self.merges += other.merges;
        self.touched_taking += other.touched_taking;
        self.touched_returning += other.touched_returning;
        self.touched_merging += other.touched_merging;
    }
}
