//! Counts of pages per lane. Capacity is always such a vector, never a total (contract C9).

use crate::Owner;
use smallvec::SmallVec;
use std::ops::{AddAssign, Index, IndexMut, SubAssign};

/// Pages per lane, in lane order. Up to 8 lanes are kept in place, without allocation.
///
/// Operations on two vectors ask for equal numbers of lanes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LaneCounts(SmallVec<[u32; 8]>);

impl LaneCounts {
    /// No page on any of `lanes` lanes.
    #[must_use]
    pub fn zero(lanes: usize) -> Self {
        Self::splat(lanes, 0)
    }

    /// `pages` on each of `lanes` lanes.
    #[must_use]
    pub fn splat(lanes: usize, pages: u32) -> Self {
        Self(SmallVec::from_elem(pages, lanes))
    }

    /// How many pages of each lane an owner sequence holds. O(owners).
    pub fn of_owners(lanes: usize, owners: impl IntoIterator<Item = Owner>) -> Self {
        let mut counts = Self::zero(lanes);
        for owner in owners {
            counts[owner] += 1;
        }
        counts
    }

    /// The number of lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.0.len()
    }

    /// The counts in lane order.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// The counts in lane order, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [u32] {
        &mut self.0
    }

    /// Lanes with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Owner, u32)> + '_ {
        self.0.iter().enumerate().map(|(lane, pages)| (Owner(lane as u8), *pages))
    }

    /// Pages on all lanes. For figures only: no decision uses it (directive D4).
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|pages| u64::from(*pages)).sum()
    }

    /// Whether no lane has a page.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|pages| *pages == 0)
    }

    /// Whether every lane has at least what `need` asks of it.
    #[must_use]
    pub fn covers(&self, need: &LaneCounts) -> bool {
        debug_assert_eq!(self.lanes(), need.lanes());
        self.0.iter().zip(&need.0).all(|(have, need)| have >= need)
    }

    /// Per lane `self - other`, floored at 0: with need and free this is the deficit.
    #[must_use]
    pub fn saturating_sub(&self, other: &LaneCounts) -> LaneCounts {
        self.zip_with(other, u32::saturating_sub)
    }

    /// Per lane the smaller count.
    #[must_use]
    pub fn min(&self, other: &LaneCounts) -> LaneCounts {
        self.zip_with(other, u32::min)
    }

    /// Per lane the sum, held at `u32::MAX`.
    #[must_use]
    pub fn saturating_add(&self, other: &LaneCounts) -> LaneCounts {
        self.zip_with(other, u32::saturating_add)
    }

    /// The first lane with a count above zero.
    #[must_use]
    pub fn first_nonzero(&self) -> Option<Owner> {
        self.iter().find(|(_, pages)| *pages > 0).map(|(owner, _)| owner)
    }

    fn zip_with(&self, other: &LaneCounts, f: impl Fn(u32, u32) -> u32) -> LaneCounts {
        debug_assert_eq!(self.lanes(), other.lanes());
        Self(self.0.iter().zip(&other.0).map(|(a, b)| f(*a, *b)).collect())
    }
}

impl From<&[u32]> for LaneCounts {
    fn from(counts: &[u32]) -> Self {
        Self(SmallVec::from_slice(counts))
    }
}

impl From<Vec<u32>> for LaneCounts {
    fn from(counts: Vec<u32>) -> Self {
        Self(SmallVec::from_vec(counts))
    }
}

impl<const N: usize> From<[u32; N]> for LaneCounts {
    fn from(counts: [u32; N]) -> Self {
        Self(SmallVec::from_slice(&counts))
    }
}

impl Index<Owner> for LaneCounts {
    type Output = u32;
    fn index(&self, owner: Owner) -> &u32 {
        &self.0[owner.index()]
    }
}

impl IndexMut<Owner> for LaneCounts {
    fn index_mut(&mut self, owner: Owner) -> &mut u32 {
        &mut self.0[owner.index()]
    }
}

impl AddAssign<&LaneCounts> for LaneCounts {
    fn add_assign(&mut self, other: &LaneCounts) {
        debug_assert_eq!(self.lanes(), other.lanes());
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a += b;
        }
    }
}

/// Subtracts lane by lane; taking more than there is breaks an invariant and panics in checked builds.
impl SubAssign<&LaneCounts> for LaneCounts {
    fn sub_assign(&mut self, other: &LaneCounts) {
        debug_assert_eq!(self.lanes(), other.lanes());
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a -= b;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_compared_lane_by_lane() {
        let free = LaneCounts::from([0, 3, 3, 3]);
        let need = LaneCounts::from([1, 1, 1, 1]);
        assert!(!free.covers(&need), "nine free pages do not help the full lane");
        assert_eq!(need.saturating_sub(&free), LaneCounts::from([1, 0, 0, 0]));
        assert_eq!(need.saturating_sub(&free).first_nonzero(), Some(Owner(0)));
        assert_eq!(free.total(), 9);
    }

    #[test]
    fn owners_are_counted() {
        let counts = LaneCounts::of_owners(3, [Owner(2), Owner(0), Owner(2)]);
        assert_eq!(counts.as_slice(), [1, 0, 2]);
        assert_eq!(counts.min(&LaneCounts::splat(3, 1)).as_slice(), [1, 0, 1]);
    }
}
