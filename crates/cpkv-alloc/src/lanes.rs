//! The device tier: one page per owner asked for, from that owner's lane, all or nothing.

use crate::bits::PageSet;
use crate::index::{Contiguity, FreeIndex};
use crate::interleave::{Cursor, interleave};
use crate::{AllocError, Counters};
use cpkv_core::{LaneCounts, Owner, PageId, PageRun, Striping};

/// One rank's pool. Physical page 0 is its padding page.
#[derive(Debug, Clone)]
struct Lane {
    index: FreeIndex,
    /// Pages handed out.
    used: PageSet,
    /// The runs that the current call takes or gives. Empty between calls; kept for its memory.
    runs: Vec<PageRun>,
}

/// The pages of the device tier, on all lanes.
///
/// Each lane has free pages that are ready and a release bucket of pages that were freed and not merged yet; both
/// count as free. Within a lane an allocation prefers contiguous pages, and comes in the fewest runs that the free
/// pages of the lane allow: the release bucket is merged where it would help, at a cost proportional to what is in it.
#[derive(Debug, Clone)]
pub struct OwnerLanes {
    striping: Striping,
    pages: u32,
    lanes: Vec<Lane>,
    free: LaneCounts,
    cursors: Vec<Cursor>,
    counters: Counters,
}

impl OwnerLanes {
    /// Lanes of `pages_per_lane` usable pages each, all free: physical pages 1 to `pages_per_lane`. O(pages).
    ///
    /// # Errors
    /// [`AllocError::PoolTooLarge`] for more than [`PAGES_MAX`](crate::PAGES_MAX) pages per lane.
    pub fn new(striping: Striping, pages_per_lane: u32, contiguity: Contiguity) -> Result<Self, AllocError> {
        AllocError::check_pool(pages_per_lane)?;
        let pool = PageRun { start: 1, len: pages_per_lane };
        let lane = Lane { index: FreeIndex::new(pool, contiguity), used: PageSet::new(pool.end()), runs: Vec::new() };
        Ok(Self {
            striping,
            pages: pages_per_lane,
            lanes: vec![lane; striping.lanes()],
            free: LaneCounts::splat(striping.lanes(), pages_per_lane),
            cursors: vec![Cursor::default(); striping.lanes()],
            counters: Counters::default(),
        })
    }

    /// Takes one page for each entry, on that owner's lane. The pages come in the order of `owners`; those of one lane
    /// are runs of contiguous ascending pages, as few as possible. O(owners + extents).
    ///
    /// # Errors
    /// [`AllocError::LaneFull`] with what is missing per lane; [`AllocError::OwnerOutOfRange`]. Nothing was changed.
    pub fn alloc(&mut self, owners: &[Owner]) -> Result<Vec<PageId>, AllocError> {
        let lanes = self.striping.lanes();
        let mut need = LaneCounts::zero(lanes);
        let counts = need.as_mut_slice();
        for &owner in owners {
            match counts.get_mut(owner.index()) {
                Some(count) => *count += 1,
                None => return Err(AllocError::OwnerOutOfRange { owner, lanes }),
            }
        }
        self.take(&need)?;
        let lanes = &self.lanes;
        let pages = interleave(self.striping, owners, &mut self.cursors, |lane, i| lanes[lane].runs[i]);
        for lane in &mut self.lanes {
            lane.runs.clear();
        }
        Ok(pages)
    }

    /// Takes `need` pages of each lane and gives them as runs of physical pages, for the lanes that need any, in lane
    /// order. O(lanes + extents).
    ///
    /// # Errors
    /// [`AllocError::LaneFull`] with what is missing per lane; [`AllocError::LanesDiffer`]. Nothing was changed.
    pub fn alloc_counts(&mut self, need: &LaneCounts) -> Result<Vec<(Owner, Vec<PageRun>)>, AllocError> {
        let lanes = self.striping.lanes();
        if need.lanes() != lanes {
            return Err(AllocError::LanesDiffer { given: need.lanes(), lanes });
        }
        self.take(need)?;
        let wanted = need.iter().filter(|(_, pages)| *pages > 0);
        Ok(wanted.map(|(owner, _)| (owner, std::mem::take(&mut self.lanes[owner.index()].runs))).collect())
    }

    /// Takes what each lane needs into its `runs`, or changes nothing.
    fn take(&mut self, need: &LaneCounts) -> Result<(), AllocError> {
        if !self.free.covers(need) {
            return Err(AllocError::LaneFull { missing: need.saturating_sub(&self.free) });
        }
        for (owner, pages) in need.iter().filter(|(_, pages)| *pages > 0) {
            let lane = &mut self.lanes[owner.index()];
            let mut touched = lane.index.touched();
            if lane.index.wants_merge(pages) {
                lane.index.merge();
                self.counters.merges += 1;
                self.counters.touched_merging += lane.index.touched() - touched;
                touched = lane.index.touched();
            }
            lane.index.take(pages, &mut lane.runs);
            for run in &lane.runs {
                lane.used.insert(*run);
            }
            self.free[owner] -= pages;
            self.counters.reservations += 1;
            self.counters.extents += lane.runs.len() as u64;
            self.counters.pages_taken += u64::from(pages);
            self.counters.touched_taking += lane.index.touched() - touched;
        }
        Ok(())
    }

