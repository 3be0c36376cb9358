//! The host tier: one pool per lane, reserved on all lanes or on none.

use crate::host::{HostPool, Reservation};
use crate::index::Contiguity;
use crate::interleave::{Cursor, interleave};
use crate::lanes::append;
use crate::{AllocError, Counters};
use cpkv_core::{LaneCounts, Owner, PageId, PageRun, Striping};

/// Host pages reserved on several lanes by one call. It ends with its commit or its forfeit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use = "reserved pages stay taken until a commit or a forfeit"]
pub struct LaneReservation {
    /// The logical pages, in the order of the owners asked for.
    pub pages: Vec<PageId>,
    parts: Vec<(Owner, Reservation)>,
}

impl LaneReservation {
    /// The runs of physical pages of each lane that has any, in lane order.
    pub fn runs(&self) -> impl Iterator<Item = (Owner, &[PageRun])> {
        self.parts.iter().map(|(owner, part)| (*owner, part.runs.as_slice()))
    }
}

/// The pages of the host tier, on all lanes. A host page lies on the lane of the device page that it backs.
#[derive(Debug, Clone)]
pub struct HostLanes {
    striping: Striping,
    pools: Vec<HostPool>,
    cursors: Vec<Cursor>,
}

impl HostLanes {
    /// A host tier of `pages_per_lane` pages on each lane, all free. 0 pages are no host tier: every reservation is
    /// refused as full. O(lanes * pages/64).
    ///
    /// # Errors
    /// [`AllocError::PoolTooLarge`] for more than [`PAGES_MAX`](crate::PAGES_MAX) pages per lane.
    pub fn new(striping: Striping, pages_per_lane: u32, contiguity: Contiguity) -> Result<Self, AllocError> {
        let pool = HostPool::new(pages_per_lane, contiguity)?;
        let lanes = striping.lanes();
        Ok(Self { striping, pools: vec![pool; lanes], cursors: vec![Cursor::default(); lanes] })
    }

    /// Reserves one page for each entry, on that owner's lane. O(owners + extents).
    ///
    /// # Errors
    /// [`AllocError::HostFull`] with what is missing per lane, [`AllocError::ZeroPages`] for no owners,
    /// [`AllocError::OwnerOutOfRange`]. Nothing was changed on any lane.
    pub fn reserve(&mut self, owners: &[Owner]) -> Result<LaneReservation, AllocError> {
        let lanes = self.striping.lanes();
        if let Some(owner) = owners.iter().copied().find(|owner| owner.index() >= lanes) {
            return Err(AllocError::OwnerOutOfRange { owner, lanes });
        }
        if owners.is_empty() {
            return Err(AllocError::ZeroPages);
        }
        let need = LaneCounts::of_owners(lanes, owners.iter().copied());
        let free = self.free_pages();
        if !free.covers(&need) {
            return Err(AllocError::HostFull { missing: need.saturating_sub(&free) });
        }
        let mut parts = Vec::new();
        for (owner, count) in need.iter().filter(|(_, count)| *count > 0) {
            parts.push((owner, self.pools[owner.index()].reserve(count).expect("every lane covers its need")));
        }
        let mut runs: Vec<&[PageRun]> = vec![&[]; lanes];
        for (owner, part) in &parts {
            runs[owner.index()] = &part.runs;
        }
        let pages = interleave(self.striping, owners, &mut self.cursors, |lane, i| runs[lane][i]);
        Ok(LaneReservation { pages, parts })
    }

    /// Turns all reserved pages into owned ones: the copy is acknowledged on all lanes. O(extents + pages/64).
    ///
    /// # Errors
    /// [`AllocError::StaleReservation`]; nothing was changed on any lane.
    pub fn commit(&mut self, reservation: &LaneReservation) -> Result<(), AllocError> {
        self.check(reservation)?;
        for (owner, part) in &reservation.parts {
            self.pools[owner.index()].commit(part).expect("all parts were checked");
        }
        Ok(())
    }

    /// Gives all reserved pages of all lanes back. O(extents + pages/64).
    ///
    /// # Errors
    /// [`AllocError::StaleReservation`], also the second time; nothing was changed on any lane.
    pub fn forfeit(&mut self, reservation: &LaneReservation) -> Result<(), AllocError> {
        self.check(reservation)?;
        for (owner, part) in &reservation.parts {
            self.pools[owner.index()].forfeit(part).expect("all parts were checked");
        }
        Ok(())
    }

    fn check(&self, reservation: &LaneReservation) -> Result<(), AllocError> {
        for (owner, part) in &reservation.parts {
            self.pools.get(owner.index()).ok_or(AllocError::StaleReservation)?.check(part)?;
        }
        Ok(())
    }

