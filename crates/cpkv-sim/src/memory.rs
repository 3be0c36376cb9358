//! Simulated memory: poisoned buffers of two tiers, each tier with a limit.

use cpkv_copy::{Arena, ArenaError, copy_between, copy_within};
use cpkv_core::{CopyDescriptor, CopyRequest, DeviceError, Tier};
use std::collections::BTreeMap;

/// What every byte of a new buffer holds. No byte of a [`PagePattern`](crate::PagePattern) equals it.
pub const POISON: u8 = 0xA5;

/// A handle on a simulated buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimBuffer {
    pub(crate) device: u64,
    pub(crate) id: u64,
}

#[derive(Debug)]
pub(crate) struct Buffer {
    tier: Tier,
    arena: Arena,
    /// When the last work that uses the buffer ends: it can't be freed before.
    pub(crate) busy_until_ns: u64,
}

/// The live buffers of one device and its limits, bytes.
#[derive(Debug)]
pub(crate) struct Memory {
    device: u64,
    limits: [u64; 2],
    used: [u64; 2],
    /// Ids are never used again, so a handle that was freed stays invalid.
    next_id: u64,
    buffers: BTreeMap<u64, Buffer>,
}

pub(crate) fn invalid(what: impl Into<String>) -> DeviceError {
    DeviceError::Invalid { what: what.into() }
}

fn slot(tier: Tier) -> usize {
    match tier {
        Tier::Device => 0,
        Tier::Host => 1,
    }
}

impl Memory {
    pub(crate) fn new(device: u64, device_bytes: u64, host_bytes: u64) -> Self {
        Self { device, limits: [device_bytes, host_bytes], used: [0, 0], next_id: 0, buffers: BTreeMap::new() }
    }

    pub(crate) fn free_bytes(&self, tier: Tier) -> u64 {
        self.limits[slot(tier)] - self.used[slot(tier)]
    }

    pub(crate) fn total_bytes(&self, tier: Tier) -> u64 {
        self.limits[slot(tier)]
    }

    /// Takes `bytes` of `tier`, poisoned; `denied` is a fault that finds no memory.
    pub(crate) fn allocate(&mut self, tier: Tier, bytes: u64, denied: bool) -> Result<SimBuffer, DeviceError> {
        let out = DeviceError::OutOfMemory { asked: bytes, free: self.free_bytes(tier) };
        if denied || bytes > self.free_bytes(tier) {
            return Err(out);
        }
        let arena = Arena::filled(bytes, POISON).map_err(|_| out)?;
        let id = self.next_id;
        self.next_id += 1;
        self.used[slot(tier)] += bytes;
        self.buffers.insert(id, Buffer { tier, arena, busy_until_ns: 0 });
        Ok(SimBuffer { device: self.device, id })
    }

    /// Drops a live buffer. Work that uses it must have ended.
    pub(crate) fn release(&mut self, handle: SimBuffer) -> Result<(), DeviceError> {
        self.get(handle)?;
        let buffer = self.buffers.remove(&handle.id).expect("a handle that was found is live");
        self.used[slot(buffer.tier)] -= buffer.arena.len();
        Ok(())
    }

    pub(crate) fn get(&self, handle: SimBuffer) -> Result<&Buffer, DeviceError> {
        if handle.device != self.device {
            return Err(invalid("a buffer of another device"));
        }
        self.buffers.get(&handle.id).ok_or_else(|| invalid(format!("buffer {} was freed", handle.id)))
    }

    pub(crate) fn mark_busy(&mut self, handle: SimBuffer, until_ns: u64) {
        let buffer = self.live(handle.id);
        buffer.busy_until_ns = buffer.busy_until_ns.max(until_ns);
    }

    /// Checks handles and ranges of a batch and returns its bytes.
    pub(crate) fn check_copy(&self, request: &CopyRequest<'_, SimBuffer>) -> Result<u64, DeviceError> {
        let (src, dst) = (self.get(request.src)?, self.get(request.dst)?);
        let mut bytes = 0u64;
        for (index, copy) in request.descriptors.iter().enumerate() {
            let refuse = |side, error: ArenaError| invalid(format!("descriptor {index}, {side}: {error}"));
            src.arena.check(copy.src, copy.len).map_err(|error| refuse("source", error))?;
            dst.arena.check(copy.dst, copy.len).map_err(|error| refuse("destination", error))?;
            bytes = bytes.saturating_add(copy.len);
        }
        Ok(bytes)
    }

    pub(crate) fn check_range(&self, handle: SimBuffer, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.get(handle)?.arena.check(offset, len).map_err(|error| invalid(error.to_string()))
    }

    /// Moves the bytes of a batch that was checked.
    pub(crate) fn copy(&mut self, src: SimBuffer, dst: SimBuffer, descriptors: &[CopyDescriptor]) {
        const CHECKED: &str = "ranges were checked when the copy was enqueued and buffers don't change their size";
        if src == dst {
            copy_within(&mut self.live(dst.id).arena, descriptors).expect(CHECKED);
            return;
        }
        let mut target = std::mem::take(&mut self.live(dst.id).arena);
        copy_between(&self.live(src.id).arena, &mut target, descriptors).expect(CHECKED);
        self.live(dst.id).arena = target;
    }

    /// Writes bytes at a range that was checked.
    pub(crate) fn write(&mut self, handle: SimBuffer, offset: u64, bytes: &[u8]) {
        self.live(handle.id).arena.write(offset, bytes).expect("the range was checked when the write was enqueued");
    }

    pub(crate) fn read(&self, handle: SimBuffer, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.get(handle)?.arena.read(offset, into).map_err(|error| invalid(error.to_string()))
    }

    fn live(&mut self, id: u64) -> &mut Buffer {
        self.buffers.get_mut(&id).expect("free waits for the work that uses a buffer, so it is live")
    }

    /// Recounts the bytes in use from the buffers.
    pub(crate) fn self_check(&self) -> Result<(), String> {
        for tier in [Tier::Device, Tier::Host] {
            let held: u64 = self.buffers.values().filter(|b| b.tier == tier).map(|b| b.arena.len()).sum();
            let used = self.used[slot(tier)];
            if held != used || used > self.limits[slot(tier)] {
                let limit = self.limits[slot(tier)];
                return Err(format!("{tier} memory: buffers hold {held} bytes, counted {used}, limit {limit}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_have_their_own_limits_and_buffers_are_poisoned() {
        let mut memory = Memory::new(0, 100, 50);
        let device = memory.allocate(Tier::Device, 60, false).unwrap();
        let out = DeviceError::OutOfMemory { asked: 51, free: 50 };
        assert_eq!(memory.allocate(Tier::Host, 51, false), Err(out));
        let denied = DeviceError::OutOfMemory { asked: 1, free: 50 };
        assert_eq!(memory.allocate(Tier::Host, 1, true), Err(denied));
        let mut bytes = [0; 60];
        memory.read(device, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [POISON; 60]);
        assert_eq!((memory.free_bytes(Tier::Device), memory.free_bytes(Tier::Host)), (40, 50));
        memory.self_check().unwrap();
        memory.release(device).unwrap();
        assert_eq!(memory.free_bytes(Tier::Device), 100);
        let second = memory.allocate(Tier::Device, 60, false).unwrap();
        assert_ne!(second, device);
        assert_eq!(memory.release(device), Err(invalid("buffer 0 was freed")));
        memory.self_check().unwrap();
    }
}
