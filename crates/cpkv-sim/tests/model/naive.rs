//! The naive executor: it keeps the whole history of calls and runs it again for every question.

use cpkv_core::{CopyDescriptor, DeviceError, StreamKind};
use cpkv_sim::{Fault, POISON};

pub(crate) const MEMORY: u64 = 600;

#[derive(Debug, Clone)]
pub(crate) enum Effect {
    Nothing,
    Copy { src: usize, dst: usize, descriptors: Vec<CopyDescriptor> },
    Upload { buffer: usize, offset: u64, bytes: Vec<u8> },
}

/// One call of the history that concerns a stream. A fence is named by its place in the history.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Work { stream: usize, called_ns: u64, takes_ns: u64, uses: Vec<usize>, failed_copy: Option<u64>, effect: Effect },
    Fence { stream: usize },
    WaitOn { stream: usize, fence: usize },
}

#[derive(Debug, Clone)]
pub(crate) struct Buffer {
    pub(crate) host: bool,
    pub(crate) bytes: u64,
    pub(crate) live: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    Invalid,
    OutOfMemory(u64, u64),
    CopyFailed(String),
    TimedOut(u64),
    Lost,
}

pub(crate) fn outcome<T>(result: Result<T, DeviceError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Ok,
        Err(DeviceError::Invalid { .. }) => Outcome::Invalid,
        Err(DeviceError::OutOfMemory { asked, free }) => Outcome::OutOfMemory(asked, free),
        Err(DeviceError::CopyFailed { what }) => Outcome::CopyFailed(what),
        Err(DeviceError::TimedOut { limit_ns }) => Outcome::TimedOut(limit_ns),
        Err(DeviceError::Lost { .. }) => Outcome::Lost,
        Err(other) => panic!("{other}"),
    }
}

pub(crate) const KINDS: [StreamKind; 4] =
    [StreamKind::Compute, StreamKind::DeviceToHost, StreamKind::HostToDevice, StreamKind::Compute];

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) now_ns: u64,
    pub(crate) history: Vec<Entry>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) copies: u64,
    pub(crate) allocations: u64,
    pub(crate) faults: Vec<Fault>,
}

impl Model {
    /// When each entry of the history ends: per stream one after the other, each not before its call.
    pub(crate) fn ends_ns(&self) -> Vec<u64> {
        let mut tails = [0; KINDS.len()];
        let mut ends: Vec<u64> = Vec::new();
        for entry in &self.history {
            let end = match entry {
                Entry::Work { stream, called_ns, takes_ns, .. } => {
                    tails[*stream] = tails[*stream].max(*called_ns) + takes_ns;
                    tails[*stream]
                }
                Entry::Fence { stream } => tails[*stream],
                Entry::WaitOn { stream, fence } => {
                    tails[*stream] = tails[*stream].max(ends[*fence]);
                    tails[*stream]
                }
            };
            ends.push(end);
        }
        ends
    }

