//! The memory of one lane: its device and host pools, its streams, and what both directions of copies share.

use crate::{Direction, PagePair, PoolPages, Submitted, TransferError, TransferStats, one_layer, split};
use cpkv_core::{
    CopyDescriptor, CopyRequest, DeviceError, DeviceMemory, FenceStatus, Geometry, HostLayout, StreamKind, Tier,
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
    /// The backend's; [`DeviceError::Invalid`] for a pool whose page numbers don't fit with the padding page.
    pub fn new(mut device: D, config: TransferConfig) -> Result<Self, DeviceError> {
        let with_padding = config
            .device_pages
            .checked_add(1)
            .ok_or_else(|| invalid("device_pages has no room for the padding page"))?;
        let pages = PoolPages { device: with_padding, host: config.host_pages };
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

    /// The device buffer of a row pool, by its place in the geometry, which must have it.
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

    /// Checks pairs, runs `enqueue`, and counts. Where the backend breaks it off, marks the end of what it took: so
    /// that this can be waited for, and so that a failure in it isn't told by the fence of the next copy.
    pub(crate) fn submit(
        &mut self,
        direction: Direction,
        pairs: &[PagePair],
        enqueue: impl FnOnce(&mut Self, &[PagePair], &mut Submitted<D::Fence>) -> Result<(), DeviceError>,
    ) -> Result<Submitted<D::Fence>, TransferError<D::Fence>> {
        let mut submitted = Submitted::new(pairs.len());
        let result = self.check(direction, pairs).and_then(|()| {
            enqueue(self, pairs, &mut submitted)
                .map_err(|error| TransferError::BrokenOff { error, rest: self.record(direction).ok() })
        });
        let stats = self.stats.of(direction);
        stats.submissions += 1;
        match result {
            Ok(()) => {
                stats.pages += u64::from(submitted.pages);
                stats.bytes += submitted.bytes;
                stats.descriptors += submitted.descriptors;
                Ok(submitted)
            }
            Err(error) => {
                stats.refused += 1;
                Err(error)
            }
        }
    }

    /// Offsets are linear in the page number: a page that its pool doesn't have would land in another layer, inside
    /// the buffer, where no backend can notice. O(pairs log pairs).
    fn check(&self, direction: Direction, pairs: &[PagePair]) -> Result<(), TransferError<D::Fence>> {
        for pair in pairs {
            for (tier, page, pages) in
                [(Tier::Device, pair.device, self.pages.device), (Tier::Host, pair.host, self.pages.host)]
            {
                if page >= pages {
                    return Err(TransferError::OutOfRange { tier, page, pages });
                }
            }
            if pair.device == 0 {
                return Err(TransferError::Padding);
            }
        }
        let (tier, mut written): (_, Vec<u32>) = match direction {
            Direction::DeviceToHost => (Tier::Host, pairs.iter().map(|pair| pair.host).collect()),
            Direction::HostToDevice => (Tier::Device, pairs.iter().map(|pair| pair.device).collect()),
        };
        written.sort_unstable();
        match written.windows(2).find(|pages| pages[0] == pages[1]) {
            Some(pages) => Err(TransferError::Twice { tier, page: pages[0] }),
            None => Ok(()),
        }
    }

    /// The descriptors of one layer of one row pool, cut to the longest that is allowed.
    pub(crate) fn descriptors(
        &self,
        direction: Direction,
        pool: usize,
        layer: u32,
        pairs: &[PagePair],
    ) -> Vec<CopyDescriptor> {
        let mut descriptors = Vec::new();
        let TransferConfig { geometry, layout, max_descriptor_bytes, .. } = &self.config;
        one_layer(direction, geometry, *layout, self.pages, pool, layer, pairs, &mut descriptors);
        split(descriptors, *max_descriptor_bytes)
    }

    /// The most descriptors in one copy call, at least 1.
    pub(crate) fn descriptors_per_call(&self) -> usize {
        self.config.max_descriptors.min(self.device.capabilities().descriptors_per_copy_max).max(1) as usize
    }

    /// Enqueues descriptors of one row pool, in as many calls as it takes.
    pub(crate) fn copy(
        &mut self,
        direction: Direction,
        pool: usize,
        descriptors: &[CopyDescriptor],
        submitted: &mut Submitted<D::Fence>,
    ) -> Result<(), DeviceError> {
        if descriptors.is_empty() {
            // Nor are there host pools to name where there is no host tier.
            return Ok(());
        }
        let (src, dst, stream) = match direction {
            Direction::DeviceToHost => (self.device_pools[pool], self.host_pools[pool], self.to_host),
            Direction::HostToDevice => (self.host_pools[pool], self.device_pools[pool], self.to_device),
        };
        for descriptors in descriptors.chunks(self.descriptors_per_call()) {
            self.device.copy(stream, CopyRequest { src, dst, descriptors })?;
        }
        submitted.descriptors += descriptors.len() as u64;
        submitted.bytes += descriptors.iter().map(|descriptor| descriptor.len).sum::<u64>();
        Ok(())
    }

    /// Marks the end of what a direction's stream has.
    pub(crate) fn record(&mut self, direction: Direction) -> Result<D::Fence, DeviceError> {
        self.device.record(match direction {
            Direction::DeviceToHost => self.to_host,
            Direction::HostToDevice => self.to_device,
        })
    }

    /// How far a copy has come, see [`Submitted::status`]. Never blocks.
    pub fn status(&mut self, submitted: &Submitted<D::Fence>) -> FenceStatus {
        submitted.status(|fence| self.device.poll(fence))
    }

    /// Waits until a copy has ended, at most `limit_ns` of the backend's clock.
    ///
    /// # Errors
    /// [`DeviceError::TimedOut`] where it hasn't; else its first failure.
    pub fn wait(&mut self, submitted: &Submitted<D::Fence>, limit_ns: u64) -> Result<(), DeviceError> {
        // The last fence is the last to be reached; the others then tell of failures without a wait.
        let Some(last) = submitted.fences.last() else { return Ok(()) };
        match (self.device.wait(*last, limit_ns), self.status(submitted)) {
            (Err(error @ DeviceError::TimedOut { .. }), _) | (_, FenceStatus::Failed(error)) => Err(error),
            (result, FenceStatus::Done | FenceStatus::Pending) => result,
        }
    }

    /// Waits until both copy streams are idle: after it no page is read or written by a copy, also not by one whose
    /// submission was broken off. At most `limit_ns` per stream.
    ///
    /// # Errors
    /// [`DeviceError::TimedOut`]. A failed copy has ended and is no error here; neither is a lost device.
    pub fn quiesce(&mut self, limit_ns: u64) -> Result<(), DeviceError> {
        for direction in [Direction::DeviceToHost, Direction::HostToDevice] {
            let Ok(fence) = self.record(direction) else { continue };
            if let Err(error @ DeviceError::TimedOut { .. }) = self.device.wait(fence, limit_ns) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes a device page in one layer of one row pool, on the compute stream: what stands in for the forward pass.
    ///
    /// # Errors
    /// The backend's; [`DeviceError::Invalid`] for a page that isn't there or for bytes that aren't a page's.
    pub fn upload_page(&mut self, pool: usize, layer: u32, page: u32, bytes: Vec<u8>) -> Result<(), DeviceError> {
        self.check_page(Tier::Device, pool, layer, page, bytes.len())?;
        let offset = self.config.geometry.device_offset(pool, self.pages.device, layer, page);
        self.device.upload(self.compute, self.device_pools[pool], offset, bytes)
    }

    /// Reads a device page in one layer of one row pool, as it is now.
    ///
    /// # Errors
    /// As [`upload_page`](Self::upload_page).
    pub fn read_device_page(&mut self, pool: usize, layer: u32, page: u32, into: &mut [u8]) -> Result<(), DeviceError> {
        self.check_page(Tier::Device, pool, layer, page, into.len())?;
        let offset = self.config.geometry.device_offset(pool, self.pages.device, layer, page);
        self.device.read(self.device_pools[pool], offset, into)
    }

    /// Reads a host page in one layer of one row pool, as it is now, its rows gathered in the order of tokens.
    ///
    /// # Errors
    /// As [`upload_page`](Self::upload_page); without a host tier no page is there.
    pub fn read_host_page(&mut self, pool: usize, layer: u32, page: u32, into: &mut [u8]) -> Result<(), DeviceError> {
        self.check_page(Tier::Host, pool, layer, page, into.len())?;
        let TransferConfig { geometry, layout, .. } = &self.config;
        let piece = match layout {
            HostLayout::PageFirst => geometry.pools()[pool].row_bytes as usize,
            HostLayout::LayerFirst | HostLayout::PageFirstDirect => into.len(),
        };
        for (token, bytes) in (0..).zip(into.chunks_mut(piece)) {
            let offset = geometry.host_offset(*layout, pool, self.pages.host, layer, page, token);
            self.device.read(self.host_pools[pool], offset, bytes)?;
        }
        Ok(())
    }

    fn check_page(&self, tier: Tier, pool: usize, layer: u32, page: u32, bytes: usize) -> Result<(), DeviceError> {
        let TransferConfig { geometry, .. } = &self.config;
        let pages = if tier == Tier::Device { self.pages.device } else { self.pages.host };
        if pool >= geometry.pools().len() || layer >= geometry.layers() || page >= pages {
            return Err(invalid(format!("there is no {tier} page {page} in layer {layer} of row pool {pool}")));
        }
        let whole = geometry.layer_page_bytes(pool);
        if bytes as u64 == whole { Ok(()) } else { Err(invalid(format!("{bytes} bytes, a page has {whole}"))) }
    }
}

fn invalid(what: impl Into<String>) -> DeviceError {
    DeviceError::Invalid { what: what.into() }
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
