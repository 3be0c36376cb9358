//! One scheduler step: backups that are due, room ahead of demand, then admission, chunk by chunk.
//!
//! Order: what holds pages goes before what holds none, so that nobody who waits holds what others need.
//! 1. Backups by policy that were refused or blocked are tried again.
//! 2. Planned eviction restores the free-room targets (contract C15).
//! 3. Requests whose load-back has been acknowledged are admitted.
//! 4. Requests of which chunks remain go on.
//! 5. The queue, in order, until a limit or a lane stops it.

use crate::digest::Decision;
use crate::evict::Purpose;
use crate::operation::StartedCopy;
use crate::request::{HitTokens, Request, RequestState};
use crate::view::Protected;
use crate::{ControlPlane, EngineError, OpOrigin};
use cpkv_admit::{Batch, Candidate, Shape, Stop};
use cpkv_core::{LaneCounts, OpId, Owner, PageId, RequestId, Tier};
use cpkv_tree::Match;

/// A request's part in the forward pass of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchEntry {
    /// The request.
    pub request: RequestId,
    /// Device pages of everything before `from_token`, in order. They are read.
    pub prefix: Vec<PageId>,
    /// Device pages from position `prefix.len()` on, the last perhaps partial, and room for output. They are written.
    pub new_pages: Vec<PageId>,
    /// The first prompt token to compute.
    pub from_token: u64,
    /// The first prompt token not to compute.
    pub to_token: u64,
}

/// A request that was refused after it had been queued: what is cached changed, and it can never fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The request; it is gone.
    pub request: RequestId,
    /// Why.
    pub error: EngineError,
}

/// Why admission ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The queue is empty, or the next request was not asked for another reason.
    Continue,
    /// The next request is stopped by memory or by a limit.
    Stopped(Stop),
}

impl StopReason {
    /// `continue`, `no_token` or `other`.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Stopped(Stop::NoToken { .. }) => "no_token",
            Self::Stopped(Stop::Other { .. }) => "other",
        }
    }

    /// `lane:K`, or the name of the limit.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Continue => None,
            Self::Stopped(Stop::NoToken { lane, .. }) => Some(format!("lane:{lane}")),
            Self::Stopped(Stop::Other { limit, .. }) => Some(limit.name().to_owned()),
        }
    }
}

/// What a step decided. The caller runs the forward pass over `batch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepPlan {
    /// The batch: new requests, loaded ones and continued chunks.
    pub batch: Vec<BatchEntry>,
    /// Requests admitted by this step.
    pub admitted: Vec<RequestId>,
    /// Requests that wait for their load-back after this step.
    pub loading: Vec<RequestId>,
    /// Requests that can never fit, as it turned out.
    pub refused: Vec<Refusal>,
    /// Why admission ended.
    pub stopped: StopReason,
    /// Page counts of the nodes evicted from the device, in order.
    pub victims_pages: Vec<u32>,
    /// Copies that were started.
    pub started: Vec<StartedCopy>,
}

/// What a candidate would use of the cache.
struct Hit {
    found: Match,
    /// Pages used: resident, then loaded ones.
    pages: u32,
    /// Whether pages are loaded from the host for it.
    loads: bool,
    /// The load-back in flight that it joins.
    joins: Option<OpId>,
}

/// Why a candidate wasn't admitted.
enum NotNow {
    Stop(Stop),
    /// Never with its cached prefix: ask again from the start.
    Cold,
    Never(EngineError),
}

impl From<Stop> for NotNow {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl ControlPlane {
    /// One scheduler step. Agreed acks are applied before it.
    pub fn step(&mut self) -> StepPlan {
        let mut plan = StepPlan {
            batch: Vec::new(),
            admitted: Vec::new(),
            loading: Vec::new(),
            refused: Vec::new(),
            stopped: StopReason::Continue,
            victims_pages: Vec::new(),
            started: Vec::new(),
        };
        let mut batch = Batch::new(&self.config.limits);
        self.retry_backups();
        self.restore_free_room(&mut plan);
        self.admit_loaded(&mut batch, &mut plan);
        if self.continue_chunks(&mut batch, &mut plan) {
            self.admit_queue(&mut batch, &mut plan);
        }
        plan.loading = self
            .active_requests()
            .filter(|request| matches!(request.state, RequestState::Loading { .. }))
            .map(|request| request.id)
            .collect();
        plan.started = self.take_started();
        if let Some(reason) = plan.stopped.reason() {
            self.digest.record(Decision::Stop, reason.bytes().map(u64::from));
        }
        plan
    }

