//! A request's life: submitted, perhaps loading, running, and ended by finish, abort or retract.

use crate::control::Key;
use crate::digest::Decision;
use crate::operation::Operation;
use crate::{ControlPlane, EngineError};
use cpkv_admit::OrderKey;
use cpkv_core::{LaneCounts, NodeId, OpId, Owner, PageId, Placement, RequestId, Tier};
use cpkv_tree::Match;

/// A request's place in the queue: the smaller goes first.
pub(crate) type QueueKey = (OrderKey, RequestId);

/// What comes with a request beside its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubmitOptions<'a> {
    /// The most tokens that it will generate.
    pub max_new: u32,
    /// The larger goes first, where the queue is ordered by priority.
    pub priority: i64,
    /// One owner per page that is in neither tier, where the placement is explicit.
    pub owners: Option<&'a [Owner]>,
}

/// Where a request is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestState {
    /// Waits in the queue and holds nothing.
    Queued,
    /// Holds its pages and waits for a load-back.
    Loading {
        /// The load-back.
        op: OpId,
        /// The node at the end of its hit, locked at the ack.
        hit_node: NodeId,
    },
    /// Its load-back has been acknowledged; the next step admits it.
    Ready,
    /// Admitted.
    Running,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its id, in the order of submission.
    pub id: RequestId,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its prompt.
    pub tokens: Vec<u32>,
    /// The most tokens that it will generate.
    pub max_new: u32,
    /// Its priority.
    pub priority: i64,
    /// Where it is in its life.
    pub state: RequestState,
    /// Owners of all pages of the chain, where the caller places.
    pub(crate) explicit: Option<Vec<Owner>>,
    /// Pages of the prompt that the tree holds for it: positions `0..hit`.
    pub(crate) hit: u32,
    /// Its own pages, for the positions from `hit` on.
    pub(crate) own: Vec<PageId>,
    /// The base of its own pages.
    pub(crate) base: Option<Owner>,
    /// Prompt tokens that are cached or scheduled.
    pub(crate) scheduled: u64,
    /// The path lock that it holds: the end of its hit, or of the resident part of it while it loads.
    pub(crate) lock: Option<NodeId>,
    /// Prompt tokens found on the device, and loaded from the host, by the admission that it has had last.
    pub hit_tokens: HitTokens,
    /// How often it was admitted: more than once after a retract.
    pub admissions: u32,
    /// Its cached prefix and itself don't fit the lanes together: it computes from the start.
    pub(crate) cold: bool,
}

/// What of a prompt was cached, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HitTokens {
    /// Found on the device.
    pub device: u64,
    /// Loaded from the host.
    pub host: u64,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Own pages that the tree took.
    pub pages_kept: u32,
    /// Own pages that were freed: duplicates, the partial page, room for output.
    pub pages_freed: u32,
}

impl Request {
    /// The prompt with its namespace.
    #[must_use]
    pub fn key(&self) -> Key<'_> {
        Key { namespace: self.namespace.as_deref(), tokens: &self.tokens }
    }

    /// The key's first `pages` pages.
    pub(crate) fn key_pages(&self, pages: u32, page_size: u32) -> Key<'_> {
        let tokens = (pages as usize * page_size as usize).min(self.tokens.len());
        Key { namespace: self.namespace.as_deref(), tokens: &self.tokens[..tokens] }
    }

    /// Device pages that the request itself holds.
    #[must_use]
    pub fn own_pages(&self) -> &[PageId] {
        &self.own
    }

    /// Whether chunks of the prompt remain to be scheduled.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.state == RequestState::Running && self.scheduled < self.tokens.len() as u64
    }

    /// Prompt tokens that are cached or scheduled so far.
    #[must_use]
    pub fn scheduled(&self) -> u64 {
        self.scheduled
    }

    pub(crate) fn holds_lock(&self) -> bool {
        self.lock.is_some() || matches!(self.state, RequestState::Loading { .. })
    }

    /// The first position, in pages, that isn't covered yet.
    #[must_use]
    pub fn next_page(&self) -> u32 {
        self.hit + self.own.len() as u32
    }
}

impl ControlPlane {
    /// A request.
    #[must_use]
    pub fn request(&self, id: RequestId) -> Option<&Request> {
        self.requests.get(&id)
    }

    /// Requests that run or wait for their load-back, in order of submission.
    pub fn active_requests(&self) -> impl Iterator<Item = &Request> {
        self.active.iter().filter_map(|id| self.requests.get(id))
    }

