//! The host tier over lanes: owners kept, all lanes or none.

use super::unchanged;
use crate::{AllocError, Contiguity, HostLanes, LaneReservation};
use cpkv_core::{LaneCounts, Owner, PageId, Striping};
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeSet;

#[derive(Debug, Clone)]
enum Op {
    Reserve(Vec<u8>),
    Commit(Index),
    Forfeit(Index),
    /// The owned pages of one earlier commit, rotated by so many, backwards or not.
    Release(Index, usize, bool),
    /// The same, with one page of a reservation or a free page among them.
    Misuse(Index, Index, bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..20).prop_map(Op::Reserve),
        4 => any::<Index>().prop_map(Op::Commit),
        2 => any::<Index>().prop_map(Op::Forfeit),
        4 => (any::<Index>(), 0usize..20, any::<bool>()).prop_map(|(at, by, back)| Op::Release(at, by, back)),
        2 => (any::<Index>(), any::<Index>(), any::<bool>()).prop_map(|(at, bad, free)| Op::Misuse(at, bad, free)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// Contracts C1, C3, C9, C11 on the host tier.
    #[test]
    fn host_lanes_equal_sets_of_pages(
        lanes in 1usize..=4,
        pages in 0u32..=24,
        ops in prop::collection::vec(op(), 200..260),
    ) {
        let striping = Striping::new(lanes).unwrap();
        let mut host = HostLanes::new(striping, pages, Contiguity::Preferred).unwrap();
        let mut free: BTreeSet<PageId> = (0..pages * lanes as u32).map(PageId).collect();
        let mut live: Vec<LaneReservation> = Vec::new();
        let mut owned: Vec<Vec<PageId>> = Vec::new();
        let per_lane = |set: &mut dyn Iterator<Item = PageId>| {
            LaneCounts::of_owners(lanes, set.map(|page| striping.owner(page)))
        };
        for op in ops {
            let before = host.clone();
            match op {
                Op::Reserve(owners) => {
                    let owners: Vec<Owner> = owners.iter().map(|owner| Owner(owner % lanes as u8)).collect();
                    let need = LaneCounts::of_owners(lanes, owners.iter().copied());
                    let missing = need.saturating_sub(&per_lane(&mut free.iter().copied()));
                    prop_assert_eq!(host.shortfall(&need), missing.clone());
                    match host.reserve(&owners) {
                        Ok(reservation) => {
                            let got: Vec<Owner> = reservation.pages.iter().map(|page| striping.owner(*page)).collect();
                            prop_assert_eq!(got, owners);
                            prop_assert!(reservation.pages.iter().all(|page| free.remove(page)));
                            for (owner, runs) in reservation.runs() {
                                let of_runs: Vec<u32> = runs.iter().flat_map(|run| run.pages()).collect();
                                let own = reservation.pages.iter().filter(|page| striping.owner(**page) == owner);
                                prop_assert_eq!(of_runs, own.map(|page| striping.physical(*page)).collect::<Vec<_>>());
                            }
                            live.push(reservation);
                        }
                        Err(error) => {
                            let full = AllocError::HostFull { missing };
                            prop_assert_eq!(error, if owners.is_empty() { AllocError::ZeroPages } else { full });
                            prop_assert!(unchanged(&before, &host));
                        }
                    }
                }
                Op::Commit(at) | Op::Forfeit(at) if !live.is_empty() => {
                    let reservation = live.swap_remove(at.index(live.len()));
                    if matches!(op, Op::Commit(_)) {
                        host.commit(&reservation).unwrap();
                        owned.push(reservation.pages.clone());
                    } else {
                        host.forfeit(&reservation).unwrap();
                        free.extend(&reservation.pages);
                    }
                    let ended = host.clone();
                    prop_assert_eq!(host.commit(&reservation), Err(AllocError::StaleReservation));
                    prop_assert_eq!(host.forfeit(&reservation), Err(AllocError::StaleReservation));
                    prop_assert!(unchanged(&ended, &host));
                }
                Op::Release(at, by, back) if !owned.is_empty() => {
                    let mut pages = owned.swap_remove(at.index(owned.len()));
                    let by = by % pages.len();
                    pages.rotate_left(by);
                    if back {
                        pages.reverse();
                    }
                    host.release(&pages).unwrap();
                    free.extend(&pages);
                }
                Op::Misuse(at, bad, is_free) => {
                    let of_live: Vec<PageId> = live.iter().flat_map(|reservation| reservation.pages.clone()).collect();
                    let of_free: Vec<PageId> = free.iter().copied().collect();
                    let choice = if is_free { of_free } else { of_live };
                    if choice.is_empty() {
                        continue;
                    }
                    let page = *bad.get(&choice);
                    let mut pages = if owned.is_empty() { Vec::new() } else { at.get(&owned).clone() };
                    pages.insert(bad.index(pages.len() + 1), page);
                    let result = host.release(&pages);
                    let twice = AllocError::DoubleFree { page };
                    prop_assert_eq!(result, Err(if is_free { twice } else { AllocError::NotCommitted { page } }));
                    prop_assert!(unchanged(&before, &host));
                }
                _ => {}
            }
            host.self_check().unwrap();
            prop_assert_eq!(host.free_pages(), per_lane(&mut free.iter().copied()));
            let mut reserved = live.iter().flat_map(|reservation| reservation.pages.iter().copied());
            prop_assert_eq!(host.reserved(), per_lane(&mut reserved));
            prop_assert!(owned.iter().flatten().all(|page| host.is_owned(*page)));
            prop_assert!(free.iter().all(|page| !host.is_owned(*page) && !host.is_reserved(*page)));
        }
    }
}

#[test]
fn owners_and_pages_out_of_range_are_refused() {
    let mut host = HostLanes::new(Striping::new(2).unwrap(), 3, Contiguity::Preferred).unwrap();
    let error = AllocError::OwnerOutOfRange { owner: Owner(2), lanes: 2 };
    assert_eq!(host.reserve(&[Owner(0), Owner(2)]), Err(error));
    let error = AllocError::ForeignPage { page: PageId(6), end: PageId(6) };
    assert_eq!(host.release(&[PageId(6)]), Err(error));
    assert_eq!((host.largest_run(Owner(1)), host.largest_run(Owner(2))), (3, 0));
    assert_eq!(host.capacity(), LaneCounts::from([3, 3]));
}

#[test]
fn without_a_host_tier_everything_is_full() {
    let mut host = HostLanes::new(Striping::new(2).unwrap(), 0, Contiguity::Preferred).unwrap();
    let error = AllocError::HostFull { missing: LaneCounts::from([0, 1]) };
    assert_eq!(host.reserve(&[Owner(1)]), Err(error));
    assert_eq!(host.free_pages(), LaneCounts::zero(2));
    host.self_check().unwrap();
}
