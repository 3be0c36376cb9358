//! Runs the operations of a scenario against the engine on the simulator.

use super::config::{Completions, ScenarioConfig};
use super::keys::{Streams, bad_key};
use super::line::{KeyText, Op, PerLane};
use super::names::{Names, Ticket};
use crate::error::CliError;
use crate::rig::{Rig, counts};
use cpkv_core::{LaneCounts, Owner};
use cpkv_engine::{EngineError, Key, Stats, SubmitOptions};
use serde_json::{Map, Value, json};

/// Why an operation has no result.
pub(super) enum Refused {
    /// The operation failed with an error that a scenario may expect.
    Error { name: &'static str, fields: Map<String, Value> },
    /// The line is at fault, or an invariant broke.
    Stop(CliError),
}

impl From<EngineError> for Refused {
    fn from(error: EngineError) -> Self {
        let mut fields = Map::new();
        match &error {
            EngineError::LaneFull { missing } => {
                fields.insert("missing".into(), counts(missing));
                fields.insert("pool".into(), "device".into());
            }
            EngineError::HostFull { missing } => {
                fields.insert("missing".into(), counts(missing));
                fields.insert("pool".into(), "host".into());
            }
            EngineError::RequestTooLarge { tier, lane, need, capacity } => {
                fields.insert("pool".into(), tier.to_string().into());
                fields.insert("lane".into(), lane.0.into());
                fields.insert("need".into(), (*need).into());
                fields.insert("capacity".into(), (*capacity).into());
            }
            _ => {}
        }
        Refused::Error { name: error.name(), fields }
    }
}

impl From<CliError> for Refused {
    fn from(error: CliError) -> Self {
        Refused::Stop(error)
    }
}

fn name_in_use() -> Refused {
    Refused::Error { name: "name_in_use", fields: Map::new() }
}

/// A scenario in progress.
pub(super) struct Run<'a> {
    file: &'a str,
    config: ScenarioConfig,
    rig: Rig,
    streams: Streams,
    names: Names,
    line: u64,
}

impl<'a> Run<'a> {
    pub(super) fn new(file: &'a str, line: u64, config: ScenarioConfig) -> Result<Self, CliError> {
        let bad = |field: &str, what: String| CliError::bad(file, Some(line), field, what);
        let rig = config.rig().map_err(|error| bad(error.field, error.what))?;
        let rig = Rig::new(rig).map_err(|error| bad("", error.to_string()))?;
        Ok(Self { file, config, rig, streams: Streams::default(), names: Names::default(), line })
    }

    pub(super) fn stats(&mut self) -> Stats {
        self.rig.engine().control().stats()
    }

    pub(super) fn self_check(&self) -> Result<(), CliError> {
        self.rig.self_check()
    }

