//! What a backend must offer: memory, streams, batched asynchronous copies and fences.
//!
//! The contract is the one that CUDA can meet without change: every copy is asynchronous and ordered by its stream
//! alone, batches of descriptors are copied out of the caller's hands before the call returns, and completion is a
//! fence that is polled. Nothing here is called while a decision is made (contract C8).

use std::fmt::Debug;
use std::hash::Hash;

/// What a stream is for. A backend may give each kind its own priority or copy engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamKind {
    /// The forward pass.
    Compute,
    /// Device to host: backups.
    DeviceToHost,
    /// Host to device: load-backs.
    HostToDevice,
}

/// One copy: `len` bytes from `src` of the source buffer to `dst` of the destination buffer, offsets in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyDescriptor {
    /// Offset in the source buffer, bytes.
    pub src: u64,
    /// Offset in the destination buffer, bytes.
    pub dst: u64,
    /// Length, bytes.
    pub len: u64,
}

/// A batch of copies between two buffers.
#[derive(Debug, Clone, Copy)]
pub struct CopyRequest<'a, B> {
    /// The buffer that is read.
    pub src: B,
    /// The buffer that is written.
    pub dst: B,
    /// The copies. They may run in any order among themselves; destinations don't overlap.
    pub descriptors: &'a [CopyDescriptor],
}

/// How far a fence has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FenceStatus {
    /// Work before the fence is still running.
    Pending,
    /// All work before the fence is complete.
    Done,
    /// Work between the fence before it on its stream and this one failed; what that work wrote is unspecified and it
    /// writes no more. A failed copy fails the first fence recorded behind it and no other; later work goes on. Also
    /// what a fence of another backend instance reports, with [`DeviceError::Invalid`].
    Failed(DeviceError),
}

/// Memory of a device, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// What an allocation could still take.
    pub free: u64,
    /// What the device has.
    pub total: u64,
}

/// What a backend can do, fixed at start. Configuration: equal on all ranks and part of the digest (contract C7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The backend's name, for reports: `sim` or `cuda`.
    pub backend: &'static str,
    /// Whether one call takes a whole batch of copies; else it costs one call per descriptor.
    pub batch_copy: bool,
    /// The most descriptors in one copy call.
    pub descriptors_per_copy_max: u32,
    /// Whether times are modelled (a virtual clock) and not measured.
    pub modelled_time: bool,
}

/// What went wrong in a backend, split by what the caller does next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The allocation doesn't fit: ask for less. Nothing was taken.
    #[error("out of memory: asked for {asked} bytes, {free} are free")]
    OutOfMemory {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that were free.
        free: u64,
    },
    /// A handle, offset or length that the caller got wrong: a fault of the caller, nothing was done.
    #[error("invalid use of the device: {what}")]
    Invalid {
        /// What was wrong.
        what: String,
    },
    /// A copy failed; the device is still there. Trying again is sensible.
    #[error("copy failed: {what}")]
    CopyFailed {
        /// The backend's name for the failure.
        what: String,
    },
    /// The device is gone: nothing on it can be used again.
    #[error("device lost: {what}")]
    Lost {
        /// The backend's name for the failure.
        what: String,
    },
    /// A wait ended before the fence was reached. The work goes on.
    #[error("timed out after {limit_ns} ns")]
    TimedOut {
        /// The limit, in nanoseconds of the backend's clock.
        limit_ns: u64,
    },
}

/// A device with its pinned host memory: the one trait behind which simulator and CUDA are the same.
///
/// Life cycle: allocate buffers and create streams at start; then `copy` batches on streams, `record` a fence behind
/// them, and `poll` it. Buffers live until `free`; dropping the backend waits for what is in flight.
///
/// Handles are cheap copies. A handle of another backend instance is [`DeviceError::Invalid`].
pub trait DeviceMemory {
    /// A handle on device memory or pinned host memory.
    type Buffer: Copy + Eq + Debug;
    /// A handle on a stream: work on one stream runs in the order of its calls.
    type Stream: Copy + Eq + Debug;
    /// A point on a stream. Fences of one stream are passed in the order in which they were recorded.
    type Fence: Copy + Eq + Ord + Hash + Debug;

    /// What this backend can do. Constant for the life of the backend.
    fn capabilities(&self) -> Capabilities;

    /// Device memory, free and total.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn memory_info(&self) -> Result<MemoryInfo, DeviceError>;

    /// Allocates `bytes` (at least 1) of device memory. Its contents are unspecified until written.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] with what is free, [`DeviceError::Invalid`] for 0 bytes; nothing was taken.
    fn allocate_device(&mut self, bytes: u64) -> Result<Self::Buffer, DeviceError>;

    /// Allocates `bytes` (at least 1) of pinned host memory, which copies can reach.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] with what is free, [`DeviceError::Invalid`] for 0 bytes; nothing was taken.
    fn allocate_host(&mut self, bytes: u64) -> Result<Self::Buffer, DeviceError>;

    /// Gives a buffer back. Waits for copies in flight that use it.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a handle that isn't live.
    fn free(&mut self, buffer: Self::Buffer) -> Result<(), DeviceError>;

    /// Creates a stream.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn create_stream(&mut self, kind: StreamKind) -> Result<Self::Stream, DeviceError>;

    /// Enqueues a batch of copies on `stream` and returns without waiting.
    ///
    /// The caller guarantees that the source isn't written and the destination neither read nor written by anyone
    /// else until a fence behind the batch is done. The implementer copies the descriptors before it returns and
    /// refuses a batch with a range outside its buffer whole. A batch without descriptors is legal and does nothing;
    /// so does a descriptor of length 0, whose offsets must lie in their buffers or at their ends.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a bad handle or range or more descriptors than
    /// [`Capabilities::descriptors_per_copy_max`]: nothing was enqueued.
    fn copy(&mut self, stream: Self::Stream, request: CopyRequest<'_, Self::Buffer>) -> Result<(), DeviceError>;

    /// Enqueues a write of `bytes` to `buffer` at `offset`, through pinned staging that the backend owns.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a bad handle or range: nothing was enqueued.
    fn upload(
        &mut self,
        stream: Self::Stream,
        buffer: Self::Buffer,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<(), DeviceError>;

    /// Marks the point behind all work enqueued on `stream` so far.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a bad handle.
    fn record(&mut self, stream: Self::Stream) -> Result<Self::Fence, DeviceError>;

    /// Makes later work on `stream` wait for `fence`, which may lie on another stream of this backend. Doesn't block.
    /// Orders and no more: the work runs also where the fence turns out as failed, so whoever waits for it polls both.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a bad handle.
    fn wait_on(&mut self, stream: Self::Stream, fence: Self::Fence) -> Result<(), DeviceError>;

    /// How far `fence` has come. Never blocks.
    fn poll(&mut self, fence: Self::Fence) -> FenceStatus;

    /// Waits until `fence` is done, at most `limit_ns` of the backend's clock: CUDA blocks, the simulator advances
    /// its virtual clock.
    ///
    /// # Errors
    /// [`DeviceError::TimedOut`], or the failure of the work before the fence.
    fn wait(&mut self, fence: Self::Fence, limit_ns: u64) -> Result<(), DeviceError>;

    /// Reads bytes of a buffer, device or host, as they are now: the simulator directly, CUDA through staging. For
    /// tests and verification; waits for nothing.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a bad handle or range.
    fn read(&mut self, buffer: Self::Buffer, offset: u64, into: &mut [u8]) -> Result<(), DeviceError>;
}
