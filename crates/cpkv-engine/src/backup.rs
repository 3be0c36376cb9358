//! Backups: device to host. Reserved first, believed only after the ack (contract C3).

use crate::control::Key;
use crate::digest::Decision;
use crate::operation::{CopyOrder, Operation, Reserved};
use crate::view::Protected;
use crate::{ControlPlane, CopyKind, EngineError, OpOrigin, StartedCopy, WritePolicy, counters};
use cpkv_core::{LaneCounts, NodeId, OpId, Owner, PageId};
use cpkv_transfer::PagePair;
use cpkv_tree::{Match, PathStep};

impl ControlPlane {
    /// Backs the device-resident match of a key up: reserves host pages, evicting by plan where that is enough, and
    /// starts the copy. A parent is saved before or with its child. Returns the copy (`None`: all is saved already)
    /// and its pages per lane.
    ///
    /// # Errors
    /// [`EngineError::InFlight`] where a backup on the path is in flight, [`EngineError::HostFull`].
    pub fn backup(&mut self, key: Key<'_>) -> Result<(Option<OpId>, LaneCounts), EngineError> {
        let found = self.tree.match_prefix(key);
        self.start_backup(&found, found.device_pages, OpOrigin::Caller, false)
    }

    /// Starts the backup of everything unsaved in the first `pages` pages of a match, all of them resident.
    fn start_backup(
        &mut self,
        found: &Match,
        pages: u32,
        origin: OpOrigin,
        demote: bool,
    ) -> Result<(Option<OpId>, LaneCounts), EngineError> {
        let mut from = None;
        let mut position = 0;
        for step in found.path.iter().take_while(|step| {
            let resident = position < pages;
            position += step.pages;
            resident
        }) {
            let node = self.tree.node(step.node).expect("a match names live nodes");
            if node.pending_backup().is_some() {
                return Err(EngineError::InFlight);
            }
            if node.host().is_none() && from.is_none() {
                from = Some(node.start());
            }
        }
        let zero = LaneCounts::zero(self.config.lanes);
        let Some(from) = from else { return Ok((None, zero)) };
        let device = self.device_pages(found)[from as usize..pages as usize].to_vec();
        let need = self.counts_of(&device);
        let plan = self.plan_host(&need, &Protected::path(found, found.pages))?;

        let tail = self.end_path_at(found, pages).expect("there is something to save");
        self.evict_host_planned(&plan);
        let owners: Vec<Owner> = device.iter().map(|page| self.striping.owner(*page)).collect();
        let reservation = self.host.reserve(&owners).expect("the plan made room on every lane");
        let host = reservation.pages.clone();
        let op = self.start(Operation {
            kind: CopyKind::Backup,
            origin,
            tail,
            from,
            device,
            host,
            reserved: Reserved::Host(reservation),
            waiters: Vec::new(),
            demote,
        });
        self.counters.backups_started += 1;
        Ok((Some(op), need))
    }

    /// Enters a copy in the table, pins its path and orders its execution.
    pub(crate) fn start(&mut self, op: Operation) -> OpId {
        let id = OpId(self.next.op);
        self.next.op += 1;
        self.tree.lock(op.tail).expect("the tail is a live node");
        self.tree.lock_host(op.tail).expect("the tail is a live node");
        let decision = match op.kind {
            CopyKind::Backup => {
                self.tree.set_backup(op.tail, op.from, Some(id)).expect("the tail is a live node");
                Decision::BackupStart
            }
            CopyKind::LoadBack => {
                self.tree.set_load(op.tail, op.from, Some(id)).expect("the tail is a live node");
                Decision::LoadStart
            }
        };
        let pages = op.device.iter().zip(&op.host).flat_map(|(device, host)| [device.0, host.0]);
        self.digest.record(decision, [op.tail.0, u64::from(op.from)].into_iter().chain(pages.map(u64::from)));
        self.orders.push(CopyOrder { op: id, kind: op.kind, pairs: self.pairs(&op.device, &op.host) });
        self.started.push(StartedCopy { op: id, kind: op.kind, origin: op.origin });
        self.ops.insert(id, op);
        id
    }

    /// Pairs of physical pages per lane: both sides of a pair have one owner.
    fn pairs(&self, device: &[PageId], host: &[PageId]) -> Vec<(Owner, Vec<PagePair>)> {
        let mut pairs: Vec<(Owner, Vec<PagePair>)> = Owner::all(self.config.lanes).map(|o| (o, Vec::new())).collect();
        for (device, host) in device.iter().zip(host) {
            let owner = self.striping.owner(*device);
            debug_assert_eq!(owner, self.striping.owner(*host), "a host page keeps the owner of its device page");
            pairs[owner.index()]
                .1
                .push(PagePair { device: self.striping.physical(*device), host: self.striping.physical(*host) });
        }
        pairs
    }