    /// Executes one operation; its result has the format's fields, and `started`.
    pub(super) fn execute(&mut self, line: u64, op: Op) -> Result<Map<String, Value>, Refused> {
        self.line = line;
        let mut result = match self.dispatch(op)? {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let started: Vec<Value> = self
            .rig
            .engine()
            .take_started()
            .into_iter()
            .filter_map(|copy| self.names.started(copy))
            .map(Value::from)
            .collect();
        result.entry("started").or_insert(Value::Array(started));
        Ok(result)
    }

    fn dispatch(&mut self, op: Op) -> Result<Value, Refused> {
        match op {
            Op::Config(_) => Err(self.bad("op", "config is the first line, and only that").into()),
            Op::Insert { key, tail, namespace, owners } => {
                let owners = owners.map(to_owners);
                let (tokens, namespace) = self.key(KeyText { key, tail, namespace })?;
                let key = Key { namespace: namespace.as_deref(), tokens: &tokens };
                let inserted = self.rig.insert(key, owners.as_deref())?;
                Ok(json!({
                    "matched_pages": inserted.matched_pages,
                    "new_pages": inserted.new_pages.len(),
                    "new_per_lane": counts(&inserted.new_per_lane),
                }))
            }
            Op::Match { key, tail, namespace } => {
                let (tokens, namespace) = self.key(KeyText { key, tail, namespace })?;
                let found = self.rig.engine().match_prefix(Key { namespace: namespace.as_deref(), tokens: &tokens });
                Ok(json!({ "device_pages": found.device_pages, "host_pages": found.host_pages }))
            }
            Op::Lock { key, tail, namespace, r#as } => {
                self.free_name(&r#as)?;
                let (tokens, namespace) = self.key(KeyText { key, tail, namespace })?;
                let locked = self.rig.engine().lock(Key { namespace: namespace.as_deref(), tokens: &tokens });
                if let Some(lock) = locked.lock {
                    self.names.give(&r#as, Ticket::Lock(lock));
                }
                Ok(json!({ "pages": locked.pages }))
            }
            Op::Unlock { name } => {
                let lock = self.names.lock(&name)?;
                self.rig.engine().unlock(lock)?;
                self.names.forget(&name);
                Ok(json!({}))
            }
            Op::Hold { r#as, owners } => {
                self.free_name(&r#as)?;
                let owners = to_owners(owners);
                if let Some(hold) = self.rig.engine().hold(&owners)? {
                    self.names.give(&r#as, Ticket::Hold(hold));
                }
                Ok(json!({ "per_lane": counts(&LaneCounts::of_owners(self.config.lanes, owners)) }))
            }
            Op::Release { name } => {
                let hold = self.names.hold(&name)?;
                let per_lane = self.rig.engine().release(hold)?;
                self.names.forget(&name);
                Ok(json!({ "per_lane": counts(&per_lane) }))
            }
            Op::Backup { key, tail, namespace, r#as } => {
                self.free_name(&r#as)?;
                let (tokens, namespace) = self.key(KeyText { key, tail, namespace })?;
                let (op, per_lane) =
                    self.rig.engine().backup(Key { namespace: namespace.as_deref(), tokens: &tokens })?;
                if let Some(op) = op {
                    self.names.give(&r#as, Ticket::Copy(op));
                }
                Ok(json!({ "pages": per_lane.total(), "per_lane": counts(&per_lane) }))
            }
            Op::LoadBack { key, tail, namespace, r#as } => {
                self.free_name(&r#as)?;
                let (tokens, namespace) = self.key(KeyText { key, tail, namespace })?;
                let load = self.rig.engine().load_back(Key { namespace: namespace.as_deref(), tokens: &tokens })?;
                self.names.give(&r#as, Ticket::Copy(load.op));
                Ok(json!({
                    "pages": load.per_lane.total(),
                    "per_lane": counts(&load.per_lane),
                    "victims_pages": load.victims_pages,
                }))
            }
            Op::Ack { name } => {
                let op = self.names.copy(&name)?;
                let published = self.rig.ack(op)??;
                self.names.forget(&name);
                Ok(json!({ "published": published }))
            }
            Op::Fail { name } => {
                let op = self.names.copy(&name)?;
                self.rig.fail(op)??;
                self.names.forget(&name);
                Ok(json!({ "published": [] }))
            }
            Op::EvictDevice { deficits } => {
                let deficits = self.per_lane("deficits", deficits)?;
                let evicted = self.rig.engine().evict_device(&deficits);
                Ok(evicted_json(&evicted))
            }
            Op::EvictHost { pages } => {
                let pages = self.per_lane("pages", pages)?;
                let evicted = self.rig.engine().evict_host(&pages);
                Ok(evicted_json(&evicted))
            }
            Op::Submit { request, key, tail, namespace, max_new, priority, owners } => {
                if !self.names.is_free_request(&request) {
                    return Err(name_in_use());
                }
                let owners = owners.map(to_owners);
                let (tokens, namespace) = self.key(KeyText { key, tail, namespace })?;
                let options = SubmitOptions {
                    max_new: max_new.unwrap_or(self.config.max_new),
                    priority,
                    owners: owners.as_deref(),
                };
                let key = Key { namespace: namespace.as_deref(), tokens: &tokens };
                let (id, needs) = self.rig.engine().submit(key, options)?;
                if let Some(id) = id {
                    self.names.give_request(&request, id);
                }
                Ok(json!({ "needs_per_lane": counts(&needs) }))
            }
            Op::Step { times } => self.steps(times),
            Op::Finish { request, key, tail } => {
                let id = self.names.request(&request)?;
                let sequence = match key {
                    Some(key) => Some(self.key(KeyText { key, tail, namespace: None })?.0),
                    None => None,
                };
                let ended = self.rig.finish(id, sequence.as_deref())?;
                self.names.forget_request(&request);
                Ok(json!({ "pages_kept": ended.pages_kept, "pages_freed": ended.pages_freed }))
            }
            Op::Abort { request } => {
                let id = self.names.request(&request)?;
                let ended = self.rig.engine().abort(id)?;
                self.names.forget_request(&request);
                Ok(json!({ "pages_kept": ended.pages_kept, "pages_freed": ended.pages_freed }))
            }
            Op::Retract { request } => {
                let id = self.names.request(&request)?;
                let ended = self.rig.engine().retract(id)?;
                Ok(json!({ "pages_kept": ended.pages_kept, "pages_freed": ended.pages_freed }))
            }
            Op::Reset {} => {
                self.rig.reset()?;
                self.names.clear();
                Ok(json!({}))
            }
            Op::Stats {} => Ok(stats_json(&self.stats())),
            Op::Digest {} => Ok(json!({ "digest": format!("{:016x}", self.rig.engine().control().digest()) })),
        }
    }

    /// `times` scheduler steps with their forward passes. Lists add up; `stopped` and `reason` are the last step's.
    fn steps(&mut self, times: u32) -> Result<Value, Refused> {
        let (mut admitted, mut loading, mut started) = (Vec::new(), Vec::new(), Vec::new());
        let (mut victims, mut refused) = (Vec::new(), Vec::new());
        let (mut ended, mut failed) = (Vec::new(), Vec::new());
        let (mut stopped, mut reason) = ("continue", None);
        for _ in 0..times {
            if self.config.completions == Completions::Auto {
                for (op, done) in self.rig.end_all()? {
                    let copies = if done { &mut ended } else { &mut failed };
                    copies.extend(self.names.forget_copy(op));
                }
            }
            let forward = self.rig.step();
            self.rig.clock().advance_to(forward.end_ns);
            let plan = forward.plan;
            admitted.extend(plan.admitted.iter().map(|request| self.names.name_of(*request)));
            loading.extend(plan.loading.iter().map(|request| self.names.name_of(*request)));
            victims.extend(plan.victims_pages);
            for refusal in plan.refused {
                let name = self.names.name_of(refusal.request);
                self.names.forget_request(&name);
                refused.push(json!({ "request": name, "reason": refusal.error.name() }));
            }
            started.extend(plan.started.into_iter().filter_map(|copy| self.names.started(copy)));
            (stopped, reason) = (plan.stopped.outcome(), plan.stopped.reason());
        }
        Ok(json!({
            "admitted": admitted,
            "loading": loading,
            "stopped": stopped,
            "reason": reason,
            "victims_pages": victims,
            "started": started,
            "refused": refused,
            "ended": ended,
            "failed": failed,
        }))
    }

    fn key(&mut self, text: KeyText) -> Result<(Vec<u32>, Option<String>), CliError> {
        let tokens = self
            .streams
            .tokens(&text.key, text.tail, self.config.page_size)
            .map_err(|what| bad_key(self.file, self.line, what))?;
        Ok((tokens, text.namespace))
    }

    fn per_lane(&self, field: &str, counts: PerLane) -> Result<LaneCounts, CliError> {
        match counts {
            PerLane::One(pages) if self.config.lanes == 1 => Ok(LaneCounts::splat(1, pages)),
            PerLane::One(_) => Err(self.bad(field, format!("must be a list of {} counts", self.config.lanes))),
            PerLane::All(pages) if pages.len() == self.config.lanes => Ok(pages.into()),
            PerLane::All(pages) => {
                Err(self.bad(field, format!("has {} counts, and there are {} lanes", pages.len(), self.config.lanes)))
            }
        }
    }

    fn free_name(&self, name: &str) -> Result<(), Refused> {
        if self.names.is_free(name) { Ok(()) } else { Err(name_in_use()) }
    }

    fn bad(&self, field: &str, what: impl std::fmt::Display) -> CliError {
        CliError::bad(self.file, Some(self.line), field, what)
    }
}

fn to_owners(owners: Vec<u8>) -> Vec<Owner> {
    owners.into_iter().map(Owner).collect()
}

fn evicted_json(evicted: &cpkv_engine::Evicted) -> Value {
    json!({
        "victims": evicted.victims,
        "freed": counts(&evicted.freed),
        "remaining": counts(&evicted.remaining),
    })
}

/// Figures with the format's names.
pub(super) fn stats_json(stats: &Stats) -> Value {
    json!({
        "device_free": counts(&stats.device_free),
        "device_evictable": counts(&stats.device_evictable),
        "device_locked": counts(&stats.device_locked),
        "device_reserved": counts(&stats.device_reserved),
        "device_held": counts(&stats.device_held),
        "host_free": counts(&stats.host_free),
        "host_valid": counts(&stats.host_valid),
        "host_pending": counts(&stats.host_pending),
        "nodes": stats.nodes,
        "locks": stats.locks,
        "pins": stats.pins,
        "operations": stats.operations,
        "queued": stats.queued,
        "running": stats.running,
    })
}
