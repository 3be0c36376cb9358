//! The facade: the control plane with the memory of the local lanes.

use crate::control::{Inserted, Key, Locked, Matched};
use crate::log::{LoggedCall, OperationLog};
use crate::operation::CopyOrder;
use crate::request::{Ended, SubmitOptions};
use crate::{
    Config, ConfigError, ControlPlane, CopyKind, EngineError, Evicted, LoadBackStarted, StartedCopy, StepPlan,
};
use cpkv_core::{DeviceError, DeviceMemory, HoldId, LaneCounts, LockId, OpId, Owner, RequestId};
use cpkv_transfer::{Completion, EndError, InFlight, LaneMemory, Part, TransferConfig};

/// Why an engine can't be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A configuration value is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The backend can't provide the pools of a lane.
    #[error("lane {lane}: {error}")]
    Device {
        /// The lane.
        lane: Owner,
        /// What the backend said.
        error: DeviceError,
    },
    /// A local lane that doesn't exist, or twice the same.
    #[error("local lane {lane} is out of range or given twice")]
    Lane {
        /// The lane.
        lane: Owner,
    },
}

/// A copy whose local parts have ended, to be agreed on with the other ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpCompletion {
    /// The copy.
    pub op: OpId,
    /// Why it failed here; `None`: it is done.
    pub error: Option<String>,
}

/// The engine: decides for all lanes, and copies on the local ones. See the crate's documentation.
///
/// One engine belongs to one thread at a time: it is `Send` where its backend is, and nothing in it is shared.
pub struct Engine<D: DeviceMemory> {
    control: ControlPlane,
    lanes: Vec<(Owner, LaneMemory<D>)>,
    copies: InFlight<D::Fence, ()>,
    log: Option<Box<dyn OperationLog + Send>>,
}

impl<D: DeviceMemory> std::fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("control", &self.control).field("copies", &self.copies.len()).finish()
    }
}

