//! Cases of buffers and handles: allocation, free, misuse.

use super::{LARGE, LIMIT_NS, Rig, SMALL, assert_invalid, bytes, one};
use crate::{CopyRequest, DeviceError, DeviceMemory, FenceStatus};

/// What doesn't fit is refused with what was asked and what is free, and nothing is taken. So is nothing at all.
pub fn out_of_memory_changes_nothing<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let held = rig.device_buffer(1000);
    rig.put(held, 0, bytes(1, 1000));
    let before = rig.device.memory_info().expect("figures");
    for asked in [before.total + 1, u64::MAX] {
        match rig.device.allocate_device(asked) {
            Err(DeviceError::OutOfMemory { asked: told, free }) => {
                assert_eq!(told, asked);
                assert!(free <= before.total, "{free} of {} are free", before.total);
                if rig.device.capabilities().modelled_time {
                    assert_eq!(free, before.free);
                }
            }
            other => panic!("device: expected OutOfMemory, got {other:?}"),
        }
    }
    // Below 2^60, where drivers still take a size at its word.
    match rig.device.allocate_host(1 << 58) {
        Err(DeviceError::OutOfMemory { asked, .. }) => assert_eq!(asked, 1 << 58),
        other => panic!("host: expected OutOfMemory, got {other:?}"),
    }
    assert_invalid(rig.device.allocate_device(0), "no device memory");
    assert_invalid(rig.device.allocate_host(0), "no host memory");
    if rig.device.capabilities().modelled_time {
        assert_eq!(rig.device.memory_info(), Ok(before));
    }
    let other = rig.device_buffer(1000);
    rig.put(other, 0, bytes(2, 1000));
    assert_eq!(rig.get(held, 0, 1000), bytes(1, 1000));
}

/// Free and total memory fit together, also over allocation and free.
pub fn memory_is_counted<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let start = rig.device.memory_info().expect("figures");
    assert!(start.free <= start.total && start.total >= 1 << 20, "{start:?}");
    let buffer = rig.device_buffer(LARGE);
    let host = rig.host_buffer(LARGE);
    let held = rig.device.memory_info().expect("figures");
    assert_eq!(held.total, start.total);
    if rig.device.capabilities().modelled_time {
        assert_eq!(held.free, start.free - LARGE, "host memory isn't counted");
    }
    rig.device.free(buffer).expect("a live buffer");
    rig.device.free(host).expect("a live buffer");
    if rig.device.capabilities().modelled_time {
        assert_eq!(rig.device.memory_info(), Ok(start));
    }
    // Many rounds of half a MiB fit only where free gives back.
    for round in 0..64 {
        let (a, b) = (rig.device_buffer(512 << 10), rig.host_buffer(512 << 10));
        rig.put(a, 0, bytes(round, SMALL));
        assert_eq!(rig.get(a, 0, SMALL), bytes(round, SMALL));
        rig.device.free(a).expect("a live buffer");
        rig.device.free(b).expect("a live buffer");
    }
}

/// A handle that was freed is refused by every call, also when its memory is in use again.
pub fn freed_handles_are_invalid<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let live = rig.device_buffer(100);
    rig.put(live, 0, bytes(1, 100));
    for dead in [rig.device_buffer(100), rig.host_buffer(100)] {
        rig.device.free(dead).expect("a live buffer");
        let again = [rig.device_buffer(100), rig.host_buffer(100)];
        assert!(!again.contains(&dead), "a handle isn't given twice");
        assert_invalid(rig.device.free(dead), "a second free");
        assert_invalid(rig.device.read(dead, 0, &mut [0; 1]), "a read");
        assert_invalid(rig.device.upload(rig.compute, dead, 0, vec![1]), "an upload");
        for (src, dst) in [(dead, live), (live, dead), (dead, dead)] {
            for descriptors in [&one(0, 0, 1)[..], &[]] {
                assert_invalid(rig.device.copy(rig.save, CopyRequest { src, dst, descriptors }), "a copy");
            }
        }
    }
    rig.drain(rig.save);
    assert_eq!(rig.get(live, 0, 100), bytes(1, 100));
}

