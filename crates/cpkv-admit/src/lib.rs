//! Prefill admission: the batch that fits, decided on plain numbers.
//!
//! One [`Batch`] is formed per scheduler step. For each candidate, in the order of [`QueueOrder`], the caller asks
//!
//! 1. [`Batch::shape`]: the request cap, then the piece of the prompt that this step may compute;
//! 2. its own pools: whether every lane can hold that piece and the output reserve, else [`Stop::NoToken`];
//! 3. [`Batch::check`]: input, extend, cached tokens and buffer bytes, all on the shape;
//! 4. its own load-back, which is planned only now, so that a refused candidate never moves a byte;
//! 5. [`Batch::commit`].
//!
//! The first [`Stop`] ends the batch and says why. The crate sees no lane, no tree and no device: capacity per lane is
//! the caller's (contract C9), and nothing here allocates.
//!
//! ```
//! use cpkv_admit::{Batch, Candidate, Limit, Limits, Stop};
//!
//! let limits = Limits { chunk_tokens: Some(8), ..Limits::default() };
//! let mut batch = Batch::new(&limits);
//! for (input_tokens, computed) in [(4, 4), (8, 4)] {
//!     let shape = batch.shape(&Candidate { input_tokens, cached_tokens: 0, page_size: 4 })?;
//!     batch.check(&shape)?;
//!     batch.commit(&shape);
//!     assert_eq!(shape.extend_tokens, computed);
//! }
//! let next = batch.shape(&Candidate { input_tokens: 1, cached_tokens: 0, page_size: 4 });
//! assert_eq!(next, Err(Stop::Other { limit: Limit::ChunkTokens, value: 9, bound: 8 }));
//! # Ok::<(), Stop>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod decide;
mod limits;
mod order;
mod reserve;
mod sglang;
mod shape;

pub use decide::{Batch, Stop};
pub use limits::{EffectiveLimit, EffectiveLimits, Limit, Limits, LimitsError};
pub use order::{OrderKey, QueueOrder};
pub use reserve::{NewTokenRatio, OutputReserve, SGLANG_MAX_NEW_CLIP};
pub use sglang::{SglangAdder, SglangAnswer, SglangCandidate, SglangLimits, SglangPool, SglangVerdict};
pub use shape::{Candidate, Shape, cached_cap};
