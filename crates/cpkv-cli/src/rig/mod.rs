//! The engine on the simulator: what stands in for the GPU. A time model runs the forward pass, a pattern writer
//! writes what it would write, and every page that arrives or is read is checked against its pattern.

mod record;
mod verify;

pub use record::Recorder;
pub use verify::{Verified, Verify};

use crate::error::CliError;
use cpkv_core::{DeviceMemory, LaneCounts, OpId, Owner, PageId, RequestId};
use cpkv_engine::{
    BatchEntry, Config, ControlPlane, CopyKind, Ended, Engine, EngineError, Inserted, Key, Operation, StepPlan,
};
use cpkv_sim::{ComputeModel, FaultPlan, SimClock, SimConfig, SimDevice, SimFence};
use cpkv_transfer::TransferStats;
use verify::{Chain, PageCheck};

/// How long a copy may take before it counts as stuck, in nanoseconds of the virtual clock: an hour.
const COPY_LIMIT_NS: u64 = 3_600_000_000_000;

/// What a rig is made of.
#[derive(Debug, Clone)]
pub struct RigConfig {
    /// The engine's configuration.
    pub engine: Config,
    /// Device to host, bytes per second.
    pub bandwidth_d2h: u64,
    /// Host to device, bytes per second.
    pub bandwidth_h2d: u64,
    /// Launch cost of a copy call, nanoseconds.
    pub copy_launch_ns: u64,
    /// How long a forward pass takes.
    pub compute: ComputeModel,
    /// How many pages are checked.
    pub verify: Verify,
    /// Faults of the simulated devices.
    pub faults: FaultPlan,
    /// The seed of faults by chance.
    pub seed: u64,
}

impl RigConfig {
    /// A rig with the simulator's default speeds, that checks every page.
    #[must_use]
    pub fn new(engine: Config, seed: u64) -> Self {
        let sim = SimConfig::default();
        Self {
            engine,
            bandwidth_d2h: sim.bandwidth_d2h,
            bandwidth_h2d: sim.bandwidth_h2d,
            copy_launch_ns: sim.copy_launch_ns,
            compute: ComputeModel::default(),
            verify: Verify::Full,
            faults: FaultPlan::default(),
            seed,
        }
    }

    /// Bytes of all pools of all lanes. They are really allocated.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let page = self.engine.geometry.page_bytes_all();
        let pages = u64::from(self.engine.device_pages) + 1 + u64::from(self.engine.host_pages);
        page.saturating_mul(pages).saturating_mul(self.engine.lanes as u64)
    }
}

/// An engine whose lanes are all local, each on a simulated device, with one virtual clock.
#[derive(Debug)]
pub struct Rig {
    engine: Engine<SimDevice>,
    clock: SimClock,
    compute: ComputeModel,
    check: PageCheck,
}

/// A step with its forward pass.
#[derive(Debug, Clone)]
pub struct Forward {
    /// What the engine decided.
    pub plan: StepPlan,
    /// When the forward pass begins, nanoseconds of the virtual clock.
    pub start_ns: u64,
    /// When it ends. Equal to the beginning where the batch is empty.
    pub end_ns: u64,
}