    /// All buffers as they are now: poison, then everything that has ended by now.
    pub(crate) fn contents(&self) -> Vec<Vec<u8>> {
        let mut contents: Vec<Vec<u8>> =
            self.buffers.iter().map(|buffer| vec![POISON; buffer.bytes as usize]).collect();
        let ends = self.ends_ns();
        let mut order: Vec<usize> = (0..self.history.len()).filter(|i| ends[*i] <= self.now_ns).collect();
        order.sort_by_key(|i| ends[*i]);
        for entry in order {
            match &self.history[entry] {
                Entry::Work { effect: Effect::Copy { src, dst, descriptors }, .. } => {
                    for copy in descriptors {
                        let bytes = contents[*src][copy.src as usize..][..copy.len as usize].to_vec();
                        contents[*dst][copy.dst as usize..][..copy.len as usize].copy_from_slice(&bytes);
                    }
                }
                Entry::Work { effect: Effect::Upload { buffer, offset, bytes }, .. } => {
                    contents[*buffer][*offset as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                _ => {}
            }
        }
        contents
    }

    pub(crate) fn lost_at_ns(&self) -> u64 {
        let at = |fault: &Fault| if let Fault::LoseAt { at_ns } = fault { *at_ns } else { u64::MAX };
        self.faults.iter().map(at).min().unwrap_or(u64::MAX)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost_at_ns() <= self.now_ns
    }

    /// The first failed copy between fence `fence` and the one before it.
    pub(crate) fn failed_copy(&self, fence: usize) -> Option<u64> {
        let Entry::Fence { stream: of } = self.history[fence] else { panic!("{fence} is no fence") };
        let mut failed = None;
        for entry in &self.history[..fence] {
            match entry {
                Entry::Fence { stream } if *stream == of => failed = None,
                Entry::Work { stream, failed_copy: Some(number), .. } if *stream == of && failed.is_none() => {
                    failed = Some(*number);
                }
                _ => {}
            }
        }
        failed
    }

    pub(crate) fn poll(&self, fence: usize) -> Option<Outcome> {
        if self.is_lost() {
            return Some(Outcome::Lost);
        }
        (self.ends_ns()[fence] <= self.now_ns).then(|| match self.failed_copy(fence) {
            None => Outcome::Ok,
            Some(number) => Outcome::CopyFailed(format!("fault at copy call {number}")),
        })
    }

    pub(crate) fn next_event_ns(&self) -> Option<u64> {
        let ends = self.ends_ns();
        let works = self.history.iter().zip(ends).filter(|(entry, _)| matches!(entry, Entry::Work { .. }));
        works.map(|(_, end)| end).filter(|end| *end > self.now_ns).min().filter(|_| !self.is_lost())
    }

    pub(crate) fn free_bytes(&self, host: bool) -> u64 {
        MEMORY - self.buffers.iter().filter(|b| b.live && b.host == host).map(|b| b.bytes).sum::<u64>()
    }

    pub(crate) fn work(
        &mut self,
        stream: usize,
        takes_ns: u64,
        uses: Vec<usize>,
        failed_copy: Option<u64>,
        effect: Effect,
    ) -> Outcome {
        self.history.push(Entry::Work { stream, called_ns: self.now_ns, takes_ns, uses, failed_copy, effect });
        Outcome::Ok
    }

    pub(crate) fn allocate(&mut self, host: bool, bytes: u64) -> Outcome {
        if self.is_lost() {
            return Outcome::Lost;
        }
        if bytes == 0 {
            return Outcome::Invalid;
        }
        self.allocations += 1;
        let denied = self.faults.contains(&Fault::OutOfMemory { nth: self.allocations });
        if denied || bytes > self.free_bytes(host) {
            return Outcome::OutOfMemory(bytes, self.free_bytes(host));
        }
        self.buffers.push(Buffer { host, bytes, live: true });
        Outcome::Ok
    }

    pub(crate) fn free(&mut self, buffer: usize) -> Outcome {
        if self.is_lost() {
            return Outcome::Lost;
        }
        if !self.buffers[buffer].live {
            return Outcome::Invalid;
        }
        let ends = self.ends_ns();
        for (entry, end) in self.history.iter().zip(ends) {
            if matches!(entry, Entry::Work { uses, .. } if uses.contains(&buffer)) {
                self.now_ns = self.now_ns.max(end.min(self.lost_at_ns()));
            }
        }
        if self.is_lost() {
            return Outcome::Lost;
        }
        self.buffers[buffer].live = false;
        Outcome::Ok
    }

    pub(crate) fn fits(&self, buffer: usize, offset: u64, len: u64) -> bool {
        self.buffers[buffer].live && offset + len <= self.buffers[buffer].bytes
    }

    pub(crate) fn copy(&mut self, stream: usize, src: usize, dst: usize, descriptors: &[CopyDescriptor]) -> Outcome {
        if self.is_lost() {
            return Outcome::Lost;
        }
        let fit = descriptors.iter().all(|c| self.fits(src, c.src, c.len) && self.fits(dst, c.dst, c.len));
        if !fit || !self.fits(src, 0, 0) || !self.fits(dst, 0, 0) || descriptors.len() > 3 {
            return Outcome::Invalid;
        }
        if descriptors.is_empty() {
            return Outcome::Ok;
        }
        self.copies += 1;
        let fails = self.faults.contains(&Fault::FailCopy { nth: self.copies });
        let late: u64 = self
            .faults
            .iter()
            .map(|fault| match fault {
                Fault::DelayCopy { nth, by_ns } if *nth == self.copies => *by_ns,
                _ => 0,
            })
            .sum();
        let bytes: u64 = descriptors.iter().map(|copy| copy.len).sum();
        let transfer = if KINDS[stream] == StreamKind::DeviceToHost { bytes } else { bytes.div_ceil(2) };
        let takes_ns = 20 + 3 * descriptors.len() as u64 + transfer + late;
        let effect = if fails { Effect::Nothing } else { Effect::Copy { src, dst, descriptors: descriptors.to_vec() } };
        self.work(stream, takes_ns, vec![src, dst], fails.then_some(self.copies), effect)
    }

    pub(crate) fn upload(&mut self, stream: usize, buffer: usize, offset: u64, bytes: &[u8]) -> Outcome {
        if self.is_lost() {
            return Outcome::Lost;
        }
        let len = bytes.len() as u64;
        if !self.fits(buffer, offset, len) {
            return Outcome::Invalid;
        }
        let takes_ns = match KINDS[stream] {
            StreamKind::Compute => 0,
            StreamKind::DeviceToHost => 23 + len,
            StreamKind::HostToDevice => 23 + len.div_ceil(2),
        };
        self.work(stream, takes_ns, vec![buffer], None, Effect::Upload { buffer, offset, bytes: bytes.to_vec() })
    }

    pub(crate) fn wait(&mut self, fence: usize, limit_ns: u64) -> Outcome {
        if !self.is_lost() {
            let until = self.ends_ns()[fence].min(self.now_ns + limit_ns).min(self.lost_at_ns());
            self.now_ns = self.now_ns.max(until);
        }
        self.poll(fence).unwrap_or(Outcome::TimedOut(limit_ns))
    }
}
