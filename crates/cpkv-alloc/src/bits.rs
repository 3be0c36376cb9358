//! One bit per page, changed by runs: the ground truth about who has a page.

use cpkv_core::{PageRun, coalesce};

/// A set of pages of one pool. Operations on a run cost one step per 64 pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageSet {
    words: Vec<u64>,
}

/// The words that a run touches, each with the mask of its pages there.
fn masks(run: PageRun) -> impl Iterator<Item = (usize, u64)> {
    let (mut at, end) = (run.start, run.start + run.len);
    std::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let (word, low) = (at / 64, at % 64);
        let pages = (64 - low).min(end - at);
        at += pages;
        Some((word as usize, (u64::MAX >> (64 - pages)) << low))
    })
}

impl PageSet {
    /// No page of a pool whose page numbers end before `end`.
    pub(crate) fn new(end: u32) -> Self {
        Self { words: vec![0; (end as usize).div_ceil(64)] }
    }

    /// Whether `page` is in the set; a page behind the pool never is.
    pub(crate) fn contains(&self, page: u32) -> bool {
        self.words.get(page as usize / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// Adds a run, of which no page is in the set.
    pub(crate) fn insert(&mut self, run: PageRun) {
        for (word, mask) in masks(run) {
            debug_assert_eq!(self.words[word] & mask, 0);
            self.words[word] |= mask;
        }
    }

    /// Takes a run out, all of whose pages are in the set.
    pub(crate) fn remove(&mut self, run: PageRun) {
        for (word, mask) in masks(run) {
            debug_assert_eq!(self.words[word] & mask, mask);
            self.words[word] &= !mask;
        }
    }

    /// Takes runs out. If a page isn't in the set, or comes twice, names it and changes nothing.
    pub(crate) fn try_remove_all(&mut self, runs: &[PageRun]) -> Result<(), u32> {
        for (done, run) in runs.iter().enumerate() {
            if masks(*run).any(|(word, mask)| self.words[word] & mask != mask) {
                let page = run.pages().find(|page| !self.contains(*page)).expect("a page of the run is missing");
                for run in &runs[..done] {
                    self.insert(*run);
                }
                return Err(page);
            }
            self.remove(*run);
        }
        Ok(())
    }

    /// The first page of a run that is in the set.
    pub(crate) fn first_in(&self, run: PageRun) -> Option<u32> {
        masks(run).find_map(|(word, mask)| match self.words[word] & mask {
            0 => None,
            hits => Some(word as u32 * 64 + hits.trailing_zeros()),
        })
    }

    /// The pages from `start` up to `end` that are not in the set, as runs. O(pool): a view, never on a hot path.
    pub(crate) fn gaps(&self, start: u32, end: u32) -> Vec<PageRun> {
        coalesce((start..end).filter(|page| !self.contains(*page)))
    }

    /// Whether `other`, of the same pool, has all pages of this set. O(pool / 64).
    pub(crate) fn is_subset(&self, other: &PageSet) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }

    /// Pages in the set. O(pool / 64).
    pub(crate) fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn masks_cover_a_run_once(start in 0u32..300, len in 0u32..300) {
            let run = PageRun { start, len };
            let pages: Vec<u32> = masks(run)
                .flat_map(|(word, mask)| (0..64).map(move |bit| (word as u32 * 64 + bit, mask >> bit & 1)))
                .filter_map(|(page, bit)| (bit == 1).then_some(page))
                .collect();
            prop_assert_eq!(pages, run.pages().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_refused_removal_changes_nothing() {
        let mut set = PageSet::new(200);
        set.insert(PageRun { start: 10, len: 100 });
        let part = PageRun { start: 20, len: 70 };
        assert_eq!(set.try_remove_all(&[part, PageRun { start: 89, len: 2 }]), Err(89), "page 89 comes twice");
        assert_eq!(set.try_remove_all(&[part, PageRun { start: 109, len: 2 }]), Err(110), "page 110 isn't there");
        assert_eq!(set.count(), 100);
        assert_eq!(set.try_remove_all(&[part]), Ok(()));
        assert_eq!(set.count(), 30);
        assert_eq!(set.first_in(PageRun { start: 20, len: 180 }), Some(90));
        assert_eq!(
            set.gaps(0, 120),
            [PageRun { start: 0, len: 10 }, PageRun { start: 20, len: 70 }, PageRun { start: 110, len: 10 }]
        );
    }
}
