//! Streams as queues of timed work: every item has its end from the moment when it is enqueued.

use crate::memory::{SimBuffer, invalid};
use cpkv_core::{CopyDescriptor, DeviceError, StreamKind};
use std::collections::BTreeMap;

/// A handle on a simulated stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimStream {
    pub(crate) device: u64,
    pub(crate) index: u32,
}

/// A point on a simulated stream. It carries its end and its outcome, both fixed when it is recorded: fences cost no
/// memory, however many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimFence {
    pub(crate) device: u64,
    pub(crate) stream: u32,
    /// The number of the fence on its stream.
    pub(crate) number: u64,
    pub(crate) end_ns: u64,
    /// The number of the first copy call that failed between the fence before and this one.
    pub(crate) failed_copy: Option<u64>,
}

/// What happens to memory when an item's end has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Time passed: the forward pass, or a copy that failed.
    Nothing,
    Copy {
        src: SimBuffer,
        dst: SimBuffer,
        descriptors: Vec<CopyDescriptor>,
    },
    Upload {
        buffer: SimBuffer,
        offset: u64,
        bytes: Vec<u8>,
    },
}

#[derive(Debug)]
struct Stream {
    kind: StreamKind,
    /// When all work enqueued so far and all fences waited for have ended.
    tail_ns: u64,
    fences: u64,
    failed_copy: Option<u64>,
}

/// The streams of one device with the work that hasn't ended.
#[derive(Debug)]
pub(crate) struct Streams {
    device: u64,
    streams: Vec<Stream>,
    /// By end, then by the order of the calls. An item can only depend on work of earlier calls, which ends no later,
    /// so this order keeps every dependency, among items that end in the same nanosecond too.
    queue: BTreeMap<(u64, u64), Work>,
    calls: u64,
}

impl Streams {
    pub(crate) fn new(device: u64) -> Self {
        Self { device, streams: Vec::new(), queue: BTreeMap::new(), calls: 0 }
    }

    pub(crate) fn create(&mut self, kind: StreamKind) -> SimStream {
        self.streams.push(Stream { kind, tail_ns: 0, fences: 0, failed_copy: None });
        SimStream { device: self.device, index: self.streams.len() as u32 - 1 }
    }

    pub(crate) fn kind(&self, handle: SimStream) -> Result<StreamKind, DeviceError> {
        if handle.device != self.device {
            return Err(invalid("a stream of another device"));
        }
        Ok(self.streams[handle.index as usize].kind)
    }

    /// Puts work of `duration_ns` behind everything on the stream and returns its end.
    pub(crate) fn enqueue(&mut self, handle: SimStream, now_ns: u64, duration_ns: u64, work: Work) -> u64 {
        let stream = &mut self.streams[handle.index as usize];
        let end_ns = stream.tail_ns.max(now_ns).saturating_add(duration_ns);
        stream.tail_ns = end_ns;
        self.calls += 1;
        self.queue.insert((end_ns, self.calls), work);
        end_ns
    }

    /// Lets the next fence of the stream report that copy call `number` failed.
    pub(crate) fn mark_failed(&mut self, handle: SimStream, number: u64) {
        self.streams[handle.index as usize].failed_copy.get_or_insert(number);
    }

    pub(crate) fn record(&mut self, handle: SimStream) -> SimFence {
        let stream = &mut self.streams[handle.index as usize];
        stream.fences += 1;
        SimFence {
            device: self.device,
            stream: handle.index,
            number: stream.fences,
            end_ns: stream.tail_ns,
            failed_copy: stream.failed_copy.take(),
        }
    }

    pub(crate) fn check_fence(&self, fence: SimFence) -> Result<(), DeviceError> {
        if fence.device == self.device { Ok(()) } else { Err(invalid("a fence of another device")) }
    }

    pub(crate) fn wait_on(&mut self, handle: SimStream, fence: SimFence) {
        let stream = &mut self.streams[handle.index as usize];
        stream.tail_ns = stream.tail_ns.max(fence.end_ns);
    }

    /// Takes the next item that has ended by `until_ns`.
    pub(crate) fn pop_ended(&mut self, until_ns: u64) -> Option<Work> {
        let first = self.queue.first_entry()?;
        (first.key().0 <= until_ns).then(|| first.remove())
    }

    /// When the next item ends.
    pub(crate) fn next_end_ns(&self) -> Option<u64> {
        self.queue.first_key_value().map(|((end_ns, _), _)| *end_ns)
    }

    /// Drops all work: nothing of it happens.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Buffers in use by work in the queue, with its end.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (SimBuffer, u64)> + '_ {
        self.queue.iter().flat_map(|((end_ns, _), work)| {
            let (a, b) = match work {
                Work::Nothing => (None, None),
                Work::Copy { src, dst, .. } => (Some(*src), Some(*dst)),
                Work::Upload { buffer, .. } => (Some(*buffer), None),
            };
            a.into_iter().chain(b).map(|buffer| (buffer, *end_ns))
        })
    }

    /// No item ends behind the tail of every stream.
    pub(crate) fn self_check(&self) -> Result<(), String> {
        let tail_ns = self.streams.iter().map(|stream| stream.tail_ns).max().unwrap_or(0);
        match self.queue.last_key_value() {
            Some(((end_ns, call), _)) if *end_ns > tail_ns => {
                Err(format!("call {call} ends at {end_ns} ns, behind the last tail {tail_ns} ns"))
            }
            _ => Ok(()),
        }
    }
}
