//! Load-backs: host to device, layer by layer, each layer with a fence that all its readers wait for.

use crate::{Direction, LaneMemory, PagePair, Submitted, TransferError};
use cpkv_core::{DeviceError, DeviceMemory};

impl<D: DeviceMemory> LaneMemory<D> {
    /// Starts loading pages, layer by layer, first layers first: fence i is behind every row pool of layer i and
    /// before layer i + 1. No pages as with [`submit_backup`](Self::submit_backup). O(descriptors), with room for
    /// those of one layer.
    ///
    /// # Errors
    /// As [`submit_backup`](Self::submit_backup).
    pub fn submit_load(&mut self, pairs: &[PagePair]) -> Result<Submitted<D::Fence>, TransferError<D::Fence>> {
        self.submit(Direction::HostToDevice, pairs, Self::load)
    }

    fn load(&mut self, pairs: &[PagePair], submitted: &mut Submitted<D::Fence>) -> Result<(), DeviceError> {
        for layer in 0..self.config().geometry.layers() {
            for pool in 0..self.config().geometry.pools().len() {
                let descriptors = self.descriptors(Direction::HostToDevice, pool, layer, pairs);
                self.copy(Direction::HostToDevice, pool, &descriptors, submitted)?;
            }
            submitted.fences.push(self.record(Direction::HostToDevice)?);
        }
        Ok(())
    }
}
