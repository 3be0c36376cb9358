//! Configurations and calls by chance: small pools, few streams and deep forks, so that everything meets everything.

use crate::call::{Call, Prompt, Reply};
use crate::target::Target;
use cpkv_admit::Limits;
use cpkv_core::{HoldId, LaneCounts, LockId, OpId, Owner, Placement, RequestId};
use cpkv_engine::{Config, ControlPlane, OutputReserve, QueueOrder, RequestState, WritePolicy};
use cpkv_plan::{Algorithm, EvictAmount, EvictOrder};
use cpkv_tree::Retention;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Tokens per page.
const PAGE: u32 = 16;

/// A configuration by chance.
pub fn config(rng: &mut StdRng) -> Config {
    let lanes = *[1, 1, 2, 3, 4, 8].choose(rng).expect("not empty");
    let device_pages = rng.random_range(1..=12);
    let host_pages = if rng.random_bool(0.15) { 0 } else { rng.random_range(1..=14) };
    let mut limit = |chance: f64, pages: std::ops::Range<u32>| -> Option<u64> {
        rng.random_bool(chance).then(|| u64::from(rng.random_range(pages) * PAGE))
    };
    let limits = Limits {
        input_tokens: limit(0.2, 2..20),
        chunk_tokens: limit(0.4, 1..6),
        extend_tokens: limit(0.2, 1..10),
        cached_tokens: limit(0.2, 1..10),
        batch_requests: rng.random_bool(0.2).then(|| rng.random_range(1..4)),
        buffer_bytes: None,
    };
    let room = |rng: &mut StdRng, pages: u32| if rng.random_bool(0.5) { 0 } else { rng.random_range(0..=pages / 3) };
    let policies =
        [WritePolicy::Manual, WritePolicy::WriteThrough, WritePolicy::WriteThroughSelective, WritePolicy::WriteBack];
    Config {
        placement: *[Placement::Rotated, Placement::Zigzag, Placement::Explicit].choose(rng).expect("not empty"),
        retention: *[Retention::Lru, Retention::Slru, Retention::Lfu, Retention::Fifo, Retention::Priority]
            .choose(rng)
            .expect("not empty"),
        write_policy: *policies.choose(rng).expect("not empty"),
        load_back_min_pages: rng.random_range(1..=3),
        evict_amount: *[EvictAmount::FullNeed, EvictAmount::Shortfall, EvictAmount::ShortfallPlusRoom]
            .choose(rng)
            .expect("not empty"),
        evict_order: *[None, Some(EvictOrder::Contribution), Some(EvictOrder::Retention)]
            .choose(rng)
            .expect("not empty"),
        planner: *Algorithm::ALL.choose(rng).expect("not empty"),
        device_free_room: room(rng, device_pages),
        host_free_room: room(rng, host_pages),
        limits,
        output_reserve: *[OutputReserve::None, OutputReserve::Full].choose(rng).expect("not empty"),
        queue_order: *[QueueOrder::Fcfs, QueueOrder::Priority].choose(rng).expect("not empty"),
        ..Config::small(lanes, device_pages, host_pages)
    }
}

/// Draws calls, and remembers what they handed out.
#[derive(Debug)]
pub struct Calls {
    rng: StdRng,
    lanes: usize,
    device_pages: u32,
    host_pages: u32,
    explicit: bool,
    locks: Vec<LockId>,
    holds: Vec<HoldId>,
    requests: Vec<RequestId>,
}

