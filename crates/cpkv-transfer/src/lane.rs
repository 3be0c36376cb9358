//! The memory of one lane: its device and host pools, its streams, and the copies between them.

use crate::{Direction, PagePair, PoolPages, TransferStats, all_layers, one_layer, split};
use cpkv_core::{
    CopyDescriptor, CopyRequest, DeviceError, DeviceMemory, FenceStatus, Geometry, HostLayout, StreamKind,
};

/// What a lane's memory is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferConfig {
    /// Layers, rows and tokens of a page.
    pub geometry: Geometry,
    /// The order of bytes in the host pools.
    pub layout: HostLayout,
    /// Usable device pages. The pools have one more, the padding page.
    pub device_pages: u32,
    /// Host pages; 0: no host tier.
    pub host_pages: u32,
    /// The most descriptors in one copy call. Default: 1,024, where a widely used transfer engine has its limit; held
    /// at what the backend takes.
    pub max_descriptors: u32,
    /// The most bytes of one descriptor; `None`: no limit.
    pub max_descriptor_bytes: Option<u64>,
}

impl TransferConfig {
    /// A configuration with the default limits.
    #[must_use]
    pub fn new(geometry: Geometry, layout: HostLayout, device_pages: u32, host_pages: u32) -> Self {
        Self { geometry, layout, device_pages, host_pages, max_descriptors: 1024, max_descriptor_bytes: None }
    }
}

/// A copy that was handed to the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted<F> {
    /// A backup: one fence, behind everything. A load-back: one per layer, in the order of layers, each behind all row
    /// pools of that layer.
    pub fences: Vec<F>,
    /// Pages that it moves.
    pub pages: u32,
    /// Bytes that it moves.
    pub bytes: u64,
    /// Descriptors that it took.
    pub descriptors: u64,
}

/// The pools of one lane, on its backend.
#[derive(Debug)]
pub struct LaneMemory<D: DeviceMemory> {
    device: D,
    config: TransferConfig,
    pages: PoolPages,
    device_pools: Vec<D::Buffer>,
    host_pools: Vec<D::Buffer>,
    compute: D::Stream,
    to_host: D::Stream,
    to_device: D::Stream,
    stats: TransferStats,
}

impl<D: DeviceMemory> LaneMemory<D> {
    /// Allocates one device buffer and, where there is a host tier, one host buffer per row pool, and makes the
    /// streams. What was allocated before a failure is given back.
    ///
    /// # Errors
    /// The backend's.
    pub fn new(mut device: D, config: TransferConfig) -> Result<Self, DeviceError> {
        let pages = PoolPages { device: config.device_pages + 1, host: config.host_pages };
        let mut pools = (Vec::new(), Vec::new());
        let allocated = allocate(&mut device, &config, pages, &mut pools).and_then(|()| {
            let mut stream = |kind| device.create_stream(kind);
            Ok((stream(StreamKind::Compute)?, stream(StreamKind::DeviceToHost)?, stream(StreamKind::HostToDevice)?))
        });
        let (device_pools, host_pools) = pools;
        match allocated {
            Ok((compute, to_host, to_device)) => Ok(Self {
                device,
                config,
                pages,
                device_pools,
                host_pools,
                compute,
                to_host,
                to_device,
                stats: TransferStats::default(),
            }),
            Err(error) => {
                for buffer in device_pools.into_iter().chain(host_pools) {
                    // The first error is the one to report; a buffer that can't be freed is the backend's loss.
                    let _ = device.free(buffer);
                }
                Err(error)
            }
        }
    }

