//! The replay loop: arrivals, scheduler steps and forward passes on the virtual clock.

use super::args::ReplayArgs;
use super::report::{Refused, Tally};
use super::source::Source;
use crate::error::CliError;
use crate::rig::{Forward, Recorder, Rig};
use crate::timeline::Timeline;
use cpkv_core::{OpId, Owner, RequestId};
use cpkv_engine::{CopyKind, EngineError, Key, RequestState, StartedCopy, StopReason, SubmitOptions};
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::time::Instant;

/// A replay in progress.
pub(super) struct Drive<'a> {
    pub(super) args: &'a ReplayArgs,
    pub(super) rig: Rig,
    pub(super) source: Source,
    pub(super) recorder: Option<Recorder>,
    pub(super) timeline: Option<Timeline>,
    pub(super) progress: ProgressBar,
    pub(super) tally: Tally,
    /// The source's number of each request that hasn't ended.
    live: BTreeMap<RequestId, Live>,
    /// Time spent in decisions since the last step, nanoseconds of this machine.
    decision_ns: u64,
    /// When each copy in flight was started, for the timeline.
    copies: BTreeMap<OpId, u64>,
}

/// A request that hasn't ended.
struct Live {
    index: usize,
    arrival_ns: u64,
}

/// Runs and times a decision.
#[expect(clippy::disallowed_methods, reason = "decision time is measured, and reported under `measured` alone")]
fn timed<R>(total_ns: &mut u64, decide: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = decide();
    *total_ns += start.elapsed().as_nanos() as u64;
    result
}

impl<'a> Drive<'a> {
    pub(super) fn new(
        args: &'a ReplayArgs,
        rig: Rig,
        source: Source,
        recorder: Option<Recorder>,
        timeline: Option<Timeline>,
        progress: ProgressBar,
    ) -> Self {
        Self {
            args,
            rig,
            source,
            recorder,
            timeline,
            progress,
            tally: Tally::default(),
            live: BTreeMap::new(),
            decision_ns: 0,
            copies: BTreeMap::new(),
        }
    }

    /// Replays everything.
    ///
    /// # Errors
    /// [`CliError::Failed`] for a broken invariant, and for a stall: requests that wait for something that can't come.
    pub(super) fn run(&mut self) -> Result<(), CliError> {
        if self.args.sequential { self.run_sequential() } else { self.run_timed() }?;
        // What is in flight still arrives, and is checked.
        for (op, done) in self.rig.end_all()? {
            self.copy_ended(op, done);
        }
        self.rig.check_structures()
    }

    fn run_sequential(&mut self) -> Result<(), CliError> {
        for index in 0..self.source.len() {
            self.rig.clock().advance_to(self.arrival_ns(index));
            self.submit(index);
            while !self.live.is_empty() {
                for (op, done) in self.rig.end_all()? {
                    self.copy_ended(op, done);
                }
                let (forward, progressed) = self.step()?;
                self.rig.clock().advance_to(forward.end_ns);
                if !progressed && self.copies.is_empty() {
                    return Err(self.stalled(&forward));
                }
            }
            for (op, done) in self.rig.end_all()? {
                self.copy_ended(op, done);
            }
        }
        Ok(())
    }

    fn run_timed(&mut self) -> Result<(), CliError> {
        let mut next = 0;
        loop {
            let now = self.rig.clock().now();
            while next < self.source.len() && self.arrival_ns(next) <= now {
                self.submit(next);
                next += 1;
            }
            for (op, done) in self.rig.end_completed()? {
                self.copy_ended(op, done);
            }
            if self.live.is_empty() && next == self.source.len() {
                return Ok(());
            }
            let (forward, progressed) = self.step()?;
            if forward.end_ns > now {
                self.rig.clock().advance_to(forward.end_ns);
                continue;
            }
            if progressed {
                continue;
            }
            // Nothing to compute: on to the next arrival or the next end of a copy.
            let arrival = (next < self.source.len()).then(|| self.arrival_ns(next));
            match [arrival, self.rig.next_event_ns()].into_iter().flatten().min() {
                Some(time) => {
                    self.rig.clock().advance_to(time);
                }
                None => return Err(self.stalled(&forward)),
            }
        }
    }

    fn arrival_ns(&self, index: usize) -> u64 {
        (self.source.time_ns(index) as f64 / self.args.speed) as u64
    }

    fn submit(&mut self, index: usize) {
        let prompt = self.source.prompt(index);
        let max_new = if self.args.insert_output { self.source.output_tokens(index) as u32 } else { 0 };
        self.tally.requests += 1;
        self.tally.input_tokens += prompt.len() as u64;
        self.tally.blocks += self.source.blocks(index);
        let key = Key { namespace: None, tokens: &prompt };
        let engine = self.rig.engine();
        let submitted =
            timed(&mut self.decision_ns, || engine.submit(key, SubmitOptions { max_new, ..SubmitOptions::default() }));
        match submitted {
            Ok((Some(id), _)) => {
                let arrival_ns = self.arrival_ns(index);
                self.live.insert(id, Live { index, arrival_ns });
            }
            Ok((None, _)) => self.refused(index, "no tokens".to_owned()),
            Err(error) => self.refused(index, reason(&error)),
        }
    }

