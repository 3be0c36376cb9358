//! Virtual times are exactly as computed, and bytes move at them and not before.

use cpkv_core::{CopyDescriptor, CopyRequest, DeviceError, DeviceMemory, FenceStatus, StreamKind};
use cpkv_sim::{Fault, POISON, SimBuffer, SimClock, SimConfig, SimDevice, SimFence, SimStream};

/// 1 byte per nanosecond down, 2 up; 100 ns per call, 10 per descriptor.
fn config() -> SimConfig {
    SimConfig {
        bandwidth_d2h: 1_000_000_000,
        bandwidth_h2d: 2_000_000_000,
        copy_launch_ns: 100,
        descriptor_ns: 10,
        ..SimConfig::default()
    }
}

struct Rig {
    device: SimDevice,
    compute: SimStream,
    save: SimStream,
    load: SimStream,
    /// One device and one host buffer of 4,000 bytes.
    gpu: SimBuffer,
    host: SimBuffer,
}

impl Rig {
    fn new(clock: SimClock) -> Self {
        let mut device = SimDevice::new(config(), clock);
        let mut stream = |kind| device.create_stream(kind).unwrap();
        let compute = stream(StreamKind::Compute);
        let (save, load) = (stream(StreamKind::DeviceToHost), stream(StreamKind::HostToDevice));
        let (gpu, host) = (device.allocate_device(4000).unwrap(), device.allocate_host(4000).unwrap());
        Self { device, compute, save, load, gpu, host }
    }

    fn copy(&mut self, stream: SimStream, src: SimBuffer, dst: SimBuffer, lens: &[u64]) -> SimFence {
        let mut at = 0;
        let mut batch = Vec::new();
        for len in lens {
            batch.push(CopyDescriptor { src: at, dst: at, len: *len });
            at += len;
        }
        self.device.copy(stream, CopyRequest { src, dst, descriptors: &batch }).unwrap();
        self.device.record(stream).unwrap()
    }

    fn first(&mut self, buffer: SimBuffer) -> u8 {
        let mut byte = [0];
        self.device.read(buffer, 0, &mut byte).unwrap();
        byte[0]
    }
}

#[test]
fn work_of_one_stream_adds_up_and_streams_overlap() {
    let clock = SimClock::new();
    let mut rig = Rig::new(clock.clone());
    clock.advance_to(1000);
    let (gpu, host) = (rig.gpu, rig.host);
    let a = rig.copy(rig.save, gpu, host, &[500, 500]);
    assert_eq!(rig.device.fence_end_ns(a), 1000 + 100 + 20 + 1000);
    let b = rig.copy(rig.save, gpu, host, &[300]);
    assert_eq!(rig.device.fence_end_ns(b), 2120 + 100 + 10 + 300);
    let c = rig.copy(rig.load, host, gpu, &[1001]);
    assert_eq!(rig.device.fence_end_ns(c), 1000 + 100 + 10 + 501, "half a nanosecond counts as one");
    rig.device.compute(rig.compute, 5000).unwrap();
    let d = rig.device.record(rig.compute).unwrap();
    assert_eq!(rig.device.fence_end_ns(d), 6000);
    assert_eq!(rig.device.next_event_ns(), Some(1611));
    assert_eq!(clock.now(), 1000, "nothing has moved the clock");

    for (fence, end_ns) in [(c, 1611), (a, 2120), (b, 2530), (d, 6000)] {
        assert_eq!(rig.device.next_event_ns(), Some(end_ns));
        clock.advance_to(end_ns - 1);
        assert_eq!(rig.device.poll(fence), FenceStatus::Pending);
        clock.advance_to(end_ns);
        assert_eq!(rig.device.poll(fence), FenceStatus::Done);
    }
    assert_eq!(rig.device.next_event_ns(), None);
    // An idle stream starts again at now, not at its old end.
    clock.advance_to(9000);
    let e = rig.copy(rig.save, gpu, host, &[1]);
    assert_eq!(rig.device.fence_end_ns(e), 9000 + 111);
    rig.device.self_check().unwrap();
}