    /// Puts a request in the queue. Returns it (`None`: it has no token and isn't queued) and the pages that it needs
    /// per lane: what of the prompt isn't on the device, host hits included, and the reserve for output.
    ///
    /// # Errors
    /// [`EngineError::RequestTooLarge`] for a request that could never fit, [`EngineError::OwnerMismatch`].
    pub fn submit(
        &mut self,
        key: Key<'_>,
        options: SubmitOptions<'_>,
    ) -> Result<(Option<RequestId>, LaneCounts), EngineError> {
        let request = self.new_request(key, options)?;
        if request.tokens.is_empty() {
            return Ok((None, LaneCounts::zero(self.config.lanes)));
        }
        let found = self.capped_match(&request);
        let need = self.need_of_all(&request, &found);
        self.check_size(&request, &found, &need)?;
        let id = request.id;
        self.next.request += 1;
        self.digest.record(Decision::Submit, [id.0].into_iter().chain(need.as_slice().iter().map(|n| u64::from(*n))));
        self.queue.insert(self.queue_key(&request));
        self.requests.insert(id, request);
        Ok((Some(id), need))
    }

    /// A request as it would be queued.
    ///
    /// # Errors
    /// [`EngineError::OwnerMismatch`].
    pub(crate) fn new_request(&self, key: Key<'_>, options: SubmitOptions<'_>) -> Result<Request, EngineError> {
        let pages = key.tokens.len().div_ceil(self.config.page_size() as usize) as u32;
        let found = if options.owners.is_some() || self.config.placement == Placement::Explicit {
            self.tree.match_prefix(key)
        } else {
            Match::default()
        };
        Ok(Request {
            id: RequestId(self.next.request),
            namespace: key.namespace.map(str::to_owned),
            tokens: key.tokens.to_vec(),
            max_new: options.max_new,
            priority: options.priority,
            state: RequestState::Queued,
            explicit: self.explicit_owners(&found, pages, options.owners)?,
            hit: 0,
            own: Vec::new(),
            base: None,
            scheduled: 0,
            lock: None,
            hit_tokens: HitTokens::default(),
            admissions: 0,
            cold: false,
        })
    }

