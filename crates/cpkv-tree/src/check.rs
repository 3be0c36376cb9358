//! `self_check`: everything that is maintained, rebuilt from the nodes alone.

use crate::Tree;
use crate::frontier::{Figures, Frontiers, device_entry, host_entry};
use crate::node::{NONE, Node, Parent};
use cpkv_core::{LaneCounts, NodeId, Owner, PageId};
use std::collections::{BTreeMap, BTreeSet};

/// What the children of a node, seen from below, add up to.
#[derive(Debug, Default, PartialEq, Eq)]
struct FromBelow {
    children: BTreeSet<u32>,
    device_children: u32,
    host_children: u32,
    locks: u64,
    host_locks: u64,
}

impl Tree {
    /// Compares everything that the tree maintains with what its nodes say: closure of both tiers, lock counts, owners,
    /// look-up tables, figures and frontiers. O(tokens + nodes log nodes).
    ///
    /// # Errors
    /// What differs, and at which node. It is always a fault of this crate, or a page given in twice.
    pub fn self_check(&self) -> Result<(), String> {
        let mut below: BTreeMap<u32, FromBelow> = BTreeMap::new();
        for (slot, node) in self.arena.iter() {
            self.check_node(slot, node).map_err(|what| format!("node {}: {what}", node.id))?;
            if let Parent::Node(parent) = node.parent {
                let sum = below.entry(parent).or_default();
                sum.children.insert(slot);
                sum.device_children += u32::from(node.device.is_some());
                sum.host_children += u32::from(node.host.is_some());
                sum.locks += u64::from(node.lock);
                sum.host_locks += u64::from(node.host_lock);
            }
        }
        for (slot, node) in self.arena.iter() {
            let sum = below.remove(&slot).unwrap_or_default();
            self.check_against(node, &sum).map_err(|what| format!("node {}: {what}", node.id))?;
        }
        self.check_tables()?;
        self.check_pages()?;
        self.check_sums()
    }

    /// What one node shows of itself and its parent.
    fn check_node(&self, slot: u32, node: &Node) -> Result<(), String> {
        ensure(self.slots.get(&node.id) == Some(&slot), || "its id leads elsewhere".into())?;
        ensure((1..self.next_id).contains(&node.id.0), || format!("its id is not below the next, {}", self.next_id))?;
        ensure(node.len > 0 && node.tokens.len() == node.len as usize * self.page_size as usize, || {
            format!("{} tokens for {} pages", node.tokens.len(), node.len)
        })?;
        ensure(node.device.is_some() || node.host.is_some(), || "it is on no tier".into())?;
        ensure(node.backup.is_none() || node.device.is_some(), || "a backup reads it, and it isn't resident".into())?;
        ensure(node.load.is_none() || node.host.is_some(), || "a load-back reads it, and it isn't saved".into())?;
        for pages in [&node.device, &node.host].into_iter().flatten() {
            ensure(pages.len() == node.len as usize, || format!("{} places for {} pages", pages.len(), node.len))?;
            let owners: Vec<Owner> = pages.iter().map(|page| self.striping.owner(*page)).collect();
            let counts = LaneCounts::of_owners(self.striping.lanes(), owners);
            ensure(counts == node.counts, || format!("counts {:?}, and its pages are {counts:?}", node.counts))?;
        }
        if let (Some(device), Some(_)) = (&node.device, &node.host) {
            let host = Node { device: None, ..node.clone() };
            ensure(self.owner_mismatch(&host, device).is_none(), || "its tiers differ in owners".into())?;
        }
        match node.parent {
            Parent::Root(namespace) => {
                ensure(namespace == node.namespace && node.start == 0, || "it isn't at the top of its chain".into())
            }
            Parent::Node(parent) => {
                let parent = self.arena.get(parent).ok_or("its parent is gone")?;
                ensure(parent.end() == node.start, || {
                    format!("it starts at {}, its parent ends at {}", node.start, parent.end())
                })?;
                ensure(parent.namespace == node.namespace, || "its parent is in another namespace".into())?;
                ensure(node.device.is_none() || parent.device.is_some(), || "resident below a node that isn't".into())?;
                ensure(node.host.is_none() || parent.host.is_some(), || "saved below a node that isn't".into())
            }
        }
    }

    /// What a node maintains of those below it.
    fn check_against(&self, node: &Node, sum: &FromBelow) -> Result<(), String> {
        let mut listed = BTreeSet::new();
        let (mut prev, mut slot) = (NONE, node.first_child);
        while slot != NONE {
            let child = self.arena.get(slot).ok_or("its list of children leads nowhere")?;
            ensure(child.prev == prev && listed.insert(slot), || "its list of children is broken".into())?;
            (prev, slot) = (slot, child.next);
        }
        ensure(listed == sum.children, || format!("children in slots {listed:?}, they are {:?}", sum.children))?;
        ensure((node.device_children, node.host_children) == (sum.device_children, sum.host_children), || {
            format!("children by tier {:?}, they are {sum:?}", (node.device_children, node.host_children))
        })?;
        ensure(u64::from(node.lock) == u64::from(node.own_lock) + sum.locks, || {
            format!("{} locks, {} of its own and {} below", node.lock, node.own_lock, sum.locks)
        })?;
        ensure(u64::from(node.host_lock) == u64::from(node.own_host_lock) + sum.host_locks, || {
            format!("{} host locks, {} of its own and {} below", node.host_lock, node.own_host_lock, sum.host_locks)
        })?;
        let keys = (device_entry(node, &self.retention), host_entry(node, &self.retention));
        ensure((node.device_key, node.host_key) == keys, || {
            format!("on the frontiers under {:?}, it belongs under {keys:?}", (node.device_key, node.host_key))
        })
    }

