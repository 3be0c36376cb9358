//! Free pages as a stack: the cheapest order, with no regard to contiguity.

use cpkv_core::{PageRun, coalesce, strict_assert};

/// The free pages of one pool, last in, first out, and a release bucket beside them.
#[derive(Debug, Clone)]
pub(crate) struct Stack {
    /// Pages that came back and were merged.
    pages: Vec<u32>,
    /// Pages never handed out yet: so the stack needn't be filled at the start.
    fresh: PageRun,
    /// Pages that came back and were not merged.
    parked: Vec<u32>,
    touched: u64,
}

impl Stack {
    pub(crate) fn new(pool: PageRun) -> Self {
        Self { pages: Vec::new(), fresh: pool, parked: Vec::new(), touched: 0 }
    }

    pub(crate) fn ready(&self) -> u32 {
        self.pages.len() as u32 + self.fresh.len
    }

    pub(crate) fn parked(&self) -> u32 {
        self.parked.len() as u32
    }

    pub(crate) fn touched(&self) -> u64 {
        self.touched
    }

    /// What is known without a scan: the pages never handed out are contiguous, those on the stack may not be.
    pub(crate) fn largest(&self) -> u32 {
        self.fresh.len.max(u32::from(!self.pages.is_empty()))
    }

    /// Pops `pages` pages, at most what is ready; neighbours that come in ascending order make a run. 1 entry per page.
    pub(crate) fn take(&mut self, pages: u32, out: &mut Vec<PageRun>) {
        strict_assert!(pages <= self.ready(), "{pages} pages taken of {} ready", self.ready());
        self.touched += u64::from(pages);
        let old = self.pages.len().min(pages as usize);
        out.extend(coalesce(self.pages.drain(self.pages.len() - old..).rev()));
        let new = PageRun { start: self.fresh.start, len: pages - old as u32 };
        if new.len > 0 {
            self.fresh = PageRun { start: new.end(), len: self.fresh.len - new.len };
            out.push(new);
        }
    }

    pub(crate) fn park(&mut self, run: PageRun) {
        self.touched += u64::from(run.len);
        self.parked.extend(run.pages());
    }

    pub(crate) fn merge(&mut self) {
        self.touched += u64::from(self.parked());
        // What comes next depends on what came back, not on the order in which it did (contract C7).
        self.parked.sort_unstable();
        self.pages.append(&mut self.parked);
    }

    /// Checks the stack against the free runs of the ground truth, ascending. O(pool).
    pub(crate) fn self_check(&self, free: &[PageRun]) -> Result<(), String> {
        let mut pages: Vec<u32> = self.pages.iter().chain(&self.parked).copied().chain(self.fresh.pages()).collect();
        pages.sort_unstable();
        let joined = coalesce(pages);
        if joined == free { Ok(()) } else { Err(format!("free by the stack {joined:?}, by the ground truth {free:?}")) }
    }
}