#[test]
fn a_wait_on_another_stream_moves_the_start() {
    let mut rig = Rig::new(SimClock::new());
    let (gpu, host) = (rig.gpu, rig.host);
    rig.device.compute(rig.compute, 700).unwrap();
    let forward = rig.device.record(rig.compute).unwrap();
    rig.device.wait_on(rig.save, forward).unwrap();
    let saved = rig.copy(rig.save, gpu, host, &[90]);
    assert_eq!(rig.device.fence_end_ns(saved), 700 + 200);
    // A fence that was passed long ago moves nothing.
    rig.device.clock().advance_to(5000);
    rig.device.wait_on(rig.load, saved).unwrap();
    let loaded = rig.copy(rig.load, host, gpu, &[200]);
    assert_eq!(rig.device.fence_end_ns(loaded), 5000 + 210);
}

#[test]
fn bytes_move_at_the_end_of_their_copy() {
    let mut rig = Rig::new(SimClock::new());
    let (gpu, host) = (rig.gpu, rig.host);
    assert_eq!((rig.first(gpu), rig.first(host)), (POISON, POISON));
    rig.device.upload(rig.compute, gpu, 0, vec![1; 4000]).unwrap();
    assert_eq!(rig.first(gpu), 1, "an upload on an idle compute stream takes no time");
    let saved = rig.copy(rig.save, gpu, host, &[4000]);
    let end_ns = rig.device.fence_end_ns(saved);
    rig.device.clock().advance_to(end_ns - 1);
    assert_eq!(rig.first(host), POISON);
    rig.device.clock().advance_to(end_ns);
    assert_eq!(rig.first(host), 1);
    // On a copy stream an upload costs what a copy of one descriptor does.
    rig.device.upload(rig.load, gpu, 0, vec![2; 4000]).unwrap();
    let uploaded = rig.device.record(rig.load).unwrap();
    assert_eq!(rig.device.fence_end_ns(uploaded), end_ns + 110 + 2000);
}

/// A reader that doesn't wait for the load sees poison; a writer that doesn't wait for the save spoils it.
#[test]
fn a_missing_wait_shows_as_wrong_bytes() {
    for waits in [true, false] {
        let mut rig = Rig::new(SimClock::new());
        let (gpu, host) = (rig.gpu, rig.host);
        rig.device.upload(rig.compute, host, 0, vec![1; 4000]).unwrap();
        let loaded = rig.copy(rig.load, host, gpu, &[4000]);
        if waits {
            rig.device.wait_on(rig.save, loaded).unwrap();
        }
        let scratch = rig.device.allocate_host(100).unwrap();
        let read = rig.copy(rig.save, gpu, scratch, &[100]);
        rig.device.wait(read, u64::MAX).unwrap();
        assert_eq!(rig.first(scratch), if waits { 1 } else { POISON });

        rig.device.wait(loaded, u64::MAX).unwrap();
        let saved = rig.copy(rig.save, gpu, host, &[4000]);
        if waits {
            rig.device.wait_on(rig.compute, saved).unwrap();
        }
        rig.device.upload(rig.compute, gpu, 0, vec![2; 4000]).unwrap();
        rig.device.wait(saved, u64::MAX).unwrap();
        assert_eq!(rig.first(host), if waits { 1 } else { 2 });
    }
}

#[test]
fn work_that_ends_in_one_nanosecond_keeps_its_order() {
    let mut rig = Rig::new(SimClock::new());
    let (gpu, host) = (rig.gpu, rig.host);
    // The upload ends with the copy that it waits for, and lies on the stream with the smaller number.
    let saved = rig.copy(rig.save, gpu, host, &[4000]);
    rig.device.wait_on(rig.compute, saved).unwrap();
    rig.device.upload(rig.compute, host, 0, vec![9; 4000]).unwrap();
    let written = rig.device.record(rig.compute).unwrap();
    assert_eq!(rig.device.fence_end_ns(written), rig.device.fence_end_ns(saved));
    rig.device.wait(written, u64::MAX).unwrap();
    assert_eq!(rig.first(host), 9, "the upload comes after the copy");
}