    /// Look-ups by id and by first page.
    fn check_tables(&self) -> Result<(), String> {
        ensure(self.slots.len() == self.arena.len(), || {
            format!("{} ids for {} nodes", self.slots.len(), self.arena.len())
        })?;
        let mut first_pages: BTreeMap<(Parent, &[u32]), NodeId> = BTreeMap::new();
        let mut groups: BTreeMap<(Parent, u64), BTreeSet<u32>> = BTreeMap::new();
        for (slot, node) in self.arena.iter() {
            let page = &node.tokens[..self.page_size as usize];
            if let Some(other) = first_pages.insert((node.parent, page), node.id) {
                return Err(format!("nodes {other} and {} start with the same page", node.id));
            }
            ensure(node.hash == self.children.hash(page), || format!("node {}: a wrong hash", node.id))?;
            groups.entry((node.parent, node.hash)).or_default().insert(slot);
        }
        ensure(groups.len() == self.children.keys(), || {
            format!("{} entries for {} groups of children", self.children.keys(), groups.len())
        })?;
        for ((parent, hash), slots) in groups {
            let listed = self.children.get(parent, hash);
            ensure(listed.len() == slots.len() && listed.iter().all(|slot| slots.contains(slot)), || {
                format!("children {listed:?} are listed under {parent:?}, they are {slots:?}")
            })?;
        }
        Ok(())
    }

    /// Each page of each tier has one owner among the nodes (contract C1).
    fn check_pages(&self) -> Result<(), String> {
        let mut device: BTreeMap<PageId, NodeId> = BTreeMap::new();
        let mut host: BTreeMap<PageId, NodeId> = BTreeMap::new();
        for (_, node) in self.arena.iter() {
            for (tier, pages, seen) in [("device", &node.device, &mut device), ("host", &node.host, &mut host)] {
                for page in pages.iter().flat_map(|pages| pages.iter()) {
                    if let Some(other) = seen.insert(*page, node.id) {
                        return Err(format!("{tier} page {page} belongs to node {other} and to node {}", node.id));
                    }
                }
            }
        }
        Ok(())
    }

    /// Figures and frontiers.
    fn check_sums(&self) -> Result<(), String> {
        let mut figures = Figures::zero(self.striping.lanes());
        let mut frontiers = Frontiers::default();
        for (_, node) in self.arena.iter() {
            figures.add(node);
            frontiers.device.extend(device_entry(node, &self.retention).map(|key| (key, node.id)));
            frontiers.host.extend(host_entry(node, &self.retention).map(|key| (key, node.id)));
        }
        ensure(figures == self.figures, || format!("figures {:?}, they are {figures:?}", self.figures))?;
        ensure(frontiers == self.frontiers, || format!("frontiers {:?}, they are {frontiers:?}", self.frontiers))
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{Fixture, key};
    use cpkv_core::{NodeId, PageId, Tick};

    /// Each damage is one that a fault of the crate could do; the check must name it.
    #[test]
    fn every_kind_of_damage_is_found() {
        let mut good = Fixture::new(2);
        let top = good.insert(&[1, 2, 3]);
        let leaf = good.insert(&[1, 2, 3, 4]);
        good.save(top);
        assert_eq!(good.tree.self_check(), Ok(()));
        let slot = |id| good.tree.slot(id).unwrap();
        let (top, leaf) = (slot(top), slot(leaf));
        type Damage = Box<dyn Fn(&mut crate::Tree)>;
        let damages: Vec<(&str, Damage)> = vec![
            ("belongs under", Box::new(move |t| t.arena[leaf].tick = Tick(77))),
            ("on no tier", Box::new(move |t| t.arena[leaf].device = None)),
            ("locks", Box::new(move |t| t.arena[leaf].lock = 1)),
            ("children by tier", Box::new(move |t| t.arena[top].device_children = 0)),
            (
                "saved below a node that isn't",
                Box::new(move |t| {
                    t.arena[leaf].host = t.arena[leaf].device.clone();
                    t.arena[top].host = None;
                }),
            ),
            (
                "belongs to node",
                Box::new(move |t| {
                    let page = t.arena[top].device.as_ref().unwrap()[1];
                    t.arena[leaf].device = Some(vec![page].into());
                }),
            ),
            ("counts", Box::new(move |t| t.arena[leaf].counts = [1, 1].into())),
            ("differ in owners", Box::new(move |t| t.arena[top].device.as_mut().unwrap().reverse_pairs())),
            ("figures", Box::new(|t| t.figures.pins = 1)),
            ("frontiers", Box::new(|t| t.frontiers.device.clear())),
            (
                "ids for",
                Box::new(|t| {
                    t.slots.insert(NodeId(99), 0);
                }),
            ),
            ("wrong hash", Box::new(move |t| t.arena[leaf].hash ^= 1)),
            ("starts at", Box::new(move |t| t.arena[leaf].start = 2)),
            ("list of children", Box::new(move |t| t.arena[leaf].prev = 0)),
        ];
        for (named, damage) in damages {
            let mut tree = good.tree.clone();
            damage(&mut tree);
            let found = tree.self_check().expect_err(named);
            assert!(found.contains(named), "{named}: {found}");
        }
        assert_eq!(good.tree.match_prefix(key(&good.tokens(&[1, 2, 3, 4]))).pages, 4);
    }

    trait ReversePairs {
        fn reverse_pairs(&mut self);
    }

    impl ReversePairs for Box<[PageId]> {
        /// Exchanges the first two pages: the lanes' counts stay, the owners of positions don't.
        fn reverse_pairs(&mut self) {
            self.swap(0, 1);
        }
    }
}