    /// Gives pages back, any subset in any order. They wait in the release buckets. O(pages).
    ///
    /// # Errors
    /// [`AllocError::ForeignPage`], [`AllocError::PaddingPage`], or [`AllocError::DoubleFree`] for a page that is free
    /// or comes twice. All pages are checked before any is freed: nothing was changed.
    pub fn free(&mut self, pages: &[PageId]) -> Result<(), AllocError> {
        let checked = self.collect(pages).and_then(|()| self.unmark());
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            if checked.is_err() {
                lane.runs.clear();
                continue;
            }
            let touched = lane.index.touched();
            for run in lane.runs.drain(..) {
                lane.index.park(run);
                self.free.as_mut_slice()[at] += run.len;
            }
            self.counters.touched_returning += lane.index.touched() - touched;
        }
        if checked.is_ok() {
            self.counters.pages_returned += pages.len() as u64;
        }
        checked
    }

    /// Sorts pages into the runs of their lanes. Pages that come in ascending or descending order make one run.
    fn collect(&mut self, pages: &[PageId]) -> Result<(), AllocError> {
        let end = self.end();
        for &page in pages {
            if page >= end {
                return Err(AllocError::ForeignPage { page, end });
            }
            if self.striping.is_padding(page) {
                return Err(AllocError::PaddingPage { page });
            }
            append(&mut self.lanes[self.striping.owner(page).index()].runs, self.striping.physical(page));
        }
        Ok(())
    }

    /// Marks the collected runs as not handed out, or changes nothing.
    fn unmark(&mut self) -> Result<(), AllocError> {
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            if let Err(page) = lane.used.try_remove_all(&lane.runs) {
                for lane in &mut self.lanes[..at] {
                    for run in &lane.runs {
                        lane.used.insert(*run);
                    }
                }
                return Err(AllocError::DoubleFree { page: self.striping.logical(Owner(at as u8), page) });
            }
        }
        Ok(())
    }

    /// The first logical page behind the tier.
    fn end(&self) -> PageId {
        PageId((self.pages + 1) * self.striping.lanes() as u32)
    }

    /// Free pages per lane, those in the release buckets included. O(1).
    #[must_use]
    pub fn free_pages(&self) -> &LaneCounts {
        &self.free
    }

    /// Pages per lane that were freed and not merged yet. O(lanes).
    #[must_use]
    pub fn released(&self) -> LaneCounts {
        LaneCounts::from(self.lanes.iter().map(|lane| lane.index.parked()).collect::<Vec<_>>())
    }

    /// The longest run of free pages of a lane, as far as the index knows: pages in the release bucket are left out,
    /// and with [`Contiguity::Off`] it is a lower bound. 0 for a lane that doesn't exist. O(1).
    #[must_use]
    pub fn largest_run(&self, owner: Owner) -> u32 {
        self.lanes.get(owner.index()).map_or(0, |lane| lane.index.largest())
    }

    /// Usable pages per lane.
    #[must_use]
    pub fn capacity(&self) -> LaneCounts {
        LaneCounts::splat(self.striping.lanes(), self.pages)
    }

    /// How logical pages lie over the lanes.
    #[must_use]
    pub fn striping(&self) -> Striping {
        self.striping
    }

    /// Whether a page is handed out. Padding pages and pages that don't exist never are. O(1).
    #[must_use]
    pub fn is_allocated(&self, page: PageId) -> bool {
        page < self.end() && self.lanes[self.striping.owner(page).index()].used.contains(self.striping.physical(page))
    }

    /// Pages per lane that must become free before `need` pages are: the deficits. `need` has as many lanes.
    #[must_use]
    pub fn shortfall(&self, need: &LaneCounts) -> LaneCounts {
        need.saturating_sub(&self.free)
    }

    /// What was done so far, over all lanes.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Rebuilds everything from the bits of the pages handed out and compares. O(pool): for tests and checked runs.
    ///
    /// # Errors
    /// What differs, in words, with its lane.
    pub fn self_check(&self) -> Result<(), String> {
        for (owner, free) in self.free.iter() {
            let lane = &self.lanes[owner.index()];
            let named = |what: String| format!("device lane {owner}: {what}");
            let used = lane.used.count();
            if used + free != self.pages {
                return Err(named(format!("{used} used and {free} free pages of {}", self.pages)));
            }
            if lane.used.contains(0) || !lane.runs.is_empty() {
                return Err(named("the padding page is handed out, or a call left runs behind".into()));
            }
            lane.index.self_check(&lane.used.gaps(1, self.pages + 1)).map_err(named)?;
        }
        Ok(())
    }
}

/// Adds a page to a list of runs: to the last one where it continues it upwards or downwards.
pub(crate) fn append(runs: &mut Vec<PageRun>, page: u32) {
    match runs.last_mut() {
        Some(run) if run.end() == page => run.len += 1,
        Some(run) if page + 1 == run.start => *run = PageRun { start: page, len: run.len + 1 },
        _ => runs.push(PageRun { start: page, len: 1 }),
    }
}
