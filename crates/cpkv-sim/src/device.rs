//! The simulated device: the trait's calls on memory, streams, faults and the clock.

use crate::fault::Faults;
use crate::memory::{Memory, invalid};
use crate::stream::{Streams, Work};
use crate::{Fault, SimBuffer, SimClock, SimConfig, SimFence, SimStream};
use cpkv_core::{Capabilities, CopyRequest, DeviceError, DeviceMemory, FenceStatus, MemoryInfo, StreamKind, Tier};
use std::sync::atomic::{AtomicU64, Ordering};

/// Tells the handles of one instance from those of another. Never shown in a result and never decided upon.
static INSTANCES: AtomicU64 = AtomicU64::new(0);

/// A device whose bytes are real and whose time is the virtual clock's. Several devices may share one clock.
///
/// Work gets its end when it is enqueued: it starts when everything before it on its stream and every fence that the
/// stream waits for has ended, not before now, and takes what [`SimConfig::copy_ns`] says. Its bytes move all at once
/// at that end, as seen by the first call after the clock has passed it, and never before.
///
/// Beyond the trait: an empty batch enqueues nothing and costs no time. `upload` takes no time on a compute stream,
/// where it stands for what a kernel writes, and that of a copy of one descriptor elsewhere. A failed copy takes its
/// time, moves nothing and fails the first fence recorded behind it on its stream; later work goes on, also where it
/// waits for that fence. On a lost device every call fails with [`DeviceError::Lost`], [`FenceStatus::Failed`] for
/// fences that were done included.
#[derive(Debug)]
pub struct SimDevice {
    config: SimConfig,
    clock: SimClock,
    memory: Memory,
    streams: Streams,
    faults: Faults,
    /// When the device is lost, nanoseconds; `u64::MAX` for never.
    lost_at_ns: u64,
}

impl SimDevice {
    /// A device without buffers and streams.
    #[must_use]
    pub fn new(config: SimConfig, clock: SimClock) -> Self {
        let instance = INSTANCES.fetch_add(1, Ordering::Relaxed);
        let faults = Faults::new(config.faults.clone(), config.seed);
        Self {
            memory: Memory::new(instance, config.device_bytes, config.host_bytes),
            streams: Streams::new(instance),
            lost_at_ns: faults.lost_at_ns().unwrap_or(u64::MAX),
            faults,
            config,
            clock,
        }
    }

    /// The device's clock, shared with whoever holds a clone.
    #[must_use]
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// What the device was made with.
    #[must_use]
    pub fn config(&self) -> &SimConfig {
        &self.config
    }

    /// Occupies a compute stream for `duration_ns`: the forward pass.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a bad handle or a stream of another kind; [`DeviceError::Lost`].
    pub fn compute(&mut self, stream: SimStream, duration_ns: u64) -> Result<(), DeviceError> {
        self.settle()?;
        if self.streams.kind(stream)? != StreamKind::Compute {
            return Err(invalid("compute on a copy stream"));
        }
        self.streams.enqueue(stream, self.clock.now(), duration_ns, Work::Nothing);
        Ok(())
    }

    /// When `fence` is reached, nanoseconds of the clock. Known from the moment when it is recorded.
    #[must_use]
    pub fn fence_end_ns(&self, fence: SimFence) -> u64 {
        fence.end_ns
    }

    /// When the next work ends, nanoseconds, later than now; `None` when the device is idle.
    #[must_use]
    pub fn next_event_ns(&mut self) -> Option<u64> {
        // What is due by now must not hide what comes.
        self.settle().ok()?;
        self.streams.next_end_ns()
    }

    /// Adds a fault to the script. Counts go on from [`copies`](Self::copies) and [`allocations`](Self::allocations).
    pub fn inject(&mut self, fault: Fault) {
        self.faults.inject(fault);
        self.lost_at_ns = self.lost_at_ns.min(self.faults.lost_at_ns().unwrap_or(u64::MAX));
    }

    /// Copy calls enqueued so far, empty batches not counted.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.faults.copies()
    }

    /// Allocations tried so far.
    #[must_use]
    pub fn allocations(&self) -> u64 {
        self.faults.allocations()
    }

    /// Rebuilds the figures from buffers and queue.
    ///
    /// # Errors
    /// What differs.
    pub fn self_check(&self) -> Result<(), String> {
        self.memory.self_check()?;
        self.streams.self_check()?;
        for (buffer, end_ns) in self.streams.in_use() {
            let live = self.memory.get(buffer).map_err(|error| format!("work in flight uses {buffer:?}: {error}"))?;
            if live.busy_until_ns < end_ns {
                return Err(format!("{buffer:?} is used until {end_ns} ns, marked {} ns", live.busy_until_ns));
            }
        }
        Ok(())
    }

    fn is_lost(&self) -> bool {
        self.clock.now() >= self.lost_at_ns
    }

    fn lost(&self) -> DeviceError {
        DeviceError::Lost { what: format!("fault at {} ns", self.lost_at_ns) }
    }

    /// Does what has ended by now. Every call starts with it.
    fn settle(&mut self) -> Result<(), DeviceError> {
        if self.is_lost() {
            // Nobody can read what the work would write.
            self.streams.clear();
            return Err(self.lost());
        }
        while let Some(work) = self.streams.pop_ended(self.clock.now()) {
            match work {
                Work::Nothing => {}
                Work::Copy { src, dst, descriptors } => self.memory.copy(src, dst, &descriptors),
                Work::Upload { buffer, offset, bytes } => self.memory.write(buffer, offset, &bytes),
            }
        }
        Ok(())
    }

    fn allocate(&mut self, tier: Tier, bytes: u64) -> Result<SimBuffer, DeviceError> {
        self.settle()?;
        if bytes == 0 {
            return Err(invalid("an allocation of 0 bytes"));
        }
        let denied = self.faults.next_allocation_fails();
        self.memory.allocate(tier, bytes, denied)
    }

    /// The outcome of a fence that has been reached.
    fn outcome(fence: SimFence) -> Result<(), DeviceError> {
        match fence.failed_copy {
            None => Ok(()),
            Some(number) => Err(DeviceError::CopyFailed { what: format!("fault at copy call {number}") }),
        }
    }
}