impl Rig {
    /// A rig with empty pools.
    ///
    /// # Errors
    /// [`CliError::BadInput`] for a configuration out of range, or pools that this machine's memory can't hold.
    pub fn new(config: RigConfig) -> Result<Self, CliError> {
        let bad = |error: String| CliError::BadInput(error);
        config.engine.validate().map_err(|error| bad(error.to_string()))?;
        let bytes = config.bytes();
        if let Some(available) = available_memory()
            && bytes > available
        {
            return Err(bad(format!(
                "device_pages: the pools take {bytes} bytes ({} device and {} host pages on each of {} lanes, {} bytes \
                 a page), and {available} bytes of memory are available",
                config.engine.device_pages,
                config.engine.host_pages,
                config.engine.lanes,
                config.engine.geometry.page_bytes_all(),
            )));
        }
        let clock = SimClock::new();
        let lanes = Owner::all(config.engine.lanes).map(|owner| {
            let sim = SimConfig {
                device_bytes: u64::MAX / 2,
                host_bytes: u64::MAX / 2,
                bandwidth_d2h: config.bandwidth_d2h,
                bandwidth_h2d: config.bandwidth_h2d,
                copy_launch_ns: config.copy_launch_ns,
                faults: config.faults.clone(),
                seed: config.seed.wrapping_add(u64::from(owner.0)),
                ..SimConfig::default()
            };
            (owner, SimDevice::new(sim, clock.clone()))
        });
        let lanes = lanes.collect();
        let check = PageCheck::new(config.engine.geometry.clone(), config.verify);
        let engine = Engine::new(config.engine, lanes).map_err(|error| bad(error.to_string()))?;
        Ok(Self { engine, clock, compute: config.compute, check })
    }

    /// The control plane, to read.
    #[must_use]
    pub fn control(&self) -> &ControlPlane {
        self.engine.control()
    }

    /// The engine, for what moves no bytes of the forward pass.
    pub fn engine(&mut self) -> &mut Engine<SimDevice> {
        &mut self.engine
    }

    /// The virtual clock.
    #[must_use]
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// Pages checked so far.
    #[must_use]
    pub fn verified(&self) -> &Verified {
        self.check.verified()
    }

    /// Inserts a key and writes its new pages, as the request that computed them would have.
    ///
    /// # Errors
    /// The engine's.
    pub fn insert(&mut self, key: Key<'_>, owners: Option<&[Owner]>) -> Result<Inserted, EngineError> {
        let inserted = self.engine.insert(key, owners)?;
        let chain = Chain::of(key, self.check.page_size());
        for (position, page) in (inserted.matched_pages..).zip(&inserted.new_pages) {
            self.write(*page, chain.hash(position));
        }
        self.end_forward();
        Ok(inserted)
    }

    /// One scheduler step and the forward pass over its batch. The clock stays at the pass's beginning: the caller
    /// advances it to the end, or submits what arrives meanwhile first.
    pub fn step(&mut self) -> Forward {
        let plan = self.decide_step();
        self.run_forward(plan)
    }

    /// The decision of a step alone, to time it. [`run_forward`](Self::run_forward) goes with it.
    pub fn decide_step(&mut self) -> StepPlan {
        self.engine.step()
    }

    /// The forward pass over a step's batch.
    pub fn run_forward(&mut self, plan: StepPlan) -> Forward {
        let start_ns = self.clock.now();
        let mut duration_ns = 0;
        for entry in &plan.batch {
            let new = entry.to_token - entry.from_token;
            duration_ns += self.compute.prefill_ns(new, entry.from_token);
        }
        if !plan.batch.is_empty() {
            for (_, memory) in self.engine.lanes_mut() {
                let stream = memory.compute_stream();
                memory.device().compute(stream, duration_ns).expect("the stream is the device's own");
            }
            for entry in &plan.batch {
                self.run(entry);
            }
            self.end_forward();
        }
        Forward { plan, start_ns, end_ns: start_ns + duration_ns }
    }

    /// When each layer's part of a copy ends on each lane, nanoseconds: known from its start.
    pub fn copy_ends_ns(&mut self, op: OpId) -> Vec<(Owner, Vec<u64>)> {
        let fences = self.engine.layer_fences(op);
        fences
            .into_iter()
            .filter_map(|(owner, fences)| {
                let device = self.engine.lane_mut(owner)?.device();
                Some((owner, fences.into_iter().map(|fence| device.fence_end_ns(fence)).collect()))
            })
            .collect()
    }

