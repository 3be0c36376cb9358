//! Known faults of allocators, each tried here (the numbers are those of the project's fault list).

use crate::{AllocError, Contiguity, HostLanes, HostPool, OwnerLanes, PAGES_MAX, Reservation};
use cpkv_core::{LaneCounts, Owner, PageId, Striping};

const BOTH: [Contiguity; 2] = [Contiguity::Preferred, Contiguity::Off];

/// A15, A1: after a burst of reservations that end in every way, all pages are free again.
#[test]
fn all_host_pages_are_free_at_idle() {
    for contiguity in BOTH {
        let mut pool = HostPool::new(100, contiguity).unwrap();
        let all: Vec<_> = (0..10).map(|_| pool.reserve(10).unwrap()).collect();
        assert_eq!(pool.reserve(1), Err(AllocError::HostFull { missing: LaneCounts::from([1]) }));
        for (at, reservation) in all.iter().enumerate() {
            if at % 2 == 0 { pool.commit(reservation) } else { pool.forfeit(reservation) }.unwrap();
        }
        for reservation in all.iter().step_by(2) {
            pool.release(&reservation.runs).unwrap();
        }
        assert_eq!((pool.available(), pool.reserved()), (100, 0));
        pool.self_check().unwrap();
    }
}

/// D1, D3, M7: the second time is a named error in every allocator and mode, and the page is free once.
#[test]
fn a_second_free_is_refused_in_every_mode() {
    for contiguity in BOTH {
        let striping = Striping::new(2).unwrap();
        let mut device = OwnerLanes::new(striping, 4, contiguity).unwrap();
        let pages = device.alloc(&[Owner(1)]).unwrap();
        device.free(&pages).unwrap();
        assert_eq!(device.free(&pages), Err(AllocError::DoubleFree { page: pages[0] }));

        let mut host = HostLanes::new(striping, 4, contiguity).unwrap();
        let reservation = host.reserve(&[Owner(1), Owner(1)]).unwrap();
        let page = reservation.pages[1];
        assert_eq!(host.release(&[page]), Err(AllocError::NotCommitted { page }));
        host.commit(&reservation).unwrap();
        host.release(&[page]).unwrap();
        assert_eq!(host.release(&[page]), Err(AllocError::DoubleFree { page }));
        assert_eq!(host.free_pages(), LaneCounts::from([4, 3]));
    }
}

/// D9, D17: a list with a page twice, a free page or the padding page is refused whole.
#[test]
fn a_bad_list_frees_nothing() {
    let mut device = OwnerLanes::new(Striping::new(2).unwrap(), 8, Contiguity::Preferred).unwrap();
    let pages = device.alloc(&[Owner(0), Owner(1), Owner(0)]).unwrap();
    let (b, c) = (pages[0], pages[2]);
    assert_eq!(device.free(&[b, b, c]), Err(AllocError::DoubleFree { page: b }));
    assert_eq!(device.free(&[c, PageId(1)]), Err(AllocError::PaddingPage { page: PageId(1) }));
    let error = AllocError::ForeignPage { page: PageId(18), end: PageId(18) };
    assert_eq!(device.free(&[c, PageId(18)]), Err(error));
    assert_eq!(device.free(&[pages[1], PageId(16)]), Err(AllocError::DoubleFree { page: PageId(16) }));
    assert!(pages.iter().all(|page| device.is_allocated(*page)));
    assert_eq!(device.free_pages(), &LaneCounts::from([6, 7]));
    device.free(&[b, c]).unwrap();
    device.self_check().unwrap();
}

/// E10: one full lane refuses although nine pages are free elsewhere, and says which lane (contract C9).
#[test]
fn one_full_lane_is_named() {
    let mut device = OwnerLanes::new(Striping::new(4).unwrap(), 4, Contiguity::Preferred).unwrap();
    device.alloc_counts(&LaneCounts::from([4, 1, 1, 1])).unwrap();
    let error = device.alloc(&[Owner(0), Owner(1), Owner(2), Owner(3)]).unwrap_err();
    assert_eq!(error, AllocError::LaneFull { missing: LaneCounts::from([1, 0, 0, 0]) });
    assert_eq!(device.free_pages(), &LaneCounts::from([0, 3, 3, 3]));
}

/// D11: a handle that was changed is refused; what is committed is what was reserved.
#[test]
fn a_changed_handle_is_refused() {
    let mut pool = HostPool::new(16, Contiguity::Preferred).unwrap();
    let mut longer = pool.reserve(4).unwrap();
    longer.runs[0].len += 1;
    assert_eq!(pool.commit(&longer), Err(AllocError::StaleReservation));
    assert_eq!(pool.reserved(), 4);
}

/// A handle made up for an entry that isn't in use, with its next generation and no pages, ends nothing.
#[test]
fn a_handle_made_up_for_an_idle_entry_is_refused() {
    let mut pool = HostPool::new(16, Contiguity::Preferred).unwrap();
    let ended = pool.reserve(4).unwrap();
    pool.commit(&ended).unwrap();
    let forged = Reservation { id: ended.id, generation: ended.generation + 1, runs: Vec::new() };
    assert_eq!(pool.commit(&forged), Err(AllocError::StaleReservation));
    assert_eq!(pool.forfeit(&forged), Err(AllocError::StaleReservation));
    pool.self_check().unwrap();
}

/// Empty calls succeed and change nothing, but for a reservation, which would be a ticket for nothing.
#[test]
fn empty_calls_change_nothing() {
    let striping = Striping::new(2).unwrap();
    let mut device = OwnerLanes::new(striping, 4, Contiguity::Preferred).unwrap();
    assert_eq!(device.alloc(&[]), Ok(Vec::new()));
    assert_eq!(device.alloc_counts(&LaneCounts::zero(2)), Ok(Vec::new()));
    assert_eq!(device.free(&[]), Ok(()));
    assert_eq!(device.counters(), crate::Counters::default());
    let mut host = HostLanes::new(striping, 4, Contiguity::Preferred).unwrap();
    assert_eq!(host.release(&[]), Ok(()));
    assert_eq!(host.reserve(&[]), Err(AllocError::ZeroPages));
    let mut pool = HostPool::new(4, Contiguity::Preferred).unwrap();
    assert_eq!(pool.release(&[]), Ok(()), "before the index is built");
}

#[test]
fn pools_too_large_are_refused() {
    let (pages, max) = (PAGES_MAX + 1, PAGES_MAX);
    let error = AllocError::PoolTooLarge { pages, max };
    let striping = Striping::new(1).unwrap();
    assert_eq!(OwnerLanes::new(striping, pages, Contiguity::Preferred).unwrap_err(), error);
    assert_eq!(HostPool::new(pages, Contiguity::Off).unwrap_err(), error);
    assert_eq!(
        HostLanes::new(striping, u32::MAX, Contiguity::Off).unwrap_err(),
        AllocError::PoolTooLarge { pages: u32::MAX, max }
    );
}