    /// Evicts by plan what the free-room targets lack, on both tiers, as far as it goes.
    fn restore_free_room(&mut self, plan: &mut StepPlan) {
        let lanes = self.config.lanes;
        let coming = self.device.free_pages().saturating_add(&self.staged_pages());
        let deficits = LaneCounts::splat(lanes, self.config.device_free_room).saturating_sub(&coming);
        if !deficits.is_zero() {
            let evictions = self.run_planner(
                &self.device_view(&Protected::default()),
                &deficits,
                self.evict_order(Purpose::Extend),
            );
            self.counters.device_plans += 1;
            plan.victims_pages.extend(self.evict_or_stage(&evictions).0);
        }
        let deficits = LaneCounts::splat(lanes, self.config.host_free_room).saturating_sub(&self.host.free_pages());
        if !deficits.is_zero() {
            self.evict_host(&deficits);
        }
    }

    /// Admits what was loaded. It was decided when the load-back was started, and holds its pages since.
    fn admit_loaded(&mut self, batch: &mut Batch, plan: &mut StepPlan) {
        let ready: Vec<RequestId> = self
            .active_requests()
            .filter(|request| request.state == RequestState::Ready)
            .map(|request| request.id)
            .collect();
        for id in ready {
            let request = self.requests.get_mut(&id).expect("active requests are known");
            request.state = RequestState::Running;
            let cached = u64::from(request.hit) * u64::from(self.config.page_size());
            batch.commit(&Shape {
                extend_tokens: request.scheduled - cached,
                chunked: request.scheduled < request.tokens.len() as u64,
                cached_tokens: cached,
            });
            self.admitted(id, cached, plan);
        }
    }

    /// Enters an admission in the plan.
    fn admitted(&mut self, id: RequestId, from_token: u64, plan: &mut StepPlan) {
        let request = self.requests.get_mut(&id).expect("active requests are known");
        request.admissions += 1;
        let request = &self.requests[&id];
        plan.batch.push(BatchEntry {
            request: id,
            prefix: self.locked_pages(request),
            new_pages: request.own.clone(),
            from_token,
            to_token: request.scheduled,
        });
        plan.admitted.push(id);
        let pages = request.own.iter().map(|page| u64::from(page.0));
        self.digest.record(Decision::Admit, [id.0, from_token, request.scheduled].into_iter().chain(pages));
        self.counters.admitted += 1;
        self.counters.input_tokens += request.tokens.len() as u64;
        self.counters.hit_device_tokens += request.hit_tokens.device;
        self.counters.hit_host_tokens += request.hit_tokens.host;
    }

    /// Continues requests of which chunks remain. Returns whether the queue may be asked.
    fn continue_chunks(&mut self, batch: &mut Batch, plan: &mut StepPlan) -> bool {
        let partial: Vec<RequestId> = self
            .active_requests()
            .filter(|request| request.is_partial() && !plan.admitted.contains(&request.id))
            .map(|request| request.id)
            .collect();
        for id in partial {
            let mut request = self.requests.remove(&id).expect("active requests are known");
            match self.continue_chunk(&mut request, batch, plan) {
                Ok(()) => {
                    self.requests.insert(id, request);
                }
                // It has no lane's pages now: it waits in the queue, at its place, holding nothing.
                Err(NotNow::Stop(stop @ Stop::NoToken { .. })) => {
                    self.requeue(request);
                    plan.stopped = StopReason::Stopped(stop);
                    return false;
                }
                Err(NotNow::Stop(stop)) => {
                    self.requests.insert(id, request);
                    plan.stopped = StopReason::Stopped(stop);
                    return false;
                }
                Err(NotNow::Cold) => {
                    request.cold = true;
                    self.requeue(request);
                }
                Err(NotNow::Never(error)) => {
                    self.requeue(request);
                    self.refuse(id, error, plan);
                }
            }
        }
        true
    }

