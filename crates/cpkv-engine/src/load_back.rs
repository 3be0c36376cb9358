//! Load-backs: host to device, all or nothing. The path and the host sources are pinned before evictions are planned
//! (contract C6).

use crate::control::Key;
use crate::evict::Purpose;
use crate::operation::{Operation, Reserved};
use crate::view::Protected;
use crate::{ControlPlane, CopyKind, EngineError, OpOrigin, counters};
use cpkv_core::{LaneCounts, NodeId, OpId, Owner, PageId};
use cpkv_tree::Match;

/// A load-back that was started by a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBackStarted {
    /// The copy.
    pub op: OpId,
    /// Pages that it loads, per lane.
    pub per_lane: LaneCounts,
    /// Page counts of the nodes that were evicted for it, in order.
    pub victims_pages: Vec<u32>,
}

impl ControlPlane {
    /// Loads the host part of a key's match, evicting by plan where that is enough.
    ///
    /// # Errors
    /// [`EngineError::InFlight`] where a load-back on the path is in flight, [`EngineError::NothingToLoad`] where the
    /// host part is shorter than the configured minimum, [`EngineError::LaneFull`].
    pub fn load_back(&mut self, key: Key<'_>) -> Result<LoadBackStarted, EngineError> {
        let found = self.tree.match_prefix(key);
        if self.load_in_flight(&found).is_some() {
            return Err(EngineError::InFlight);
        }
        if found.host_pages < self.config.load_back_min_pages {
            return Err(EngineError::NothingToLoad);
        }
        let owners = self.host_owners(&found);
        let need = LaneCounts::of_owners(self.config.lanes, owners.iter().copied());
        let plan = self.plan_device_at_once(&need, &Protected::path(&found, found.pages), Purpose::LoadBack)?;
        let tail = self.end_path_at(&found, found.pages).expect("there is something to load");
        let victims_pages = self.evict_planned(&plan);
        let device = self.alloc_planned(&owners);
        let op = self.start_load(tail, found.device_pages, device, OpOrigin::Caller);
        Ok(LoadBackStarted { op, per_lane: need, victims_pages })
    }

    /// The load-back in flight on a match's path, and the pages of the match from its start to the end of what it
    /// loads.
    pub(crate) fn load_in_flight(&self, found: &Match) -> Option<(OpId, u32)> {
        let mut first = None;
        let mut end = 0;
        for step in &found.path {
            let pending = self.tree.node(step.node).and_then(|node| node.pending_load());
            match (first, pending) {
                (None, Some(op)) => first = Some(op),
                (Some(op), other) if other != Some(op) => return Some((op, end)),
                _ => {}
            }
            end += step.pages;
        }
        first.map(|op| (op, end))
    }

    /// Owners of a match's host part: those of the host pages, kept on the device.
    pub(crate) fn host_owners(&self, found: &Match) -> Vec<Owner> {
        let mut owners = Vec::with_capacity(found.host_pages as usize);
        self.cached_owners(found, found.device_pages, found.pages, &mut owners);
        owners
    }

    /// Starts loading the path down to `tail`, from position `from` on, to `device` pages.
    pub(crate) fn start_load(&mut self, tail: NodeId, from: u32, device: Vec<PageId>, origin: OpOrigin) -> OpId {
        let host = self
            .tree
            .pieces(tail, from)
            .into_iter()
            .flat_map(|piece| self.tree.node(piece).and_then(|node| node.host()).unwrap_or_default().to_vec())
            .collect();
        self.counters.loads_started += 1;
        self.start(Operation {
            kind: CopyKind::LoadBack,
            origin,
            tail,
            from,
            device,
            host,
            reserved: Reserved::Device,
            waiters: Vec::new(),
            demote: false,
        })
    }

    /// Ends a load-back well. Returns the page counts of the nodes made resident, parent first.
    pub(crate) fn load_done(&mut self, op: Operation) -> Vec<u32> {
        let pieces = self.tree.pieces(op.tail, op.from);
        let mut published = Vec::new();
        let mut taken = 0;
        for piece in pieces {
            let node = self.tree.node(piece).expect("pieces in flight stay");
            let pages = node.len() as usize;
            let loaded = op.device[taken..taken + pages].to_vec();
            taken += pages;
            if node.device().is_some() {
                // Somebody computed the same pages meanwhile, and they are in use.
                self.free_device(&loaded);
            } else {
                let counts = self.counts_of(&loaded);
                counters::add(&mut self.counters.loaded_pages, &counts);
                self.tree.attach_device(piece, loaded).expect("the parent is resident: the path is locked");
                published.push(pages as u32);
            }
        }
        // The requests that waited take their locks before the operation gives its own back.
        self.wake_waiters(&op);
        self.unpin(&op);
        published
    }

    /// Ends a load-back that failed: its device pages come back, and the host copy that could not be read goes,
    /// together with what lies below it.
    pub(crate) fn load_failed(&mut self, op: Operation) {
        self.free_device(&op.device);
        self.requeue_waiters(&op);
        let pieces = self.unpin(&op);
        if let Some(top) = pieces.first() {
            let pages = self.tree.drop_host_subtree(*top).expect("no load-back reads below a load-back in flight");
            self.release_host(&pages);
        }
        self.counters.loads_failed += 1;
    }
}

impl ControlPlane {
    /// Ends a copy well, by agreement of all ranks. Returns the page counts of the nodes made valid, parent first.
    ///
    /// # Errors
    /// [`EngineError::UnknownName`] for a copy that ended before or was never started; counted as a late end.
    pub fn ack(&mut self, op: OpId) -> Result<Vec<u32>, EngineError> {
        let operation = self.end(op, true)?;
        Ok(match operation.kind {
            CopyKind::Backup => self.backup_done(operation),
            CopyKind::LoadBack => self.load_done(operation),
        })
    }

    /// Ends a copy as failed, by agreement of all ranks: every page of it is given back, once.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub fn fail(&mut self, op: OpId) -> Result<(), EngineError> {
        let operation = self.end(op, false)?;
        match operation.kind {
            CopyKind::Backup => self.backup_failed(operation),
            CopyKind::LoadBack => self.load_failed(operation),
        }
        Ok(())
    }

    fn end(&mut self, op: OpId, done: bool) -> Result<Operation, EngineError> {
        match self.ops.remove(&op) {
            Some(operation) => {
                self.digest.ended(op.0, done);
                Ok(operation)
            }
            None => {
                self.counters.late_ends += 1;
                Err(EngineError::UnknownName { what: "copy" })
            }
        }
    }
}