impl<D: DeviceMemory> Engine<D> {
    /// An engine over `local` lanes, each with the backend that holds its pools. Allocates the pools.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(config: Config, local: Vec<(Owner, D)>) -> Result<Self, StartError> {
        let control = ControlPlane::new(config)?;
        let config = control.config();
        let transfer =
            TransferConfig::new(config.geometry.clone(), config.host_layout, config.device_pages, config.host_pages);
        let mut lanes: Vec<(Owner, LaneMemory<D>)> = Vec::with_capacity(local.len());
        for (lane, device) in local {
            if lane.index() >= config.lanes || lanes.iter().any(|(other, _)| *other == lane) {
                return Err(StartError::Lane { lane });
            }
            let memory =
                LaneMemory::new(device, transfer.clone()).map_err(|error| StartError::Device { lane, error })?;
            lanes.push((lane, memory));
        }
        Ok(Self { control, lanes, copies: InFlight::new(), log: None })
    }

    /// The control plane, to read.
    #[must_use]
    pub fn control(&self) -> &ControlPlane {
        &self.control
    }

    /// The local lanes with their memory.
    pub fn lanes_mut(&mut self) -> &mut [(Owner, LaneMemory<D>)] {
        &mut self.lanes
    }

    /// The memory of a local lane.
    pub fn lane_mut(&mut self, owner: Owner) -> Option<&mut LaneMemory<D>> {
        self.lanes.iter_mut().find(|(lane, _)| *lane == owner).map(|(_, memory)| memory)
    }

    /// Where every call that changes the engine is written down from now on.
    pub fn set_log(&mut self, log: Option<Box<dyn OperationLog + Send>>) {
        self.log = log;
    }

    /// Executes what was decided, and writes the call down.
    fn done<'c, R>(
        &mut self,
        result: Result<R, EngineError>,
        call: impl FnOnce(&Result<R, EngineError>) -> LoggedCall<'c>,
    ) -> Result<R, EngineError> {
        self.execute_orders();
        self.write_down(call(&result), result.as_ref().err().map(EngineError::name));
        result
    }

    fn write_down(&mut self, call: LoggedCall<'_>, error: Option<&'static str>) {
        if let Some(log) = &mut self.log {
            log.record(call, error);
        }
    }

    fn execute_orders(&mut self) {
        for order in self.control.take_orders() {
            self.execute(&order);
        }
    }

    /// Submits a copy's local parts. What a backend refuses is a failed part: it is reported like any other
    /// completion and changes no decision before it has been agreed on.
    fn execute(&mut self, order: &CopyOrder) {
        let parts = self.lanes.iter_mut().map(|(lane, memory)| {
            let pairs = order.pairs.iter().find(|(owner, _)| owner == lane).map_or(&[][..], |(_, pairs)| pairs);
            let submitted = match order.kind {
                CopyKind::Backup => memory.submit_backup(pairs),
                CopyKind::LoadBack => memory.submit_load(pairs),
            };
            (*lane, Part::from(submitted))
        });
        let parts = parts.collect();
        self.copies.insert(order.op, (), parts).expect("ids are new and lanes differ");
    }

    /// See [`ControlPlane::match_prefix`].
    #[must_use]
    pub fn match_prefix(&self, key: Key<'_>) -> Matched {
        self.control.match_prefix(key)
    }

    /// See [`ControlPlane::insert`]. The caller fills the new pages and reports [`forward_done`](Self::forward_done):
    /// copies that the insert started by policy are carried out then, behind what filled their sources.
    ///
    /// # Errors
    /// As there.
    pub fn insert(&mut self, key: Key<'_>, owners: Option<&[Owner]>) -> Result<Inserted, EngineError> {
        let result = self.control.insert(key, owners);
        if result.as_ref().is_ok_and(|inserted| !inserted.new_pages.is_empty()) {
            self.write_down(LoggedCall::Insert { key, owners }, None);
            return result;
        }
        self.done(result, |_| LoggedCall::Insert { key, owners })
    }

    /// See [`ControlPlane::lock`].
    pub fn lock(&mut self, key: Key<'_>) -> Locked {
        let locked = self.control.lock(key);
        self.always(locked, |locked| LoggedCall::Lock { key, lock: locked.lock })
    }

    /// See [`ControlPlane::unlock`].
    ///
    /// # Errors
    /// As there.
    pub fn unlock(&mut self, lock: LockId) -> Result<(), EngineError> {
        let result = self.control.unlock(lock);
        self.done(result, |_| LoggedCall::Unlock { lock })
    }

    /// See [`ControlPlane::hold`].
    ///
    /// # Errors
    /// As there.
    pub fn hold(&mut self, owners: &[Owner]) -> Result<Option<HoldId>, EngineError> {
        let result = self.control.hold(owners);
        self.done(result, |result| LoggedCall::Hold { owners, hold: result.as_ref().ok().copied().flatten() })
    }

    /// See [`ControlPlane::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(&mut self, hold: HoldId) -> Result<LaneCounts, EngineError> {
        let result = self.control.release(hold);
        self.done(result, |_| LoggedCall::Release { hold })
    }

    /// See [`ControlPlane::backup`].
    ///
    /// # Errors
    /// As there.
    pub fn backup(&mut self, key: Key<'_>) -> Result<(Option<OpId>, LaneCounts), EngineError> {
        let result = self.control.backup(key);
        self.done(result, |result| LoggedCall::Backup { key, op: result.as_ref().ok().and_then(|(op, _)| *op) })
    }

    /// See [`ControlPlane::load_back`].
    ///
    /// # Errors
    /// As there.
    pub fn load_back(&mut self, key: Key<'_>) -> Result<LoadBackStarted, EngineError> {
        let result = self.control.load_back(key);
        self.done(result, |result| LoggedCall::LoadBack { key, op: result.as_ref().ok().map(|load| load.op) })
    }

    /// See [`ControlPlane::evict_device`].
    pub fn evict_device(&mut self, deficits: &LaneCounts) -> Evicted {
        let evicted = self.control.evict_device(deficits);
        self.always(evicted, |_| LoggedCall::EvictDevice { deficits })
    }

    /// See [`ControlPlane::evict_host`].
    pub fn evict_host(&mut self, deficits: &LaneCounts) -> Evicted {
        let evicted = self.control.evict_host(deficits);
        self.always(evicted, |_| LoggedCall::EvictHost { deficits })
    }

    /// See [`ControlPlane::submit`].
    ///
    /// # Errors
    /// As there.
    pub fn submit(
        &mut self,
        key: Key<'_>,
        options: SubmitOptions<'_>,
    ) -> Result<(Option<RequestId>, LaneCounts), EngineError> {
        let result = self.control.submit(key, options);
        let SubmitOptions { max_new, priority, owners } = options;
        self.done(result, |result| LoggedCall::Submit {
            key,
            max_new,
            priority,
            owners,
            request: result.as_ref().ok().and_then(|(request, _)| *request),
        })
    }

    /// See [`ControlPlane::step`].
    pub fn step(&mut self) -> StepPlan {
        let plan = self.control.step();
        self.always(plan, |_| LoggedCall::Step)
    }

    /// The forward pass over the last step's batch is done. `fences` mark its end on the compute streams of local
    /// lanes: copies that are submitted from now on wait for them.
    ///
    /// # Errors
    /// The backend's, where a copy stream can't be made to wait. The decisions are made all the same.
    pub fn forward_done(&mut self, fences: impl IntoIterator<Item = (Owner, D::Fence)>) -> Result<(), DeviceError> {
        let mut result = Ok(());
        for (owner, fence) in fences {
            if let Some(memory) = self.lane_mut(owner) {
                result = result.and(memory.after_forward(fence));
            }
        }
        self.control.forward_done();
        self.execute_orders();
        result
    }

    /// See [`ControlPlane::finish`].
    ///
    /// # Errors
    /// As there.
    pub fn finish(&mut self, request: RequestId, sequence: Option<&[u32]>) -> Result<Ended, EngineError> {
        let result = self.control.finish(request, sequence);
        self.done(result, |_| LoggedCall::Finish { request, sequence })
    }

    /// See [`ControlPlane::abort`].
    ///
    /// # Errors
    /// As there.
    pub fn abort(&mut self, request: RequestId) -> Result<Ended, EngineError> {
        let result = self.control.abort(request);
        self.done(result, |_| LoggedCall::Abort { request })
    }

    /// See [`ControlPlane::retract`].
    ///
    /// # Errors
    /// As there.
    pub fn retract(&mut self, request: RequestId) -> Result<Ended, EngineError> {
        let result = self.control.retract(request);
        self.done(result, |_| LoggedCall::Retract { request })
    }

    fn always<'c, R>(&mut self, value: R, call: impl FnOnce(&R) -> LoggedCall<'c>) -> R {
        self.execute_orders();
        self.write_down(call(&value), None);
        value
    }

    /// Copies started since this was last called (those of a step are in its plan).
    pub fn take_started(&mut self) -> Vec<StartedCopy> {
        self.control.take_started()
    }

    /// Copies whose local parts have ended and that haven't been acknowledged, in the order in which they were
    /// started. Never blocks and changes no decision.
    pub fn completed(&mut self) -> Vec<OpCompletion> {
        let lanes = &mut self.lanes;
        let done = self.copies.poll_done(|owner, fence| {
            let lane = lanes.iter_mut().find(|(lane, _)| *lane == owner);
            lane.expect("parts are those of local lanes").1.device().poll(fence)
        });
        done.into_iter()
            .map(|(op, completion)| OpCompletion {
                op,
                error: match completion {
                    Completion::Done => None,
                    Completion::Failed(why) => Some(why),
                },
            })
            .collect()
    }

    /// Waits until a copy's local parts have ended, at most `limit_ns` of the backend's clock per lane.
    ///
    /// # Errors
    /// [`DeviceError::TimedOut`]. A failed part has ended: that is no error here.
    pub fn wait(&mut self, op: OpId, limit_ns: u64) -> Result<(), DeviceError> {
        let parts: Vec<(Owner, Part<D::Fence>)> =
            self.copies.running(op).map(|(owner, part)| (owner, part.clone())).collect();
        for (owner, part) in parts {
            let Some(memory) = self.lane_mut(owner) else { continue };
            let ended = match part {
                Part::Submitted(submitted) => memory.wait(&submitted, limit_ns),
                Part::Refused { rest: Some(fence), .. } => memory.device().wait(fence, limit_ns),
                Part::Refused { rest: None, .. } => Ok(()),
            };
            if let Err(error @ DeviceError::TimedOut { .. }) = ended {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The fences of a load-back's local parts that run, one per layer and lane: compute on layer i waits for fence i.
    /// A backup has one fence per lane.
    #[must_use]
    pub fn layer_fences(&self, op: OpId) -> Vec<(Owner, Vec<D::Fence>)> {
        let fences = |(owner, part): (Owner, &Part<D::Fence>)| match part {
            Part::Submitted(submitted) => Some((owner, submitted.fences.clone())),
            Part::Refused { .. } => None,
        };
        self.copies.running(op).filter_map(fences).collect()
    }

    /// All ranks agree that a copy is done. See [`ControlPlane::ack`].
    ///
    /// # Errors
    /// As there, and [`EngineError::InFlight`] where a local part is still running: then the agreement is wrong.
    pub fn ack(&mut self, op: OpId) -> Result<Vec<u32>, EngineError> {
        let result = self.ended(op).and_then(|()| self.control.ack(op));
        self.done(result, |_| LoggedCall::Ack { op })
    }

    /// All ranks agree that a copy has failed on one of them. See [`ControlPlane::fail`].
    ///
    /// # Errors
    /// As there, and [`EngineError::InFlight`] where a local part is still running.
    pub fn fail(&mut self, op: OpId) -> Result<(), EngineError> {
        let result = self.ended(op).and_then(|()| self.control.fail(op));
        self.done(result, |_| LoggedCall::Fail { op })
    }

    /// Takes a copy off the table if its local parts have ended, so that its pages may be used again (contract C4).
    /// What the table doesn't know is left to the control plane, which counts it as late.
    fn ended(&mut self, op: OpId) -> Result<(), EngineError> {
        self.completed();
        match self.copies.end(op) {
            Ok(_) | Err(EndError::Unknown { .. }) => Ok(()),
            Err(EndError::Running { .. }) => Err(EngineError::InFlight),
        }
    }

    /// Empties everything. Waits for the copies in flight, at most `limit_ns` each, then ends them as failed.
    ///
    /// # Errors
    /// [`DeviceError::TimedOut`]: nothing was emptied.
    pub fn reset(&mut self, limit_ns: u64) -> Result<(), DeviceError> {
        self.execute_orders();
        let ops: Vec<OpId> = self.copies.ids().collect();
        for op in &ops {
            self.wait(*op, limit_ns)?;
        }
        for op in ops {
            self.ended(op).map_err(|_| DeviceError::TimedOut { limit_ns })?;
        }
        self.control.reset();
        self.always((), |()| LoggedCall::Reset);
        Ok(())
    }

    /// See [`ControlPlane::self_check`].
    ///
    /// # Errors
    /// What differs.
    pub fn self_check(&self) -> Result<(), String> {
        self.control.self_check()?;
        self.copies.self_check()?;
        let known: Vec<OpId> = self.control.operations().map(|(op, _)| op).collect();
        if !self.copies.ids().eq(known.iter().copied()) {
            let here: Vec<OpId> = self.copies.ids().collect();
            return Err(format!("copies {known:?} are in flight, and the lanes know {here:?}"));
        }
        Ok(())
    }
}
