//! Owner lanes against the naive model: long histories, every observable after every call, on two replicas.

use super::{distinct, unchanged};
use crate::model::{NaivePool, PageState};
use crate::{AllocError, Contiguity, OwnerLanes};
use cpkv_core::{LaneCounts, Owner, PageId, PageRun, Striping, coalesce};
use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Debug, Clone)]
enum Op {
    /// Pages for these owners, modulo the lanes.
    Alloc(Vec<u8>),
    /// Up to this many pages on each lane.
    AllocCounts(Vec<u32>),
    /// These of the pages held.
    Free(Vec<Index>),
    /// The pages of one earlier call that are still held, in their order or backwards.
    FreeCall(Index, bool),
    /// These of the pages held, and among them one that must not be freed.
    Misuse(Vec<Index>, Index, Fault),
    /// An owner without a lane, or counts for too many lanes.
    ForeignLane(u8),
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Twice,
    NotHeld,
    Padding,
    Foreign,
}

fn op() -> impl Strategy<Value = Op> {
    let picks = || prop::collection::vec(any::<Index>(), 1..12);
    let fault = prop_oneof![Just(Fault::Twice), Just(Fault::NotHeld), Just(Fault::Padding), Just(Fault::Foreign)];
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..24).prop_map(Op::Alloc),
        2 => prop::collection::vec(0u32..12, 4).prop_map(Op::AllocCounts),
        4 => picks().prop_map(Op::Free),
        4 => (any::<Index>(), any::<bool>()).prop_map(|(call, back)| Op::FreeCall(call, back)),
        2 => (picks(), any::<Index>(), fault).prop_map(|(held, at, fault)| Op::Misuse(held, at, fault)),
        1 => any::<u8>().prop_map(Op::ForeignLane),
    ]
}

struct Pair {
    lanes: OwnerLanes,
    /// Makes the same calls.
    replica: OwnerLanes,
    model: Vec<NaivePool>,
    /// Pages held, by the call that gave them.
    held: Vec<Vec<PageId>>,
    striping: Striping,
    contiguity: Contiguity,
}

impl Pair {
    fn new(lanes: usize, pages: u32, contiguity: Contiguity) -> Self {
        let striping = Striping::new(lanes).unwrap();
        let device = OwnerLanes::new(striping, pages, contiguity).unwrap();
        let model = vec![NaivePool::new(PageRun { start: 1, len: pages }); lanes];
        Self { replica: device.clone(), lanes: device, model, held: Vec::new(), striping, contiguity }
    }

    /// Makes a call on both replicas and compares what it gives.
    fn call<T: PartialEq + std::fmt::Debug>(
        &mut self,
        call: impl Fn(&mut OwnerLanes) -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        let before = self.lanes.clone();
        let result = call(&mut self.lanes);
        assert_eq!(result, call(&mut self.replica), "replicas differ");
        if result.is_err() {
            assert!(unchanged(&before, &self.lanes), "a refused call changed something");
        }
        result
    }

    fn missing(&self, need: &LaneCounts) -> LaneCounts {
        let free: Vec<u32> = self.model.iter().map(|pool| pool.count(PageState::Free)).collect();
        need.saturating_sub(&LaneCounts::from(free))
    }

    /// Judges the runs that a lane gave and enters them in the model.
    fn took(&mut self, owner: Owner, runs: &[PageRun]) {
        let pool = &mut self.model[owner.index()];
        let pages: u32 = runs.iter().map(|run| run.len).sum();
        if self.contiguity == Contiguity::Preferred {
            assert_eq!(Some(runs.len()), pool.fewest_runs(pages), "not the fewest runs: {runs:?}");
        }
        for page in runs.iter().flat_map(|run| run.pages()) {
            pool.change(page, PageState::Free, PageState::Owned).unwrap();
        }
    }

    fn alloc(&mut self, owners: &[Owner]) {
        let lanes = self.model.len();
        let need = LaneCounts::of_owners(lanes, owners.iter().copied());
        let missing = self.missing(&need);
        let result = self.call(|device| device.alloc(owners));
        if !missing.is_zero() {
            assert_eq!(result, Err(AllocError::LaneFull { missing }));
            return;
        }
        let pages = result.unwrap();
        let got: Vec<Owner> = pages.iter().map(|page| self.striping.owner(*page)).collect();
        assert_eq!(got, owners, "a page on another lane than its owner's");
        for owner in Owner::all(lanes).filter(|owner| need[*owner] > 0) {
            let own = pages.iter().filter(|page| self.striping.owner(**page) == owner);
            self.took(owner, &coalesce(own.map(|page| self.striping.physical(*page))));
        }
        self.held.push(pages);
    }

    fn alloc_counts(&mut self, need: &LaneCounts) {
        let missing = self.missing(need);
        let result = self.call(|device| device.alloc_counts(need));
        if !missing.is_zero() {
            assert_eq!(result, Err(AllocError::LaneFull { missing }));
            return;
        }
        let mut got = LaneCounts::zero(self.model.len());
        let mut pages = Vec::new();
        for (owner, runs) in result.unwrap() {
            got[owner] += runs.iter().map(|run| run.len).sum::<u32>();
            self.took(owner, &runs);
            pages.extend(runs.iter().flat_map(|run| run.pages()).map(|page| self.striping.logical(owner, page)));
        }
        assert_eq!(&got, need);
        self.held.push(pages);
    }

    fn all_held(&self) -> Vec<PageId> {
        self.held.concat()
    }

