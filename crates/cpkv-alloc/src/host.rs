//! One lane's host pool: space is reserved, then committed or forfeited, once.
//!
//! A page is free, reserved by one reservation, or owned. Reserved is not valid (contract C3): only a commit, at the
//! acknowledgement of the copy, turns reserved pages into owned ones.

use crate::bits::PageSet;
use crate::index::{Contiguity, FreeIndex};
use crate::{AllocError, Counters};
use cpkv_core::{LaneCounts, PageId, PageRun};

/// A handle on reserved pages: plain data. It ends with its commit or its forfeit and is stale from then on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use = "reserved pages stay taken until a commit or a forfeit"]
pub struct Reservation {
    /// The entry in the pool's table. Entries are used again, with another generation.
    pub id: u32,
    /// Which use of the entry this is.
    pub generation: u64,
    /// The pages, as runs of contiguous ascending physical pages.
    pub runs: Vec<PageRun>,
}

/// An entry of the table of reservations.
#[derive(Debug, Clone, Default)]
struct Entry {
    generation: u64,
    /// What is reserved; empty for an entry that is not in use.
    runs: Vec<PageRun>,
}

/// The host pages of one lane, all usable from page 0 on.
#[derive(Debug, Clone)]
pub struct HostPool {
    pages: u32,
    contiguity: Contiguity,
    /// The index over free pages, built at the first reservation.
    index: Option<FreeIndex>,
    /// Pages reserved or owned.
    used: PageSet,
    /// Pages reserved, a subset of the used ones.
    reserved: PageSet,
    available: u32,
    reserved_pages: u32,
    entries: Vec<Entry>,
    /// Entries that are not in use.
    idle: Vec<u32>,
    counters: Counters,
}

impl HostPool {
    /// A pool of `pages` pages, all free. 0 pages are no host tier: every reservation is refused as full. O(pages/64).
    ///
    /// # Errors
    /// [`AllocError::PoolTooLarge`] for more than [`PAGES_MAX`](crate::PAGES_MAX) pages.
    pub fn new(pages: u32, contiguity: Contiguity) -> Result<Self, AllocError> {
        AllocError::check_pool(pages)?;
        Ok(Self {
            pages,
            contiguity,
            index: None,
            used: PageSet::new(pages),
            reserved: PageSet::new(pages),
            available: pages,
            reserved_pages: 0,
            entries: Vec::new(),
            idle: Vec::new(),
            counters: Counters::default(),
        })
    }

    /// Reserves `pages` pages: in one extent where one is long enough, else in the fewest. Never refused while as many
    /// are free. O(extents), and what came back since the last reservation is merged first, O(runs log runs); the
    /// first call builds the index, O(pool).
    ///
    /// # Errors
    /// [`AllocError::HostFull`] with what is missing, [`AllocError::ZeroPages`]. Nothing was changed.
    pub fn reserve(&mut self, pages: u32) -> Result<Reservation, AllocError> {
        if pages == 0 {
            return Err(AllocError::ZeroPages);
        }
        if pages > self.available {
            return Err(AllocError::HostFull { missing: LaneCounts::from([pages - self.available]) });
        }
        let pool = PageRun { start: 0, len: self.pages };
        let index = self.index.get_or_insert_with(|| FreeIndex::new(pool, self.contiguity));
        let id = self.idle.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[id as usize];
        let mut touched = index.touched();
        if index.parked() > 0 {
            index.merge();
            self.counters.merges += 1;
            self.counters.touched_merging += index.touched() - touched;
            touched = index.touched();
        }
        index.take(pages, &mut entry.runs);
        for run in &entry.runs {
            self.used.insert(*run);
            self.reserved.insert(*run);
        }
        self.available -= pages;
        self.reserved_pages += pages;
        self.counters.reservations += 1;
        self.counters.extents += entry.runs.len() as u64;
        self.counters.pages_taken += u64::from(pages);
        self.counters.touched_taking += index.touched() - touched;
        Ok(Reservation { id, generation: entry.generation, runs: entry.runs.clone() })
    }

    /// Whether a handle is of a reservation of this pool that has not ended. The handle of another pool is told from
    /// its own by id, generation and pages; between replicas, which make the same calls, all three are equal.
    /// O(extents).
    ///
    /// # Errors
    /// [`AllocError::StaleReservation`] if not.
    pub fn check(&self, reservation: &Reservation) -> Result<(), AllocError> {
        let live = self.entries.get(reservation.id as usize).is_some_and(|entry| {
            entry.generation == reservation.generation && entry.runs == reservation.runs && !entry.runs.is_empty()
        });
        if live { Ok(()) } else { Err(AllocError::StaleReservation) }
    }

    /// Turns reserved pages into owned ones: the copy is acknowledged. O(extents + pages/64).
    ///
    /// # Errors
    /// [`AllocError::StaleReservation`]; nothing was changed.
    pub fn commit(&mut self, reservation: &Reservation) -> Result<(), AllocError> {
        self.check(reservation)?;
        self.end(reservation);
        Ok(())
    }

    /// Gives all reserved pages back: the copy failed or was given up. O(extents + pages/64).
    ///
    /// # Errors
    /// [`AllocError::StaleReservation`], also the second time; nothing was changed.
    pub fn forfeit(&mut self, reservation: &Reservation) -> Result<(), AllocError> {
        self.check(reservation)?;
        self.end(reservation);
        self.try_unmark(&reservation.runs).expect("reserved pages are in use");
        self.put_back(&reservation.runs);
        Ok(())
    }

