//! What a run is made on: a control plane alone, or the engine with simulated memory whose every byte is checked.

use crate::call::{Call, Reply};
use cpkv_cli::rig::Rig;
use cpkv_core::OpId;
use cpkv_engine::{ControlPlane, EngineError, SubmitOptions};

/// How long a copy may take, nanoseconds of the virtual clock: an hour.
const COPY_LIMIT_NS: u64 = 3_600_000_000_000;

/// Something that takes calls.
pub trait Target {
    /// Its control plane.
    fn control(&self) -> &ControlPlane;

    /// Makes a call. `Err(Err(_))` is the engine's refusal.
    ///
    /// # Errors
    /// `Err(Ok(what))`: something broke.
    fn call(&mut self, call: &Call) -> Result<Reply, Result<String, EngineError>>;

    /// Every structure's check, and that no byte is wrong.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&mut self) -> Result<(), String>;
}

/// Both targets have methods of the same names for the calls that move no bytes of a forward pass.
macro_rules! decide {
    ($on:expr, $call:expr) => {
        match $call {
            Call::Match { prompt } => {
                let _ = $on.match_prefix(prompt.key());
                Reply::Nothing
            }
            Call::Lock { prompt } => Reply::Lock($on.lock(prompt.key()).lock),
            Call::Unlock { lock } => $on.unlock(*lock).map(|()| Reply::Nothing).map_err(Err)?,
            Call::Hold { owners } => Reply::Hold($on.hold(owners).map_err(Err)?),
            Call::Release { hold } => $on.release(*hold).map(|_| Reply::Nothing).map_err(Err)?,
            Call::Backup { prompt } => $on.backup(prompt.key()).map(|_| Reply::Nothing).map_err(Err)?,
            Call::LoadBack { prompt } => $on.load_back(prompt.key()).map(|_| Reply::Nothing).map_err(Err)?,
            Call::EvictDevice { deficits } => {
                let _ = $on.evict_device(deficits);
                Reply::Nothing
            }
            Call::EvictHost { deficits } => {
                let _ = $on.evict_host(deficits);
                Reply::Nothing
            }
            Call::Submit { prompt, max_new, priority, owners } => {
                let options = SubmitOptions { max_new: *max_new, priority: *priority, owners: owners.as_deref() };
                Reply::Request($on.submit(prompt.key(), options).map_err(Err)?.0)
            }
            Call::Abort { request } => $on.abort(*request).map(|_| Reply::Nothing).map_err(Err)?,
            Call::Retract { request } => $on.retract(*request).map(|_| Reply::Nothing).map_err(Err)?,
            call => unreachable!("{call:?} is each target's own"),
        }
    };
}

fn what_if(control: &ControlPlane, call: &Call) -> Option<Result<Reply, Result<String, EngineError>>> {
    let Call::WhatIf { prompt, max_new } = call else { return None };
    let options = SubmitOptions { max_new: *max_new, ..SubmitOptions::default() };
    Some(control.what_if(prompt.key(), options).map(|_| Reply::Nothing).map_err(Err))
}

impl Target for ControlPlane {
    fn control(&self) -> &ControlPlane {
        self
    }

    fn call(&mut self, call: &Call) -> Result<Reply, Result<String, EngineError>> {
        if let Some(answer) = what_if(self, call) {
            return answer;
        }
        let reply = match call {
            Call::Insert { prompt, owners } => {
                self.insert(prompt.key(), owners.as_deref()).map_err(Err)?;
                Reply::Nothing
            }
            Call::End { op, agreed_failure: false } => self.ack(*op).map(|_| Reply::Nothing).map_err(Err)?,
            Call::End { op, .. } => self.fail(*op).map(|()| Reply::Nothing).map_err(Err)?,
            Call::Step => {
                let plan = self.step();
                self.forward_done();
                Reply::Step(plan)
            }
            Call::Finish { request, sequence } => self
                .finish(*request, sequence.as_ref().map(|sequence| &sequence.tokens[..]))
                .map(|_| Reply::Nothing)
                .map_err(Err)?,
            Call::Reset => {
                self.reset();
                Reply::Nothing
            }
            call => decide!(self, call),
        };
        self.take_orders();
        self.take_started();
        Ok(reply)
    }

    fn check(&mut self) -> Result<(), String> {
        self.self_check()
    }
}

impl Target for Rig {
    fn control(&self) -> &ControlPlane {
        Rig::control(self)
    }

    fn call(&mut self, call: &Call) -> Result<Reply, Result<String, EngineError>> {
        let broke = |error: cpkv_cli::error::CliError| Ok(error.to_string());
        if let Some(answer) = what_if(Rig::control(self), call) {
            return answer;
        }
        let reply = match call {
            Call::Insert { prompt, owners } => {
                self.insert(prompt.key(), owners.as_deref()).map_err(Err)?;
                Reply::Nothing
            }
            Call::End { op, agreed_failure } => {
                let failed = *agreed_failure || has_failed(self, *op).map_err(Ok)?;
                if failed {
                    self.fail(*op).map_err(broke)?.map_err(Err)?;
                } else {
                    self.ack(*op).map_err(broke)?.map_err(Err)?;
                }
                Reply::Nothing
            }
            Call::Step => {
                let forward = self.step();
                self.clock().advance_to(forward.end_ns);
                Reply::Step(forward.plan)
            }
            Call::Finish { request, sequence } => self
                .finish(*request, sequence.as_ref().map(|sequence| &sequence.tokens[..]))
                .map(|_| Reply::Nothing)
                .map_err(Err)?,
            Call::Reset => {
                self.reset().map_err(broke)?;
                Reply::Nothing
            }
            call => decide!(self.engine(), call),
        };
        self.engine().take_started();
        Ok(reply)
    }

    fn check(&mut self) -> Result<(), String> {
        self.self_check().map_err(|error| error.to_string())
    }
}

/// Waits for a copy's bytes and says whether one of its parts failed.
fn has_failed(rig: &mut Rig, op: OpId) -> Result<bool, String> {
    rig.engine().wait(op, COPY_LIMIT_NS).map_err(|error| format!("copy {op}: {error}"))?;
    let ended = rig.engine().completed().into_iter().find(|completion| completion.op == op);
    Ok(ended.is_some_and(|completion| completion.error.is_some()))
}