    fn pick(&self, picks: &[Index]) -> Vec<PageId> {
        let held = self.all_held();
        if held.is_empty() { Vec::new() } else { distinct(picks.iter().map(|at| *at.get(&held))) }
    }

    fn free(&mut self, pages: &[PageId]) {
        self.call(|device| device.free(pages)).unwrap();
        for page in pages {
            let pool = &mut self.model[self.striping.owner(*page).index()];
            pool.change(self.striping.physical(*page), PageState::Owned, PageState::Free).unwrap();
        }
        for call in &mut self.held {
            call.retain(|page| !pages.contains(page));
        }
    }

    fn misuse(&mut self, picks: &[Index], at: Index, fault: Fault) {
        let mut pages = self.pick(picks);
        let lanes = self.model.len() as u32;
        let end = (self.lanes.capacity()[Owner(0)] + 1) * lanes;
        let held = self.all_held();
        let bad = match fault {
            Fault::Twice if pages.is_empty() => return,
            Fault::Twice => *at.get(&pages),
            Fault::NotHeld => {
                let free: Vec<PageId> = (lanes..end).map(PageId).filter(|page| !held.contains(page)).collect();
                if free.is_empty() {
                    return;
                }
                *at.get(&free)
            }
            Fault::Padding => PageId(at.index(lanes as usize) as u32),
            Fault::Foreign => PageId(end + at.index(9) as u32),
        };
        pages.insert(at.index(pages.len() + 1), bad);
        let error = match fault {
            Fault::Twice | Fault::NotHeld => AllocError::DoubleFree { page: bad },
            Fault::Padding => AllocError::PaddingPage { page: bad },
            Fault::Foreign => AllocError::ForeignPage { page: bad, end: PageId(end) },
        };
        assert_eq!(self.call(|device| device.free(&pages)), Err(error));
    }

    fn apply(&mut self, op: &Op) {
        let lanes = self.model.len();
        match op {
            Op::Alloc(owners) => {
                let owners: Vec<Owner> = owners.iter().map(|owner| Owner(owner % lanes as u8)).collect();
                self.alloc(&owners);
            }
            Op::AllocCounts(need) => self.alloc_counts(&LaneCounts::from(&need[..lanes])),
            Op::Free(picks) => {
                let pages = self.pick(picks);
                self.free(&pages);
            }
            Op::FreeCall(call, back) if !self.held.is_empty() => {
                let mut pages = self.held.swap_remove(call.index(self.held.len()));
                if *back {
                    pages.reverse();
                }
                self.free(&pages);
            }
            Op::FreeCall(..) => {}
            Op::Misuse(picks, at, fault) => self.misuse(picks, *at, *fault),
            Op::ForeignLane(owner) => {
                let owner = Owner((*owner).max(lanes as u8));
                let error = AllocError::OwnerOutOfRange { owner, lanes };
                assert_eq!(self.call(|device| device.alloc(&[Owner(0), owner])), Err(error));
                let error = AllocError::LanesDiffer { given: lanes + 1, lanes };
                assert_eq!(self.call(|device| device.alloc_counts(&LaneCounts::zero(lanes + 1))), Err(error));
            }
        }
    }

    fn compare(&self) {
        self.lanes.self_check().unwrap();
        for (owner, free) in self.lanes.free_pages().iter() {
            let pool = &self.model[owner.index()];
            assert_eq!(free, pool.count(PageState::Free));
            assert!(self.lanes.released()[owner] <= free);
            let largest = self.lanes.largest_run(owner);
            if self.contiguity == Contiguity::Preferred && self.lanes.released()[owner] == 0 {
                assert_eq!(largest, pool.largest_run());
            } else {
                assert!(largest <= pool.largest_run());
            }
            for page in 0..=self.lanes.capacity()[owner] + 1 {
                let allocated = self.lanes.is_allocated(self.striping.logical(owner, page));
                assert_eq!(allocated, pool.state(page) == Some(PageState::Owned), "page {page} of lane {owner}");
            }
        }
        let need = LaneCounts::splat(self.model.len(), 7);
        assert_eq!(self.lanes.shortfall(&need), self.missing(&need));
    }
}

fn contiguity() -> impl Strategy<Value = Contiguity> {
    prop_oneof![3 => Just(Contiguity::Preferred), 1 => Just(Contiguity::Off)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// Contracts C1, C7, C9, C11 on the device tier, and the fewest runs although merging is lazy.
    #[test]
    fn owner_lanes_equal_the_naive_model(
        lanes in 1usize..=4,
        pages in 0u32..=40,
        contiguity in contiguity(),
        ops in prop::collection::vec(op(), 200..260),
    ) {
        let mut pair = Pair::new(lanes, pages, contiguity);
        let mut counters = pair.lanes.counters();
        for op in &ops {
            pair.apply(op);
            pair.compare();
            let now = pair.lanes.counters();
            prop_assert!(now.touched() >= counters.touched() && now.extents >= counters.extents, "a counter fell");
            let held = u64::from(pages) * lanes as u64 - pair.lanes.free_pages().total();
            prop_assert_eq!(now.pages_taken - now.pages_returned, held);
            counters = now;
        }
        // All that is held comes back as one run per lane.
        let held = pair.all_held();
        pair.free(&held);
        pair.alloc_counts(&LaneCounts::splat(lanes, pages));
        if contiguity == Contiguity::Preferred && pages > 0 {
            prop_assert_eq!(pair.lanes.counters().extents - counters.extents, lanes as u64);
        }
    }
}