impl Calls {
    /// Calls for an engine of this configuration.
    #[must_use]
    pub fn new(seed: u64, config: &Config) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed ^ 0xCA11),
            lanes: config.lanes,
            device_pages: config.device_pages,
            host_pages: config.host_pages,
            explicit: config.placement == Placement::Explicit,
            locks: Vec::new(),
            holds: Vec::new(),
            requests: Vec::new(),
        }
    }

    /// A prompt of a few streams that fork at any page, seldom in a namespace, often with a partial last page.
    fn prompt(&mut self) -> Prompt {
        let rng = &mut self.rng;
        let longest = (self.device_pages * self.lanes as u32 * 5 / 4).clamp(2, 24);
        let mut tokens = Vec::new();
        let page = |stream: u32, page: u32, tokens: &mut Vec<u32>| {
            tokens.extend((0..PAGE).map(|offset| (stream * 1000 + page) * PAGE + offset));
        };
        let trunk = rng.random_range(0..3u32);
        for at in 0..rng.random_range(0..=longest) {
            page(trunk, at, &mut tokens);
        }
        if rng.random_bool(0.6) {
            let branch = rng.random_range(3..9u32);
            for at in 0..rng.random_range(0..=longest / 2) {
                page(branch, at, &mut tokens);
            }
        }
        if rng.random_bool(0.4) {
            let stream = rng.random_range(9..12u32);
            let partial = rng.random_range(1..PAGE) as usize;
            page(stream, 0, &mut tokens);
            tokens.truncate(tokens.len() - PAGE as usize + partial);
        }
        Prompt { namespace: rng.random_bool(0.1).then_some("tenant"), tokens }
    }

    /// Owners of the pages that neither tier has; seldom one too many, or one on a lane that isn't there.
    fn owners(&mut self, control: &ControlPlane, prompt: &Prompt, partial: bool) -> Option<Vec<Owner>> {
        if !self.explicit && self.rng.random_bool(0.95) {
            return None;
        }
        let found = control.match_prefix(prompt.key());
        let tokens = prompt.tokens.len() as u32;
        let pages = if partial { tokens.div_ceil(PAGE) } else { tokens / PAGE };
        let missing = pages.saturating_sub(found.device_pages + found.host_pages);
        let wrong = self.rng.random_bool(0.05);
        let lanes = self.lanes as u8 + u8::from(wrong);
        Some((0..missing + u32::from(wrong)).map(|_| Owner(self.rng.random_range(0..lanes))).collect())
    }

    fn deficits(&mut self, pages: u32) -> LaneCounts {
        let most = self.rng.random_range(0..=pages);
        (0..self.lanes).map(|_| self.rng.random_range(0..=most)).collect::<Vec<u32>>().into()
    }

    /// The next call. Ids are mostly live ones.
    pub fn next(&mut self, control: &ControlPlane) -> Call {
        let copies: Vec<OpId> = control.operations().map(|(op, _)| op).collect();
        let stale = self.rng.random_bool(0.03);
        match self.rng.random_range(0..100u32) {
            0..8 => {
                let prompt = self.prompt();
                let owners = self.owners(control, &prompt, false);
                Call::Insert { prompt, owners }
            }
            8..10 => Call::Match { prompt: self.prompt() },
            10..12 => Call::WhatIf { prompt: self.prompt(), max_new: self.rng.random_range(0..40) },
            12..15 => Call::Lock { prompt: self.prompt() },
            15..19 => match self.locks.choose(&mut self.rng) {
                Some(lock) if !stale => Call::Unlock { lock: *lock },
                _ => Call::Unlock { lock: LockId(u64::MAX) },
            },
            19..21 => {
                let pages = self.rng.random_range(0..=self.device_pages.min(4));
                Call::Hold { owners: (0..pages).map(|_| Owner(self.rng.random_range(0..self.lanes as u8))).collect() }
            }
            21..25 => match self.holds.choose(&mut self.rng) {
                Some(hold) if !stale => Call::Release { hold: *hold },
                _ => Call::Release { hold: HoldId(u64::MAX) },
            },
            25..31 => Call::Backup { prompt: self.prompt() },
            31..36 => Call::LoadBack { prompt: self.prompt() },
            36..50 => match copies.choose(&mut self.rng) {
                Some(op) if !stale => Call::End { op: *op, agreed_failure: self.rng.random_bool(0.12) },
                _ => Call::End { op: OpId(u64::MAX), agreed_failure: self.rng.random_bool(0.5) },
            },
            50..54 => Call::EvictDevice { deficits: self.deficits(self.device_pages) },
            54..57 => Call::EvictHost { deficits: self.deficits(self.host_pages) },
            57..69 => {
                let prompt = self.prompt();
                let owners = self.owners(control, &prompt, true);
                Call::Submit {
                    prompt,
                    max_new: self.rng.random_range(0..40),
                    priority: self.rng.random_range(-2..3),
                    owners,
                }
            }
            69..84 => Call::Step,
            84..95 => {
                let request = self.request(stale);
                let sequence = self.generated(control, request);
                Call::Finish { request, sequence }
            }
            95..97 => Call::Abort { request: self.request(stale) },
            97..99 => Call::Retract { request: self.request(stale) },
            _ if self.rng.random_bool(0.1) => Call::Reset,
            _ => Call::Step,
        }
    }

    fn request(&mut self, stale: bool) -> RequestId {
        match self.requests.choose(&mut self.rng) {
            Some(request) if !stale => *request,
            _ => RequestId(u64::MAX),
        }
    }

    /// Sometimes the prompt with what was generated after it; seldom something else.
    fn generated(&mut self, control: &ControlPlane, request: RequestId) -> Option<Prompt> {
        let request = control.request(request)?;
        if self.rng.random_bool(0.6) {
            return None;
        }
        let mut sequence = request.tokens.clone();
        sequence.extend((0..self.rng.random_range(0..=request.max_new)).map(|at| 5_000_000 + at));
        if self.rng.random_bool(0.05) {
            sequence[0] ^= 1;
        }
        Some(Prompt { namespace: None, tokens: sequence })
    }

    /// Remembers what a call that succeeded handed out or ended.
    pub fn learn(&mut self, call: &Call, reply: &Reply) {
        match (call, reply) {
            (_, Reply::Lock(Some(lock))) => self.locks.push(*lock),
            (_, Reply::Hold(Some(hold))) => self.holds.push(*hold),
            (_, Reply::Request(Some(request))) => self.requests.push(*request),
            (_, Reply::Step(plan)) => {
                self.requests.retain(|id| !plan.refused.iter().any(|refusal| refusal.request == *id));
            }
            (Call::Unlock { lock }, _) => self.locks.retain(|known| known != lock),
            (Call::Release { hold }, _) => self.holds.retain(|known| known != hold),
            (Call::Finish { request, .. } | Call::Abort { request }, _) => {
                self.requests.retain(|known| known != request);
            }
            (Call::Reset, _) => {
                self.locks.clear();
                self.holds.clear();
                self.requests.clear();
            }
            _ => {}
        }
    }

    /// Lets everything come to its end: gives back what is named, runs every request, ends every copy.
    ///
    /// # Errors
    /// What doesn't end.
    pub fn drain(&mut self, target: &mut impl Target) -> Result<(), String> {
        for lock in std::mem::take(&mut self.locks) {
            must(target, &Call::Unlock { lock })?;
        }
        for hold in std::mem::take(&mut self.holds) {
            must(target, &Call::Release { hold })?;
        }
        // Every round that admits nobody must at least end a copy, and a request takes a chunk per round at least.
        let pages: u64 = self.requests.iter().filter_map(|id| target.control().request(*id)).map(chunks).sum();
        let rounds = 8 + 4 * self.requests.len() as u64 + pages;
        for _ in 0..rounds {
            let copies: Vec<OpId> = target.control().operations().map(|(op, _)| op).collect();
            for op in copies {
                must(target, &Call::End { op, agreed_failure: false })?;
            }
            let done: Vec<RequestId> = target
                .control()
                .active_requests()
                .filter(|request| request.state == RequestState::Running && !request.is_partial())
                .map(|request| request.id)
                .collect();
            for request in done {
                must(target, &Call::Finish { request, sequence: None })?;
                self.requests.retain(|known| *known != request);
            }
            let Reply::Step(plan) = must(target, &Call::Step)? else { unreachable!("a step replies with its plan") };
            self.requests.retain(|id| !plan.refused.iter().any(|refusal| refusal.request == *id));
            let stats = target.control().stats();
            if stats.queued + stats.running + stats.operations == 0 {
                return self.empty(target);
            }
        }
        Err(format!("after {rounds} rounds there are still {:?}", target.control().stats()))
    }

    /// Evicts everything: then every page is free, and nothing is left.
    fn empty(&mut self, target: &mut impl Target) -> Result<(), String> {
        // Under write-back the device is staged to the host, which takes rounds where it is the smaller one.
        let all = |pages| LaneCounts::splat(self.lanes, pages);
        for _ in 0..4 + self.lanes as u32 * self.device_pages {
            must(target, &Call::EvictDevice { deficits: all(self.device_pages) })?;
            let copies: Vec<OpId> = target.control().operations().map(|(op, _)| op).collect();
            for op in copies {
                must(target, &Call::End { op, agreed_failure: false })?;
            }
            must(target, &Call::EvictHost { deficits: all(self.host_pages) })?;
        }
        let stats = target.control().stats();
        let (nothing, lanes) = (all(0), [all(self.device_pages), all(self.host_pages)]);
        let clean = [&stats.device_free, &stats.host_free] == [&lanes[0], &lanes[1]]
            && [&stats.device_reserved, &stats.device_held, &stats.host_pending]
                .iter()
                .all(|counts| **counts == nothing)
            && stats.nodes + stats.locks + stats.pins + stats.operations == 0;
        if clean { Ok(()) } else { Err(format!("at the end there are still {stats:?}")) }
    }
}

/// Pages of a prompt: no chunk is smaller.
fn chunks(request: &cpkv_engine::Request) -> u64 {
    (request.tokens.len() as u64).div_ceil(PAGE.into())
}

fn must(target: &mut impl Target, call: &Call) -> Result<Reply, String> {
    let reply = target.call(call).map_err(|error| match error {
        Ok(broke) => format!("{call:?}: {broke}"),
        Err(refused) => format!("{call:?}: refused: {refused}"),
    })?;
    target.check().map_err(|what| format!("{call:?}: {what}"))?;
    Ok(reply)
}
