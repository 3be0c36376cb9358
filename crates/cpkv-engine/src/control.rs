//! The control plane's state, and the operations on it that concern no request and no copy.

use crate::counters::Counters;
use crate::digest::{Decision, Digest};
use crate::evict::Purpose;
use crate::operation::{CopyOrder, Operation, StartedCopy};
use crate::request::{QueueKey, Request};
use crate::view::Protected;
use crate::{Config, ConfigError, CopyKind, EngineError, WritePolicy};
use cpkv_alloc::{Contiguity, HostLanes, OwnerLanes};
use cpkv_core::{HoldId, LaneCounts, LockId, NodeId, OpId, Owner, PageId, RequestId, Striping, Tick};
use cpkv_tree::{Match, Tree, TreeConfig};
use std::collections::{BTreeMap, BTreeSet};

pub use cpkv_tree::Key;

/// Decides for all lanes: plain state, no device, no clock. See the crate's documentation.
#[derive(Debug)]
pub struct ControlPlane {
    pub(crate) config: Config,
    pub(crate) striping: Striping,
    pub(crate) tree: Tree,
    pub(crate) device: OwnerLanes,
    pub(crate) host: HostLanes,
    pub(crate) ops: BTreeMap<OpId, Operation>,
    pub(crate) requests: BTreeMap<RequestId, Request>,
    pub(crate) queue: BTreeSet<QueueKey>,
    /// Requests that run or wait for their load-back.
    pub(crate) active: BTreeSet<RequestId>,
    pub(crate) locks: BTreeMap<LockId, NodeId>,
    pub(crate) holds: BTreeMap<HoldId, Vec<PageId>>,
    /// Nodes whose backup by policy is due: refused or blocked so far.
    pub(crate) wanted: BTreeSet<NodeId>,
    /// Copies to hand to the memory of the local lanes.
    pub(crate) orders: Vec<CopyOrder>,
    /// Copies started since they were last asked for.
    pub(crate) started: Vec<StartedCopy>,
    pub(crate) digest: Digest,
    pub(crate) counters: Counters,
    pub(crate) next: NextIds,
    tick: Tick,
}

/// The next id of each kind. Ids are never used again, not even after a reset.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NextIds {
    pub(crate) op: u64,
    pub(crate) request: u64,
    pub(crate) policy_backup: u64,
    lock: u64,
    hold: u64,
}

/// What a lookup found, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matched {
    /// Pages on the device.
    pub device_pages: u32,
    /// Pages beyond them that the host has.
    pub host_pages: u32,
}

/// What an insert did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inserted {
    /// Pages that were on the device already.
    pub matched_pages: u32,
    /// The new device pages, for the positions after those, in order: the caller fills them.
    pub new_pages: Vec<PageId>,
    /// How many of them are on each lane.
    pub new_per_lane: LaneCounts,
}

/// A path lock that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Locked {
    /// The lock; `None` where nothing matched.
    pub lock: Option<LockId>,
    /// Pages that it covers.
    pub pages: u32,
}

/// Figures of an engine. Page counts are per lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Free pages, released ones included.
    pub device_free: LaneCounts,
    /// Node pages that can be evicted.
    pub device_evictable: LaneCounts,
    /// Node pages that can't be evicted, for whatever reason.
    pub device_locked: LaneCounts,
    /// Pages reserved by load-backs in flight.
    pub device_reserved: LaneCounts,
    /// Pages of holds and of running requests.
    pub device_held: LaneCounts,
    /// Free host pages.
    pub host_free: LaneCounts,
    /// Host pages that hold a valid copy.
    pub host_valid: LaneCounts,
    /// Host pages reserved by backups in flight.
    pub host_pending: LaneCounts,
    /// Nodes of the tree.
    pub nodes: u64,
    /// Named locks, and admitted requests with a hit.
    pub locks: u64,
    /// Nodes that a copy in flight reads or fills.
    pub pins: u64,
    /// Copies in flight.
    pub operations: u64,
    /// Requests that wait.
    pub queued: u64,
    /// Requests that run, or wait for their load-back.
    pub running: u64,
}

