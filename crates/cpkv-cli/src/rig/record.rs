//! Writes the operation log down as a scenario: a run that can be read, cut and run again.

use crate::scenario::ScenarioConfig;
use cpkv_core::{HoldId, LaneCounts, LockId, OpId, Owner, RequestId};
use cpkv_engine::{Key, LoggedCall, OpOrigin, OperationLog, StartedCopy};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::sync::{Arc, Mutex};

/// Takes calls and writes lines. Clones write to the same file: one goes into the engine, one ends the file.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<Inner>>);

struct Inner {
    out: Box<dyn Write + Send>,
    page_size: u32,
    /// Whole pages by their tokens, numbered as they are first seen: page K of the stream `t`.
    pages: FxHashMap<Box<[u32]>, u32>,
    /// Partial last pages, by their tokens: the beginning of page 0 of a stream of their own.
    tails: FxHashMap<Box<[u32]>, u32>,
    copies: FxHashMap<OpId, String>,
    error: Option<std::io::Error>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

impl Recorder {
    /// Begins a scenario with this configuration. Copies end by `ack` and `fail` lines.
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>, config: &ScenarioConfig) -> Self {
        let mut inner = Inner {
            out,
            page_size: config.page_size,
            pages: FxHashMap::default(),
            tails: FxHashMap::default(),
            copies: FxHashMap::default(),
            error: None,
        };
        let config = ScenarioConfig { completions: crate::scenario::Completions::Manual, ..config.clone() };
        let mut line = json!({ "op": "config" });
        if let (Value::Object(line), Ok(Value::Object(config))) = (&mut line, serde_json::to_value(&config)) {
            line.extend(config);
        }
        inner.write(&line);
        Self(Arc::new(Mutex::new(inner)))
    }

    /// Ends the file with the digest that the run came to: running the scenario must come to the same.
    ///
    /// # Errors
    /// The first error of writing.
    pub fn finish(&self, digest: u64) -> std::io::Result<()> {
        let mut inner = self.inner();
        inner.write(&json!({ "op": "digest", "expect": { "digest": format!("{digest:016x}") } }));
        if let Err(error) = inner.out.flush() {
            inner.error.get_or_insert(error);
        }
        inner.error.take().map_or(Ok(()), Err)
    }

    /// Learns the names of copies that the engine started itself.
    pub fn started(&self, copies: &[StartedCopy]) {
        let mut inner = self.inner();
        for copy in copies {
            let name = match copy.origin {
                OpOrigin::Caller => continue,
                OpOrigin::Request(request) => format!("load:{}", request_name(request)),
                OpOrigin::Policy(k) => format!("backup:{k}"),
            };
            inner.copies.insert(copy.op, name);
        }
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().expect("a recorder doesn't panic while it writes")
    }
}

fn request_name(request: RequestId) -> String {
    format!("R{request}")
}

fn lock_name(lock: LockId) -> String {
    format!("lock{lock}")
}

fn hold_name(hold: HoldId) -> String {
    format!("hold{hold}")
}

impl Inner {
    fn write(&mut self, line: &Value) {
        if let Err(error) = writeln!(self.out, "{line}") {
            self.error.get_or_insert(error);
        }
    }

    /// Tokens as runs of pages of the stream `t`, and the tokens of a partial last page as a tail.
    fn runs(&mut self, tokens: &[u32]) -> (Vec<String>, usize) {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let (whole, rest) = tokens.split_at(tokens.len() - tokens.len() % self.page_size as usize);
        for page in whole.chunks(self.page_size as usize) {
            let next = self.pages.len() as u32;
            let id = match self.pages.get(page) {
                Some(id) => *id,
                None => *self.pages.entry(page.into()).or_insert(next),
            };
            match runs.last_mut() {
                Some((_, end)) if *end == id => *end += 1,
                _ => runs.push((id, id + 1)),
            }
        }
        let mut parts: Vec<String> = runs.iter().map(|(start, end)| format!("t:{start}..{end}")).collect();
        if !rest.is_empty() {
            let next = self.tails.len() as u32;
            let id = match self.tails.get(rest) {
                Some(id) => *id,
                None => *self.tails.entry(rest.into()).or_insert(next),
            };
            parts.push(format!("tail{id}:0..0"));
        }
        (parts, rest.len())
    }