    /// Ends a reservation that was checked. Its pages are owned from here on.
    fn end(&mut self, reservation: &Reservation) {
        let entry = &mut self.entries[reservation.id as usize];
        entry.generation += 1;
        entry.runs.clear();
        self.idle.push(reservation.id);
        for run in &reservation.runs {
            self.reserved.remove(*run);
            self.reserved_pages -= run.len;
        }
    }

    /// Gives owned pages back: any parts of what was committed, in any order. O(runs + pages/64).
    ///
    /// # Errors
    /// [`AllocError::ForeignPage`], [`AllocError::NotCommitted`], or [`AllocError::DoubleFree`] for a page that is
    /// free or comes twice. All are checked before any is freed: nothing was changed.
    pub fn release(&mut self, runs: &[PageRun]) -> Result<(), AllocError> {
        for run in runs {
            if run.start.checked_add(run.len).is_none_or(|end| end > self.pages) {
                return Err(AllocError::ForeignPage {
                    page: PageId(run.start.max(self.pages)),
                    end: PageId(self.pages),
                });
            }
        }
        self.try_unmark(runs)?;
        self.put_back(runs);
        Ok(())
    }

    /// Marks owned pages as free, or changes nothing. The runs lie in the pool.
    pub(crate) fn try_unmark(&mut self, runs: &[PageRun]) -> Result<(), AllocError> {
        if let Some(page) = runs.iter().find_map(|run| self.reserved.first_in(*run)) {
            return Err(AllocError::NotCommitted { page: PageId(page) });
        }
        self.used.try_remove_all(runs).map_err(|page| AllocError::DoubleFree { page: PageId(page) })
    }

    /// Takes a [`try_unmark`](Self::try_unmark) back.
    pub(crate) fn mark(&mut self, runs: &[PageRun]) {
        for run in runs {
            self.used.insert(*run);
        }
    }

    /// Parks pages, which were unmarked, until the next reservation.
    pub(crate) fn put_back(&mut self, runs: &[PageRun]) {
        // Without an index nothing was taken yet, so that the runs are empty.
        let Some(index) = &mut self.index else { return };
        let touched = index.touched();
        for run in runs.iter().filter(|run| run.len > 0) {
            index.park(*run);
            self.available += run.len;
            self.counters.pages_returned += u64::from(run.len);
        }
        self.counters.touched_returning += index.touched() - touched;
    }

    /// Free pages. O(1).
    #[must_use]
    pub fn available(&self) -> u32 {
        self.available
    }

    /// Free pages that came back since the last reservation and aren't merged yet. O(1).
    #[must_use]
    pub fn released(&self) -> u32 {
        self.index.as_ref().map_or(0, FreeIndex::parked)
    }

    /// All pages.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.pages
    }

    /// Pages reserved and not committed. O(1).
    #[must_use]
    pub fn reserved(&self) -> u32 {
        self.reserved_pages
    }

    /// The longest run of free pages as the last reservation left them: pages that came back since are left out. With
    /// [`Contiguity::Off`] a lower bound. O(1).
    #[must_use]
    pub fn largest_run(&self) -> u32 {
        self.index.as_ref().map_or(self.pages, FreeIndex::largest)
    }

    /// Whether a page is owned: committed and not released. O(1).
    #[must_use]
    pub fn is_owned(&self, page: u32) -> bool {
        self.used.contains(page) && !self.reserved.contains(page)
    }

    /// Whether a page is reserved. O(1).
    #[must_use]
    pub fn is_reserved(&self, page: u32) -> bool {
        self.reserved.contains(page)
    }

    /// The free pages as maximal runs, ascending. A view made on demand, O(pool).
    #[must_use]
    pub fn free_runs(&self) -> Vec<PageRun> {
        self.used.gaps(0, self.pages)
    }

    /// The free token slots, `page * page_size + i`, ascending: the flat list of older callers. A view made on demand,
    /// O(pool).
    pub fn free_slots(&self, page_size: u32) -> impl Iterator<Item = u64> {
        let size = u64::from(page_size);
        self.free_runs().into_iter().flat_map(move |run| u64::from(run.start) * size..u64::from(run.end()) * size)
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Rebuilds everything from the bits of the pages and compares. O(pool): for tests and checked runs.
    ///
    /// # Errors
    /// What differs, in words.
    pub fn self_check(&self) -> Result<(), String> {
        let used = self.used.count();
        if used + self.available != self.pages {
            return Err(format!("{used} used and {} free pages of {}", self.available, self.pages));
        }
        let mut reserved = PageSet::new(self.pages);
        for run in self.entries.iter().flat_map(|entry| &entry.runs) {
            if reserved.first_in(*run).is_some() {
                return Err(format!("{run:?} is reserved twice"));
            }
            reserved.insert(*run);
        }
        if reserved != self.reserved || reserved.count() != self.reserved_pages {
            return Err(format!(
                "{} pages reserved by the table, {} by the bits, {} by the counter",
                reserved.count(),
                self.reserved.count(),
                self.reserved_pages
            ));
        }
        if !reserved.is_subset(&self.used) {
            return Err("a reserved page is free".into());
        }
        let idle = self.entries.iter().filter(|entry| entry.runs.is_empty()).count();
        if idle != self.idle.len() || self.idle.iter().any(|id| !self.entries[*id as usize].runs.is_empty()) {
            return Err(format!("{idle} entries without a reservation, {} listed as idle", self.idle.len()));
        }
        match &self.index {
            Some(index) => index.self_check(&self.free_runs()),
            None if used > 0 => Err(format!("{used} pages used, and no index")),
            None => Ok(()),
        }
    }
}
