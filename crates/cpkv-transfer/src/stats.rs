//! What a lane has moved so far: monotone counters.

use crate::Direction;

/// Counters of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectionStats {
    /// Copies submitted: one per backup or load-back, empty ones included.
    pub submissions: u64,
    /// Pages.
    pub pages: u64,
    /// Bytes, in all layers and row pools.
    pub bytes: u64,
    /// Descriptors.
    pub descriptors: u64,
    /// Submissions that the backend refused.
    pub refused: u64,
}

/// Counters of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransferStats {
    /// Backups.
    pub device_to_host: DirectionStats,
    /// Load-backs.
    pub host_to_device: DirectionStats,
}

impl TransferStats {
    pub(crate) fn of(&mut self, direction: Direction) -> &mut DirectionStats {
        match direction {
            Direction::DeviceToHost => &mut self.device_to_host,
            Direction::HostToDevice => &mut self.host_to_device,
        }
    }
}

impl std::ops::AddAssign<&TransferStats> for TransferStats {
    fn add_assign(&mut self, other: &TransferStats) {
        for (sum, lane) in
            [(&mut self.device_to_host, &other.device_to_host), (&mut self.host_to_device, &other.host_to_device)]
        {
            sum.submissions += lane.submissions;
            sum.pages += lane.pages;
            sum.bytes += lane.bytes;
            sum.descriptors += lane.descriptors;
            sum.refused += lane.refused;
        }
    }
}