impl DeviceMemory for SimDevice {
    type Buffer = SimBuffer;
    type Stream = SimStream;
    type Fence = SimFence;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "sim",
            batch_copy: true,
            descriptors_per_copy_max: self.config.descriptors_per_copy_max,
            modelled_time: true,
        }
    }

    fn memory_info(&self) -> Result<MemoryInfo, DeviceError> {
        if self.is_lost() {
            return Err(self.lost());
        }
        let (free, total) = (self.memory.free_bytes(Tier::Device), self.memory.total_bytes(Tier::Device));
        Ok(MemoryInfo { free, total })
    }

    fn allocate_device(&mut self, bytes: u64) -> Result<SimBuffer, DeviceError> {
        self.allocate(Tier::Device, bytes)
    }

    fn allocate_host(&mut self, bytes: u64) -> Result<SimBuffer, DeviceError> {
        self.allocate(Tier::Host, bytes)
    }

    fn free(&mut self, buffer: SimBuffer) -> Result<(), DeviceError> {
        self.settle()?;
        let busy_until_ns = self.memory.get(buffer)?.busy_until_ns;
        self.clock.advance_to(busy_until_ns.min(self.lost_at_ns));
        self.settle()?;
        self.memory.release(buffer)
    }

    fn create_stream(&mut self, kind: StreamKind) -> Result<SimStream, DeviceError> {
        self.settle()?;
        Ok(self.streams.create(kind))
    }

    fn copy(&mut self, stream: SimStream, request: CopyRequest<'_, SimBuffer>) -> Result<(), DeviceError> {
        self.settle()?;
        let kind = self.streams.kind(stream)?;
        let bytes = self.memory.check_copy(&request)?;
        let descriptors = request.descriptors.len() as u64;
        let most = self.config.descriptors_per_copy_max;
        if descriptors > u64::from(most) {
            return Err(invalid(format!("{descriptors} descriptors in one copy call, at most {most}")));
        }
        if descriptors == 0 {
            return Ok(());
        }
        let fate = self.faults.next_copy();
        if fate.loses_device {
            self.lost_at_ns = self.clock.now();
            return self.settle();
        }
        let duration_ns = self.config.copy_ns(kind, descriptors, bytes).saturating_add(fate.late_ns);
        let (src, dst) = (request.src, request.dst);
        let work = if fate.fails {
            self.streams.mark_failed(stream, fate.number);
            Work::Nothing
        } else {
            Work::Copy { src, dst, descriptors: request.descriptors.to_vec() }
        };
        let end_ns = self.streams.enqueue(stream, self.clock.now(), duration_ns, work);
        self.memory.mark_busy(src, end_ns);
        self.memory.mark_busy(dst, end_ns);
        Ok(())
    }

    fn upload(&mut self, stream: SimStream, buffer: SimBuffer, offset: u64, bytes: Vec<u8>) -> Result<(), DeviceError> {
        self.settle()?;
        let kind = self.streams.kind(stream)?;
        let len = bytes.len() as u64;
        self.memory.check_range(buffer, offset, len)?;
        let duration_ns = if kind == StreamKind::Compute { 0 } else { self.config.copy_ns(kind, 1, len) };
        let work = Work::Upload { buffer, offset, bytes };
        let end_ns = self.streams.enqueue(stream, self.clock.now(), duration_ns, work);
        self.memory.mark_busy(buffer, end_ns);
        Ok(())
    }

    fn record(&mut self, stream: SimStream) -> Result<SimFence, DeviceError> {
        self.settle()?;
        self.streams.kind(stream)?;
        Ok(self.streams.record(stream))
    }

    fn wait_on(&mut self, stream: SimStream, fence: SimFence) -> Result<(), DeviceError> {
        self.settle()?;
        self.streams.kind(stream)?;
        self.streams.check_fence(fence)?;
        self.streams.wait_on(stream, fence);
        Ok(())
    }

    fn poll(&mut self, fence: SimFence) -> FenceStatus {
        if let Err(error) = self.settle().and_then(|()| self.streams.check_fence(fence)) {
            return FenceStatus::Failed(error);
        }
        if fence.end_ns > self.clock.now() {
            return FenceStatus::Pending;
        }
        match Self::outcome(fence) {
            Ok(()) => FenceStatus::Done,
            Err(error) => FenceStatus::Failed(error),
        }
    }

    fn wait(&mut self, fence: SimFence, limit_ns: u64) -> Result<(), DeviceError> {
        self.settle()?;
        self.streams.check_fence(fence)?;
        let until_ns = fence.end_ns.min(self.clock.now().saturating_add(limit_ns));
        self.clock.advance_to(until_ns.min(self.lost_at_ns));
        self.settle()?;
        if fence.end_ns > self.clock.now() {
            return Err(DeviceError::TimedOut { limit_ns });
        }
        Self::outcome(fence)
    }

    fn read(&mut self, buffer: SimBuffer, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.settle()?;
        self.memory.read(buffer, offset, into)
    }
}
