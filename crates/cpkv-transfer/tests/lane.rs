//! Pages survive the round trip, byte for byte, in every layout; failed copies end and nothing is lost.

use cpkv_core::{DeviceError, DeviceMemory, FenceStatus, Geometry, HostLayout, Owner, RowPool};
use cpkv_sim::{Fault, FaultPlan, PagePattern, SimClock, SimConfig, SimDevice};
use cpkv_transfer::{LaneMemory, PagePair, TransferConfig};
use proptest::prelude::*;

const LAYOUTS: [HostLayout; 3] = [HostLayout::LayerFirst, HostLayout::PageFirst, HostLayout::PageFirstDirect];
const FOREVER: u64 = u64::MAX / 2;

/// All dimensions different: 3 layers, 5 tokens, rows of 7 (and 2) bytes, 10 + 1 device pages, 12 host pages.
fn lane(layout: HostLayout, pools: usize, faults: Vec<Fault>) -> LaneMemory<SimDevice> {
    let rows = [RowPool { name: "kv", row_bytes: 7 }, RowPool { name: "index", row_bytes: 2 }];
    let geometry = Geometry::new(3, 5, &rows[..pools]).unwrap();
    let sim = SimConfig { faults: FaultPlan { script: faults, ..FaultPlan::default() }, ..SimConfig::default() };
    let mut config = TransferConfig::new(geometry, layout, 10, 12);
    // Small limits, so that batches and descriptors are really cut.
    (config.max_descriptors, config.max_descriptor_bytes) = (4, Some(16));
    LaneMemory::new(SimDevice::new(sim, SimClock::new()), config).unwrap()
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
        let faults = FaultPlan { script: vec![Fault::OutOfMemory { nth }], ..FaultPlan::default() };
        let sim = SimConfig { faults, ..SimConfig::default() };
        let rows = [RowPool { name: "kv", row_bytes: 7 }, RowPool { name: "index", row_bytes: 2 }];
        let geometry = Geometry::new(3, 5, &rows).unwrap();
        let config = TransferConfig::new(geometry, HostLayout::LayerFirst, 10, 12);
        let refused = LaneMemory::new(SimDevice::new(sim, SimClock::new()), config);
        assert!(matches!(refused, Err(DeviceError::OutOfMemory { .. })), "allocation {nth}");
    }
}
