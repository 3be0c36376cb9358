//! Pages survive the round trip, byte for byte, in every layout; failed copies end and nothing is lost.

mod refusing;

use cpkv_core::{DeviceError, DeviceMemory, FenceStatus, Geometry, HostLayout, OpId, Owner, RowPool, Tier};
use cpkv_sim::{Fault, FaultPlan, PagePattern, SimClock, SimConfig, SimDevice};
use cpkv_transfer::{Completion, EndError, InFlight, LaneMemory, PagePair, TransferConfig, TransferError};
use proptest::prelude::*;
use refusing::Refusing;

const LAYOUTS: [HostLayout; 3] = [HostLayout::LayerFirst, HostLayout::PageFirst, HostLayout::PageFirstDirect];
const FOREVER: u64 = u64::MAX / 2;

/// All dimensions different: 3 layers, 5 tokens, rows of 7 (and 2) bytes, 10 + 1 device pages, 12 host pages.
fn lane(layout: HostLayout, pools: usize, faults: Vec<Fault>) -> LaneMemory<SimDevice> {
    LaneMemory::new(sim(faults), config(layout, pools)).unwrap()
}

fn sim(faults: Vec<Fault>) -> SimDevice {
    let faults = FaultPlan { script: faults, ..FaultPlan::default() };
    SimDevice::new(SimConfig { faults, ..SimConfig::default() }, SimClock::new())
}

/// Small limits, so that batches and descriptors are really cut.
fn config(layout: HostLayout, pools: usize) -> TransferConfig {
    let rows = [RowPool { name: "kv", row_bytes: 7 }, RowPool { name: "index", row_bytes: 2 }];
    let mut config = TransferConfig::new(Geometry::new(3, 5, &rows[..pools]).unwrap(), layout, 10, 12);
    (config.max_descriptors, config.max_descriptor_bytes) = (4, Some(16));
    config
}

fn parts(lane: &LaneMemory<SimDevice>) -> Vec<(usize, u32)> {
    let geometry = &lane.config().geometry;
    (0..geometry.pools().len()).flat_map(|pool| (0..geometry.layers()).map(move |layer| (pool, layer))).collect()
}

fn pattern(page: u32, pool: usize, layer: u32) -> PagePattern {
    PagePattern { page_hash: page.into(), owner: Owner(0), layer, pool: pool as u8 }
}

fn write(lane: &mut LaneMemory<SimDevice>, place: u32, content: u32) {
    for (pool, layer) in parts(lane) {
        let mut bytes = vec![0; lane.config().geometry.layer_page_bytes(pool) as usize];
        pattern(content, pool, layer).fill(&mut bytes);
        lane.upload_page(pool, layer, place, bytes).unwrap();
    }
}

fn holds(lane: &mut LaneMemory<SimDevice>, place: u32, content: u32, host: bool) -> bool {
    parts(lane).into_iter().all(|(pool, layer)| {
        let mut bytes = vec![0; lane.config().geometry.layer_page_bytes(pool) as usize];
        if host {
            lane.read_host_page(pool, layer, place, &mut bytes).unwrap();
        } else {
            lane.read_device_page(pool, layer, place, &mut bytes).unwrap();
        }
        pattern(content, pool, layer).check(&bytes)
    })
}

/// The forward pass is over: copies that follow see what it wrote.
fn forward_done(lane: &mut LaneMemory<SimDevice>) {
    let stream = lane.compute_stream();
    let fence = lane.device().record(stream).unwrap();
    lane.after_forward(fence).unwrap();
}

