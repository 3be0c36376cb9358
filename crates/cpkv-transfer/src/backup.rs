//! Backups: device to host, all layers at the tail of the forward pass, one fence behind everything.

use crate::{Direction, LaneMemory, PagePair, Submitted, TransferError};
use cpkv_core::{CopyDescriptor, DeviceError, DeviceMemory};

impl<D: DeviceMemory> LaneMemory<D> {
    /// Starts saving pages: all layers, one fence at the end.
    ///
    /// No pages are a copy too, with a fence behind what the stream has, so that lanes without a part of an operation
    /// end theirs like the others. O(descriptors), with room for those of one layer and one copy call.
    ///
    /// # Errors
    /// [`TransferError`]: nothing was enqueued, except with [`TransferError::BrokenOff`].
    pub fn submit_backup(&mut self, pairs: &[PagePair]) -> Result<Submitted<D::Fence>, TransferError<D::Fence>> {
        self.submit(Direction::DeviceToHost, pairs, Self::backup)
    }

    fn backup(&mut self, pairs: &[PagePair], submitted: &mut Submitted<D::Fence>) -> Result<(), DeviceError> {
        for pool in 0..self.config().geometry.pools().len() {
            // Calls are filled over the layers: with few runs a call per layer would be mostly launch cost.
            let mut waiting: Vec<CopyDescriptor> = Vec::new();
            for layer in 0..self.config().geometry.layers() {
                waiting.extend(self.descriptors(Direction::DeviceToHost, pool, layer, pairs));
                let full = waiting.len() - waiting.len() % self.descriptors_per_call();
                self.copy(Direction::DeviceToHost, pool, &waiting[..full], submitted)?;
                waiting.drain(..full);
            }
            self.copy(Direction::DeviceToHost, pool, &waiting, submitted)?;
        }
        submitted.fences.push(self.record(Direction::DeviceToHost)?);
        Ok(())
    }
}
