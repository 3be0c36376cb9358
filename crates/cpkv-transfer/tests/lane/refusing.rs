//! A double: the simulator, except that it refuses a copy call by number.

use cpkv_core::{Capabilities, CopyRequest, DeviceError, DeviceMemory, FenceStatus, MemoryInfo, StreamKind};
use cpkv_sim::{SimBuffer, SimDevice, SimFence, SimStream};

/// Refuses copy call `refused`, counted from 1, as a driver that runs out of something does. Counts what passes.
#[derive(Debug)]
pub(crate) struct Refusing {
    pub(crate) sim: SimDevice,
    pub(crate) refused: u64,
    pub(crate) calls: u64,
    /// Descriptors of each call that was passed on.
    pub(crate) batches: Vec<usize>,
}

impl DeviceMemory for Refusing {
    type Buffer = SimBuffer;
    type Stream = SimStream;
    type Fence = SimFence;

    fn copy(&mut self, stream: SimStream, request: CopyRequest<'_, SimBuffer>) -> Result<(), DeviceError> {
        self.calls += 1;
        if self.calls == self.refused {
            return Err(DeviceError::CopyFailed { what: "refused".to_owned() });
        }
        self.batches.push(request.descriptors.len());
        self.sim.copy(stream, request)
    }

    fn capabilities(&self) -> Capabilities {
        self.sim.capabilities()
    }

    fn memory_info(&self) -> Result<MemoryInfo, DeviceError> {
        self.sim.memory_info()
    }

    fn allocate_device(&mut self, bytes: u64) -> Result<SimBuffer, DeviceError> {
        self.sim.allocate_device(bytes)
    }

    fn allocate_host(&mut self, bytes: u64) -> Result<SimBuffer, DeviceError> {
        self.sim.allocate_host(bytes)
    }

    fn free(&mut self, buffer: SimBuffer) -> Result<(), DeviceError> {
        self.sim.free(buffer)
    }

    fn create_stream(&mut self, kind: StreamKind) -> Result<SimStream, DeviceError> {
        self.sim.create_stream(kind)
    }

    fn upload(&mut self, stream: SimStream, buffer: SimBuffer, offset: u64, bytes: Vec<u8>) -> Result<(), DeviceError> {
        self.sim.upload(stream, buffer, offset, bytes)
    }

    fn record(&mut self, stream: SimStream) -> Result<SimFence, DeviceError> {
        self.sim.record(stream)
    }

    fn wait_on(&mut self, stream: SimStream, fence: SimFence) -> Result<(), DeviceError> {
        self.sim.wait_on(stream, fence)
    }

    fn poll(&mut self, fence: SimFence) -> FenceStatus {
        self.sim.poll(fence)
    }

    fn wait(&mut self, fence: SimFence, limit_ns: u64) -> Result<(), DeviceError> {
        self.sim.wait(fence, limit_ns)
    }

    fn read(&mut self, buffer: SimBuffer, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.sim.read(buffer, offset, into)
    }
}
