//! Capacity answers that come before any work: does it fit, lane by lane, and how much is to be evicted.

use crate::UnknownName;
use crate::plan::by_name;
use cpkv_core::LaneCounts;
use std::str::FromStr;

/// How much to evict for a need. `free` counts released pages too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum EvictAmount {
    /// On lanes with need > free: the whole need.
    FullNeed,
    /// On lanes with need > free: need - free.
    Shortfall,
    /// On all lanes: what brings free to need + room. Room is best effort: an operation fails on its need only.
    #[default]
    ShortfallPlusRoom,
}

impl EvictAmount {
    /// All amounts.
    pub const ALL: &'static [EvictAmount] =
        &[EvictAmount::FullNeed, EvictAmount::Shortfall, EvictAmount::ShortfallPlusRoom];

    /// The name in files and options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            EvictAmount::FullNeed => "full_need",
            EvictAmount::Shortfall => "shortfall",
            EvictAmount::ShortfallPlusRoom => "shortfall_plus_room",
        }
    }
}

impl FromStr for EvictAmount {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        by_name(name, Self::ALL, Self::name)
    }
}

/// What a need finds in a pool, before anything is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Feasibility {
    /// Every lane has the pages free.
    Free,
    /// Every lane has them once enough is evicted.
    AfterEviction,
    /// Some lane can't give them: per lane, the pages that are missing even when all that is evictable goes.
    Missing(LaneCounts),
}

impl Feasibility {
    /// Compares a need with what is free and what could be evicted, lane by lane (contract C9).
    #[must_use]
    pub fn of(need: &LaneCounts, free: &LaneCounts, evictable: &LaneCounts) -> Self {
        if free.covers(need) {
            return Feasibility::Free;
        }
        let missing = missing(need, free, evictable);
        if missing.is_zero() { Feasibility::AfterEviction } else { Feasibility::Missing(missing) }
    }

    /// Whether the need can be met, evicting or not.
    #[must_use]
    pub fn feasible(&self) -> bool {
        !matches!(self, Feasibility::Missing(_))
    }
}

/// Per lane `max(0, need - free - evictable)`, in pages: what stays missing whatever is evicted. All zero: feasible.
/// The same for device pages and for host writes.
#[must_use]
pub fn missing(need: &LaneCounts, free: &LaneCounts, evictable: &LaneCounts) -> LaneCounts {
    need.saturating_sub(free).saturating_sub(evictable)
}

/// The deficits to plan for, per lane in pages. `room` is the free-room target, used by
/// [`EvictAmount::ShortfallPlusRoom`] alone. Sums past `u32` are held at `u32::MAX`.
#[must_use]
pub fn deficits(amount: EvictAmount, need: &LaneCounts, free: &LaneCounts, room: &LaneCounts) -> LaneCounts {
    let mut deficits = need.clone();
    for (lane, deficit) in deficits.as_mut_slice().iter_mut().enumerate() {
        let (need, free, room) = (need.as_slice()[lane], free.as_slice()[lane], room.as_slice()[lane]);
        *deficit = match amount {
            EvictAmount::FullNeed if need > free => need,
            EvictAmount::FullNeed => 0,
            EvictAmount::Shortfall => need.saturating_sub(free),
            EvictAmount::ShortfallPlusRoom => {
                let target = u64::from(need) + u64::from(room);
                u32::try_from(target.saturating_sub(u64::from(free))).unwrap_or(u32::MAX)
            }
        };
    }
    deficits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_follow_their_definition() {
        let need = LaneCounts::from([0, 3, 3, 5]);
        let free = LaneCounts::from([1, 0, 3, 2]);
        let room = LaneCounts::from([4, 1, 1, 0]);
        let of = |amount| deficits(amount, &need, &free, &room);
        assert_eq!(of(EvictAmount::FullNeed), LaneCounts::from([0, 3, 0, 5]));
        assert_eq!(of(EvictAmount::Shortfall), LaneCounts::from([0, 3, 0, 3]));
        assert_eq!(
            of(EvictAmount::ShortfallPlusRoom),
            LaneCounts::from([3, 4, 1, 3]),
            "room on lanes without need too"
        );
        for amount in EvictAmount::ALL {
            assert_eq!(amount.name().parse(), Ok(*amount));
        }
    }

    #[test]
    fn nothing_wraps_at_the_edge() {
        let max = LaneCounts::splat(1, u32::MAX);
        let none = LaneCounts::zero(1);
        assert_eq!(deficits(EvictAmount::ShortfallPlusRoom, &max, &none, &max), max);
        assert_eq!(deficits(EvictAmount::ShortfallPlusRoom, &max, &max, &max), max);
        assert_eq!(missing(&max, &max, &max), none);
    }

    #[test]
    fn one_full_lane_decides() {
        let need = LaneCounts::splat(4, 1);
        let free = LaneCounts::from([0, 3, 3, 3]);
        let locked = LaneCounts::zero(4);
        let one = LaneCounts::from([1, 0, 0, 0]);
        assert_eq!(Feasibility::of(&need, &free, &one), Feasibility::AfterEviction);
        assert_eq!(Feasibility::of(&need, &free, &locked), Feasibility::Missing(one), "although nine pages are free");
        assert_eq!(Feasibility::of(&need, &LaneCounts::splat(4, 1), &locked), Feasibility::Free);
        assert!(!Feasibility::of(&need, &free, &locked).feasible());
    }
}
