//! The device against a naive executor: every observable after every call.

mod naive;

use cpkv_core::{CopyDescriptor, CopyRequest, DeviceMemory, FenceStatus, StreamKind};
use cpkv_sim::{Fault, FaultPlan, FaultRates, POISON, SimBuffer, SimClock, SimConfig, SimDevice, SimFence, SimStream};
use naive::{Effect, Entry, KINDS, MEMORY, Model, Outcome, outcome};
use proptest::prelude::*;
use proptest::sample::Index;

fn config(seed: u64, faults: FaultPlan) -> SimConfig {
    SimConfig {
        device_bytes: MEMORY,
        host_bytes: MEMORY,
        bandwidth_d2h: 1_000_000_000,
        bandwidth_h2d: 2_000_000_000,
        copy_launch_ns: 20,
        descriptor_ns: 3,
        descriptors_per_copy_max: 3,
        seed,
        faults,
    }
}

#[derive(Debug, Clone)]
enum Op {
    Allocate {
        host: bool,
        bytes: u64,
    },
    Free {
        buffer: Index,
    },
    Copy {
        stream: Index,
        src: Index,
        dst: Index,
        descriptors: Vec<CopyDescriptor>,
    },
    Upload {
        stream: Index,
        buffer: Index,
        offset: u64,
        bytes: Vec<u8>,
    },
    Compute {
        stream: Index,
        ns: u64,
    },
    Record {
        stream: Index,
    },
    WaitOn {
        stream: Index,
        fence: Index,
    },
    Wait {
        fence: Index,
        limit_ns: u64,
    },
    Advance {
        ns: u64,
    },
    /// A fault at a call that is yet to come.
    Fail {
        ahead: u64,
    },
    Delay {
        ahead: u64,
        by_ns: u64,
    },
    Starve {
        ahead: u64,
    },
    Lose {
        ahead_ns: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<Index>;
    let copy = (0u64..60, 0u64..60, 0u64..60).prop_map(|(src, dst, len)| CopyDescriptor { src, dst, len });
    prop_oneof![
        4 => (any::<bool>(), 0u64..200).prop_map(|(host, bytes)| Op::Allocate { host, bytes }),
        2 => index().prop_map(|buffer| Op::Free { buffer }),
        8 => (index(), index(), index(), prop::collection::vec(copy, 0..=4))
            .prop_map(|(stream, src, dst, descriptors)| Op::Copy { stream, src, dst, descriptors }),
        6 => (index(), index(), 0u64..60, prop::collection::vec(any::<u8>(), 0..60))
            .prop_map(|(stream, buffer, offset, bytes)| Op::Upload { stream, buffer, offset, bytes }),
        2 => (index(), 0u64..200).prop_map(|(stream, ns)| Op::Compute { stream, ns }),
        4 => index().prop_map(|stream| Op::Record { stream }),
        3 => (index(), index()).prop_map(|(stream, fence)| Op::WaitOn { stream, fence }),
        2 => (index(), 0u64..200).prop_map(|(fence, limit_ns)| Op::Wait { fence, limit_ns }),
        5 => (0u64..100).prop_map(|ns| Op::Advance { ns }),
        1 => (1u64..4).prop_map(|ahead| Op::Fail { ahead }),
        1 => (1u64..4, 0u64..300).prop_map(|(ahead, by_ns)| Op::Delay { ahead, by_ns }),
        1 => (1u64..4).prop_map(|ahead| Op::Starve { ahead }),
        1 => (0u64..4000).prop_map(|ahead_ns| Op::Lose { ahead_ns }),
    ]
}

/// Device and model side by side: handles of the one beside places in the other.
struct Pair {
    device: SimDevice,
    model: Model,
    streams: Vec<SimStream>,
    buffers: Vec<SimBuffer>,
    fences: Vec<(SimFence, usize)>,
}

impl Pair {
    fn new() -> Self {
        let mut device = SimDevice::new(config(1, FaultPlan::default()), SimClock::new());
        let streams = KINDS.iter().map(|kind| device.create_stream(*kind).unwrap()).collect();
        Self { device, model: Model::default(), streams, buffers: Vec::new(), fences: Vec::new() }
    }