/// Buffers freed while copies use them: the copies end first, and whoever gets the memory next isn't written to.
pub fn free_waits_for_copies<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let (source, target) = (rig.device_buffer(LARGE), rig.host_buffer(LARGE));
    rig.put(source, 0, bytes(1, LARGE));
    rig.copy(rig.save, source, target, &one(0, 0, LARGE));
    let fence = rig.record(rig.save);
    rig.device.free(source).expect("free waits for the copy that reads");
    let next = rig.device_buffer(LARGE);
    rig.put(next, 0, bytes(2, LARGE));
    rig.device.wait(fence, LIMIT_NS).expect("the copy ends well");
    assert!(rig.get(target, 0, LARGE) == bytes(1, LARGE), "the copy read what was there");
    rig.copy(rig.load, target, next, &one(0, 0, LARGE));
    rig.copy(rig.load, target, next, &one(0, 0, LARGE));
    rig.device.free(next).expect("free waits for the copies that write");
    let (device, host) = (rig.device_buffer(LARGE), rig.host_buffer(LARGE));
    rig.put(device, 0, bytes(3, LARGE));
    rig.put(host, 0, bytes(4, LARGE));
    rig.drain(rig.load);
    assert!(rig.get(device, 0, LARGE) == bytes(3, LARGE), "a late copy wrote to a buffer that was given anew");
    assert!(rig.get(host, 0, LARGE) == bytes(4, LARGE));
}

/// Handles of another instance are refused by every call.
pub fn foreign_handles_are_invalid<D: DeviceMemory>(make: impl Fn() -> D) {
    let (mut rig, mut other) = (Rig::new(make()), Rig::new(make()));
    let (own, foreign) = (rig.device_buffer(100), other.device_buffer(100));
    rig.put(own, 0, bytes(1, 100));
    other.put(foreign, 0, bytes(2, 100));
    let foreign_fence = other.record(other.save);
    assert_invalid(rig.device.free(foreign), "a free");
    assert_invalid(rig.device.read(foreign, 0, &mut [0; 1]), "a read");
    assert_invalid(rig.device.upload(rig.compute, foreign, 0, vec![1]), "an upload to a foreign buffer");
    assert_invalid(rig.device.upload(other.compute, own, 0, vec![1]), "an upload on a foreign stream");
    for (stream, src, dst) in [(rig.save, foreign, own), (rig.save, own, foreign), (other.save, own, own)] {
        let request = CopyRequest { src, dst, descriptors: &one(0, 0, 1) };
        assert_invalid(rig.device.copy(stream, request), "a copy");
    }
    assert_invalid(rig.device.record(other.save), "a fence on a foreign stream");
    assert_invalid(rig.device.wait_on(rig.save, foreign_fence), "a wait for a foreign fence");
    let own_fence = rig.record(rig.save);
    assert_invalid(rig.device.wait_on(other.save, own_fence), "a wait on a foreign stream");
    assert_invalid(rig.device.wait(foreign_fence, LIMIT_NS), "a blocking wait");
    let status = rig.device.poll(foreign_fence);
    assert!(matches!(status, FenceStatus::Failed(DeviceError::Invalid { .. })), "{status:?}");
    rig.drain(rig.save);
    assert_eq!(rig.get(own, 0, 100), bytes(1, 100));
    assert_eq!(other.get(foreign, 0, 100), bytes(2, 100));
}

/// A backend may be dropped with copies in flight; another one goes on.
pub fn dropping_in_flight_is_safe<D: DeviceMemory>(make: impl Fn() -> D) {
    for _ in 0..4 {
        let mut rig = Rig::new(make());
        let (device, host) = (rig.device_buffer(LARGE), rig.host_buffer(LARGE));
        rig.put(device, 0, bytes(1, LARGE));
        for _ in 0..8 {
            rig.copy(rig.save, device, host, &one(0, 0, LARGE));
        }
        drop(rig);
        let mut rig = Rig::new(make());
        let buffer = rig.device_buffer(LARGE);
        rig.put(buffer, 0, bytes(1, LARGE));
        assert!(rig.get(buffer, 0, LARGE) == bytes(1, LARGE));
    }
}
