//! What every [`DeviceMemory`] must do: cases that hold on real and on simulated devices alike.
//!
//! A backend instantiates them all with [`device_memory_conformance!`](crate::device_memory_conformance). Each case
//! takes the constructor and makes devices of its own, which have at least 1 MiB of device and of host memory and take
//! at least 64 descriptors per copy call. Nothing here depends on speed: a case that needs two orders told apart makes
//! one copy much larger than the other.

mod copies;
mod memory;
mod order;

pub use copies::{
    bad_batches_change_nothing, batches_are_limited, descriptors_are_taken, empty_batches_are_legal, reads_are_checked,
    round_trips, uploads_are_checked,
};
pub use memory::{
    dropping_in_flight_is_safe, foreign_handles_are_invalid, free_waits_for_copies, freed_handles_are_invalid,
    memory_is_counted, out_of_memory_changes_nothing,
};
pub use order::{
    fences_are_monotone, many_streams, poll_never_blocks, stream_order, uploads_are_ordered, waits_have_limits,
    waits_order_streams,
};

use crate::{CopyDescriptor, CopyRequest, DeviceError, DeviceMemory, FenceStatus, StreamKind};

/// Instantiates the suite for a backend: `make` is a `fn() -> impl DeviceMemory`. What a backend can't do is listed as
/// `unsupported`, a case and the reason; such a case is skipped with a line that says so.
///
/// ```text
/// cpkv_core::device_memory_conformance!(make);
/// cpkv_core::device_memory_conformance!(make, unsupported: [("batches_are_limited", "the driver takes any number")]);
/// ```
#[macro_export]
macro_rules! device_memory_conformance {
    ($make:expr) => {
        $crate::device_memory_conformance!($make, unsupported: []);
    };
    ($make:expr, unsupported: [$($unsupported:expr),* $(,)?]) => {
        const UNSUPPORTED: &[(&str, &str)] = &[$($unsupported),*];
        $crate::device_memory_conformance!(@cases $make,
            round_trips, stream_order, waits_order_streams, many_streams, fences_are_monotone, poll_never_blocks,
            waits_have_limits, descriptors_are_taken, bad_batches_change_nothing, empty_batches_are_legal,
            batches_are_limited, uploads_are_ordered, uploads_are_checked, reads_are_checked,
            out_of_memory_changes_nothing, memory_is_counted, freed_handles_are_invalid, free_waits_for_copies,
            foreign_handles_are_invalid, dropping_in_flight_is_safe,
        );
    };
    (@cases $make:expr, $($case:ident),* $(,)?) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::device::run(stringify!($case), UNSUPPORTED, || {
                    $crate::conformance::device::$case($make)
                });
            }
        )*

        #[test]
        fn unsupported_cases_exist() {
            for (case, _) in UNSUPPORTED {
                assert!([$(stringify!($case)),*].contains(case), "no case {case}");
            }
        }
    };
}

/// Runs one case, or says why not.
pub fn run(case: &str, unsupported: &[(&str, &str)], test: impl FnOnce()) {
    match unsupported.iter().find(|(name, _)| *name == case) {
        Some((_, reason)) => println!("{case} is skipped: {reason}"),
        None => test(),
    }
}

/// Ten seconds of the backend's clock: no case needs so much.
const LIMIT_NS: u64 = 10_000_000_000;
/// The larger copies: long beside one of [`SMALL`].
const LARGE: u64 = 256 << 10;
const SMALL: u64 = 64;

/// Bytes that differ by `seed` and change from place to place.
fn bytes(seed: u64, len: u64) -> Vec<u8> {
    (0..len).map(|i| ((i * 131 + seed * 29) ^ (i >> 7)) as u8).collect()
}

fn one(src: u64, dst: u64, len: u64) -> [CopyDescriptor; 1] {
    [CopyDescriptor { src, dst, len }]
}

/// A device with the calls that the cases repeat.
struct Rig<D: DeviceMemory> {
    device: D,
    compute: D::Stream,
    save: D::Stream,
    load: D::Stream,
}

impl<D: DeviceMemory> Rig<D> {
    fn new(mut device: D) -> Self {
        let mut stream = |kind| device.create_stream(kind).expect("a stream");
        let compute = stream(StreamKind::Compute);
        let (save, load) = (stream(StreamKind::DeviceToHost), stream(StreamKind::HostToDevice));
        Self { device, compute, save, load }
    }

    fn device_buffer(&mut self, len: u64) -> D::Buffer {
        self.device.allocate_device(len).expect("device memory")
    }

    fn host_buffer(&mut self, len: u64) -> D::Buffer {
        self.device.allocate_host(len).expect("host memory")
    }

    fn copy(&mut self, stream: D::Stream, src: D::Buffer, dst: D::Buffer, descriptors: &[CopyDescriptor]) {
        self.device.copy(stream, CopyRequest { src, dst, descriptors }).expect("a legal copy");
    }

    fn record(&mut self, stream: D::Stream) -> D::Fence {
        self.device.record(stream).expect("a fence")
    }

    fn drain(&mut self, stream: D::Stream) {
        let fence = self.record(stream);
        self.device.wait(fence, LIMIT_NS).expect("the work ends");
        assert_eq!(self.device.poll(fence), FenceStatus::Done, "a fence that was waited for is done");
    }

    /// Writes and waits.
    fn put(&mut self, buffer: D::Buffer, offset: u64, bytes: Vec<u8>) {
        self.device.upload(self.compute, buffer, offset, bytes).expect("a legal upload");
        self.drain(self.compute);
    }

    fn get(&mut self, buffer: D::Buffer, offset: u64, len: u64) -> Vec<u8> {
        let mut into = vec![0; len as usize];
        self.device.read(buffer, offset, &mut into).expect("a legal read");
        into
    }
}

fn assert_invalid<T: std::fmt::Debug>(result: Result<T, DeviceError>, what: &str) {
    assert!(matches!(result, Err(DeviceError::Invalid { .. })), "{what}: expected Invalid, got {result:?}");
}
