//! The conformance suite finds defects: a device with one planted defect fails the case that is about it.

use cpkv_core::conformance::device as suite;
use cpkv_core::{
    Capabilities, CopyDescriptor, CopyRequest, DeviceError, DeviceMemory, FenceStatus, MemoryInfo, StreamKind,
};
use cpkv_sim::{SimBuffer, SimClock, SimConfig, SimDevice, SimFence, SimStream};
use std::panic::catch_unwind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// Waits between streams order nothing.
    WaitOnIgnored,
    /// A batch is cut at its first bad descriptor and not refused.
    BatchCut,
    /// The caller's descriptors are read after the call is back: here, as zeros.
    DescriptorsLate,
    /// Uploads run beside their stream, at once.
    UploadUnordered,
    /// Polling waits.
    PollBlocks,
    /// A wait says that all is well when its limit is over.
    LimitIgnored,
    /// Memory isn't given back.
    FreeLeaks,
    /// An allocation that doesn't fit takes memory all the same.
    OutOfMemoryTakes,
}

struct Flawed {
    device: SimDevice,
    defect: Defect,
    aside: SimStream,
}

fn make(defect: Defect) -> Flawed {
    let mut device = SimDevice::new(SimConfig::default(), SimClock::new());
    let aside = device.create_stream(StreamKind::Compute).unwrap();
    Flawed { device, defect, aside }
}

impl DeviceMemory for Flawed {
    type Buffer = SimBuffer;
    type Stream = SimStream;
    type Fence = SimFence;

    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn memory_info(&self) -> Result<MemoryInfo, DeviceError> {
        self.device.memory_info()
    }

    fn allocate_device(&mut self, bytes: u64) -> Result<SimBuffer, DeviceError> {
        let result = self.device.allocate_device(bytes);
        if result.is_err() && self.defect == Defect::OutOfMemoryTakes {
            self.device.allocate_device(1000)?;
        }
        result
    }

    fn allocate_host(&mut self, bytes: u64) -> Result<SimBuffer, DeviceError> {
        self.device.allocate_host(bytes)
    }

    fn free(&mut self, buffer: SimBuffer) -> Result<(), DeviceError> {
        if self.defect == Defect::FreeLeaks { Ok(()) } else { self.device.free(buffer) }
    }

    fn create_stream(&mut self, kind: StreamKind) -> Result<SimStream, DeviceError> {
        self.device.create_stream(kind)
    }

    fn copy(&mut self, stream: SimStream, request: CopyRequest<'_, SimBuffer>) -> Result<(), DeviceError> {
        let late = vec![CopyDescriptor { src: 0, dst: 0, len: 0 }; request.descriptors.len()];
        match self.defect {
            Defect::DescriptorsLate if request.descriptors.len() > 1 => {
                self.device.copy(stream, CopyRequest { descriptors: &late, ..request })
            }
            Defect::BatchCut => {
                for descriptor in request.descriptors {
                    self.device.copy(stream, CopyRequest { descriptors: &[*descriptor], ..request })?;
                }
                Ok(())
            }
            _ => self.device.copy(stream, request),
        }
    }

    fn upload(&mut self, stream: SimStream, buffer: SimBuffer, offset: u64, bytes: Vec<u8>) -> Result<(), DeviceError> {
        let stream = if self.defect == Defect::UploadUnordered { self.aside } else { stream };
        self.device.upload(stream, buffer, offset, bytes)
    }

    fn record(&mut self, stream: SimStream) -> Result<SimFence, DeviceError> {
        self.device.record(stream)
    }

    fn wait_on(&mut self, stream: SimStream, fence: SimFence) -> Result<(), DeviceError> {
        if self.defect == Defect::WaitOnIgnored { Ok(()) } else { self.device.wait_on(stream, fence) }
    }

    fn poll(&mut self, fence: SimFence) -> FenceStatus {
        if self.defect == Defect::PollBlocks {
            self.device.clock().advance_to(self.device.fence_end_ns(fence));
        }
        self.device.poll(fence)
    }

    fn wait(&mut self, fence: SimFence, limit_ns: u64) -> Result<(), DeviceError> {
        match self.device.wait(fence, limit_ns) {
            Err(DeviceError::TimedOut { .. }) if self.defect == Defect::LimitIgnored => Ok(()),
            result => result,
        }
    }

    fn read(&mut self, buffer: SimBuffer, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(buffer, offset, into)
    }
}

#[test]
fn each_planted_defect_fails_its_case() {
    type Case = fn(fn(Defect) -> Flawed, Defect);
    let cases: [(&str, Defect, Case); 8] = [
        ("waits_order_streams", Defect::WaitOnIgnored, |make, d| suite::waits_order_streams(|| make(d))),
        ("bad_batches_change_nothing", Defect::BatchCut, |make, d| suite::bad_batches_change_nothing(|| make(d))),
        ("descriptors_are_taken", Defect::DescriptorsLate, |make, d| suite::descriptors_are_taken(|| make(d))),
        ("uploads_are_ordered", Defect::UploadUnordered, |make, d| suite::uploads_are_ordered(|| make(d))),
        ("poll_never_blocks", Defect::PollBlocks, |make, d| suite::poll_never_blocks(|| make(d))),
        ("waits_have_limits", Defect::LimitIgnored, |make, d| suite::waits_have_limits(|| make(d))),
        ("memory_is_counted", Defect::FreeLeaks, |make, d| suite::memory_is_counted(|| make(d))),
        ("out_of_memory_changes_nothing", Defect::OutOfMemoryTakes, |make, d| {
            suite::out_of_memory_changes_nothing(|| make(d));
        }),
    ];
    for (name, defect, case) in cases {
        case(make, Defect::None);
        assert!(catch_unwind(|| case(make, defect)).is_err(), "{name} passes with the defect {defect:?}");
    }
}