    /// The backend.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &TransferConfig {
        &self.config
    }

    /// The stream of the forward pass.
    #[must_use]
    pub fn compute_stream(&self) -> D::Stream {
        self.compute
    }

    /// The device buffer of a row pool.
    #[must_use]
    pub fn device_buffer(&self, pool: usize) -> D::Buffer {
        self.device_pools[pool]
    }

    /// The host buffer of a row pool. `None` without a host tier.
    #[must_use]
    pub fn host_buffer(&self, pool: usize) -> Option<D::Buffer> {
        self.host_pools.get(pool).copied()
    }

    /// What was moved so far.
    #[must_use]
    pub fn stats(&self) -> &TransferStats {
        &self.stats
    }

    /// Copies that are submitted from now on, in both directions, wait for `fence`: what the forward pass before it
    /// wrote is saved whole, and what it reads isn't overwritten before it has read it.
    ///
    /// # Errors
    /// The backend's.
    pub fn after_forward(&mut self, fence: D::Fence) -> Result<(), DeviceError> {
        self.device.wait_on(self.to_host, fence)?;
        self.device.wait_on(self.to_device, fence)
    }

    /// Starts saving pages: all layers, one fence at the end. No pages are a copy too, done at once, so that lanes
    /// without a part of an operation end theirs like the others.
    ///
    /// # Errors
    /// The backend's. What was enqueued before it still runs: the pages must not be reused before
    /// [`quiesce`](Self::quiesce).
    pub fn submit_backup(&mut self, pairs: &[PagePair]) -> Result<Submitted<D::Fence>, DeviceError> {
        let result = self.backup(pairs);
        self.count(Direction::DeviceToHost, result)
    }

    fn backup(&mut self, pairs: &[PagePair]) -> Result<Submitted<D::Fence>, DeviceError> {
        let mut submitted = Submitted { fences: Vec::new(), pages: pairs.len() as u32, bytes: 0, descriptors: 0 };
        for pool in 0..self.host_pools.len() {
            let mut descriptors = Vec::new();
            all_layers(
                Direction::DeviceToHost,
                &self.config.geometry,
                self.config.layout,
                self.pages,
                pool,
                pairs,
                &mut descriptors,
            );
            self.copy(Direction::DeviceToHost, pool, descriptors, &mut submitted)?;
        }
        submitted.fences.push(self.device.record(self.to_host)?);
        Ok(submitted)
    }

    /// Starts loading pages, layer by layer, first layers first, with a fence per layer.
    ///
    /// # Errors
    /// As [`submit_backup`](Self::submit_backup).
    pub fn submit_load(&mut self, pairs: &[PagePair]) -> Result<Submitted<D::Fence>, DeviceError> {
        let result = self.load(pairs);
        self.count(Direction::HostToDevice, result)
    }

    fn load(&mut self, pairs: &[PagePair]) -> Result<Submitted<D::Fence>, DeviceError> {
        let mut submitted = Submitted { fences: Vec::new(), pages: pairs.len() as u32, bytes: 0, descriptors: 0 };
        for layer in 0..self.config.geometry.layers() {
            for pool in 0..self.host_pools.len() {
                let mut descriptors = Vec::new();
                one_layer(
                    Direction::HostToDevice,
                    &self.config.geometry,
                    self.config.layout,
                    self.pages,
                    pool,
                    layer,
                    pairs,
                    &mut descriptors,
                );
                self.copy(Direction::HostToDevice, pool, descriptors, &mut submitted)?;
            }
            submitted.fences.push(self.device.record(self.to_device)?);
        }
        Ok(submitted)
    }

    fn copy(
        &mut self,
        direction: Direction,
        pool: usize,
        descriptors: Vec<CopyDescriptor>,
        submitted: &mut Submitted<D::Fence>,
    ) -> Result<(), DeviceError> {
        let descriptors = split(descriptors, self.config.max_descriptor_bytes);
        submitted.descriptors += descriptors.len() as u64;
        submitted.bytes += descriptors.iter().map(|descriptor| descriptor.len).sum::<u64>();
        let (src, dst, stream) = match direction {
            Direction::DeviceToHost => (self.device_pools[pool], self.host_pools[pool], self.to_host),
            Direction::HostToDevice => (self.host_pools[pool], self.device_pools[pool], self.to_device),
        };
        let limit = self.config.max_descriptors.min(self.device.capabilities().descriptors_per_copy_max).max(1);
        for batch in descriptors.chunks(limit as usize) {
            self.device.copy(stream, CopyRequest { src, dst, descriptors: batch })?;
        }
        Ok(())
    }

    fn count(
        &mut self,
        direction: Direction,
        result: Result<Submitted<D::Fence>, DeviceError>,
    ) -> Result<Submitted<D::Fence>, DeviceError> {
        let stats = self.stats.of(direction);
        stats.submissions += 1;
        match &result {
            Ok(submitted) => {
                stats.pages += u64::from(submitted.pages);
                stats.bytes += submitted.bytes;
                stats.descriptors += submitted.descriptors;
            }
            Err(_) => stats.refused += 1,
        }
        result
    }

    /// How far a copy has come. Failed if any of its fences has failed; never before all of them have ended, so that
    /// nothing writes any more. Never blocks.
    pub fn status(&mut self, submitted: &Submitted<D::Fence>) -> FenceStatus {
        let mut failed = None;
        for fence in &submitted.fences {
            match self.device.poll(*fence) {
                FenceStatus::Pending => return FenceStatus::Pending,
                FenceStatus::Done => {}
                FenceStatus::Failed(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(FenceStatus::Done, FenceStatus::Failed)
    }

    /// Waits until a copy has ended, at most `limit_ns` of the backend's clock per fence.
    ///
    /// # Errors
    /// [`DeviceError::TimedOut`] where it hasn't; else its first failure.
    pub fn wait(&mut self, submitted: &Submitted<D::Fence>, limit_ns: u64) -> Result<(), DeviceError> {
        let mut first = Ok(());
        for fence in &submitted.fences {
            match self.device.wait(*fence, limit_ns) {
                Err(error @ DeviceError::TimedOut { .. }) => return Err(error),
                Err(error) => first = first.and(Err(error)),
                Ok(()) => {}
            }
        }
        first
    }

    /// Waits until both copy streams are idle: after it no page is read or written by a copy, also not by one whose
    /// submission failed half-way.
    ///
    /// # Errors
    /// [`DeviceError::TimedOut`]. A failed copy has ended and is no error here; neither is a lost device.
    pub fn quiesce(&mut self, limit_ns: u64) -> Result<(), DeviceError> {
        for stream in [self.to_host, self.to_device] {
            let Ok(fence) = self.device.record(stream) else { continue };
            if let Err(error @ DeviceError::TimedOut { .. }) = self.device.wait(fence, limit_ns) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes a device page in one layer of one row pool, on the compute stream: what stands in for the forward pass.
    ///
    /// # Errors
    /// The backend's.
    pub fn upload_page(&mut self, pool: usize, layer: u32, page: u32, bytes: Vec<u8>) -> Result<(), DeviceError> {
        let offset = self.config.geometry.device_offset(pool, self.pages.device, layer, page);
        self.device.upload(self.compute, self.device_pools[pool], offset, bytes)
    }

    /// Reads a device page in one layer of one row pool, as it is now.
    ///
    /// # Errors
    /// The backend's.
    pub fn read_device_page(&mut self, pool: usize, layer: u32, page: u32, into: &mut [u8]) -> Result<(), DeviceError> {
        let offset = self.config.geometry.device_offset(pool, self.pages.device, layer, page);
        self.device.read(self.device_pools[pool], offset, into)
    }

    /// Reads a host page in one layer of one row pool, as it is now, its rows gathered in the order of tokens.
    ///
    /// # Errors
    /// The backend's, and [`DeviceError::Invalid`] without a host tier.
    pub fn read_host_page(&mut self, pool: usize, layer: u32, page: u32, into: &mut [u8]) -> Result<(), DeviceError> {
        let buffer =
            self.host_buffer(pool).ok_or_else(|| DeviceError::Invalid { what: "there is no host tier".to_owned() })?;
        let geometry = &self.config.geometry;
        let row = match self.config.layout {
            HostLayout::PageFirst => geometry.pools()[pool].row_bytes as usize,
            HostLayout::LayerFirst | HostLayout::PageFirstDirect => into.len().max(1),
        };
        for (token, bytes) in (0..).zip(into.chunks_mut(row)) {
            let offset = geometry.host_offset(self.config.layout, pool, self.pages.host, layer, page, token);
            self.device.read(buffer, offset, bytes)?;
        }
        Ok(())
    }
}

fn allocate<D: DeviceMemory>(
    device: &mut D,
    config: &TransferConfig,
    pages: PoolPages,
    pools: &mut (Vec<D::Buffer>, Vec<D::Buffer>),
) -> Result<(), DeviceError> {
    for pool in 0..config.geometry.pools().len() {
        let page = config.geometry.page_bytes(pool);
        pools.0.push(device.allocate_device(page.saturating_mul(pages.device.into()))?);
        if pages.host > 0 {
            pools.1.push(device.allocate_host(page.saturating_mul(pages.host.into()))?);
        }
    }
    Ok(())
}
