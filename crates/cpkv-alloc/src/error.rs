//! What an allocator refuses, by name. Whatever it is, nothing was changed.

use cpkv_core::{LaneCounts, Owner, PageId};

/// Why a call was refused. The two `Full` variants are pressure: evict what is missing and ask again. The others are
/// faults of the caller.
///
/// Pages are logical. In a single [`HostPool`](crate::HostPool), which is a tier of one lane, the logical page is the
/// physical one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// A lane of the device tier has too few free pages.
    #[error("device lane full, pages missing per lane: {:?}", .missing.as_slice())]
    LaneFull {
        /// Pages missing per lane: what was asked less what is free, floored at 0.
        missing: LaneCounts,
    },
    /// A lane of the host tier has too few free pages.
    #[error("host lane full, pages missing per lane: {:?}", .missing.as_slice())]
    HostFull {
        /// Pages missing per lane: what was asked less what is free, floored at 0.
        missing: LaneCounts,
    },
    /// A reservation of no pages.
    #[error("a reservation of 0 pages")]
    ZeroPages,
    /// The page is free already, or is named twice in one call.
    #[error("double free of page {page}")]
    DoubleFree {
        /// The page; one of them if there are several.
        page: PageId,
    },
    /// The page is not one of this pool.
    #[error("page {page} is foreign: the pages here end before {end}")]
    ForeignPage {
        /// The page.
        page: PageId,
        /// The first page number behind the pool.
        end: PageId,
    },
    /// The page is the padding page of its lane, which is never handed out.
    #[error("page {page} is a padding page")]
    PaddingPage {
        /// The page.
        page: PageId,
    },
    /// The reservation was committed or forfeited before, or is of another pool.
    #[error("stale reservation: ended before, or of another pool")]
    StaleReservation,
    /// The page is reserved and not committed yet: forfeit or commit the reservation, don't release its pages.
    #[error("page {page} is reserved and not committed")]
    NotCommitted {
        /// The page; one of them if there are several.
        page: PageId,
    },
    /// An owner that has no lane here.
    #[error("owner {owner} is out of range: there are {lanes} lanes")]
    OwnerOutOfRange {
        /// The owner.
        owner: Owner,
        /// The number of lanes.
        lanes: usize,
    },
    /// A vector of counts with another number of lanes than the tier.
    #[error("{given} lanes given where there are {lanes}")]
    LanesDiffer {
        /// The lanes of the vector.
        given: usize,
        /// The lanes of the tier.
        lanes: usize,
    },
    /// A pool larger than [`PAGES_MAX`](crate::PAGES_MAX).
    #[error("a pool of {pages} pages is too large: {max} at most")]
    PoolTooLarge {
        /// Pages asked for.
        pages: u32,
        /// The most pages of one pool.
        max: u32,
    },
}

impl AllocError {
    pub(crate) fn check_pool(pages: u32) -> Result<(), AllocError> {
        let max = crate::PAGES_MAX;
        if pages <= max { Ok(()) } else { Err(AllocError::PoolTooLarge { pages, max }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_was_wrong_in_one_line() {
        let full = AllocError::LaneFull { missing: LaneCounts::from([1, 0]) };
        assert_eq!(full.to_string(), "device lane full, pages missing per lane: [1, 0]");
        let foreign = AllocError::ForeignPage { page: PageId(9), end: PageId(8) };
        assert_eq!(foreign.to_string(), "page 9 is foreign: the pages here end before 8");
        assert_eq!(
            AllocError::check_pool(u32::MAX).unwrap_err().to_string(),
            "a pool of 4294967295 pages is too large: 4194304 at most"
        );
    }
}
