//! Why a copy was not submitted, split by whether anything is on a stream now.

use cpkv_core::{DeviceError, Tier};

/// Why a copy was not submitted. `F` is the backend's fence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError<F> {
    /// A page that its pool doesn't have: a fault of the caller. Nothing was enqueued. A lane without a host tier has
    /// 0 host pages.
    #[error("{tier} page {page} is out of range: the pool has {pages} pages")]
    OutOfRange {
        /// The pool's tier.
        tier: Tier,
        /// The physical page.
        page: u32,
        /// Pages of the pool, padding included.
        pages: u32,
    },
    /// The device's padding page, which holds nobody's rows: a fault of the caller. Nothing was enqueued.
    #[error("device page 0 is padding: it is neither saved nor loaded")]
    Padding,
    /// A page that would be written twice: a fault of the caller. Nothing was enqueued.
    #[error("{tier} page {page} would be written twice")]
    Twice {
        /// The tier that is written.
        tier: Tier,
        /// The physical page.
        page: u32,
    },
    /// The backend refused a part of the copy. What was enqueued before it still runs: no page of the copy may be
    /// used again before `rest` is reached.
    #[error("broken off: {error}")]
    BrokenOff {
        /// What the backend said.
        error: DeviceError,
        /// Behind everything that was enqueued; `None` where the backend refused that too, as a lost one does.
        rest: Option<F>,
    },
}