    /// Refuses what could never fit, with its cached prefix or from the start (contract C12).
    pub(crate) fn check_size(&self, request: &Request, found: &Match, need: &LaneCounts) -> Result<(), EngineError> {
        let mut warm = self.resident_counts(found);
        warm += need;
        if self.over_capacity(&warm).is_none() {
            return Ok(());
        }
        match self.over_capacity(&self.cold_need(request)) {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Pages per lane of a request that is computed from the start.
    fn cold_need(&self, request: &Request) -> LaneCounts {
        let pages = self.pages_with_output(request);
        let (owners, _) = self.owners_of_extend(&Match::default(), 0, pages, request.explicit.as_deref());
        LaneCounts::of_owners(self.config.lanes, owners)
    }

    /// The error for a need that is beyond a lane's size.
    pub(crate) fn over_capacity(&self, need: &LaneCounts) -> Option<EngineError> {
        let capacity = self.config.device_pages;
        let (lane, need) = need.iter().find(|(_, pages)| *pages > capacity)?;
        Some(EngineError::RequestTooLarge { tier: Tier::Device, lane, need, capacity })
    }

    /// Pages per lane of a match's resident part.
    pub(crate) fn resident_counts(&self, found: &Match) -> LaneCounts {
        let mut owners = Vec::new();
        self.cached_owners(found, 0, found.device_pages, &mut owners);
        LaneCounts::of_owners(self.config.lanes, owners)
    }

    /// What of a prompt is cached, capped so that at least one token is computed (contract C16).
    pub(crate) fn capped_match(&self, request: &Request) -> Match {
        let page_size = self.config.page_size();
        let cap = (request.tokens.len() as u64 - 1) / u64::from(page_size);
        self.tree.match_prefix(request.key_pages(cap as u32, page_size))
    }

    /// Pages of the prompt with its reserve for output, the last perhaps partial.
    pub(crate) fn pages_with_output(&self, request: &Request) -> u32 {
        let reserve = self.config.output_reserve.tokens(request.max_new.into());
        (request.tokens.len() as u64 + reserve).div_ceil(u64::from(self.config.page_size())) as u32
    }

    pub(crate) fn queue_key(&self, request: &Request) -> QueueKey {
        (self.config.queue_order.key(request.priority, request.id.0), request.id)
    }

    /// Ends a request that ran: puts what it computed in the tree, as far as it has pages for it, frees what is left
    /// and gives its lock back. The caller has repointed to the tree's pages before.
    ///
    /// `sequence` is the prompt with the tokens that were generated after it; `None`: nothing was.
    ///
    /// # Errors
    /// [`EngineError::UnknownName`] for a request that isn't running, [`EngineError::InFlight`] before its load-back
    /// has been acknowledged and a step has admitted it, [`EngineError::NotItsPrompt`] for a sequence that doesn't
    /// begin with the whole pages of the prompt.
    pub fn finish(&mut self, id: RequestId, sequence: Option<&[u32]>) -> Result<Ended, EngineError> {
        self.check_finish(id, sequence)?;
        let mut request = self.requests.remove(&id).expect("just checked");
        self.leave(&request);
        match sequence {
            Some(sequence) => request.tokens = sequence.to_vec(),
            None => request.tokens.truncate(request.scheduled as usize),
        }
        let (mut ended, tail) = self.insert_own(&mut request, true);
        ended.pages_freed += self.give_back(&mut request);
        self.digest.record(Decision::Finish, [id.0, u64::from(ended.pages_kept), u64::from(ended.pages_freed)]);
        if let Some(tail) = tail {
            self.back_up_by_policy(tail);
        }
        Ok(ended)
    }

    /// Whether [`finish`](Self::finish) would be accepted: a caller that writes the generated tokens' pages asks before
    /// it writes. Costs a comparison of the prompt.
    ///
    /// # Errors
    /// As there.
    pub fn check_finish(&self, id: RequestId, sequence: Option<&[u32]>) -> Result<(), EngineError> {
        let request = self.requests.get(&id).ok_or(EngineError::UnknownName { what: "running request" })?;
        match request.state {
            RequestState::Queued => return Err(EngineError::UnknownName { what: "running request" }),
            RequestState::Loading { .. } | RequestState::Ready => return Err(EngineError::InFlight),
            RequestState::Running => {}
        }
        let Some(sequence) = sequence else { return Ok(()) };
        let whole = request.tokens.len() - request.tokens.len() % self.config.page_size() as usize;
        let begins = sequence.get(..whole) == Some(&request.tokens[..whole]);
        if begins && sequence.len() >= request.tokens.len() && !request.is_partial() {
            Ok(())
        } else {
            Err(EngineError::NotItsPrompt)
        }
    }

    /// Ends a request in any state: everything that it holds is given back; a load-back that runs for it goes on, and
    /// its pages go to the node.
    ///
    /// # Errors
    /// [`EngineError::UnknownName`].
    pub fn abort(&mut self, id: RequestId) -> Result<Ended, EngineError> {
        let mut request = self.requests.remove(&id).ok_or(EngineError::UnknownName { what: "request" })?;
        self.leave(&request);
        let pages_freed = self.give_back(&mut request);
        self.digest.record(Decision::Abort, [id.0, u64::from(pages_freed)]);
        Ok(Ended { pages_kept: 0, pages_freed })
    }

    /// Returns a request that runs or loads to its place in the queue. It keeps nothing.
    ///
    /// # Errors
    /// [`EngineError::UnknownName`] for a request that is unknown or only queued.
    pub fn retract(&mut self, id: RequestId) -> Result<Ended, EngineError> {
        if !self.active.contains(&id) {
            return Err(EngineError::UnknownName { what: "running request" });
        }
        let request = self.requests.remove(&id).expect("active requests are known");
        let pages_freed = self.requeue(request);
        self.digest.record(Decision::Retract, [id.0, u64::from(pages_freed)]);
        Ok(Ended { pages_kept: 0, pages_freed })
    }

    /// Puts an active request back in the queue, holding nothing. Returns how many pages it gave back.
    pub(crate) fn requeue(&mut self, mut request: Request) -> u32 {
        self.leave(&request);
        let freed = self.give_back(&mut request);
        request.state = RequestState::Queued;
        self.queue.insert(self.queue_key(&request));
        self.requests.insert(request.id, request);
        freed
    }

    /// Takes a request off the queue, the active ones and the load-back that it waits for.
    fn leave(&mut self, request: &Request) {
        self.queue.remove(&self.queue_key(request));
        self.active.remove(&request.id);
        if let RequestState::Loading { op, .. } = request.state
            && let Some(op) = self.ops.get_mut(&op)
        {
            op.waiters.retain(|waiter| *waiter != request.id);
        }
    }

    /// Frees a request's own pages and gives its lock back. Returns how many pages it had.
    fn give_back(&mut self, request: &mut Request) -> u32 {
        let own = std::mem::take(&mut request.own);
        self.free_device(&own);
        if let Some(node) = request.lock.take() {
            self.tree.unlock(node).expect("the request holds its lock");
        }
        (request.hit, request.scheduled, request.base) = (0, 0, None);
        own.len() as u32
    }

    /// Puts the whole pages of a request's key that it has pages for in the tree. What the tree takes leaves its own
    /// pages; duplicates are freed, after the caller repointed. Returns the counts and the end of the path.
    fn insert_own(&mut self, request: &mut Request, finished: bool) -> (Ended, Option<NodeId>) {
        let page_size = self.config.page_size();
        let pages = self.pages_of(request.tokens.len()).min(request.next_page());
        let mut ended = Ended { pages_kept: 0, pages_freed: 0 };
        if pages == 0 {
            return (ended, None);
        }
        let mut all = self.locked_pages(request);
        let own = (pages - request.hit.min(pages)) as usize;
        all.truncate(pages as usize);
        all.extend_from_slice(&request.own[..own]);
        let tick = self.next_tick();
        let insert = cpkv_tree::Insert { pages: &all, base: request.base, tick, finished, priority: request.priority };
        let inserted = self
            .tree
            .insert(request.key_pages(pages, page_size), insert)
            .expect("one page per position, and a locked prefix");
        let mut taken = vec![false; own];
        for position in inserted.taken {
            taken[(position - request.hit) as usize] = true;
            ended.pages_kept += 1;
        }
        let rest = request.own.split_off(own);
        let offered = std::mem::replace(&mut request.own, rest);
        let freed: Vec<PageId> =
            offered.iter().zip(&taken).filter(|(_, taken)| !**taken).map(|(page, _)| *page).collect();
        ended.pages_freed += freed.len() as u32;
        self.free_device(&freed);
        (ended, inserted.tail)
    }

    /// The device pages of a request's hit, in order. O(hit).
    pub(crate) fn locked_pages(&self, request: &Request) -> Vec<PageId> {
        let Some(lock) = request.lock else { return Vec::new() };
        let nodes: Vec<_> = self.tree.path_up(lock).collect();
        let pages = nodes.iter().rev().flat_map(|node| node.device().unwrap_or_default().iter().copied());
        pages.collect()
    }

    /// The forward pass of the last step is done: chunks that it completed go to the tree, so that their requests
    /// hold a lock and no pages between chunks. Said twice it changes nothing.
    pub fn forward_done(&mut self) {
        let computed = |request: &&Request| request.is_partial() && !request.own.is_empty();
        let partial: Vec<RequestId> = self.active_requests().filter(computed).map(|request| request.id).collect();
        for id in partial {
            let mut request = self.requests.remove(&id).expect("active requests are known");
            let tokens = std::mem::take(&mut request.tokens);
            request.tokens = tokens[..request.scheduled as usize].to_vec();
            self.chunk_done(&mut request);
            request.tokens = tokens;
            self.requests.insert(id, request);
        }
    }

    fn chunk_done(&mut self, request: &mut Request) {
        let (_, Some(node)) = self.insert_own(request, false) else { return };
        self.tree.lock(node).expect("the insert returned it");
        if let Some(old) = request.lock.replace(node) {
            self.tree.unlock(old).expect("the request holds its lock");
        }
        // Where the path ends early (pages with other owners than a host copy's) the rest is computed again.
        request.hit = self.tree.node(node).map_or(0, |node| node.end());
        request.scheduled = u64::from(request.hit) * u64::from(self.config.page_size());
        self.digest.record(Decision::Chunk, [request.id.0, u64::from(request.hit)]);
    }

    /// A load-back was acknowledged: the requests that waited for it lock their whole hit.
    pub(crate) fn wake_waiters(&mut self, op: &Operation) {
        for id in &op.waiters {
            let Some(request) = self.requests.get_mut(id) else { continue };
            let RequestState::Loading { hit_node, .. } = request.state else { continue };
            self.tree.lock(hit_node).expect("a node that is loaded stays");
            if let Some(old) = request.lock.replace(hit_node) {
                self.tree.unlock(old).expect("the request holds its lock");
            }
            request.state = RequestState::Ready;
        }
    }

    /// A load-back failed: the requests that waited for it wait in the queue again.
    pub(crate) fn requeue_waiters(&mut self, op: &Operation) {
        for id in &op.waiters {
            if let Some(request) = self.requests.remove(id) {
                self.requeue(request);
            }
        }
    }

    pub(crate) fn check_queue(&self) -> Result<(), String> {
        for (id, request) in &self.requests {
            let queued = self.queue.contains(&self.queue_key(request));
            if queued == self.active.contains(id) || queued != (request.state == RequestState::Queued) {
                return Err(format!("request {id} is {:?}, queued {queued}", request.state));
            }
            if queued && (request.lock.is_some() || !request.own.is_empty()) {
                return Err(format!("request {id} waits in the queue and holds something"));
            }
            if let RequestState::Loading { op, .. } = request.state
                && !self.ops.get(&op).is_some_and(|op| op.waiters.contains(id))
            {
                return Err(format!("request {id} waits for load-back {op}, which doesn't know it"));
            }
        }
        if self.queue.len() + self.active.len() != self.requests.len() {
            return Err("queue and active requests don't make the requests".into());
        }
        Ok(())
    }
}
