//! Cases of streams, fences and waits: what comes before what.

use super::{LARGE, LIMIT_NS, Rig, SMALL, bytes, one};
use crate::{DeviceError, DeviceMemory, FenceStatus, StreamKind};

/// Work on one stream runs in the order of its calls: a long copy, then a short one from what it wrote.
pub fn stream_order<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let (a, b, c) = (rig.device_buffer(LARGE), rig.host_buffer(LARGE), rig.host_buffer(LARGE));
    rig.put(a, 0, bytes(1, LARGE));
    rig.put(c, 0, bytes(2, LARGE));
    rig.copy(rig.save, a, b, &one(0, 0, LARGE));
    rig.copy(rig.save, b, c, &one(LARGE - SMALL, 0, SMALL));
    rig.copy(rig.save, c, a, &one(0, 0, SMALL));
    rig.drain(rig.save);
    let last = &bytes(1, LARGE)[(LARGE - SMALL) as usize..];
    assert_eq!(rig.get(c, 0, SMALL), last);
    assert_eq!(rig.get(a, 0, SMALL), last);
}

/// A stream that waits for a fence of another sees all that came before it. The second copy is far shorter, so it
/// would be first without the wait.
pub fn waits_order_streams<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let (a, b, c) = (rig.device_buffer(LARGE), rig.host_buffer(LARGE), rig.device_buffer(SMALL));
    rig.put(a, 0, bytes(1, LARGE));
    rig.put(b, 0, bytes(2, LARGE));
    rig.copy(rig.save, a, b, &one(0, 0, LARGE));
    let saved = rig.record(rig.save);
    rig.device.wait_on(rig.load, saved).expect("a wait");
    rig.copy(rig.load, b, c, &one(LARGE - SMALL, 0, SMALL));
    let loaded = rig.record(rig.load);
    // A third stream waits for the second: order is transitive. Its write to `a` comes after the save has read it.
    rig.device.wait_on(rig.compute, loaded).expect("a wait");
    rig.device.upload(rig.compute, a, 0, bytes(3, LARGE)).expect("an upload");
    rig.drain(rig.compute);
    assert_eq!(rig.device.poll(saved), FenceStatus::Done);
    assert_eq!(rig.device.poll(loaded), FenceStatus::Done);
    assert_eq!(rig.get(c, 0, SMALL), &bytes(1, LARGE)[(LARGE - SMALL) as usize..]);
    assert!(rig.get(b, 0, LARGE) == bytes(1, LARGE), "the save read what was there before the write");
    assert!(rig.get(a, 0, LARGE) == bytes(3, LARGE));
}

/// Sixteen streams work side by side, each on its own part.
pub fn many_streams<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let (device, host) = (rig.device_buffer(16 * 1000), rig.host_buffer(16 * 1000));
    rig.put(device, 0, bytes(1, 16 * 1000));
    let kinds = [StreamKind::DeviceToHost, StreamKind::HostToDevice, StreamKind::Compute];
    let streams: Vec<_> = (0..16).map(|i| rig.device.create_stream(kinds[i % 3]).expect("a stream")).collect();
    let mut fences = Vec::new();
    for (i, stream) in streams.iter().enumerate() {
        rig.copy(*stream, device, host, &one(i as u64 * 1000, (15 - i as u64) * 1000, 1000));
        fences.push(rig.record(*stream));
    }
    for fence in fences.iter().rev() {
        rig.device.wait(*fence, LIMIT_NS).expect("the copy ends");
    }
    for i in 0..16 {
        let part = &bytes(1, 16 * 1000)[(15 - i) * 1000..(16 - i) * 1000];
        assert_eq!(rig.get(host, i as u64 * 1000, 1000), part, "part {i}");
    }
}

/// Fences of one stream order as they were recorded and are passed in that order.
pub fn fences_are_monotone<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let (device, host) = (rig.device_buffer(LARGE), rig.host_buffer(LARGE));
    rig.put(device, 0, bytes(1, LARGE));
    let mut fences = Vec::new();
    for _ in 0..8 {
        rig.copy(rig.save, device, host, &one(0, 0, LARGE / 8));
        fences.push(rig.record(rig.save));
    }
    fences.push(rig.record(rig.save));
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    for reached in 0..fences.len() {
        rig.device.wait(fences[reached], LIMIT_NS).expect("the copy ends");
        let done: Vec<_> = fences.iter().map(|fence| rig.device.poll(*fence) == FenceStatus::Done).collect();
        assert!(done[..=reached].iter().all(|done| *done), "fence {reached} is reached: {done:?}");
        assert!(done.is_sorted_by(|a, b| a >= b), "no fence before an earlier one: {done:?}");
    }
}

/// Polling lets no modelled time pass; a fence behind no work is done at once.
pub fn poll_never_blocks<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let idle = rig.record(rig.load);
    rig.device.wait(idle, 0).expect("nothing is before the fence");
    assert_eq!(rig.device.poll(idle), FenceStatus::Done);
    let (device, host) = (rig.device_buffer(LARGE), rig.host_buffer(LARGE));
    rig.put(device, 0, bytes(1, LARGE));
    rig.copy(rig.save, device, host, &one(0, 0, LARGE));
    let fence = rig.record(rig.save);
    for _ in 0..1000 {
        let status = rig.device.poll(fence);
        assert!(!matches!(status, FenceStatus::Failed(_)), "{status:?}");
        if rig.device.capabilities().modelled_time {
            assert_eq!(status, FenceStatus::Pending, "polling moves no modelled time");
        }
    }
    rig.device.wait(fence, LIMIT_NS).expect("the copy ends");
    assert_eq!(rig.device.poll(fence), FenceStatus::Done);
}

/// A wait that ends before its fence says so, and the work goes on.
pub fn waits_have_limits<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let (device, host) = (rig.device_buffer(LARGE), rig.host_buffer(LARGE));
    rig.put(device, 0, bytes(1, LARGE));
    rig.copy(rig.save, device, host, &one(0, 0, LARGE));
    let fence = rig.record(rig.save);
    match rig.device.wait(fence, 1) {
        Err(error) => assert_eq!(error, DeviceError::TimedOut { limit_ns: 1 }),
        Ok(()) => assert!(!rig.device.capabilities().modelled_time, "a modelled copy takes more than 1 ns"),
    }
    rig.device.wait(fence, LIMIT_NS).expect("the copy ends");
    rig.device.wait(fence, 0).expect("a fence once reached stays so");
    assert!(rig.get(host, 0, LARGE) == bytes(1, LARGE));
}

/// Uploads take their place in the order of their stream, before and behind copies.
pub fn uploads_are_ordered<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let (device, host) = (rig.device_buffer(LARGE), rig.host_buffer(LARGE));
    for (seed, stream) in [(1, rig.compute), (4, rig.save), (7, rig.load)] {
        rig.put(host, 0, bytes(seed + 2, LARGE));
        rig.device.upload(stream, device, 0, bytes(seed, LARGE)).expect("an upload");
        rig.copy(stream, device, host, &one(0, 0, LARGE));
        rig.device.upload(stream, device, 0, bytes(seed + 1, LARGE)).expect("an upload");
        rig.drain(stream);
        assert!(rig.get(host, 0, LARGE) == bytes(seed, LARGE), "the copy reads the first upload");
        assert!(rig.get(device, 0, LARGE) == bytes(seed + 1, LARGE), "the second upload comes last");
    }
}