    /// What all lanes have moved so far.
    pub fn transfer_stats(&mut self) -> TransferStats {
        let mut sum = TransferStats::default();
        for (_, memory) in self.engine.lanes_mut() {
            sum += memory.stats();
        }
        sum
    }

    /// One request's part of the forward pass: reads its prefix and writes its new pages.
    fn run(&mut self, entry: &BatchEntry) {
        let page_size = self.check.page_size();
        let request = self.engine.control().request(entry.request).expect("a batch names live requests");
        let chain = Chain::of(Key { namespace: request.namespace.as_deref(), tokens: &request.tokens }, page_size);
        for (position, page) in (0..).zip(&entry.prefix) {
            self.check_device(*page, chain.hash(position));
        }
        // Pages beyond the scheduled tokens are room for output.
        let end = entry.to_token.div_ceil(u64::from(page_size)) as u32;
        for (position, page) in (entry.prefix.len() as u32..end).zip(&entry.new_pages) {
            self.write(*page, chain.hash(position));
        }
    }

    /// Finishes a request; writes the pages of the tokens that it generated first, as its decode would have. `sequence`
    /// is the prompt with them.
    ///
    /// # Errors
    /// The engine's.
    pub fn finish(&mut self, id: RequestId, sequence: Option<&[u32]>) -> Result<Ended, EngineError> {
        self.engine.control().check_finish(id, sequence)?;
        if let Some(sequence) = sequence
            && let Some(request) = self.engine.control().request(id)
        {
            let page_size = self.check.page_size();
            let first_own = request.next_page() - request.own_pages().len() as u32;
            let first_changed = (request.scheduled() / u64::from(page_size)) as u32;
            let own = request.own_pages().to_vec();
            let chain = Chain::of(Key { namespace: request.namespace.as_deref(), tokens: sequence }, page_size);
            let changed = (first_own..chain.pages()).zip(own).filter(|(position, _)| *position >= first_changed);
            for (position, page) in changed.collect::<Vec<_>>() {
                self.write(page, chain.hash(position));
            }
            self.end_forward();
        }
        self.engine.finish(id, sequence)
    }

    /// Marks the end of what was written: copies that start from now on wait for it.
    fn end_forward(&mut self) {
        let mut fences: Vec<(Owner, SimFence)> = Vec::new();
        for (owner, memory) in self.engine.lanes_mut() {
            let stream = memory.compute_stream();
            fences.push((*owner, memory.device().record(stream).expect("the stream is the device's own")));
        }
        self.engine.forward_done(fences).expect("the fences are the devices' own");
    }

    /// Waits for a copy's bytes and ends it well. Checks what arrived first.
    ///
    /// # Errors
    /// The engine's, and the backend's failure as [`CliError::Failed`].
    pub fn ack(&mut self, op: OpId) -> Result<Result<Vec<u32>, EngineError>, CliError> {
        self.engine.wait(op, COPY_LIMIT_NS).map_err(|error| CliError::Failed(format!("copy {op}: {error}")))?;
        let arrived: Option<Operation> =
            self.engine.control().operations().find(|(id, _)| *id == op).map(|(_, operation)| operation.clone());
        if let Some(operation) = arrived {
            self.check_arrival(&operation);
        }
        Ok(self.engine.ack(op))
    }