impl ControlPlane {
    /// An empty control plane.
    ///
    /// # Errors
    /// [`ConfigError`] names the field that is out of range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let striping = config.validate()?;
        let checked = |error: &dyn std::fmt::Display| ConfigError { field: "config", what: error.to_string() };
        let tree =
            Tree::new(TreeConfig { page_size: config.page_size(), lanes: config.lanes, retention: config.retention })
                .map_err(|error| checked(&error))?;
        let device =
            OwnerLanes::new(striping, config.device_pages, Contiguity::Preferred).map_err(|error| checked(&error))?;
        let host =
            HostLanes::new(striping, config.host_pages, Contiguity::Preferred).map_err(|error| checked(&error))?;
        let mut digest = Digest::default();
        // All planners decide the same, so the choice among them is no part of what must be equal.
        let replicated = Config { planner: cpkv_plan::Algorithm::default(), ..config.clone() };
        digest.record(Decision::Config, [xxhash_rust::xxh3::xxh3_64(format!("{replicated:?}").as_bytes())]);
        Ok(Self {
            counters: Counters::new(config.lanes),
            config,
            striping,
            tree,
            device,
            host,
            ops: BTreeMap::new(),
            requests: BTreeMap::new(),
            queue: BTreeSet::new(),
            active: BTreeSet::new(),
            locks: BTreeMap::new(),
            holds: BTreeMap::new(),
            wanted: BTreeSet::new(),
            orders: Vec::new(),
            started: Vec::new(),
            digest,
            next: NextIds::default(),
            tick: Tick(0),
        })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How logical pages lie over lanes.
    #[must_use]
    pub fn striping(&self) -> Striping {
        self.striping
    }

    /// The prefix tree, to read.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The copies in flight, in the order in which they were started.
    pub fn operations(&self) -> impl Iterator<Item = (OpId, &Operation)> {
        self.ops.iter().map(|(id, op)| (*id, op))
    }

    /// What has been done so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The device allocator, to read.
    #[must_use]
    pub fn device_lanes(&self) -> &OwnerLanes {
        &self.device
    }

    /// The host allocator, to read.
    #[must_use]
    pub fn host_lanes(&self) -> &HostLanes {
        &self.host
    }

    /// The digest of all decisions so far: equal on every rank that was fed the same calls and agreed acks.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// Copies started since this was last called.
    pub fn take_started(&mut self) -> Vec<StartedCopy> {
        std::mem::take(&mut self.started)
    }

    /// Copies to carry out since this was last called: for an embedding engine that uses the control plane alone.
    pub fn take_orders(&mut self) -> Vec<CopyOrder> {
        std::mem::take(&mut self.orders)
    }

    pub(crate) fn next_tick(&mut self) -> Tick {
        self.tick.0 += 1;
        self.tick
    }

    /// The longest cached prefix of a key. Touches nothing.
    #[must_use]
    pub fn match_prefix(&self, key: Key<'_>) -> Matched {
        let found = self.tree.match_prefix(key);
        Matched { device_pages: found.device_pages, host_pages: found.host_pages }
    }