    fn refused(&mut self, index: usize, reason: String) {
        self.tally.refused.push(Refused { request: self.source.name(index), reason });
        self.progress.inc(1);
    }

    /// One step with its forward pass, and the end of the requests that it completes. Returns whether anything moved.
    fn step(&mut self) -> Result<(Forward, bool), CliError> {
        let rig = &mut self.rig;
        let plan = timed(&mut self.decision_ns, || rig.decide_step());
        let forward = self.rig.run_forward(plan);
        self.note_started(&forward.plan.started);
        let queued = self.rig.engine().control().queued();
        self.tally.step(&forward, queued);
        for refusal in &forward.plan.refused {
            if let Some(live) = self.live.remove(&refusal.request) {
                self.refused(live.index, reason(&refusal.error));
            }
        }
        for request in &forward.plan.admitted {
            self.admitted(*request, forward.start_ns);
        }
        if let Some(timeline) = &mut self.timeline
            && !forward.plan.batch.is_empty()
        {
            let name = format!("forward of {} requests", forward.plan.batch.len());
            timeline.span("compute", &name, forward.start_ns, forward.end_ns, &[]);
        }
        for entry in forward.plan.batch.clone() {
            let complete = self
                .rig
                .engine()
                .control()
                .request(entry.request)
                .is_some_and(|request| request.state == RequestState::Running && !request.is_partial());
            if complete {
                self.finish(entry.request, forward.end_ns)?;
            }
        }
        // A step that found nothing to decide only waited for the clock.
        if queued > 0 || !forward.plan.batch.is_empty() || !forward.plan.refused.is_empty() {
            self.tally.decision_ns.record(std::mem::take(&mut self.decision_ns));
        }
        if self.args.self_check {
            self.rig.check_structures()?;
        }
        let progressed =
            !forward.plan.batch.is_empty() || !forward.plan.started.is_empty() || !forward.plan.refused.is_empty();
        Ok((forward, progressed))
    }

    fn admitted(&mut self, id: RequestId, now: u64) {
        let Some(request) = self.rig.engine().control().request(id) else { return };
        if request.admissions > 1 {
            return;
        }
        let hit = request.hit_tokens;
        self.tally.hit_device_tokens += hit.device;
        self.tally.hit_host_tokens += hit.host;
        self.tally.blocks_hit += (hit.device + hit.host) / u64::from(self.args.block_size);
        if let Some(live) = self.live.get(&id) {
            self.tally.queueing_ns.record(now.saturating_sub(live.arrival_ns));
        }
    }

    fn finish(&mut self, id: RequestId, now: u64) -> Result<(), CliError> {
        let Some(live) = self.live.remove(&id) else { return Ok(()) };
        self.tally.ttft_ns.record(now.saturating_sub(live.arrival_ns));
        let sequence = self.args.insert_output.then(|| {
            let request = self.rig.engine().control().request(id).expect("it is running");
            let mut sequence = request.tokens.clone();
            sequence.extend(self.source.output(live.index));
            sequence
        });
        let rig = &mut self.rig;
        timed(&mut self.decision_ns, || rig.finish(id, sequence.as_deref()))
            .map_err(|error| CliError::Failed(format!("{}: {error}", self.source.name(live.index))))?;
        let started = self.rig.engine().take_started();
        self.note_started(&started);
        self.progress.inc(1);
        Ok(())
    }

    fn note_started(&mut self, started: &[StartedCopy]) {
        if let Some(recorder) = &self.recorder {
            recorder.started(started);
        }
        for copy in started {
            let now = self.rig.clock().now();
            self.copies.insert(copy.op, now);
            let Some(timeline) = &mut self.timeline else { continue };
            for (Owner(lane), ends) in self.rig.copy_ends_ns(copy.op) {
                let mut start = now;
                for (layer, end) in ends.into_iter().enumerate() {
                    let (track, name) = match copy.kind {
                        CopyKind::Backup => (format!("lane {lane} device to host"), format!("backup {}", copy.op)),
                        CopyKind::LoadBack => {
                            (format!("lane {lane} host to device"), format!("load {} layer {layer}", copy.op))
                        }
                    };
                    timeline.span(&track, &name, start.min(end), end, &[]);
                    start = end;
                }
            }
        }
    }

    fn copy_ended(&mut self, op: OpId, done: bool) {
        if let Some(start) = self.copies.remove(&op) {
            self.tally.copy_ns.record(self.rig.clock().now().saturating_sub(start));
        }
        self.tally.copies_failed += u64::from(!done);
    }

    fn stalled(&mut self, forward: &Forward) -> CliError {
        let (queued, running) = {
            let stats = self.rig.engine().control().stats();
            (stats.queued, stats.running)
        };
        let waits_for = match &forward.plan.stopped {
            StopReason::Continue => "nothing that is known".to_owned(),
            StopReason::Stopped(stop) => stop.to_string(),
        };
        CliError::Failed(format!(
            "stalled: {queued} requests queued, {running} running; the next waits for {waits_for}"
        ))
    }
}

fn reason(error: &EngineError) -> String {
    match error {
        EngineError::RequestTooLarge { tier, .. } => format!("{} {tier}: {error}", error.name()),
        _ => format!("{}: {error}", error.name()),
    }
}