fn places(len: usize, of: std::ops::Range<u32>) -> impl Strategy<Value = Vec<u32>> {
    Just(of.collect::<Vec<_>>()).prop_shuffle().prop_map(move |mut places| {
        places.truncate(len);
        places
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn pages_survive_the_round_trip(
        layout in 0usize..3, pools in 1usize..=2,
        from in places(6, 1..11), host in places(6, 0..12), to in places(6, 1..11), len in 0usize..=6,
    ) {
        let mut lane = lane(LAYOUTS[layout], pools, Vec::new());
        for (content, place) in from[..len].iter().enumerate() {
            write(&mut lane, *place, content as u32);
        }
        forward_done(&mut lane);
        let pairs = |device: &[u32]| -> Vec<PagePair> {
            device[..len].iter().zip(&host).map(|(device, host)| PagePair { device: *device, host: *host }).collect()
        };
        let saved = lane.submit_backup(&pairs(&from)).unwrap();
        prop_assert_eq!(saved.fences.len(), 1);
        lane.wait(&saved, FOREVER).unwrap();
        for (content, place) in host[..len].iter().enumerate() {
            prop_assert!(holds(&mut lane, *place, content as u32, true));
        }
        // Somebody else gets the device pages; they come back to other places.
        for place in 1..11 {
            write(&mut lane, place, 99);
        }
        forward_done(&mut lane);
        let loaded = lane.submit_load(&pairs(&to)).unwrap();
        prop_assert_eq!(loaded.fences.len(), 3, "one fence per layer");
        prop_assert_eq!(loaded.bytes, saved.bytes);
        lane.wait(&loaded, FOREVER).unwrap();
        for (content, place) in to[..len].iter().enumerate() {
            prop_assert!(holds(&mut lane, *place, content as u32, false));
        }
        prop_assert_eq!(lane.stats().host_to_device.pages, len as u64);
    }
}

/// FAULTS L1 and L3: when a layer's fence is reached every row pool of that layer is there, and the first layers come
/// before the whole burst is over.
#[test]
fn a_layers_fence_covers_every_pool_of_the_layer() {
    let mut lane = lane(HostLayout::PageFirstDirect, 2, Vec::new());
    for place in 1..5 {
        write(&mut lane, place, place);
    }
    forward_done(&mut lane);
    let pairs: Vec<PagePair> = (1..5).map(|place| PagePair { device: place, host: place }).collect();
    let saved = lane.submit_backup(&pairs).unwrap();
    lane.wait(&saved, FOREVER).unwrap();
    let moved: Vec<PagePair> = pairs.iter().map(|pair| PagePair { device: pair.device + 5, ..*pair }).collect();
    let loaded = lane.submit_load(&moved).unwrap();
    let mut last_end = 0;
    for (layer, fence) in loaded.fences.iter().enumerate() {
        let end = lane.device().fence_end_ns(*fence);
        assert!(end > last_end, "layers end one after another");
        last_end = end;
        lane.device().wait(*fence, FOREVER).unwrap();
        for pair in &moved {
            for pool in 0..2 {
                let mut bytes = vec![0; lane.config().geometry.layer_page_bytes(pool) as usize];
                lane.read_device_page(pool, layer as u32, pair.device, &mut bytes).unwrap();
                assert!(pattern(pair.host, pool, layer as u32).check(&bytes), "pool {pool}, layer {layer}");
            }
        }
        if layer + 1 < loaded.fences.len() {
            assert_eq!(lane.status(&loaded), FenceStatus::Pending);
        }
    }
    assert_eq!(lane.status(&loaded), FenceStatus::Done);
}

/// A backup that doesn't wait for the forward pass would save what was there before.
#[test]
fn a_backup_waits_for_the_forward_pass() {
    let mut lane = lane(HostLayout::LayerFirst, 1, Vec::new());
    let stream = lane.compute_stream();
    lane.device().compute(stream, 1_000_000_000).unwrap();
    write(&mut lane, 1, 7);
    forward_done(&mut lane);
    let saved = lane.submit_backup(&[PagePair { device: 1, host: 0 }]).unwrap();
    lane.wait(&saved, FOREVER).unwrap();
    assert!(lane.device().clock().now() > 1_000_000_000);
    assert!(holds(&mut lane, 0, 7, true));
}

#[test]
fn a_failed_layer_fails_the_load_once_all_of_it_has_ended() {
    // The first copies save; one of the load's copies fails.
    let pairs = [PagePair { device: 1, host: 0 }];
    let mut probe = lane(HostLayout::LayerFirst, 1, Vec::new());
    let saved = probe.submit_backup(&pairs).unwrap();
    probe.wait(&saved, FOREVER).unwrap();
    let nth = probe.device().copies() + 2;
    let mut lane = lane(HostLayout::LayerFirst, 1, vec![Fault::FailCopy { nth }]);
    let saved = lane.submit_backup(&pairs).unwrap();
    lane.wait(&saved, FOREVER).unwrap();
    let loaded = lane.submit_load(&pairs).unwrap();
    assert_eq!(lane.status(&loaded), FenceStatus::Pending);
    assert!(matches!(lane.wait(&loaded, FOREVER), Err(DeviceError::CopyFailed { .. })));
    assert!(matches!(lane.status(&loaded), FenceStatus::Failed(DeviceError::CopyFailed { .. })));
    let again = lane.submit_load(&pairs).unwrap();
    assert_eq!(lane.wait(&again, FOREVER), Ok(()), "trying again is sensible");
}

/// FAULTS, worked scenario 15.
#[test]
fn a_copy_of_nothing_is_done_at_once() {
    let mut lane = lane(HostLayout::PageFirst, 2, Vec::new());
    let saved = lane.submit_backup(&[]).unwrap();
    assert_eq!((saved.descriptors, saved.bytes, lane.status(&saved)), (0, 0, FenceStatus::Done));
    let loaded = lane.submit_load(&[]).unwrap();
    assert_eq!(lane.status(&loaded), FenceStatus::Done);
}

#[test]
fn a_refused_pool_is_an_error_at_every_allocation() {
    for nth in 1..=4 {
        let refused = LaneMemory::new(sim(vec![Fault::OutOfMemory { nth }]), config(HostLayout::LayerFirst, 2));
        assert!(matches!(refused, Err(DeviceError::OutOfMemory { .. })), "allocation {nth}");
    }
    let too_many = TransferConfig { device_pages: u32::MAX, ..config(HostLayout::LayerFirst, 1) };
    assert!(matches!(LaneMemory::new(sim(Vec::new()), too_many), Err(DeviceError::Invalid { .. })));
}

/// FAULTS L3: a load of 60 layers lets the first one go after a sixtieth of its time.
#[test]
fn the_first_layer_is_there_long_before_the_last() {
    let geometry = Geometry::new(60, 64, &[RowPool { name: "kv", row_bytes: 656 }]).unwrap();
    let config = TransferConfig::new(geometry, HostLayout::PageFirstDirect, 40, 40);
    let mut lane = LaneMemory::new(sim(Vec::new()), config).unwrap();
    let pairs: Vec<PagePair> = (0..40).map(|page| PagePair { device: page + 1, host: page }).collect();
    let loaded = lane.submit_load(&pairs).unwrap();
    let ends: Vec<u64> = loaded.fences.iter().map(|fence| lane.device().fence_end_ns(*fence)).collect();
    assert_eq!(ends.len(), 60);
    assert_eq!(ends[0] * 60, ends[59], "layers of the same bytes");
}

/// A load-back that doesn't wait for the forward pass would overwrite what that still reads.
#[test]
fn a_load_waits_for_the_forward_pass() {
    let mut lane = lane(HostLayout::PageFirst, 1, Vec::new());
    write(&mut lane, 1, 7);
    let pairs = [PagePair { device: 1, host: 3 }];
    forward_done(&mut lane);
    let saved = lane.submit_backup(&pairs).unwrap();
    lane.wait(&saved, FOREVER).unwrap();
    // Page 2 is being read.
    write(&mut lane, 2, 8);
    let stream = lane.compute_stream();
    lane.device().compute(stream, 1_000_000).unwrap();
    forward_done(&mut lane);
    let loaded = lane.submit_load(&[PagePair { device: 2, host: 3 }]).unwrap();
    assert_eq!(lane.wait(&loaded, 999_999), Err(DeviceError::TimedOut { limit_ns: 999_999 }));
    assert!(holds(&mut lane, 2, 8, false));
    lane.wait(&loaded, FOREVER).unwrap();
    assert!(holds(&mut lane, 2, 7, false));
}

#[test]
fn a_page_that_is_not_there_is_named_and_nothing_is_enqueued() {
    let mut lane = lane(HostLayout::LayerFirst, 2, Vec::new());
    let good = PagePair { device: 10, host: 11 };
    let of = |tier, page, pages| Err(TransferError::OutOfRange { tier, page, pages });
    // Offsets of these lie inside the buffers, in the next layer.
    assert_eq!(lane.submit_load(&[good, PagePair { device: 11, host: 0 }]), of(Tier::Device, 11, 11));
    assert_eq!(lane.submit_backup(&[good, PagePair { device: 1, host: 12 }]), of(Tier::Host, 12, 12));
    assert_eq!(lane.submit_backup(&[good, PagePair { device: 0, host: 1 }]), Err(TransferError::Padding));
    let twins = [good, PagePair { device: 3, host: 11 }, PagePair { device: 10, host: 2 }];
    assert_eq!(lane.submit_backup(&twins), Err(TransferError::Twice { tier: Tier::Host, page: 11 }));
    assert_eq!(lane.submit_load(&twins), Err(TransferError::Twice { tier: Tier::Device, page: 10 }));
    assert_eq!((lane.device().copies(), lane.device().next_event_ns()), (0, None));
    let stats = *lane.stats();
    assert_eq!((stats.device_to_host.refused, stats.host_to_device.refused), (3, 2));
    assert_eq!((stats.device_to_host.pages, stats.host_to_device.bytes), (0, 0));
    for (pool, layer, page, len) in [(2, 0, 1, 35), (0, 3, 1, 35), (0, 0, 12, 35), (0, 0, 1, 36), (1, 0, 1, 35)] {
        let mut bytes = vec![0; len];
        assert!(matches!(lane.read_device_page(pool, layer, page, &mut bytes), Err(DeviceError::Invalid { .. })));
        assert!(matches!(lane.read_host_page(pool, layer, page, &mut bytes), Err(DeviceError::Invalid { .. })));
        assert!(matches!(lane.upload_page(pool, layer, page, bytes), Err(DeviceError::Invalid { .. })));
    }
}

#[test]
fn without_a_host_tier_only_nothing_can_be_copied() {
    let config = TransferConfig { host_pages: 0, ..config(HostLayout::PageFirst, 2) };
    let mut lane = LaneMemory::new(sim(Vec::new()), config).unwrap();
    assert_eq!(lane.host_buffer(0), None);
    let refused = lane.submit_backup(&[PagePair { device: 1, host: 0 }]);
    assert_eq!(refused, Err(TransferError::OutOfRange { tier: Tier::Host, page: 0, pages: 0 }));
    let loaded = lane.submit_load(&[]).unwrap();
    assert_eq!((loaded.fences.len(), lane.status(&loaded)), (3, FenceStatus::Done));
}

/// A call that the backend refuses breaks the copy off. What it has taken runs on and is waited for, and a failure in
/// that isn't told by the next copy.
#[test]
fn what_was_broken_off_ends_as_failed_and_hurts_nobody_else() {
    let pairs: Vec<PagePair> = (1..9).map(|page| PagePair { device: page, host: 9 - page }).collect();
    for refused in 1..=6 {
        // The first call that passes fails later.
        let device = Refusing { sim: sim(vec![Fault::FailCopy { nth: 1 }]), refused, calls: 0, batches: Vec::new() };
        let mut lane = LaneMemory::new(device, config(HostLayout::PageFirstDirect, 1)).unwrap();
        let broken = lane.submit_backup(&pairs);
        assert!(matches!(&broken, Err(TransferError::BrokenOff { rest: Some(_), .. })), "{broken:?}");
        let mut table = InFlight::new();
        table.insert(OpId(1), pairs.clone(), vec![(Owner(0), broken.into())]).unwrap();
        let next = lane.submit_backup(&[PagePair { device: 9, host: 9 }]);
        table.insert(OpId(2), Vec::new(), vec![(Owner(0), next.into())]).unwrap();
        if refused > 1 {
            assert_eq!(table.poll_done(|_, fence| lane.device().poll(fence)), []);
            assert_eq!(table.end(OpId(1)), Err(EndError::Running { op: OpId(1) }));
        }
        lane.quiesce(FOREVER).unwrap();
        let done = table.poll_done(|_, fence| lane.device().poll(fence));
        let why = Completion::Failed("lane 0: broken off: copy failed: refused".to_owned());
        // With the first call refused the scripted failure hits the second copy's.
        let second = if refused > 1 {
            Completion::Done
        } else {
            Completion::Failed("lane 0: copy failed: fault at copy call 1".to_owned())
        };
        assert_eq!(done, [(OpId(1), why.clone()), (OpId(2), second)]);
        assert_eq!(table.end(OpId(1)), Ok((pairs.clone(), why)));
        assert_eq!(lane.stats().device_to_host.refused, 1);
    }
}

/// Copy calls carry what they may, also over layers; a load-back's end with their layer.
#[test]
fn calls_are_filled() {
    let device = Refusing { sim: sim(Vec::new()), refused: 0, calls: 0, batches: Vec::new() };
    let mut config = config(HostLayout::PageFirstDirect, 1);
    (config.max_descriptors, config.max_descriptor_bytes) = (4, None);
    let mut lane = LaneMemory::new(device, config).unwrap();
    let pairs: Vec<PagePair> = [1, 3, 5].map(|page| PagePair { device: page, host: page }).to_vec();
    let saved = lane.submit_backup(&pairs).unwrap();
    assert_eq!((saved.descriptors, saved.bytes), (9, 9 * 35), "3 layers of 3 pages of 5 rows of 7 bytes");
    assert_eq!(std::mem::take(&mut lane.device().batches), [4, 4, 1]);
    let loaded = lane.submit_load(&pairs).unwrap();
    assert_eq!(loaded.descriptors, 9);
    assert_eq!(lane.device().batches, [3, 3, 3]);
}

/// Every copy fails from then on, nothing hangs, and nothing waits for what can't come.
#[test]
fn a_lost_device_fails_everything_at_once() {
    let mut lane = lane(HostLayout::LayerFirst, 1, vec![Fault::LoseAtCopy { nth: 2 }]);
    let pairs = [PagePair { device: 1, host: 0 }, PagePair { device: 4, host: 5 }];
    let lost = lane.submit_backup(&pairs);
    assert!(matches!(&lost, Err(TransferError::BrokenOff { error: DeviceError::Lost { .. }, rest: None })), "{lost:?}");
    let mut table = InFlight::new();
    table.insert(OpId(1), (), vec![(Owner(0), lost.into())]).unwrap();
    let done = table.poll_done(|_, fence| lane.device().poll(fence));
    assert!(matches!(&done[..], [(OpId(1), Completion::Failed(_))]));
    assert_eq!(lane.quiesce(0), Ok(()));
}
