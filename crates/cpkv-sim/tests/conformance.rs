//! The simulator does what every backend must, as it comes and small and slow.

use cpkv_sim::{SimClock, SimConfig, SimDevice};

fn default_device() -> SimDevice {
    SimDevice::new(SimConfig::default(), SimClock::new())
}

/// The least that the suite asks for, at speeds where bytes are all that counts.
fn small_device() -> SimDevice {
    let config = SimConfig {
        device_bytes: 1 << 20,
        host_bytes: 1 << 20,
        bandwidth_d2h: 10_000_000,
        bandwidth_h2d: 1_000_000_000,
        copy_launch_ns: 0,
        descriptor_ns: 0,
        descriptors_per_copy_max: 64,
        ..SimConfig::default()
    };
    SimDevice::new(config, SimClock::new())
}

mod default {
    cpkv_core::device_memory_conformance!(super::default_device);
}

mod small {
    cpkv_core::device_memory_conformance!(super::small_device);
}