    /// Puts a key in the cache as a request that computed it and ended: allocates device pages for what isn't
    /// resident, evicting by plan where that is enough. The caller fills the new pages.
    ///
    /// # Errors
    /// [`EngineError::LaneFull`] and [`EngineError::OwnerMismatch`].
    pub fn insert(&mut self, key: Key<'_>, owners: Option<&[Owner]>) -> Result<Inserted, EngineError> {
        let pages = self.pages_of(key.tokens.len());
        let found = self.tree.match_prefix(key);
        let explicit = self.explicit_owners(&found, pages, owners)?;
        let matched = found.device_pages;
        if pages == 0 {
            let zero = LaneCounts::zero(self.config.lanes);
            return Ok(Inserted { matched_pages: 0, new_pages: Vec::new(), new_per_lane: zero });
        }
        let (owners, base) = self.owners_of_extend(&found, matched, pages, explicit.as_deref());
        let need = LaneCounts::of_owners(self.config.lanes, owners.iter().copied());
        let plan = self.plan_device_at_once(&need, &Protected::path(&found, found.pages), Purpose::Extend)?;

        let mut all = self.device_pages(&found);
        self.end_path_at(&found, found.pages);
        self.evict_planned(&plan);
        let new_pages = self.alloc_planned(&owners);
        all.extend_from_slice(&new_pages);
        let tick = self.next_tick();
        let insert = cpkv_tree::Insert { pages: &all, base, tick, finished: true, priority: 0 };
        let inserted = self.tree.insert(key, insert).expect("one page per position, and owners that fit");
        debug_assert!(inserted.duplicates.is_empty() && inserted.unused_from.is_none());
        self.digest.record(
            Decision::Insert,
            [u64::from(matched), u64::from(pages)].into_iter().chain(new_pages.iter().map(|page| u64::from(page.0))),
        );
        if let Some(tail) = inserted.tail {
            self.back_up_by_policy(tail);
        }
        Ok(Inserted { matched_pages: matched, new_pages, new_per_lane: need })
    }

    /// Locks the device-resident match of a key: neither it nor its ancestors are evicted until the unlock.
    pub fn lock(&mut self, key: Key<'_>) -> Locked {
        let found = self.tree.match_prefix(key);
        let pages = found.device_pages;
        let Some(node) = self.end_path_at(&found, pages) else {
            return Locked { lock: None, pages: 0 };
        };
        let tick = self.next_tick();
        self.tree.touch(node, tick).expect("a live node");
        self.tree.lock(node).expect("a match names live nodes");
        let lock = LockId(self.next.lock);
        self.next.lock += 1;
        self.locks.insert(lock, node);
        self.digest.record(Decision::Lock, [node.0, u64::from(pages)]);
        Locked { lock: Some(lock), pages }
    }

    /// Gives a lock back.
    ///
    /// # Errors
    /// [`EngineError::UnknownName`].
    pub fn unlock(&mut self, lock: LockId) -> Result<(), EngineError> {
        let node = self.locks.remove(&lock).ok_or(EngineError::UnknownName { what: "lock" })?;
        self.tree.unlock(node).expect("a named lock is held");
        self.digest.record(Decision::Unlock, [node.0]);
        Ok(())
    }

    /// Takes device pages outside the tree, one per owner. `None` for no owners.
    ///
    /// # Errors
    /// [`EngineError::LaneFull`] and [`EngineError::OwnerMismatch`].
    pub fn hold(&mut self, owners: &[Owner]) -> Result<Option<HoldId>, EngineError> {
        self.check_lanes(owners)?;
        if owners.is_empty() {
            return Ok(None);
        }
        let need = LaneCounts::of_owners(self.config.lanes, owners.iter().copied());
        let plan = self.plan_device_at_once(&need, &Protected::default(), Purpose::Extend)?;
        self.evict_planned(&plan);
        let pages = self.alloc_planned(owners);
        self.digest.record(Decision::Hold, pages.iter().map(|page| u64::from(page.0)));
        let hold = HoldId(self.next.hold);
        self.next.hold += 1;
        self.holds.insert(hold, pages);
        Ok(Some(hold))
    }

    /// Gives held pages back. Returns how many there were on each lane.
    ///
    /// # Errors
    /// [`EngineError::UnknownName`].
    pub fn release(&mut self, hold: HoldId) -> Result<LaneCounts, EngineError> {
        let pages = self.holds.remove(&hold).ok_or(EngineError::UnknownName { what: "hold" })?;
        self.free_device(&pages);
        self.digest.record(Decision::Release, [hold.0]);
        Ok(self.counts_of(&pages))
    }