    fn continue_chunk(&mut self, request: &mut Request, batch: &mut Batch, plan: &mut StepPlan) -> Result<(), NotNow> {
        let shape = batch.shape(&Candidate {
            input_tokens: request.tokens.len() as u64,
            cached_tokens: request.scheduled,
            page_size: self.config.page_size(),
        })?;
        let found = self.tree.match_prefix(request.key_pages(request.hit, self.config.page_size()));
        // What lies on the host beyond its hit says which owners its pages must have to be taken by the tree.
        let (owners, need) = self.extend_need(request, &self.capped_match(request), &shape, request.next_page());
        let mut whole = self.resident_counts(&found);
        whole += &need;
        whole += &self.counts_of(&request.own);
        if let Some(error) = self.over_capacity(&whole) {
            return Err(if request.cold { NotNow::Never(error) } else { NotNow::Cold });
        }
        let protected = Protected::path(&found, found.pages);
        self.check_lanes_now(&need, &protected)?;
        batch.check(&shape)?;
        self.make_room(&need, &protected, Purpose::Extend, plan)?;
        let new_pages = self.alloc_planned(&owners.0);
        let from_token = request.scheduled;
        request.base = request.base.or(owners.1);
        request.scheduled += shape.extend_tokens;
        let mut prefix = self.locked_pages(request);
        prefix.extend_from_slice(&request.own);
        request.own.extend_from_slice(&new_pages);
        let pages = new_pages.iter().map(|page| u64::from(page.0));
        self.digest.record(Decision::Chunk, [request.id.0, from_token].into_iter().chain(pages));
        self.counters.chunks += 1;
        batch.commit(&shape);
        plan.batch.push(BatchEntry { request: request.id, prefix, new_pages, from_token, to_token: request.scheduled });
        Ok(())
    }

    /// Admits waiting requests in order until one is stopped.
    fn admit_queue(&mut self, batch: &mut Batch, plan: &mut StepPlan) {
        while let Some((_, id)) = self.queue.first().copied() {
            let mut request = self.requests.remove(&id).expect("queued requests are known");
            let outcome = match self.admit_one(&mut request, batch, plan) {
                Err(NotNow::Cold) => {
                    request.cold = true;
                    self.admit_one(&mut request, batch, plan)
                }
                outcome => outcome,
            };
            let cached = u64::from(request.hit) * u64::from(self.config.page_size());
            let running = request.state == RequestState::Running;
            self.requests.insert(id, request);
            match outcome {
                Ok(()) if running => self.admitted(id, cached, plan),
                Ok(()) => {}
                Err(NotNow::Stop(stop)) => {
                    plan.stopped = StopReason::Stopped(stop);
                    return;
                }
                Err(NotNow::Cold) => unreachable!("asked from the start already"),
                Err(NotNow::Never(error)) => self.refuse(id, error, plan),
            }
        }
    }

    /// Removes a queued request that can never fit.
    fn refuse(&mut self, id: RequestId, error: EngineError, plan: &mut StepPlan) {
        if let Some(request) = self.requests.remove(&id) {
            self.queue.remove(&self.queue_key(&request));
        }
        self.digest.record(Decision::Refuse, [id.0]);
        plan.refused.push(Refusal { request: id, error });
    }

    /// Decides one waiting request, and takes what it needs if it fits: all or nothing.
    fn admit_one(&mut self, request: &mut Request, batch: &mut Batch, plan: &mut StepPlan) -> Result<(), NotNow> {
        let page_size = u64::from(self.config.page_size());
        let hit = self.hit_of(request);
        let shape = batch.shape(&Candidate {
            input_tokens: request.tokens.len() as u64,
            cached_tokens: u64::from(hit.pages) * page_size,
            page_size: self.config.page_size(),
        })?;
        let load_owners = if hit.loads { self.host_owners(&hit.found) } else { Vec::new() };
        let ((extend_owners, base), mut need) = self.extend_need(request, &hit.found, &shape, hit.pages);
        need += &LaneCounts::of_owners(self.config.lanes, load_owners.iter().copied());
        let mut whole = self.resident_counts(&hit.found);
        whole += &need;
        if let Some(error) = self.over_capacity(&whole) {
            return Err(if request.cold || hit.pages == 0 { NotNow::Never(error) } else { NotNow::Cold });
        }
        let protected = Protected::path(&hit.found, hit.pages);
        self.check_lanes_now(&need, &protected)?;
        batch.check(&shape)?;
        let purpose = if hit.loads { Purpose::LoadBack } else { Purpose::Extend };
        // The path is cut at the hit's end before anything is evicted: what hangs beyond it may go, the hit may not.
        let tail = self.end_path_at(&hit.found, hit.pages);
        // Its host part is pinned meanwhile: what write-back stages to the host must not push it out (contract C6).
        if let Some(tail) = tail {
            self.tree.lock_host(tail).expect("a live node");
        }
        let room = self.make_room(&need, &Protected::down_to(&self.tree, tail), purpose, plan);
        if let Some(tail) = tail {
            self.tree.unlock_host(tail).expect("just locked");
        }
        room?;

        // Everything is decided: from here on nothing is refused.
        let mut loaded = self.alloc_planned(&[load_owners.as_slice(), &extend_owners].concat());
        request.own = loaded.split_off(load_owners.len());
        (request.hit, request.base) = (hit.pages, base);
        request.scheduled = u64::from(hit.pages) * page_size + shape.extend_tokens;
        if let Some(tail) = tail {
            let tick = self.next_tick();
            self.tree.touch(tail, tick).expect("a live node");
            let resident = self.tree.path_up(tail).find(|node| node.device().is_some()).map(|node| node.id());
            if let Some(node) = resident {
                self.tree.lock(node).expect("a live node");
            }
            request.lock = resident;
        }
        request.state = RequestState::Running;
        let op = match hit.joins {
            None if hit.loads => {
                let tail = tail.expect("a load has a path");
                Some(self.start_load(tail, hit.found.device_pages, loaded, OpOrigin::Request(request.id)))
            }
            joins => joins,
        };
        if let Some(op) = op {
            let hit_node = tail.expect("a load has a path");
            request.state = RequestState::Loading { op, hit_node };
            self.ops.get_mut(&op).expect("it is in flight").waiters.push(request.id);
        }
        let device = u64::from(hit.found.device_pages.min(hit.pages)) * page_size;
        request.hit_tokens = HitTokens { device, host: u64::from(hit.pages) * page_size - device };
        batch.commit(&shape);
        self.queue.remove(&self.queue_key(request));
        self.active.insert(request.id);
        Ok(())
    }