    fn inject(&mut self, fault: Fault) {
        self.device.inject(fault);
        self.model.faults.push(fault);
    }

    /// Applies `op` to both and returns both outcomes; nothing where it names a buffer or fence and there is none.
    fn apply(&mut self, op: &Op) -> Option<(Outcome, Outcome)> {
        let Self { device, model, streams, buffers, fences } = self;
        let pick = |stream: &Index| stream.index(KINDS.len());
        let buffer = |index: &Index| (!buffers.is_empty()).then(|| index.index(buffers.len()));
        let fence = |index: &Index| (!fences.is_empty()).then(|| fences[index.index(fences.len())]);
        Some(match op {
            Op::Allocate { host, bytes } => {
                let result = if *host { device.allocate_host(*bytes) } else { device.allocate_device(*bytes) };
                buffers.extend(result.as_ref().ok());
                (outcome(result), model.allocate(*host, *bytes))
            }
            Op::Free { buffer: index } => {
                let place = buffer(index)?;
                (outcome(device.free(buffers[place])), model.free(place))
            }
            Op::Copy { stream, src, dst, descriptors } => {
                let (stream, src, dst) = (pick(stream), buffer(src)?, buffer(dst)?);
                let request = CopyRequest { src: buffers[src], dst: buffers[dst], descriptors };
                (outcome(device.copy(streams[stream], request)), model.copy(stream, src, dst, descriptors))
            }
            Op::Upload { stream, buffer: index, offset, bytes } => {
                let (stream, place) = (pick(stream), buffer(index)?);
                let result = device.upload(streams[stream], buffers[place], *offset, bytes.clone());
                (outcome(result), model.upload(stream, place, *offset, bytes))
            }
            Op::Compute { stream, ns } => {
                let stream = pick(stream);
                let expected = match KINDS[stream] {
                    _ if model.is_lost() => Outcome::Lost,
                    StreamKind::Compute => model.work(stream, *ns, Vec::new(), None, Effect::Nothing),
                    _ => Outcome::Invalid,
                };
                (outcome(device.compute(streams[stream], *ns)), expected)
            }
            Op::Record { stream } => {
                let stream = pick(stream);
                let result = device.record(streams[stream]);
                if let Ok(fence) = result {
                    fences.push((fence, model.history.len()));
                    model.history.push(Entry::Fence { stream });
                }
                (outcome(result), if model.is_lost() { Outcome::Lost } else { Outcome::Ok })
            }
            Op::WaitOn { stream, fence: index } => {
                let (stream, (handle, place)) = (pick(stream), fence(index)?);
                let result = device.wait_on(streams[stream], handle);
                if result.is_ok() {
                    model.history.push(Entry::WaitOn { stream, fence: place });
                }
                (outcome(result), if model.is_lost() { Outcome::Lost } else { Outcome::Ok })
            }
            Op::Wait { fence: index, limit_ns } => {
                let (handle, place) = fence(index)?;
                (outcome(device.wait(handle, *limit_ns)), model.wait(place, *limit_ns))
            }
            Op::Advance { ns } => {
                model.now_ns += ns;
                device.clock().advance_by(*ns);
                (Outcome::Ok, Outcome::Ok)
            }
            Op::Fail { ahead } => {
                self.inject(Fault::FailCopy { nth: self.model.copies + ahead });
                return None;
            }
            Op::Delay { ahead, by_ns } => {
                self.inject(Fault::DelayCopy { nth: self.model.copies + ahead, by_ns: *by_ns });
                return None;
            }
            Op::Starve { ahead } => {
                self.inject(Fault::OutOfMemory { nth: self.model.allocations + ahead });
                return None;
            }
            Op::Lose { ahead_ns } => {
                self.inject(Fault::LoseAt { at_ns: self.model.now_ns + ahead_ns });
                return None;
            }
        })
    }