    /// Waits until a copy moves no bytes any more and ends it as failed.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub fn fail(&mut self, op: OpId) -> Result<Result<(), EngineError>, CliError> {
        self.engine.wait(op, COPY_LIMIT_NS).map_err(|error| CliError::Failed(format!("copy {op}: {error}")))?;
        Ok(self.engine.fail(op))
    }

    /// Ends every copy that is complete by now, in the order in which they were started: with one process the
    /// agreement of all ranks is immediate.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub fn end_completed(&mut self) -> Result<Vec<(OpId, bool)>, CliError> {
        let mut ended = Vec::new();
        for completion in self.engine.completed() {
            let done = completion.error.is_none();
            let known = if done { self.ack(completion.op)?.is_ok() } else { self.fail(completion.op)?.is_ok() };
            debug_assert!(known, "a completion is reported until it is ended");
            ended.push((completion.op, done));
        }
        Ok(ended)
    }

    /// Advances the clock until every copy in flight is complete, and ends them all.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub fn end_all(&mut self) -> Result<Vec<(OpId, bool)>, CliError> {
        let ops: Vec<OpId> = self.engine.control().operations().map(|(op, _)| op).collect();
        for op in ops {
            self.engine.wait(op, COPY_LIMIT_NS).map_err(|error| CliError::Failed(format!("copy {op}: {error}")))?;
        }
        self.end_completed()
    }

    /// When the next copy in flight ends, nanoseconds of the virtual clock.
    pub fn next_event_ns(&mut self) -> Option<u64> {
        self.engine.lanes_mut().iter_mut().filter_map(|(_, memory)| memory.device().next_event_ns()).min()
    }

    /// Empties the engine; waits for the copies in flight.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub fn reset(&mut self) -> Result<(), CliError> {
        self.engine.reset(COPY_LIMIT_NS).map_err(|error| CliError::Failed(format!("reset: {error}")))
    }

    /// Every structure's own check, and that no byte was wrong so far.
    ///
    /// # Errors
    /// [`CliError::Failed`] says what differs.
    pub fn self_check(&self) -> Result<(), CliError> {
        self.check_structures()?;
        match self.verified().first_wrong() {
            None => Ok(()),
            Some(what) => Err(CliError::Failed(format!("wrong bytes: {what}"))),
        }
    }

    /// Every structure's own check.
    ///
    /// # Errors
    /// [`CliError::Failed`] says what differs.
    pub fn check_structures(&self) -> Result<(), CliError> {
        self.engine.self_check().map_err(|what| CliError::Failed(format!("broken invariant: {what}")))
    }

    fn write(&mut self, page: PageId, hash: u64) {
        let striping = self.engine.control().striping();
        let owner = striping.owner(page);
        let memory = self.engine.lane_mut(owner).expect("all lanes are local");
        self.check.write(memory, owner, striping.physical(page), hash);
    }

    fn check_device(&mut self, page: PageId, hash: u64) {
        let striping = self.engine.control().striping();
        let owner = striping.owner(page);
        let memory = self.engine.lane_mut(owner).expect("all lanes are local");
        self.check.check_device(memory, owner, striping.physical(page), hash);
    }

    /// Checks what a copy brought to its destination, page by page.
    fn check_arrival(&mut self, operation: &Operation) {
        if self.check.is_off() {
            return;
        }
        let control = self.engine.control();
        let striping = control.striping();
        let path: Vec<_> = control.tree().path_up(operation.tail).collect();
        let tokens: Vec<u32> = path.iter().rev().flat_map(|node| node.tokens().iter().copied()).collect();
        let namespace = path.last().and_then(|node| node.namespace()).map(str::to_owned);
        let chain = Chain::of(Key { namespace: namespace.as_deref(), tokens: &tokens }, self.check.page_size());
        let pages = match operation.kind {
            CopyKind::Backup => &operation.host,
            CopyKind::LoadBack => &operation.device,
        };
        for (position, page) in (operation.from..).zip(pages) {
            let (owner, place, hash) = (striping.owner(*page), striping.physical(*page), chain.hash(position));
            let memory = self.engine.lane_mut(owner).expect("all lanes are local");
            match operation.kind {
                CopyKind::Backup => self.check.check_host(memory, owner, place, hash),
                CopyKind::LoadBack => self.check.check_device(memory, owner, place, hash),
            }
        }
    }
}

/// Counts of pages per lane as JSON.
pub(crate) fn counts(counts: &LaneCounts) -> serde_json::Value {
    counts.as_slice().into()
}

/// Memory that a process may still take, bytes. `None` where the system doesn't say.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