#[test]
fn waits_advance_the_clock_to_the_fence_or_by_the_limit() {
    let mut rig = Rig::new(SimClock::new());
    let (gpu, host) = (rig.gpu, rig.host);
    let saved = rig.copy(rig.save, gpu, host, &[890]);
    assert_eq!(rig.device.wait(saved, 400), Err(DeviceError::TimedOut { limit_ns: 400 }));
    assert_eq!(rig.device.clock().now(), 400);
    rig.device.wait(saved, 600).unwrap();
    assert_eq!(rig.device.clock().now(), 1000);
    rig.device.wait(saved, 600).unwrap();
    assert_eq!(rig.device.clock().now(), 1000, "a fence that was reached costs no time");
}

#[test]
fn free_waits_for_the_work_that_uses_the_buffer_alone() {
    let mut rig = Rig::new(SimClock::new());
    let (gpu, host) = (rig.gpu, rig.host);
    let idle = rig.device.allocate_device(10).unwrap();
    rig.copy(rig.save, gpu, host, &[890]);
    rig.device.compute(rig.compute, 50_000).unwrap();
    rig.device.free(idle).unwrap();
    assert_eq!(rig.device.clock().now(), 0);
    rig.device.free(gpu).unwrap();
    assert_eq!(rig.device.clock().now(), 1000);
    rig.device.self_check().unwrap();
}

#[test]
fn devices_share_a_clock() {
    let clock = SimClock::new();
    let (mut a, mut b) = (Rig::new(clock.clone()), Rig::new(clock.clone()));
    let (gpu, host) = (b.gpu, b.host);
    b.device.upload(b.compute, gpu, 0, vec![1; 4000]).unwrap();
    b.copy(b.save, gpu, host, &[390]);
    let (gpu_a, host_a) = (a.gpu, a.host);
    let fence = a.copy(a.save, gpu_a, host_a, &[1890]);
    a.device.wait(fence, u64::MAX).unwrap();
    assert_eq!(clock.now(), 2000);
    assert_eq!(b.first(host), 1, "b's copy ended at 500, when a moved the clock");
}

#[test]
fn compute_belongs_on_compute_streams_and_empty_batches_cost_nothing() {
    let mut rig = Rig::new(SimClock::new());
    assert!(matches!(rig.device.compute(rig.save, 5), Err(DeviceError::Invalid { .. })));
    let (gpu, host) = (rig.gpu, rig.host);
    let nothing = rig.copy(rig.save, gpu, host, &[]);
    assert_eq!(rig.device.poll(nothing), FenceStatus::Done);
    assert_eq!((rig.device.copies(), rig.device.allocations(), rig.device.next_event_ns()), (0, 2, None));
}

#[test]
fn a_device_can_go_to_another_thread() {
    fn send<T: Send>(_: &T) {}
    send(&Rig::new(SimClock::new()).device);
}

/// Late completion reorders copies of different streams and never those of one.
#[test]
fn late_copies_end_behind_later_ones_of_other_streams() {
    let mut rig = Rig::new(SimClock::new());
    let (gpu, host) = (rig.gpu, rig.host);
    rig.device.inject(Fault::DelayCopy { nth: 1, by_ns: 10_000 });
    let late = rig.copy(rig.save, gpu, host, &[890]);
    let behind = rig.copy(rig.save, gpu, host, &[90]);
    let other = rig.copy(rig.load, host, gpu, &[1780]);
    let ends = [late, behind, other].map(|fence| rig.device.fence_end_ns(fence));
    assert_eq!(ends, [11_000, 11_200, 1000]);
}
