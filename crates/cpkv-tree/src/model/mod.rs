//! The tree written naively, page by page and without any index, for property tests.
//!
//! A [`Model`] answers every call as a [`Tree`](crate::Tree) does, errors included, by scanning
//! all pages it knows. [`Observed`] is everything that can be seen of either from outside.
mod change;
mod observe;
mod state;

pub use observe::{NodeView, Observed};
pub use state::Model;