    /// Empties everything: nodes, requests, locks, holds, and the copies in flight, which end as failed.
    ///
    /// The caller guarantees that no backend still executes one of them ([`Engine::reset`](crate::Engine::reset) waits
    /// for that); their ids are unknown afterwards.
    pub fn reset(&mut self) {
        let config = self.config.clone();
        let (digest, counters, next, tick) =
            (std::mem::take(&mut self.digest), self.counters.clone(), self.next, self.tick);
        // The tree's own ids go on rising too: a node's name is never used again.
        let mut tree = std::mem::replace(
            &mut self.tree,
            Tree::new(TreeConfig { page_size: config.page_size(), lanes: config.lanes, retention: config.retention })
                .expect("the configuration was valid before"),
        );
        tree.reset();
        *self = Self::new(config).expect("the configuration was valid before");
        (self.tree, self.digest, self.counters, self.next, self.tick) = (tree, digest, counters, next, tick);
        self.digest.record(Decision::Reset, []);
    }

    /// Requests that wait in the queue.
    #[must_use]
    pub fn queued(&self) -> u64 {
        self.queue.len() as u64
    }

    /// Figures. O(lanes + operations + holds + running requests).
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut reserved = LaneCounts::zero(self.config.lanes);
        for op in self.ops.values().filter(|op| op.kind == CopyKind::LoadBack) {
            reserved += &self.counts_of(&op.device);
        }
        let mut held = LaneCounts::zero(self.config.lanes);
        for pages in self.holds.values().map(Vec::as_slice).chain(self.active_requests().map(Request::own_pages)) {
            held += &self.counts_of(pages);
        }
        Stats {
            device_free: self.device.free_pages().clone(),
            device_evictable: self.tree.device_evictable().clone(),
            device_locked: self.tree.device_locked().clone(),
            device_reserved: reserved,
            device_held: held,
            host_free: self.host.free_pages(),
            host_valid: self.tree.host_valid().clone(),
            host_pending: self.host.reserved(),
            nodes: self.tree.nodes(),
            locks: (self.locks.len() + self.active_requests().filter(|request| request.holds_lock()).count()) as u64,
            pins: self.tree.pins(),
            operations: self.ops.len() as u64,
            queued: self.queue.len() as u64,
            running: self.active.len() as u64,
        }
    }

    pub(crate) fn pages_of(&self, tokens: usize) -> u32 {
        (tokens / self.config.page_size() as usize) as u32
    }

    pub(crate) fn counts_of(&self, pages: &[PageId]) -> LaneCounts {
        LaneCounts::of_owners(self.config.lanes, pages.iter().map(|page| self.striping.owner(*page)))
    }

    /// Makes the first `pages` pages of a match end at a node border; returns the node there. The match may not be
    /// used after it: what it says of its last node was true before the split.
    pub(crate) fn end_path_at(&mut self, found: &Match, pages: u32) -> Option<NodeId> {
        self.tree.prepare_path(found, pages).expect("a match names live nodes")
    }

    /// Allocates what a plan made room for.
    pub(crate) fn alloc_planned(&mut self, owners: &[Owner]) -> Vec<PageId> {
        self.device.alloc(owners).expect("the plan made room on every lane")
    }

    pub(crate) fn free_device(&mut self, pages: &[PageId]) {
        if !pages.is_empty() {
            self.device.free(pages).expect("pages that the engine holds are allocated");
        }
    }

    /// The device pages of a match's resident part, in path order.
    pub(crate) fn device_pages(&self, found: &Match) -> Vec<PageId> {
        let mut pages = Vec::with_capacity(found.device_pages as usize);
        for step in &found.path {
            let node = self.tree.node(step.node).expect("a match names live nodes");
            let Some(device) = node.device() else { break };
            pages.extend_from_slice(&device[..step.pages as usize]);
        }
        pages
    }

    /// Whether backups are started by policy at all.
    pub(crate) fn backs_up_by_policy(&self) -> bool {
        self.config.host_pages > 0
            && matches!(self.config.write_policy, WritePolicy::WriteThrough | WritePolicy::WriteThroughSelective)
    }

    /// Rebuilds every figure from ground truth: each page of each pool in exactly one place (contract C1), and each
    /// structure's own check. O(everything).
    ///
    /// # Errors
    /// What differs.
    pub fn self_check(&self) -> Result<(), String> {
        self.tree.self_check()?;
        self.device.self_check()?;
        self.host.self_check()?;
        self.check_pages()?;
        self.check_pins()
    }

    fn check_pages(&self) -> Result<(), String> {
        let mut device: BTreeMap<PageId, String> = BTreeMap::new();
        let mut host: BTreeMap<PageId, String> = BTreeMap::new();
        let take = |map: &mut BTreeMap<PageId, String>, pages: &[PageId], who: String| {
            for page in pages {
                if let Some(other) = map.insert(*page, who.clone()) {
                    return Err(format!("page {page} belongs to {other} and to {who}"));
                }
            }
            Ok(())
        };
        for id in self.tree.ids() {
            let node = self.tree.node(id).ok_or("a listed node is unknown")?;
            take(&mut device, node.device().unwrap_or_default(), format!("node {id}"))?;
            take(&mut host, node.host().unwrap_or_default(), format!("host copy of node {id}"))?;
        }
        for (id, op) in &self.ops {
            match op.kind {
                CopyKind::LoadBack => take(&mut device, &op.device, format!("load-back {id}"))?,
                CopyKind::Backup => take(&mut host, &op.host, format!("backup {id}"))?,
            }
        }
        for (id, pages) in &self.holds {
            take(&mut device, pages, format!("hold {id}"))?;
        }
        for (id, request) in &self.requests {
            take(&mut device, request.own_pages(), format!("request {id}"))?;
        }
        if let Some((page, who)) = device.iter().find(|(page, _)| !self.device.is_allocated(**page)) {
            return Err(format!("device page {page} of {who} is free in the allocator"));
        }
        let stats = self.stats();
        let mut sum = stats.device_free.clone();
        for part in [&stats.device_evictable, &stats.device_locked, &stats.device_reserved, &stats.device_held] {
            sum += part;
        }
        let capacity = LaneCounts::splat(self.config.lanes, self.config.device_pages);
        if sum != capacity {
            return Err(format!("device pages don't add up: {sum:?} of {capacity:?}, {stats:?}"));
        }
        let mut sum = stats.host_free.clone();
        sum += &stats.host_valid;
        sum += &stats.host_pending;
        let capacity = LaneCounts::splat(self.config.lanes, self.config.host_pages);
        if sum != capacity {
            return Err(format!("host pages don't add up: {sum:?} of {capacity:?}, {stats:?}"));
        }
        Ok(())
    }

    /// Every lock and pin has a holder, and at idle none is left.
    fn check_pins(&self) -> Result<(), String> {
        let mut locks: BTreeMap<NodeId, u32> = BTreeMap::new();
        let mut pins: BTreeMap<NodeId, u32> = BTreeMap::new();
        let mut pieces = 0;
        let holders = self.locks.values().copied().chain(self.requests.values().filter_map(|request| request.lock));
        for node in holders.chain(self.ops.values().map(|op| op.tail)) {
            for step in self.tree.path_up(node) {
                *locks.entry(step.id()).or_default() += 1;
            }
        }
        for op in self.ops.values() {
            pieces += self.tree.pieces(op.tail, op.from).len() as u64;
            for step in self.tree.path_up(op.tail) {
                *pins.entry(step.id()).or_default() += 1;
            }
        }
        for id in self.tree.ids() {
            let node = self.tree.node(id).ok_or("a listed node is unknown")?;
            let (lock, pin) = (locks.remove(&id).unwrap_or(0), pins.remove(&id).unwrap_or(0));
            if (node.locks(), node.host_locks()) != (lock, pin) {
                return Err(format!(
                    "node {id} counts {} locks and {} host locks; their holders are {lock} and {pin}",
                    node.locks(),
                    node.host_locks()
                ));
            }
        }
        if let Some(id) = locks.keys().chain(pins.keys()).next() {
            return Err(format!("a lock is held on node {id}, which is gone"));
        }
        if self.tree.pins() > pieces {
            return Err(format!("{} nodes are pinned, and copies in flight concern {pieces}", self.tree.pins()));
        }
        self.check_queue()
    }
}
