//! The index of free extents against the naive model, on both sides of the border between its lists and its set.

use crate::extents::Extents;
use crate::model::{NaivePool, PageState};
use cpkv_core::PageRun;
use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Debug, Clone)]
enum Op {
    Take(u32),
    /// A part of a run that was taken, at once or parked.
    Give(Index, u32, bool),
    Merge,
}

fn op() -> impl Strategy<Value = Op> {
    let len = || prop_oneof![3 => 1u32..40, 2 => 1000u32..1100, 1 => 1u32..3000];
    prop_oneof![
        4 => len().prop_map(Op::Take),
        4 => (any::<Index>(), len(), any::<bool>()).prop_map(|(at, len, park)| Op::Give(at, len, park)),
        1 => Just(Op::Merge),
    ]
}

proptest! {
    // Fewer cases than the pools' tests, as here the pool must be large enough for extents beyond the lists.
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Best fit, fewest and largest are exact on both sides of the border between the lists and the ordered set.
    #[test]
    fn extents_equal_the_naive_model(
        first in 0u32..2,
        len in 4_000u32..6_000,
        ops in prop::collection::vec(op(), 60),
    ) {
        let pool = PageRun { start: first, len };
        let (mut extents, mut model) = (Extents::new(pool), NaivePool::new(pool));
        let mut taken: Vec<PageRun> = Vec::new();
        let mut parked: Vec<PageRun> = Vec::new();
        for op in ops {
            match op {
                Op::Take(pages) if pages <= extents.ready() => {
                    let mut out = Vec::new();
                    extents.take(pages, &mut out);
                    prop_assert_eq!(out.iter().map(|run| run.len).sum::<u32>(), pages);
                    prop_assert_eq!(Some(out.len()), model.fewest_runs(pages));
                    if let Some(best) = model.best_fit(pages) {
                        let from = model.free_runs().into_iter().find(|run| run.start == out[0].start);
                        prop_assert_eq!(from.map(|run| run.len), Some(best));
                    }
                    for page in out.iter().flat_map(|run| run.pages()) {
                        model.change(page, PageState::Free, PageState::Owned).unwrap();
                    }
                    taken.extend(out);
                }
                Op::Take(_) => {}
                Op::Give(at, len, park) if !taken.is_empty() => {
                    let whole = taken.swap_remove(at.index(taken.len()));
                    let part = PageRun { start: whole.start, len: whole.len.min(len) };
                    if part.len < whole.len {
                        taken.push(PageRun { start: part.end(), len: whole.len - part.len });
                    }
                    if park {
                        extents.park(part);
                        parked.push(part);
                    } else {
                        extents.insert(part);
                        model_give(&mut model, part);
                    }
                }
                Op::Give(..) => {}
                Op::Merge => {
                    extents.merge();
                    parked.drain(..).for_each(|run| model_give(&mut model, run));
                }
            }
            prop_assert_eq!(extents.ready(), model.count(PageState::Free));
            prop_assert_eq!(extents.parked(), parked.iter().map(|run| run.len).sum::<u32>());
            prop_assert_eq!(extents.largest(), model.largest_run());
            let mut all = model.clone();
            parked.iter().for_each(|run| model_give(&mut all, *run));
            prop_assert_eq!(extents.self_check(&all.free_runs()), Ok(()));
        }
    }
}

fn model_give(model: &mut NaivePool, run: PageRun) {
    for page in run.pages() {
        model.change(page, PageState::Owned, PageState::Free).unwrap();
    }
}
