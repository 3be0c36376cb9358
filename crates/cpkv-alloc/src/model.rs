//! The naive model of a pool: the state of each page in an ordered map, every question answered by a scan.

use cpkv_core::{PageRun, coalesce};
use std::collections::BTreeMap;

/// Where a page is (contract C1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageState {
    /// Nobody's, merged or not.
    Free,
    /// Of a reservation that has not ended.
    Reserved,
    /// Handed out.
    Owned,
}

/// One pool of pages. It doesn't choose pages: it judges the choice of an allocator.
#[derive(Debug, Clone)]
pub struct NaivePool {
    states: BTreeMap<u32, PageState>,
}

impl NaivePool {
    /// All pages of `pool` free.
    #[must_use]
    pub fn new(pool: PageRun) -> Self {
        Self { states: pool.pages().map(|page| (page, PageState::Free)).collect() }
    }

    /// The state of a page, if it is one of the pool.
    #[must_use]
    pub fn state(&self, page: u32) -> Option<PageState> {
        self.states.get(&page).copied()
    }

    /// The pages in a state, ascending.
    #[must_use]
    pub fn pages(&self, state: PageState) -> Vec<u32> {
        self.states.iter().filter(|(_, s)| **s == state).map(|(page, _)| *page).collect()
    }

    /// How many pages are in a state.
    #[must_use]
    pub fn count(&self, state: PageState) -> u32 {
        self.states.values().filter(|s| **s == state).count() as u32
    }

    /// The maximal runs of free pages, ascending.
    #[must_use]
    pub fn free_runs(&self) -> Vec<PageRun> {
        coalesce(self.pages(PageState::Free))
    }

    /// The length of the longest run of free pages.
    #[must_use]
    pub fn largest_run(&self) -> u32 {
        self.free_runs().iter().map(|run| run.len).max().unwrap_or(0)
    }

    /// The length of the shortest run of at least `pages` free pages.
    #[must_use]
    pub fn best_fit(&self, pages: u32) -> Option<u32> {
        self.free_runs().iter().map(|run| run.len).filter(|len| *len >= pages).min()
    }

    /// The fewest runs that hold `pages` free pages; nothing where there are not as many.
    #[must_use]
    pub fn fewest_runs(&self, pages: u32) -> Option<usize> {
        let mut lens: Vec<u32> = self.free_runs().iter().map(|run| run.len).collect();
        lens.sort_unstable_by(|a, b| b.cmp(a));
        let (mut runs, mut sum) = (0, 0);
        while sum < pages {
            sum += *lens.get(runs)?;
            runs += 1;
        }
        Some(runs)
    }

    /// Moves a page from one state to another.
    ///
    /// # Errors
    /// The page and its state, if that isn't `from`.
    pub fn change(&mut self, page: u32, from: PageState, to: PageState) -> Result<(), String> {
        match self.states.get_mut(&page) {
            Some(state) if *state == from => {
                *state = to;
                Ok(())
            }
            state => Err(format!("page {page} is {state:?}, not {from:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_from_the_states() {
        let mut pool = NaivePool::new(PageRun { start: 1, len: 10 });
        for page in [4, 6, 7] {
            pool.change(page, PageState::Free, PageState::Owned).unwrap();
        }
        // Free: 1..=3, 5, 8..=10.
        assert_eq!(pool.free_runs().len(), 3);
        assert_eq!(
            (pool.largest_run(), pool.best_fit(1), pool.best_fit(2), pool.best_fit(4)),
            (3, Some(1), Some(3), None)
        );
        assert_eq!(
            (pool.fewest_runs(3), pool.fewest_runs(4), pool.fewest_runs(7), pool.fewest_runs(8)),
            (Some(1), Some(2), Some(3), None)
        );
        assert!(pool.change(4, PageState::Free, PageState::Reserved).is_err());
        assert_eq!(pool.state(0), None);
    }
}