    fn key(&mut self, line: &mut Map<String, Value>, key: Key<'_>) {
        let (parts, tail) = self.runs(key.tokens);
        line.insert("key".into(), parts.into());
        if tail > 0 {
            line.insert("tail".into(), tail.into());
        }
        if let Some(namespace) = key.namespace {
            line.insert("namespace".into(), namespace.into());
        }
    }

    fn copy(&mut self, op: OpId) -> String {
        self.copies.get(&op).cloned().unwrap_or_else(|| format!("copy{op}"))
    }

    /// What a line writes for a call, beside `op`.
    fn line(&mut self, call: LoggedCall<'_>) -> Option<(&'static str, Map<String, Value>)> {
        let mut line = Map::new();
        let op = match call {
            LoggedCall::Insert { key, owners } => {
                self.key(&mut line, key);
                owners.into_iter().for_each(|owners| put(&mut line, "owners", owner_list(owners)));
                "insert"
            }
            LoggedCall::Lock { key, lock } => {
                self.key(&mut line, key);
                put(&mut line, "as", lock.map_or("nothing".to_owned(), lock_name));
                "lock"
            }
            LoggedCall::Unlock { lock } => {
                put(&mut line, "name", lock_name(lock));
                "unlock"
            }
            LoggedCall::Hold { owners, hold } => {
                put(&mut line, "as", hold.map_or("nothing".to_owned(), hold_name));
                put(&mut line, "owners", owner_list(owners));
                "hold"
            }
            LoggedCall::Release { hold } => {
                put(&mut line, "name", hold_name(hold));
                "release"
            }
            LoggedCall::Backup { key, op } => {
                self.key(&mut line, key);
                put(&mut line, "as", op.map_or("nothing".to_owned(), |op| self.copy(op)));
                "backup"
            }
            LoggedCall::LoadBack { key, op } => {
                self.key(&mut line, key);
                put(&mut line, "as", op.map_or("nothing".to_owned(), |op| self.copy(op)));
                "load_back"
            }
            LoggedCall::Ack { op } => {
                put(&mut line, "name", self.copy(op));
                "ack"
            }
            LoggedCall::Fail { op } => {
                put(&mut line, "name", self.copy(op));
                "fail"
            }
            LoggedCall::EvictDevice { deficits } => {
                put(&mut line, "deficits", lane_list(deficits));
                "evict_device"
            }
            LoggedCall::EvictHost { deficits } => {
                put(&mut line, "pages", lane_list(deficits));
                "evict_host"
            }
            LoggedCall::Submit { key, max_new, priority, owners, request } => {
                put(&mut line, "request", request.map_or("nothing".to_owned(), request_name));
                self.key(&mut line, key);
                put(&mut line, "max_new", max_new);
                if priority != 0 {
                    put(&mut line, "priority", priority);
                }
                owners.into_iter().for_each(|owners| put(&mut line, "owners", owner_list(owners)));
                "submit"
            }
            LoggedCall::Step => "step",
            LoggedCall::Finish { request, sequence } => {
                put(&mut line, "request", request_name(request));
                if let Some(tokens) = sequence {
                    self.key(&mut line, Key { namespace: None, tokens });
                }
                "finish"
            }
            LoggedCall::Abort { request } => {
                put(&mut line, "request", request_name(request));
                "abort"
            }
            LoggedCall::Retract { request } => {
                put(&mut line, "request", request_name(request));
                "retract"
            }
            LoggedCall::Reset => "reset",
            _ => return None,
        };
        Some((op, line))
    }
}

fn put(line: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    line.insert(field.into(), value.into());
}

fn owner_list(owners: &[Owner]) -> Vec<u8> {
    owners.iter().map(|owner| owner.0).collect()
}

fn lane_list(counts: &LaneCounts) -> Vec<u32> {
    counts.as_slice().to_vec()
}

impl OperationLog for Recorder {
    fn record(&mut self, call: LoggedCall<'_>, error: Option<&'static str>) {
        let mut inner = self.inner();
        let Some((op, fields)) = inner.line(call) else { return };
        let mut line = Map::new();
        put(&mut line, "op", op);
        line.extend(fields);
        if let Some(error) = error {
            put(&mut line, "expect_error", error);
        }
        inner.write(&Value::Object(line));
    }
}