    /// What of the cache a waiting request would use.
    fn hit_of(&self, request: &Request) -> Hit {
        if request.cold {
            return Hit { found: Match::default(), pages: 0, loads: false, joins: None };
        }
        let found = self.capped_match(request);
        if let Some((op, end)) = self.load_in_flight(&found) {
            // Somebody loads a part of the same prefix: it waits for that copy and computes what lies beyond it.
            return Hit { found, pages: end, loads: false, joins: Some(op) };
        }
        let loads = found.host_pages > 0 && found.host_pages >= self.config.load_back_min_pages;
        let pages = if loads { found.pages } else { found.device_pages };
        Hit { found, pages, loads, joins: None }
    }

    /// Owners and pages per lane of a shape's extend, which begins at page `from`.
    fn extend_need(
        &self,
        request: &Request,
        found: &Match,
        shape: &Shape,
        from: u32,
    ) -> ((Vec<Owner>, Option<Owner>), LaneCounts) {
        let end = if shape.chunked {
            let tokens = shape.cached_tokens + shape.extend_tokens;
            tokens.div_ceil(u64::from(self.config.page_size())) as u32
        } else {
            self.pages_with_output(request)
        };
        let owners = self.owners_of_extend(found, from, end, request.explicit.as_deref());
        let need = LaneCounts::of_owners(self.config.lanes, owners.0.iter().copied());
        (owners, need)
    }

    /// Lane feasibility: on every lane, need within free and evictable (contract C9).
    fn check_lanes_now(&self, need: &LaneCounts, protected: &Protected) -> Result<(), Stop> {
        match self.device_missing(need, protected).first_nonzero() {
            None => Ok(()),
            Some(lane) => Err(self.no_token(need, lane)),
        }
    }

    fn no_token(&self, need: &LaneCounts, lane: Owner) -> Stop {
        let have = u64::from(self.device.free_pages()[lane]) + u64::from(self.tree.device_evictable()[lane]);
        Stop::NoToken { tier: Tier::Device, lane, need: need[lane], have }
    }

    /// Evicts by plan until `need` is free. Under write-back it may have to wait for what is staged first.
    fn make_room(
        &mut self,
        need: &LaneCounts,
        protected: &Protected,
        purpose: Purpose,
        plan: &mut StepPlan,
    ) -> Result<(), Stop> {
        if !self.device.free_pages().covers(need) {
            let coming = self.device.free_pages().saturating_add(&self.staged_pages());
            if !coming.covers(need) {
                let evictions = self
                    .plan_device(need, protected, purpose)
                    .map_err(|_| self.no_token(need, need.first_nonzero().unwrap_or_default()))?;
                plan.victims_pages.extend(self.evict_or_stage(&evictions).0);
            }
        }
        match need.saturating_sub(self.device.free_pages()).first_nonzero() {
            None => Ok(()),
            Some(lane) => Err(self.no_token(need, lane)),
        }
    }
}
