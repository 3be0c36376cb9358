//! The switch between the two indexes over free pages: by extents, or a plain stack.

use crate::extents::Extents;
use crate::stack::Stack;
use cpkv_core::PageRun;

/// Whether a pool cares for contiguous pages. A switch per pool, and part of the agreed configuration (contract C7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Contiguity {
    /// One extent where one is long enough, else the fewest: few copy descriptors, at the cost of an index.
    #[default]
    Preferred,
    /// Last in, first out, whatever comes. For comparison, and for callers that don't copy.
    Off,
}

/// The free pages of one pool: those that are ready, and the release bucket of those that are parked.
#[derive(Debug, Clone)]
pub(crate) enum FreeIndex {
    Extents(Extents),
    Stack(Stack),
}

/// Calls the same method on either index.
macro_rules! either {
    ($self:expr, $index:ident => $call:expr) => {
        match $self {
            FreeIndex::Extents($index) => $call,
            FreeIndex::Stack($index) => $call,
        }
    };
}

impl FreeIndex {
    /// All pages of `pool` free.
    pub(crate) fn new(pool: PageRun, contiguity: Contiguity) -> Self {
        match contiguity {
            Contiguity::Preferred => Self::Extents(Extents::new(pool)),
            Contiguity::Off => Self::Stack(Stack::new(pool)),
        }
    }

    /// Whether the release bucket must be merged before `pages` are taken: because there are too few without it, or
    /// because they would come in pieces.
    pub(crate) fn wants_merge(&self, pages: u32) -> bool {
        match self {
            Self::Extents(extents) => extents.parked() > 0 && extents.largest() < pages,
            Self::Stack(stack) => stack.ready() < pages,
        }
    }

    pub(crate) fn parked(&self) -> u32 {
        either!(self, index => index.parked())
    }

    pub(crate) fn touched(&self) -> u64 {
        either!(self, index => index.touched())
    }

    pub(crate) fn largest(&self) -> u32 {
        either!(self, index => index.largest())
    }

    pub(crate) fn take(&mut self, pages: u32, out: &mut Vec<PageRun>) {
        either!(self, index => index.take(pages, out));
    }

    pub(crate) fn park(&mut self, run: PageRun) {
        either!(self, index => index.park(run));
    }

    pub(crate) fn merge(&mut self) {
        either!(self, index => index.merge());
    }

    pub(crate) fn self_check(&self, free: &[PageRun]) -> Result<(), String> {
        either!(self, index => {
            let sum: u32 = free.iter().map(|run| run.len).sum();
            if index.ready() + index.parked() != sum {
                return Err(format!("{} ready and {} parked pages, {sum} free", index.ready(), index.parked()));
            }
            index.self_check(free)
        })
    }
}
