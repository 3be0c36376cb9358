//! What a simulated device is like: sizes, speeds, faults.

use crate::FaultPlan;
use cpkv_core::StreamKind;

/// Sizes, speeds and faults of one simulated device.
///
/// The defaults are round figures of a PCIe 5 x16 link, an assumption and no measurement: 50 GB/s each way, 5 us per
/// copy call and 200 ns per descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimConfig {
    /// Device memory, bytes. Only what is allocated costs memory of the process.
    pub device_bytes: u64,
    /// Pinned host memory, bytes.
    pub host_bytes: u64,
    /// Device to host, bytes per second. 0: bytes take no time.
    pub bandwidth_d2h: u64,
    /// Host to device, bytes per second. 0: bytes take no time.
    pub bandwidth_h2d: u64,
    /// Launch cost of one copy call, nanoseconds on the stream.
    pub copy_launch_ns: u64,
    /// Cost of one descriptor, nanoseconds on the stream.
    pub descriptor_ns: u64,
    /// The most descriptors that one copy call takes; more are refused.
    pub descriptors_per_copy_max: u32,
    /// The seed of the faults by rate.
    pub seed: u64,
    /// What goes wrong.
    pub faults: FaultPlan,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            device_bytes: 1 << 30,
            host_bytes: 4 << 30,
            bandwidth_d2h: 50_000_000_000,
            bandwidth_h2d: 50_000_000_000,
            copy_launch_ns: 5_000,
            descriptor_ns: 200,
            descriptors_per_copy_max: 65_536,
            seed: 1,
            faults: FaultPlan::default(),
        }
    }
}

impl SimConfig {
    /// How long a copy call of `descriptors` with `bytes` in all occupies a stream of `kind`, nanoseconds:
    /// `launch + descriptors * descriptor_ns + ceil(bytes / bandwidth)`.
    ///
    /// A compute stream copies at the host-to-device bandwidth.
    #[must_use]
    pub fn copy_ns(&self, kind: StreamKind, descriptors: u64, bytes: u64) -> u64 {
        let bandwidth = match kind {
            StreamKind::DeviceToHost => self.bandwidth_d2h,
            StreamKind::HostToDevice | StreamKind::Compute => self.bandwidth_h2d,
        };
        let transfer = match bandwidth {
            0 => 0,
            bandwidth => (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bandwidth)),
        };
        let fixed = u128::from(self.copy_launch_ns) + u128::from(descriptors) * u128::from(self.descriptor_ns);
        u64::try_from(fixed + transfer).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_times_are_launch_plus_descriptors_plus_bytes() {
        let config = SimConfig {
            bandwidth_d2h: 1_000_000_000,
            bandwidth_h2d: 3_000_000_000,
            copy_launch_ns: 7,
            descriptor_ns: 10,
            ..SimConfig::default()
        };
        assert_eq!(config.copy_ns(StreamKind::DeviceToHost, 3, 1000), 7 + 30 + 1000);
        assert_eq!(config.copy_ns(StreamKind::HostToDevice, 1, 1000), 7 + 10 + 334, "rounded up");
        assert_eq!(config.copy_ns(StreamKind::DeviceToHost, u64::MAX, u64::MAX), u64::MAX);
        let free = SimConfig { bandwidth_h2d: 0, ..config };
        assert_eq!(free.copy_ns(StreamKind::HostToDevice, 0, 1 << 40), 7);
    }
}
