//! Faults hit what they name, are told to whom they concern, and repeat by seed.

use cpkv_core::{CopyDescriptor, CopyRequest, DeviceError, DeviceMemory, FenceStatus, StreamKind};
use cpkv_sim::{Fault, FaultPlan, FaultRates, POISON, SimClock, SimConfig, SimDevice};

fn device(script: Vec<Fault>) -> SimDevice {
    let faults = FaultPlan { script, ..FaultPlan::default() };
    SimDevice::new(SimConfig { faults, ..SimConfig::default() }, SimClock::new())
}

fn lost<T>(result: Result<T, DeviceError>) -> bool {
    matches!(result, Err(DeviceError::Lost { .. }))
}

const EIGHT: [CopyDescriptor; 1] = [CopyDescriptor { src: 0, dst: 0, len: 8 }];

#[test]
fn a_failed_copy_moves_nothing_and_fails_the_fence_behind_it() {
    let mut device = device(vec![Fault::FailCopy { nth: 2 }]);
    let compute = device.create_stream(StreamKind::Compute).unwrap();
    let save = device.create_stream(StreamKind::DeviceToHost).unwrap();
    let load = device.create_stream(StreamKind::HostToDevice).unwrap();
    let gpu = device.allocate_device(8).unwrap();
    device.upload(compute, gpu, 0, vec![1; 8]).unwrap();
    let hosts = [(); 4].map(|()| device.allocate_host(8).unwrap());
    let copy = |device: &mut SimDevice, i: usize| {
        device.copy(save, CopyRequest { src: gpu, dst: hosts[i], descriptors: &EIGHT }).unwrap();
    };
    copy(&mut device, 0);
    let before = device.record(save).unwrap();
    copy(&mut device, 1);
    copy(&mut device, 2);
    let behind = device.record(save).unwrap();
    device.wait_on(load, behind).unwrap();
    let waiting = device.record(load).unwrap();
    copy(&mut device, 3);
    let after = device.record(save).unwrap();

    assert_eq!(device.poll(behind), FenceStatus::Pending, "a failure shows when its time has come");
    device.wait(after, u64::MAX).unwrap();
    let failure = DeviceError::CopyFailed { what: "fault at copy call 2".to_owned() };
    assert_eq!(device.poll(before), FenceStatus::Done);
    assert_eq!(device.poll(behind), FenceStatus::Failed(failure.clone()));
    assert_eq!(device.wait(behind, 0), Err(failure));
    assert_eq!(device.poll(after), FenceStatus::Done);
    assert_eq!(device.poll(waiting), FenceStatus::Done, "a wait orders and tells nothing");
    let first = hosts.map(|host| {
        let mut byte = [0];
        device.read(host, 0, &mut byte).unwrap();
        byte[0]
    });
    assert_eq!(first, [1, POISON, 1, 1]);
    device.self_check().unwrap();
}

#[test]
fn memory_runs_out_where_the_script_says_and_nothing_is_taken() {
    let mut device = device(vec![Fault::OutOfMemory { nth: 2 }]);
    let total = device.memory_info().unwrap().total;
    let held = device.allocate_device(1000).unwrap();
    let out = DeviceError::OutOfMemory { asked: 10, free: 4 << 30 };
    assert_eq!(device.allocate_host(10), Err(out));
    device.allocate_host(10).unwrap();
    assert_eq!(device.memory_info().unwrap().free, total - 1000);
    device.free(held).unwrap();
    assert_eq!(device.memory_info().unwrap().free, total);
}

