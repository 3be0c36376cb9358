//! Cases of copies, uploads and reads: bytes, ranges, batches.

use super::{LARGE, Rig, assert_invalid, bytes, one};
use crate::{CopyDescriptor, CopyRequest, DeviceMemory};

/// Bytes survive device to host to device, at odd sizes and offsets, and nothing beside them changes.
pub fn round_trips<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let size = 4099;
    let (device, host, back) = (rig.device_buffer(size), rig.host_buffer(size), rig.device_buffer(size));
    rig.put(device, 0, bytes(1, size));
    for (seed, (offset, len)) in [(0, 1), (1, 1), (3, 7), (13, 4086), (0, size), (size - 1, 1)].into_iter().enumerate()
    {
        let seed = seed as u64 + 2;
        rig.put(host, 0, bytes(seed, size));
        rig.put(back, 0, bytes(seed + 100, size));
        let host_offset = size - offset - len;
        rig.copy(rig.save, device, host, &one(offset, host_offset, len));
        rig.drain(rig.save);
        rig.copy(rig.load, host, back, &one(host_offset, offset, len));
        rig.drain(rig.load);
        for (buffer, old, at) in [(host, bytes(seed, size), host_offset), (back, bytes(seed + 100, size), offset)] {
            let mut expected = old;
            expected[at as usize..(at + len) as usize]
                .copy_from_slice(&bytes(1, size)[offset as usize..(offset + len) as usize]);
            assert!(rig.get(buffer, 0, size) == expected, "{len} bytes from {offset} to {at}");
        }
    }
    assert!(rig.get(device, 0, size) == bytes(1, size), "a source is as it was");
}

/// The caller's descriptors may change as soon as the call is back.
pub fn descriptors_are_taken<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let (device, host) = (rig.device_buffer(LARGE), rig.host_buffer(LARGE));
    rig.put(device, 0, bytes(1, LARGE));
    // Delayed behind a long copy on the same stream, so that the batch can't have run when the call is back.
    rig.copy(rig.save, device, host, &one(0, 0, LARGE));
    let mut batch: Vec<_> = (0..64).map(|i| CopyDescriptor { src: i * 128, dst: (63 - i) * 128, len: 128 }).collect();
    rig.copy(rig.save, device, host, &batch);
    batch.fill(CopyDescriptor { src: 0, dst: u64::MAX, len: u64::MAX });
    drop(batch);
    rig.drain(rig.save);
    let source = bytes(1, LARGE);
    for i in 0..64 {
        assert_eq!(rig.get(host, (63 - i) * 128, 128), &source[i as usize * 128..][..128], "descriptor {i}");
    }
}

/// One bad range, and no descriptor of the batch is copied; the stream is as it was.
pub fn bad_batches_change_nothing<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let (device, host) = (rig.device_buffer(1000), rig.host_buffer(900));
    rig.put(device, 0, bytes(1, 1000));
    rig.put(host, 0, bytes(2, 900));
    let good = CopyDescriptor { src: 0, dst: 0, len: 100 };
    for (src, dst, len) in
        [(901, 0, 100), (0, 801, 100), (0, 0, 901), (u64::MAX, 0, 2), (0, u64::MAX, 2), (1, 1, u64::MAX)]
    {
        for descriptors in [[good, CopyDescriptor { src, dst, len }], [CopyDescriptor { src, dst, len }, good]] {
            let request = CopyRequest { src: device, dst: host, descriptors: &descriptors };
            assert_invalid(rig.device.copy(rig.save, request), &format!("{descriptors:?}"));
        }
    }
    rig.drain(rig.save);
    assert_eq!(rig.get(host, 0, 900), bytes(2, 900));
    rig.copy(rig.save, device, host, &[good]);
    rig.drain(rig.save);
    assert_eq!(rig.get(host, 0, 100), bytes(1, 100));
}

/// A batch of nothing and descriptors of length 0 are legal and copy nothing.
pub fn empty_batches_are_legal<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let (device, host) = (rig.device_buffer(100), rig.host_buffer(100));
    rig.put(device, 0, bytes(1, 100));
    rig.put(host, 0, bytes(2, 100));
    rig.copy(rig.save, device, host, &[]);
    rig.drain(rig.save);
    let edges = [(0, 0, 0), (100, 100, 0), (5, 9, 1)].map(|(src, dst, len)| CopyDescriptor { src, dst, len });
    rig.copy(rig.save, device, host, &edges);
    rig.drain(rig.save);
    let mut expected = bytes(2, 100);
    expected[9] = bytes(1, 100)[5];
    assert_eq!(rig.get(host, 0, 100), expected);
    rig.device.upload(rig.compute, host, 100, Vec::new()).expect("an upload of nothing");
    rig.drain(rig.compute);
    assert_eq!(rig.get(host, 100, 0), []);
}

/// The most descriptors in one call are taken, one more is refused.
pub fn batches_are_limited<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let most = u64::from(rig.device.capabilities().descriptors_per_copy_max);
    assert!(most >= 1);
    // One byte each. More than the host buffer holds isn't tried out.
    if most <= LARGE {
        let (device, host) = (rig.device_buffer(LARGE), rig.host_buffer(LARGE));
        rig.put(device, 0, bytes(1, LARGE));
        let mut batch: Vec<_> = (0..most).map(|i| CopyDescriptor { src: i, dst: most - 1 - i, len: 1 }).collect();
        rig.copy(rig.save, device, host, &batch);
        rig.drain(rig.save);
        let mut reversed = bytes(1, most);
        reversed.reverse();
        assert!(rig.get(host, 0, most) == reversed);
        batch.push(CopyDescriptor { src: 0, dst: 0, len: 0 });
        let request = CopyRequest { src: device, dst: host, descriptors: &batch };
        assert_invalid(rig.device.copy(rig.save, request), "one descriptor too many");
    }
}

/// An upload outside its buffer is refused and writes nothing.
pub fn uploads_are_checked<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    let device = rig.device_buffer(100);
    rig.put(device, 0, bytes(1, 100));
    for offset in [51, 100, 101, u64::MAX] {
        assert_invalid(rig.device.upload(rig.compute, device, offset, vec![0; 50]), "an upload over the end");
    }
    rig.drain(rig.compute);
    assert_eq!(rig.get(device, 0, 100), bytes(1, 100));
}

/// A read outside its buffer is refused.
pub fn reads_are_checked<D: DeviceMemory>(make: impl Fn() -> D) {
    let mut rig = Rig::new(make());
    for buffer in [rig.device_buffer(100), rig.host_buffer(100)] {
        rig.put(buffer, 0, bytes(1, 100));
        for offset in [91, 100, 101, u64::MAX] {
            let mut into = [7; 10];
            assert_invalid(rig.device.read(buffer, offset, &mut into), "a read over the end");
            assert_eq!(into, [7; 10]);
        }
        assert_eq!(rig.get(buffer, 90, 10), &bytes(1, 100)[90..]);
    }
}
