//! One host pool against the naive model: reserve, commit, forfeit, release, stale handles and misuse.

use super::{distinct, run, unchanged};
use crate::model::{NaivePool, PageState};
use crate::{AllocError, Contiguity, HostPool, Reservation};
use cpkv_core::{LaneCounts, PageId, PageRun, coalesce};
use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Debug, Clone)]
enum Op {
    Reserve(u32),
    Commit(Index),
    Forfeit(Index),
    /// A handle that has ended.
    Stale(Index),
    /// A handle with another page, generation or entry than any that is live.
    Forged(Index, u8),
    /// These of the owned pages.
    Release(Vec<Index>),
    /// These of the owned pages, and among them a run that must not be released.
    Misuse(Vec<Index>, Index, Fault),
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Twice,
    Free,
    Reserved,
    Foreign,
}

fn op() -> impl Strategy<Value = Op> {
    let picks = || prop::collection::vec(any::<Index>(), 1..16);
    let fault = prop_oneof![Just(Fault::Twice), Just(Fault::Free), Just(Fault::Reserved), Just(Fault::Foreign)];
    prop_oneof![
        6 => (0u32..20).prop_map(Op::Reserve),
        4 => any::<Index>().prop_map(Op::Commit),
        2 => any::<Index>().prop_map(Op::Forfeit),
        1 => any::<Index>().prop_map(Op::Stale),
        1 => (any::<Index>(), 0u8..4).prop_map(|(at, how)| Op::Forged(at, how)),
        5 => picks().prop_map(Op::Release),
        2 => (picks(), any::<Index>(), fault).prop_map(|(owned, at, fault)| Op::Misuse(owned, at, fault)),
    ]
}

struct Pair {
    pool: HostPool,
    /// Makes the same calls.
    replica: HostPool,
    model: NaivePool,
    live: Vec<Reservation>,
    ended: Vec<Reservation>,
    contiguity: Contiguity,
}

impl Pair {
    fn new(pages: u32, contiguity: Contiguity) -> Self {
        let pool = HostPool::new(pages, contiguity).unwrap();
        let model = NaivePool::new(run(0, pages));
        Self { replica: pool.clone(), pool, model, live: Vec::new(), ended: Vec::new(), contiguity }
    }

    fn call<T: PartialEq + std::fmt::Debug>(
        &mut self,
        call: impl Fn(&mut HostPool) -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        let before = self.pool.clone();
        let result = call(&mut self.pool);
        assert_eq!(result, call(&mut self.replica), "replicas differ");
        if result.is_err() {
            assert!(unchanged(&before, &self.pool), "a refused call changed something");
        }
        result
    }

    fn reserve(&mut self, pages: u32) {
        let free = self.model.count(PageState::Free);
        let result = self.call(|pool| pool.reserve(pages));
        if pages == 0 {
            assert_eq!(result, Err(AllocError::ZeroPages));
            return;
        }
        if pages > free {
            assert_eq!(result, Err(AllocError::HostFull { missing: LaneCounts::from([pages - free]) }));
            return;
        }
        let reservation = result.unwrap();
        let sum: u32 = reservation.runs.iter().map(|run| run.len).sum();
        assert_eq!(sum, pages);
        if self.contiguity == Contiguity::Preferred {
            assert_eq!(Some(reservation.runs.len()), self.model.fewest_runs(pages), "not the fewest extents");
            if let Some(len) = self.model.best_fit(pages) {
                let extent = self.model.free_runs().into_iter().find(|run| run.start == reservation.runs[0].start);
                assert_eq!(extent.map(|run| run.len), Some(len), "not the best fit");
            }
        }
        self.change(&reservation.runs, PageState::Free, PageState::Reserved);
        self.live.push(reservation);
    }

    fn change(&mut self, runs: &[PageRun], from: PageState, to: PageState) {
        for page in runs.iter().flat_map(|run| run.pages()) {
            self.model.change(page, from, to).unwrap();
        }
    }

    fn end(&mut self, at: Index, to: PageState) {
        if self.live.is_empty() {
            return;
        }
        let reservation = self.live.swap_remove(at.index(self.live.len()));
        let result = match to {
            PageState::Owned => self.call(|pool| pool.commit(&reservation)),
            _ => self.call(|pool| pool.forfeit(&reservation)),
        };
        assert_eq!(result, Ok(()));
        self.change(&reservation.runs, PageState::Reserved, to);
        self.ended.push(reservation);
    }