    fn compare(&mut self) -> Result<(), TestCaseError> {
        let Self { device, model, buffers, fences, .. } = self;
        prop_assert_eq!(device.clock().now(), model.now_ns, "the clock");
        for (handle, place) in fences {
            let status = match device.poll(*handle) {
                FenceStatus::Pending => None,
                FenceStatus::Done => Some(Outcome::Ok),
                FenceStatus::Failed(error) => Some(outcome::<()>(Err(error))),
            };
            prop_assert_eq!(status, model.poll(*place), "fence {:?}", handle);
        }
        let info = device.memory_info().ok().map(|info| info.free);
        prop_assert_eq!(info, (!model.is_lost()).then(|| model.free_bytes(false)), "device memory");
        for (i, (handle, expected)) in buffers.iter().zip(model.contents()).enumerate() {
            let mut bytes = vec![0; expected.len()];
            let result = outcome(device.read(*handle, 0, &mut bytes));
            match (model.is_lost(), model.buffers[i].live) {
                (true, _) => prop_assert_eq!(result, Outcome::Lost),
                (false, false) => prop_assert_eq!(result, Outcome::Invalid),
                (false, true) => prop_assert_eq!(bytes, expected, "buffer {}", i),
            }
        }
        prop_assert_eq!(device.next_event_ns(), model.next_event_ns(), "the next event");
        prop_assert_eq!((device.copies(), device.allocations()), (model.copies, model.allocations));
        prop_assert_eq!(device.self_check(), Ok(()));
        Ok(())
    }
}

proptest! {
    // 1,000 histories of up to 60 calls, all observables compared after each.
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_device_equals_the_naive_executor(ops in prop::collection::vec(op(), 1..60)) {
        let mut pair = Pair::new();
        for bytes in [80, 60] {
            pair.apply(&Op::Allocate { host: bytes == 60, bytes });
        }
        for op in &ops {
            if let Some((got, expected)) = pair.apply(op) {
                prop_assert_eq!(got, expected, "{:?}", op);
            }
            pair.compare()?;
        }
    }

    /// Where every two calls that share a buffer are ordered, by their stream or by a wait, the bytes are those of
    /// running the calls one by one, however late copies end.
    #[test]
    fn ordered_work_equals_running_it_in_order(
        calls in prop::collection::vec(
            (0usize..4, 0usize..4, 0usize..4, 0u64..32, 0u64..32, 0u64..32, any::<u8>(), 0u64..50),
            1..60,
        ),
        seed in any::<u64>(),
    ) {
        let rates = FaultRates { delay_copy_per_million: 500_000, delay_max_ns: 2000, ..FaultRates::default() };
        let mut device = SimDevice::new(config(seed, FaultPlan { script: Vec::new(), rates }), SimClock::new());
        let streams = KINDS.map(|kind| device.create_stream(kind).unwrap());
        let buffers = [(); 4].map(|()| device.allocate_device(64).unwrap());
        let mut expected = vec![vec![POISON; 64]; 4];
        let mut earlier: Vec<(SimFence, [usize; 2])> = Vec::new();
        for (stream, src, dst, from, to, len, byte, ns) in calls {
            for (fence, uses) in &earlier {
                if uses.contains(&src) || uses.contains(&dst) {
                    device.wait_on(streams[stream], *fence).unwrap();
                }
            }
            if byte % 2 == 0 {
                device.upload(streams[stream], buffers[dst], to, vec![byte; len as usize]).unwrap();
                expected[dst][to as usize..][..len as usize].fill(byte);
            } else {
                let descriptors = [CopyDescriptor { src: from, dst: to, len }];
                let request = CopyRequest { src: buffers[src], dst: buffers[dst], descriptors: &descriptors };
                device.copy(streams[stream], request).unwrap();
                let bytes = expected[src][from as usize..][..len as usize].to_vec();
                expected[dst][to as usize..][..len as usize].copy_from_slice(&bytes);
            }
            earlier.push((device.record(streams[stream]).unwrap(), [src, dst]));
            device.clock().advance_by(ns);
        }
        for (fence, _) in earlier {
            device.wait(fence, u64::MAX).unwrap();
        }
        for (buffer, expected) in buffers.iter().zip(expected) {
            let mut bytes = vec![0; 64];
            device.read(*buffer, 0, &mut bytes).unwrap();
            prop_assert_eq!(bytes, expected);
        }
    }
}