    /// Ends a backup well. Returns the page counts of the nodes made valid, parent first.
    pub(crate) fn backup_done(&mut self, op: Operation) -> Vec<u32> {
        let Reserved::Host(reservation) = &op.reserved else { return Vec::new() };
        self.host.commit(reservation).expect("an operation ends once");
        let mut published = Vec::new();
        let mut taken = 0;
        for piece in self.unpin(&op) {
            let node = self.tree.node(piece).expect("pieces in flight stay");
            let pages = node.len() as usize;
            let copy = op.host[taken..taken + pages].to_vec();
            taken += pages;
            let parent_saved =
                node.parent().is_none_or(|parent| self.tree.node(parent).is_some_and(|parent| parent.host().is_some()));
            if parent_saved && node.host().is_none() {
                let counts = self.counts_of(&copy);
                counters::add(&mut self.counters.backed_up_pages, &counts);
                self.tree.attach_host(piece, copy).expect("owners are equal and the parent is saved");
                published.push(pages as u32);
            } else {
                // The parent's copy could not be read and is gone: a child without it could never be found.
                self.release_host(&copy);
            }
        }
        if op.demote {
            self.demote_staged(op.tail);
        }
        published
    }

    /// Ends a backup that failed: it leaves nothing.
    pub(crate) fn backup_failed(&mut self, op: Operation) {
        if let Reserved::Host(reservation) = &op.reserved {
            self.host.forfeit(reservation).expect("an operation ends once");
        }
        self.unpin(&op);
        self.counters.backups_failed += 1;
    }

    /// Takes a copy's pins off its path. Returns its pieces, parent first.
    pub(crate) fn unpin(&mut self, op: &Operation) -> Vec<NodeId> {
        let pieces = self.tree.pieces(op.tail, op.from);
        match op.kind {
            CopyKind::Backup => self.tree.set_backup(op.tail, op.from, None),
            CopyKind::LoadBack => self.tree.set_load(op.tail, op.from, None),
        }
        .expect("pieces in flight stay");
        self.tree.unlock(op.tail).expect("the operation holds its lock");
        self.tree.unlock_host(op.tail).expect("the operation holds its pin");
        pieces
    }

    /// Write-back: the staged node leaves the device, unless somebody uses it by now.
    fn demote_staged(&mut self, tail: NodeId) {
        let Some(node) = self.tree.node(tail) else { return };
        if node.locks() > 0 || node.device_children() > 0 || node.host().is_none() {
            return;
        }
        if let Some(counts) = node.device_counts().cloned() {
            let pages = self.tree.demote(tail).expect("checked above");
            counters::add(&mut self.counters.evicted_pages, &counts);
            self.counters.device_victims += 1;
            self.free_device(&pages);
            self.digest.left_when_ended(tail.0);
        }
    }

    /// After an insert of a finished request: backs its path up where the policy says so.
    pub(crate) fn back_up_by_policy(&mut self, tail: NodeId) {
        if !self.backs_up_by_policy() {
            return;
        }
        let uses = match self.config.write_policy {
            WritePolicy::WriteThroughSelective => self.config.selective_uses,
            _ => 1,
        };
        // Uses never rise towards the leaves, so what is due is the top of the path.
        let due = self.tree.path_up(tail).find(|node| node.uses() >= uses).map(|node| node.id());
        if let Some(due) = due
            && self.start_policy_backup(due, false).is_err()
        {
            self.wanted.insert(due);
        }
    }

    /// Tries the backups that were refused or blocked again, parents first.
    pub(crate) fn retry_backups(&mut self) {
        let mut due: Vec<(u32, NodeId)> = std::mem::take(&mut self.wanted)
            .into_iter()
            .filter_map(|id| self.tree.node(id).filter(|node| node.device().is_some()).map(|node| (node.end(), id)))
            .collect();
        due.sort_unstable();
        for (_, id) in due {
            if self.start_policy_backup(id, false).is_err() {
                self.wanted.insert(id);
            }
        }
    }

    /// Backs the path down to a resident node up, in the policy's name.
    ///
    /// # Errors
    /// As [`backup`](Self::backup).
    pub(crate) fn start_policy_backup(&mut self, id: NodeId, demote: bool) -> Result<(), EngineError> {
        let mut path: Vec<PathStep> = self
            .tree
            .path_up(id)
            .map(|node| PathStep { node: node.id(), pages: node.len(), len: node.len() })
            .collect();
        path.reverse();
        let pages = path.iter().map(|step| step.pages).sum();
        let found = Match { path, device_pages: pages, host_pages: 0, pages };
        let origin = OpOrigin::Policy(self.next.policy_backup + 1);
        if let (Some(_), _) = self.start_backup(&found, pages, origin, demote)? {
            self.next.policy_backup += 1;
        }
        Ok(())
    }
}
