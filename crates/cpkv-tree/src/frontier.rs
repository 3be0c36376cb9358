//! What may be evicted now: two ordered sets and the figures beside them, maintained at every change.

use crate::Tree;
use crate::node::Node;
use crate::retention::{RetentionPolicy, host_key};
use cpkv_core::{LaneCounts, NodeId, RetentionKey};
use std::collections::BTreeSet;

/// Evictable leaves of each tier in (retention, id) order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Frontiers {
    pub(crate) device: BTreeSet<(RetentionKey, NodeId)>,
    pub(crate) host: BTreeSet<(RetentionKey, NodeId)>,
}

/// Sums over all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) device_evictable: LaneCounts,
    pub(crate) device_locked: LaneCounts,
    pub(crate) host_valid: LaneCounts,
    pub(crate) host_evictable: LaneCounts,
    pub(crate) pins: u64,
}

impl Figures {
    pub(crate) fn zero(lanes: usize) -> Self {
        let zero = LaneCounts::zero(lanes);
        Self {
            device_evictable: zero.clone(),
            device_locked: zero.clone(),
            host_valid: zero.clone(),
            host_evictable: zero,
            pins: 0,
        }
    }

    pub(crate) fn add(&mut self, node: &Node) {
        if node.device.is_some() {
            *self.device_of(node) += &node.counts;
        }
        if node.host.is_some() {
            self.host_valid += &node.counts;
            if node.host_lock == 0 {
                self.host_evictable += &node.counts;
            }
        }
        self.pins += u64::from(is_pinned(node));
    }

    fn remove(&mut self, node: &Node) {
        if node.device.is_some() {
            *self.device_of(node) -= &node.counts;
        }
        if node.host.is_some() {
            self.host_valid -= &node.counts;
            if node.host_lock == 0 {
                self.host_evictable -= &node.counts;
            }
        }
        self.pins -= u64::from(is_pinned(node));
    }

    fn device_of(&mut self, node: &Node) -> &mut LaneCounts {
        if node.lock == 0 { &mut self.device_evictable } else { &mut self.device_locked }
    }
}

fn is_pinned(node: &Node) -> bool {
    node.backup.is_some() || node.load.is_some()
}

/// The key under which a node stands in the device frontier, if it belongs there.
pub(crate) fn device_entry(node: &Node, policy: &impl RetentionPolicy) -> Option<RetentionKey> {
    (node.device.is_some() && node.lock == 0 && node.device_children == 0).then(|| policy.key(&node.facts()))
}

/// The key under which a node stands in the host frontier, if it belongs there.
pub(crate) fn host_entry(node: &Node, policy: &impl RetentionPolicy) -> Option<RetentionKey> {
    (node.host.is_some() && node.host_lock == 0 && node.host_children == 0)
        .then(|| host_key(policy.key(&node.facts()), node.device.is_some()))
}

impl Tree {
    /// Changes what figures count of a node: residency, locks, pending copies. O(lanes + log frontier).
    pub(crate) fn edit(&mut self, slot: u32, change: impl FnOnce(&mut Node)) {
        let node = &mut self.arena[slot];
        self.figures.remove(node);
        change(node);
        self.figures.add(node);
        self.refresh(slot);
    }

    /// Brings the frontiers up to date with one node.
    pub(crate) fn refresh(&mut self, slot: u32) {
        let node = &mut self.arena[slot];
        let device = device_entry(node, &self.retention);
        move_entry(&mut self.frontiers.device, &mut node.device_key, device, node.id);
        let host = host_entry(node, &self.retention);
        move_entry(&mut self.frontiers.host, &mut node.host_key, host, node.id);
    }

    /// Pages per lane of nodes on the device that no lock covers: what a plan for everything would free. O(1).
    #[must_use]
    pub fn device_evictable(&self) -> &LaneCounts {
        &self.figures.device_evictable
    }

    /// Pages per lane of nodes on the device that a lock covers. O(1).
    #[must_use]
    pub fn device_locked(&self) -> &LaneCounts {
        &self.figures.device_locked
    }

    /// Pages per lane of all valid host copies. O(1).
    #[must_use]
    pub fn host_valid(&self) -> &LaneCounts {
        &self.figures.host_valid
    }

    /// Pages per lane of valid host copies that no host lock covers. O(1).
    #[must_use]
    pub fn host_evictable(&self) -> &LaneCounts {
        &self.figures.host_evictable
    }

    /// Nodes with a backup or a load-back in flight. O(1).
    #[must_use]
    pub fn pins(&self) -> u64 {
        self.figures.pins
    }

    /// Nodes that may leave the device now, in (retention, id) order: on it, without lock, without child on it.
    pub fn device_frontier(&self) -> impl DoubleEndedIterator<Item = (RetentionKey, NodeId)> + '_ {
        self.frontiers.device.iter().copied()
    }

    /// Nodes whose host copy may go now, in (host retention, id) order: with a valid one, without host lock, without
    /// a child that has one.
    pub fn host_frontier(&self) -> impl DoubleEndedIterator<Item = (RetentionKey, NodeId)> + '_ {
        self.frontiers.host.iter().copied()
    }
}

fn move_entry(
    set: &mut BTreeSet<(RetentionKey, NodeId)>,
    now: &mut Option<RetentionKey>,
    then: Option<RetentionKey>,
    id: NodeId,
) {
    if *now == then {
        return;
    }
    if let Some(key) = *now {
        set.remove(&(key, id));
    }
    if let Some(key) = then {
        set.insert((key, id));
    }
    *now = then;
}
