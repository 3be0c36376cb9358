//! Logical pages, their owners and places, and runs of contiguous pages.

use crate::{LANES_MAX, Owner, PageId};

/// Why a [`Striping`] can't be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("lanes: {lanes} is out of range, 1 to {LANES_MAX}")]
pub struct StripingError {
    /// The number asked for.
    pub lanes: usize,
}

/// How logical pages lie over lanes: `owner(l) = l mod N`, `physical(l) = l div N`.
///
/// A bijection, so no directory is stored. In device pools physical page 0 of each lane, logical pages `0..N`, is the
/// padding page: it absorbs padded slots and is never handed out. Host pools use their page 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Striping {
    lanes: u8,
}

impl Striping {
    /// A striping over `lanes` lanes, 1 to 64.
    ///
    /// # Errors
    /// [`StripingError`] for any other number.
    pub fn new(lanes: usize) -> Result<Self, StripingError> {
        if (1..=LANES_MAX).contains(&lanes) { Ok(Self { lanes: lanes as u8 }) } else { Err(StripingError { lanes }) }
    }

    /// The number of lanes.
    #[must_use]
    pub fn lanes(self) -> usize {
        usize::from(self.lanes)
    }

    /// The rank that stores `page`.
    #[must_use]
    pub fn owner(self, page: PageId) -> Owner {
        Owner((page.0 % u32::from(self.lanes)) as u8)
    }

    /// The place of `page` in its owner's pool, in pages.
    #[must_use]
    pub fn physical(self, page: PageId) -> u32 {
        page.0 / u32::from(self.lanes)
    }

    /// The logical page at place `physical` of `owner`'s pool.
    #[must_use]
    pub fn logical(self, owner: Owner, physical: u32) -> PageId {
        debug_assert!(owner.0 < self.lanes);
        PageId(physical * u32::from(self.lanes) + u32::from(owner.0))
    }

    /// Whether `page`, of a device pool, is the padding page of its lane.
    #[must_use]
    pub fn is_padding(self, page: PageId) -> bool {
        page.0 < u32::from(self.lanes)
    }
}

/// A run of contiguous physical pages of one lane: an extent, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageRun {
    /// The first physical page.
    pub start: u32,
    /// How many pages.
    pub len: u32,
}

impl PageRun {
    /// The first page after the run.
    #[must_use]
    pub fn end(self) -> u32 {
        self.start + self.len
    }

    /// The physical pages of the run, ascending.
    pub fn pages(self) -> std::ops::Range<u32> {
        self.start..self.end()
    }
}

/// Joins physical pages, taken in the order given, into runs of ascending neighbours. O(pages).
pub fn coalesce(pages: impl IntoIterator<Item = u32>) -> Vec<PageRun> {
    let mut runs: Vec<PageRun> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some(run) if run.end() == page => run.len += 1,
            _ => runs.push(PageRun { start: page, len: 1 }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn striping_is_a_bijection(lanes in 1usize..=64, page in 0u32..256_000_000) {
            let striping = Striping::new(lanes).unwrap();
            let page = PageId(page);
            prop_assert_eq!(striping.logical(striping.owner(page), striping.physical(page)), page);
            prop_assert_eq!(striping.is_padding(page), striping.physical(page) == 0);
        }

        /// The public page-interleave placement counts token slots; on whole pages it is the same bijection.
        #[test]
        fn striping_equals_page_interleave(lanes in 1u64..=64, page_size in 1u64..=256, loc in 0u64..1_000_000) {
            let striping = Striping::new(lanes as usize).unwrap();
            let page = PageId((loc / page_size) as u32);
            prop_assert_eq!(u64::from(striping.owner(page).0), (loc % (lanes * page_size)) / page_size);
            let local = (loc / (lanes * page_size)) * page_size + loc % page_size;
            prop_assert_eq!(u64::from(striping.physical(page)) * page_size + loc % page_size, local);
        }
    }

    #[test]
    fn lanes_out_of_range_are_refused() {
        assert_eq!(Striping::new(0), Err(StripingError { lanes: 0 }));
        assert_eq!(Striping::new(65).unwrap_err().to_string(), "lanes: 65 is out of range, 1 to 64");
    }

    #[test]
    fn ascending_neighbours_make_a_run() {
        assert_eq!(
            coalesce([4, 5, 6, 2, 1, 9]),
            [
                PageRun { start: 4, len: 3 },
                PageRun { start: 2, len: 1 },
                PageRun { start: 1, len: 1 },
                PageRun { start: 9, len: 1 }
            ]
        );
    }
}