    fn refused(&mut self, reservation: &Reservation) {
        assert_eq!(self.call(|pool| pool.commit(reservation)), Err(AllocError::StaleReservation));
        assert_eq!(self.call(|pool| pool.forfeit(reservation)), Err(AllocError::StaleReservation));
    }

    fn forged(&mut self, at: Index, how: u8) {
        let Some(mut forged) = self.live.get(at.index(self.live.len().max(1))).or(self.ended.last()).cloned() else {
            return;
        };
        match how {
            0 => forged.runs[0].start += 1,
            1 => forged.generation += 1,
            2 => forged.id += 1_000,
            _ => {
                forged.generation += u64::from(!self.live.is_empty());
                forged.runs.clear();
            }
        }
        self.refused(&forged);
    }

    fn pick(&self, picks: &[Index]) -> Vec<PageRun> {
        let owned = self.model.pages(PageState::Owned);
        if owned.is_empty() { Vec::new() } else { coalesce(distinct(picks.iter().map(|at| *at.get(&owned)))) }
    }

    fn misuse(&mut self, picks: &[Index], at: Index, fault: Fault) {
        let mut runs = self.pick(picks);
        let pages = match fault {
            Fault::Twice => runs.iter().flat_map(|run| run.pages()).collect(),
            Fault::Free => self.model.pages(PageState::Free),
            Fault::Reserved => self.model.pages(PageState::Reserved),
            Fault::Foreign => vec![self.pool.capacity(), self.pool.capacity() + 7, u32::MAX],
        };
        if pages.is_empty() {
            return;
        }
        let bad = *at.get(&pages);
        runs.insert(at.index(runs.len() + 1), run(bad, 1));
        let (page, end) = (PageId(bad), PageId(self.pool.capacity()));
        let error = match fault {
            Fault::Twice | Fault::Free => AllocError::DoubleFree { page },
            Fault::Reserved => AllocError::NotCommitted { page },
            Fault::Foreign => AllocError::ForeignPage { page, end },
        };
        assert_eq!(self.call(|pool| pool.release(&runs)), Err(error));
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Reserve(pages) => self.reserve(*pages),
            Op::Commit(at) => self.end(*at, PageState::Owned),
            Op::Forfeit(at) => self.end(*at, PageState::Free),
            Op::Stale(at) if !self.ended.is_empty() => {
                let ended = at.get(&self.ended).clone();
                self.refused(&ended);
            }
            Op::Stale(_) => {}
            Op::Forged(at, how) => self.forged(*at, *how),
            Op::Release(picks) => {
                let runs = self.pick(picks);
                self.call(|pool| pool.release(&runs)).unwrap();
                self.change(&runs, PageState::Owned, PageState::Free);
            }
            Op::Misuse(picks, at, fault) => self.misuse(picks, *at, *fault),
        }
    }

    fn compare(&self) {
        let (pool, model) = (&self.pool, &self.model);
        pool.self_check().unwrap();
        assert_eq!(pool.available(), model.count(PageState::Free));
        assert_eq!(pool.reserved(), model.count(PageState::Reserved));
        assert_eq!(pool.free_runs(), model.free_runs());
        let slots: Vec<u64> =
            model.pages(PageState::Free).iter().flat_map(|page| [page * 2, page * 2 + 1]).map(u64::from).collect();
        assert_eq!(pool.free_slots(2).collect::<Vec<_>>(), slots);
        match self.contiguity {
            Contiguity::Preferred if pool.released() == 0 => assert_eq!(pool.largest_run(), model.largest_run()),
            _ => assert!(pool.largest_run() <= model.largest_run()),
        }
        for page in 0..pool.capacity() + 2 {
            let state = model.state(page);
            assert_eq!(pool.is_owned(page), state == Some(PageState::Owned));
            assert_eq!(pool.is_reserved(page), state == Some(PageState::Reserved));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// Contracts C1, C3, C7, C11 on one host pool, the fewest extents and exact best fit.
    #[test]
    fn host_pool_equals_the_naive_model(
        pages in 0u32..=96,
        contiguity in prop_oneof![3 => Just(Contiguity::Preferred), 1 => Just(Contiguity::Off)],
        ops in prop::collection::vec(op(), 200..260),
    ) {
        let mut pair = Pair::new(pages, contiguity);
        for op in &ops {
            pair.apply(op);
            pair.compare();
            let counters = pair.pool.counters();
            let taken = u64::from(pair.pool.capacity() - pair.pool.available());
            prop_assert_eq!(counters.pages_taken - counters.pages_returned, taken);
        }
    }
}