#[test]
fn a_lost_device_answers_nothing_any_more() {
    // Lost at a copy call, at a time that a wait crosses, and at a time that is past already.
    for kind in 0..3 {
        let mut device = device(Vec::new());
        let save = device.create_stream(StreamKind::DeviceToHost).unwrap();
        let (gpu, host) = (device.allocate_device(8).unwrap(), device.allocate_host(8).unwrap());
        let request = CopyRequest { src: gpu, dst: host, descriptors: &EIGHT };
        device.copy(save, request).unwrap();
        let done = device.record(save).unwrap();
        device.wait(done, u64::MAX).unwrap();
        let now = device.clock().now();
        match kind {
            0 => {
                device.inject(Fault::LoseAtCopy { nth: 3 });
                device.copy(save, request).unwrap();
                assert!(lost(device.copy(save, request)));
            }
            1 => {
                device.inject(Fault::LoseAt { at_ns: now + 100 });
                device.copy(save, request).unwrap();
                let fence = device.record(save).unwrap();
                assert!(lost(device.wait(fence, u64::MAX)));
                assert_eq!(device.clock().now(), now + 100, "a wait ends when the device is lost");
            }
            _ => device.inject(Fault::LoseAt { at_ns: now }),
        }
        assert!(matches!(device.poll(done), FenceStatus::Failed(DeviceError::Lost { .. })));
        assert!(lost(device.wait(done, 0)) && lost(device.record(save)) && lost(device.wait_on(save, done)));
        assert!(lost(device.copy(save, request)) && lost(device.upload(save, gpu, 0, vec![1])));
        assert!(lost(device.free(gpu)) && lost(device.allocate_device(1)) && lost(device.allocate_host(1)));
        assert!(lost(device.create_stream(StreamKind::Compute)) && lost(device.memory_info()));
        assert!(lost(device.read(gpu, 0, &mut [0; 1])));
        assert_eq!(device.next_event_ns(), None);
        device.self_check().unwrap();
    }
}

#[test]
fn a_device_works_until_it_is_lost() {
    let clock = SimClock::new();
    let config = SimConfig { copy_launch_ns: 100, descriptor_ns: 0, bandwidth_d2h: 0, ..SimConfig::default() };
    let mut device = SimDevice::new(config, clock.clone());
    let save = device.create_stream(StreamKind::DeviceToHost).unwrap();
    let (gpu, host) = (device.allocate_device(8).unwrap(), device.allocate_host(8).unwrap());
    device.copy(save, CopyRequest { src: gpu, dst: host, descriptors: &EIGHT }).unwrap();
    let fence = device.record(save).unwrap();
    device.inject(Fault::LoseAt { at_ns: 101 });
    clock.advance_to(100);
    assert_eq!(device.poll(fence), FenceStatus::Done);
    clock.advance_to(101);
    assert!(matches!(device.poll(fence), FenceStatus::Failed(DeviceError::Lost { .. })));
}

/// One seed, one course: 200 copies on three streams with every fault by rate, twice.
#[test]
fn a_seed_repeats_and_another_differs() {
    let run = |seed| {
        let rates = FaultRates {
            fail_copy_per_million: 100_000,
            delay_copy_per_million: 200_000,
            delay_max_ns: 50_000,
            out_of_memory_per_million: 200_000,
            ..FaultRates::default()
        };
        let faults = FaultPlan { script: Vec::new(), rates };
        let clock = SimClock::new();
        let mut device = SimDevice::new(SimConfig { seed, faults, ..SimConfig::default() }, clock.clone());
        let kinds = [StreamKind::Compute, StreamKind::DeviceToHost, StreamKind::HostToDevice];
        let streams = kinds.map(|kind| device.create_stream(kind).unwrap());
        let buffers: Vec<_> = (0..40).filter_map(|_| device.allocate_host(8).ok()).collect();
        let mut course = vec![format!("{} buffers", buffers.len())];
        for i in 0..200 {
            let (src, dst) = (buffers[i % buffers.len()], buffers[(i * 7 + 1) % buffers.len()]);
            device.copy(streams[i % 3], CopyRequest { src, dst, descriptors: &EIGHT }).unwrap();
            let fence = device.record(streams[i % 3]).unwrap();
            let result = if i % 5 == 0 { device.wait(fence, 20_000) } else { Ok(()) };
            course.push(format!("{} {} {result:?}", clock.now(), device.fence_end_ns(fence)));
        }
        course
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    assert!(
        run(7).iter().any(|line| line.contains("CopyFailed")) && run(7).iter().any(|line| line.contains("TimedOut"))
    );
}