    /// Gives owned pages back: any subset of what was committed, in any order. O(pages + lanes).
    ///
    /// # Errors
    /// [`AllocError::ForeignPage`], [`AllocError::NotCommitted`], or [`AllocError::DoubleFree`] for a page that is
    /// free or comes twice. All are checked before any is freed: nothing was changed on any lane.
    pub fn release(&mut self, pages: &[PageId]) -> Result<(), AllocError> {
        let end = PageId(self.pools[0].capacity() * self.striping.lanes() as u32);
        let mut runs: Vec<Vec<PageRun>> = vec![Vec::new(); self.pools.len()];
        for &page in pages {
            if page >= end {
                return Err(AllocError::ForeignPage { page, end });
            }
            append(&mut runs[self.striping.owner(page).index()], self.striping.physical(page));
        }
        for at in 0..self.pools.len() {
            if let Err(error) = self.pools[at].try_unmark(&runs[at]) {
                for (pool, runs) in self.pools.iter_mut().zip(&runs).take(at) {
                    pool.mark(runs);
                }
                return Err(self.on_lane(error, Owner(at as u8)));
            }
        }
        for (pool, runs) in self.pools.iter_mut().zip(&runs).filter(|(_, runs)| !runs.is_empty()) {
            pool.put_back(runs);
        }
        Ok(())
    }

    /// Turns the page of a pool's error into the logical page.
    fn on_lane(&self, error: AllocError, owner: Owner) -> AllocError {
        let logical = |page: PageId| self.striping.logical(owner, page.0);
        match error {
            AllocError::DoubleFree { page } => AllocError::DoubleFree { page: logical(page) },
            AllocError::NotCommitted { page } => AllocError::NotCommitted { page: logical(page) },
            other => other,
        }
    }

    /// Free pages per lane. O(lanes).
    #[must_use]
    pub fn free_pages(&self) -> LaneCounts {
        self.per_lane(HostPool::available)
    }

    /// Pages per lane reserved and not committed. O(lanes).
    #[must_use]
    pub fn reserved(&self) -> LaneCounts {
        self.per_lane(HostPool::reserved)
    }

    /// All pages per lane. O(lanes).
    #[must_use]
    pub fn capacity(&self) -> LaneCounts {
        self.per_lane(HostPool::capacity)
    }

    fn per_lane(&self, figure: impl Fn(&HostPool) -> u32) -> LaneCounts {
        let mut counts = LaneCounts::zero(self.pools.len());
        for (count, pool) in counts.as_mut_slice().iter_mut().zip(&self.pools) {
            *count = figure(pool);
        }
        counts
    }

    /// Pages per lane that must become free before `need` pages are: the deficits. `need` has as many lanes.
    #[must_use]
    pub fn shortfall(&self, need: &LaneCounts) -> LaneCounts {
        need.saturating_sub(&self.free_pages())
    }

    /// The longest run of free pages of a lane as its last reservation left them, see [`HostPool::largest_run`]. 0 for
    /// a lane that doesn't exist. O(1).
    #[must_use]
    pub fn largest_run(&self, owner: Owner) -> u32 {
        self.pools.get(owner.index()).map_or(0, HostPool::largest_run)
    }

    /// Whether a page is owned: committed and not released. O(1).
    #[must_use]
    pub fn is_owned(&self, page: PageId) -> bool {
        self.pools[self.striping.owner(page).index()].is_owned(self.striping.physical(page))
    }

    /// Whether a page is reserved. O(1).
    #[must_use]
    pub fn is_reserved(&self, page: PageId) -> bool {
        self.pools[self.striping.owner(page).index()].is_reserved(self.striping.physical(page))
    }

    /// The pool of a lane, to read.
    #[must_use]
    pub fn pool(&self, owner: Owner) -> Option<&HostPool> {
        self.pools.get(owner.index())
    }

    /// How logical pages lie over the lanes.
    #[must_use]
    pub fn striping(&self) -> Striping {
        self.striping
    }

    /// What was done so far, over all lanes. O(lanes).
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for pool in &self.pools {
            sum += &pool.counters();
        }
        sum
    }

    /// Checks each pool, see [`HostPool::self_check`]. O(pool).
    ///
    /// # Errors
    /// What differs, in words, with its lane.
    pub fn self_check(&self) -> Result<(), String> {
        for (at, pool) in self.pools.iter().enumerate() {
            pool.self_check().map_err(|what| format!("host lane {at}: {what}"))?;
        }
        Ok(())
    }
}
