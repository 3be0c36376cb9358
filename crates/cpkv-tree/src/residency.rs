//! Residency: pages enter and leave the tiers, and both stay closed under prefix (contract C2).

use crate::node::Node;
use crate::{Tree, TreeError};
use cpkv_core::{NodeId, PageId};

impl Tree {
    /// Makes a node resident on these device pages: a load-back was acknowledged.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`], [`TreeError::AlreadyResident`], [`TreeError::ParentNotResident`],
    /// [`TreeError::PageCount`], and [`TreeError::OwnerMismatch`] where a page has another owner than the host page
    /// at its position.
    pub fn attach_device(&mut self, id: NodeId, pages: Vec<PageId>) -> Result<(), TreeError> {
        let slot = self.slot(id)?;
        let node = &self.arena[slot];
        if node.device.is_some() {
            return Err(TreeError::AlreadyResident { node: id });
        }
        if let Some(parent) = node.parent.slot().map(|slot| &self.arena[slot])
            && parent.device.is_none()
        {
            return Err(TreeError::ParentNotResident { node: id, parent: parent.id });
        }
        self.fits(node, &pages)?;
        self.set_device(slot, Some(pages.into()));
        Ok(())
    }

    /// Gives a host copy to a node: a backup was acknowledged.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`], [`TreeError::AlreadySaved`], [`TreeError::ParentNotSaved`],
    /// [`TreeError::PageCount`], and [`TreeError::OwnerMismatch`] where a page has another owner than the device page
    /// that it backs.
    pub fn attach_host(&mut self, id: NodeId, pages: Vec<PageId>) -> Result<(), TreeError> {
        let slot = self.slot(id)?;
        let node = &self.arena[slot];
        if node.host.is_some() {
            return Err(TreeError::AlreadySaved { node: id });
        }
        if let Some(parent) = node.parent.slot().map(|slot| &self.arena[slot])
            && parent.host.is_none()
        {
            return Err(TreeError::ParentNotSaved { node: id, parent: parent.id });
        }
        self.fits(node, &pages)?;
        self.set_host(slot, Some(pages.into()));
        Ok(())
    }

    /// Takes a node with a valid host copy off the device; it stays in the tree, on the host alone. Returns its device
    /// pages.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`], [`TreeError::NotResident`], [`TreeError::NotSaved`], [`TreeError::HasChildren`]
    /// for one on the device, [`TreeError::Locked`], [`TreeError::InFlight`] under a backup.
    pub fn demote(&mut self, id: NodeId) -> Result<Vec<PageId>, TreeError> {
        let slot = self.slot(id)?;
        let node = &self.arena[slot];
        may_leave_device(node)?;
        if node.host.is_none() {
            return Err(TreeError::NotSaved { node: id });
        }
        Ok(self.set_device(slot, None))
    }

    /// Takes a node without host copy off the device, and so out of the tree. Returns its device pages.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`], [`TreeError::NotResident`], [`TreeError::AlreadySaved`] (demote it),
    /// [`TreeError::HasChildren`], [`TreeError::Locked`], [`TreeError::HostLocked`], [`TreeError::InFlight`].
    pub fn drop_device(&mut self, id: NodeId) -> Result<Vec<PageId>, TreeError> {
        let slot = self.slot(id)?;
        let node = &self.arena[slot];
        may_leave_device(node)?;
        if node.host.is_some() {
            return Err(TreeError::AlreadySaved { node: id });
        }
        if node.host_lock > 0 {
            return Err(TreeError::HostLocked { node: id, locks: node.host_lock });
        }
        let pages = self.set_device(slot, None);
        // A child on no device would be on the host, and then so would this node be.
        self.remove_node(slot);
        Ok(pages)
    }

    /// Drops a node's host copy. A node that is then on no tier leaves the tree. Returns the host pages.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`], [`TreeError::NotSaved`], [`TreeError::HasChildren`] for one with a host copy,
    /// [`TreeError::HostLocked`], [`TreeError::InFlight`] under a load-back, [`TreeError::Locked`] where the node
    /// would leave the tree.
    pub fn drop_host(&mut self, id: NodeId) -> Result<Vec<PageId>, TreeError> {
        let slot = self.slot(id)?;
        let node = &self.arena[slot];
        if node.host.is_none() {
            return Err(TreeError::NotSaved { node: id });
        }
        if node.host_children > 0 {
            return Err(TreeError::HasChildren { node: id, children: node.host_children });
        }
        if node.host_lock > 0 {
            return Err(TreeError::HostLocked { node: id, locks: node.host_lock });
        }
        may_lose_host(node)?;
        Ok(self.lose_host(slot))
    }

    /// Drops the host copies of a node and of everything below it, host locks or not, after a load-back failed to read
    /// the node's: what lies below could not be reached any more. Nodes that are then on no tier leave the tree,
    /// deepest first, and host locks taken at them end. Returns the host pages, the deepest node's first. O(subtree).
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`], [`TreeError::NotSaved`], [`TreeError::InFlight`] where a load-back reads one of the
    /// copies, [`TreeError::Locked`] where a node would leave the tree under a lock.
    pub fn drop_host_subtree(&mut self, id: NodeId) -> Result<Vec<PageId>, TreeError> {
        let top = self.slot(id)?;
        if self.arena[top].host.is_none() {
            return Err(TreeError::NotSaved { node: id });
        }
        // Breadth first: every node comes before those below it. Below a node without a copy nothing has one.
        let mut order = vec![top];
        let mut next = 0;
        while let Some(slot) = order.get(next) {
            let node = &self.arena[*slot];
            may_lose_host(node)?;
            let saved = self.child_slots(node).filter(|child| self.arena[*child].host.is_some());
            order.extend(saved.collect::<Vec<_>>());
            next += 1;
        }
        let mut dropped = Vec::new();
        for slot in order.into_iter().rev() {
            if self.arena[slot].device.is_none() {
                let own = self.arena[slot].own_host_lock;
                self.add_host_locks(slot, own, false);
            }
            dropped.extend(self.lose_host(slot));
        }
        Ok(dropped)
    }

    /// Drops a host copy that may go, and the node with it where that was all.
    fn lose_host(&mut self, slot: u32) -> Vec<PageId> {
        let pages = self.set_host(slot, None);
        if self.arena[slot].device.is_none() {
            self.remove_node(slot);
        }
        pages
    }

    /// Puts a node on device pages, or takes it off them. Returns those that it had.
    pub(crate) fn set_device(&mut self, slot: u32, pages: Option<Box<[PageId]>>) -> Vec<PageId> {
        let mut old = None;
        let now = u32::from(pages.is_some());
        self.edit(slot, |node| old = std::mem::replace(&mut node.device, pages));
        if let Some(parent) = self.arena[slot].parent.slot() {
            let parent_node = &mut self.arena[parent];
            parent_node.device_children = parent_node.device_children + now - u32::from(old.is_some());
            self.refresh(parent);
        }
        old.unwrap_or_default().into_vec()
    }

    fn set_host(&mut self, slot: u32, pages: Option<Box<[PageId]>>) -> Vec<PageId> {
        let mut old = None;
        let now = u32::from(pages.is_some());
        self.edit(slot, |node| old = std::mem::replace(&mut node.host, pages));
        if let Some(parent) = self.arena[slot].parent.slot() {
            let parent_node = &mut self.arena[parent];
            parent_node.host_children = parent_node.host_children + now - u32::from(old.is_some());
            self.refresh(parent);
        }
        old.unwrap_or_default().into_vec()
    }

    /// Whether pages can lie beside those that the node has: as many, and of the same owners.
    fn fits(&self, node: &Node, pages: &[PageId]) -> Result<(), TreeError> {
        if pages.len() != node.len as usize {
            return Err(TreeError::PageCount { positions: node.len, given: pages.len() });
        }
        self.owner_mismatch(node, pages).map_or(Ok(()), Err)
    }

    /// The first of these pages that has another owner than the node's page at its position.
    pub(crate) fn owner_mismatch(&self, node: &Node, pages: &[PageId]) -> Option<TreeError> {
        let own = node.device.as_deref().or(node.host.as_deref()).unwrap_or_default();
        (node.start..).zip(pages.iter().zip(own)).find_map(|(position, (page, other))| {
            let (owner, expected) = (self.striping.owner(*page), self.striping.owner(*other));
            (owner != expected).then_some(TreeError::OwnerMismatch {
                position,
                page: *page,
                owner,
                other: *other,
                expected,
            })
        })
    }
}

fn may_leave_device(node: &Node) -> Result<(), TreeError> {
    if node.device.is_none() {
        return Err(TreeError::NotResident { node: node.id });
    }
    if node.device_children > 0 {
        return Err(TreeError::HasChildren { node: node.id, children: node.device_children });
    }
    if node.lock > 0 {
        return Err(TreeError::Locked { node: node.id, locks: node.lock });
    }
    node.backup.map_or(Ok(()), |op| Err(TreeError::InFlight { node: node.id, op }))
}

fn may_lose_host(node: &Node) -> Result<(), TreeError> {
    if let Some(op) = node.load {
        return Err(TreeError::InFlight { node: node.id, op });
    }
    if node.device.is_none() && node.lock > 0 {
        return Err(TreeError::Locked { node: node.id, locks: node.lock });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::TreeError;
    use crate::fixture::{Fixture, key};
    use cpkv_core::{NodeId, OpId, Owner};

    /// A saved chain of three nodes: pages 1 and 2, 3 and 4, 5.
    fn chain() -> (Fixture, [NodeId; 3]) {
        let mut f = Fixture::new(2);
        let ids = [f.insert(&[1, 2]), f.insert(&[1, 2, 3, 4]), f.insert(&[1, 2, 3, 4, 5])];
        for id in ids {
            f.save(id);
        }
        (f, ids)
    }

    /// Fault F5: neither tier can get a gap; what is evicted is a leaf.
    #[test]
    fn both_tiers_are_evicted_leaf_first() {
        let (mut f, [top, middle, leaf]) = chain();
        assert_eq!(f.tree.demote(middle), Err(TreeError::HasChildren { node: middle, children: 1 }));
        assert_eq!(f.tree.drop_host(middle), Err(TreeError::HasChildren { node: middle, children: 1 }));
        for id in [leaf, middle, top] {
            assert_eq!(f.tree.device_frontier().map(|(_, id)| id).collect::<Vec<_>>(), [id]);
            f.tree.demote(id).unwrap();
            f.tree.self_check().unwrap();
        }
        assert_eq!(f.tree.match_prefix(key(&f.tokens(&[1, 2, 3, 4, 5]))).host_pages, 5);
        assert_eq!(f.tree.drop_host(middle), Err(TreeError::HasChildren { node: middle, children: 1 }));
        for id in [leaf, middle, top] {
            f.tree.drop_host(id).unwrap();
            assert!(f.tree.node(id).is_none());
        }
        assert_eq!((f.tree.nodes(), f.tree.self_check()), (0, Ok(())));
    }

    #[test]
    fn copies_of_resident_nodes_go_first_from_the_host() {
        let (mut f, [_, _, leaf]) = chain();
        let other = f.insert(&[9]);
        f.save(other);
        f.tree.demote(leaf).unwrap();
        assert_eq!(f.tree.host_frontier().map(|(_, id)| id).collect::<Vec<_>>(), [other, leaf]);
    }

    #[test]
    fn parents_come_first_on_both_tiers() {
        let mut f = Fixture::new(2);
        let (top, leaf) = (f.insert(&[1]), f.insert(&[1, 2]));
        let page = f.page(Owner(1));
        assert_eq!(f.tree.attach_host(leaf, vec![page]), Err(TreeError::ParentNotSaved { node: leaf, parent: top }));
        f.save(top);
        f.save(leaf);
        f.tree.demote(leaf).unwrap();
        f.tree.demote(top).unwrap();
        let page = f.page(Owner(1));
        assert_eq!(
            f.tree.attach_device(leaf, vec![page]),
            Err(TreeError::ParentNotResident { node: leaf, parent: top })
        );
        let owned = vec![f.page(Owner(0))];
        f.tree.attach_device(top, owned.clone()).unwrap();
        assert_eq!(f.tree.attach_device(top, owned), Err(TreeError::AlreadyResident { node: top }));
        assert_eq!(f.tree.self_check(), Ok(()));
    }

    /// Contract C9: both pages and both owners are named.
    #[test]
    fn a_page_of_another_owner_is_refused() {
        let mut f = Fixture::new(4);
        let id = f.insert(&[1, 2]);
        let pages = vec![f.page(Owner(0)), f.page(Owner(3))];
        let other = f.tree.node(id).unwrap().device().unwrap()[1];
        assert_eq!(
            f.tree.attach_host(id, pages.clone()),
            Err(TreeError::OwnerMismatch { position: 1, page: pages[1], owner: Owner(3), other, expected: Owner(1) })
        );
        assert_eq!(f.tree.attach_host(id, vec![]), Err(TreeError::PageCount { positions: 2, given: 0 }));
        assert!(f.tree.node(id).unwrap().host().is_none());
    }

    /// Fault F1: what a copy in flight uses stays, also where nobody locked it.
    #[test]
    fn copies_in_flight_hold_their_pages() {
        let mut f = Fixture::new(2);
        let id = f.insert(&[1]);
        f.tree.set_backup(id, 0, Some(OpId(7))).unwrap();
        assert_eq!(f.tree.drop_device(id), Err(TreeError::InFlight { node: id, op: OpId(7) }));
        f.tree.set_backup(id, 0, None).unwrap();
        f.save(id);
        f.tree.demote(id).unwrap();
        f.tree.set_load(id, 0, Some(OpId(8))).unwrap();
        assert_eq!(f.tree.drop_host(id), Err(TreeError::InFlight { node: id, op: OpId(8) }));
        assert_eq!(f.tree.drop_host_subtree(id), Err(TreeError::InFlight { node: id, op: OpId(8) }));
        assert_eq!((f.tree.pins(), f.tree.self_check()), (1, Ok(())));
    }

    #[test]
    fn an_unreadable_copy_takes_all_below_it_along() {
        let (mut f, [top, middle, leaf]) = chain();
        f.insert(&[1, 2, 8]);
        f.tree.demote(leaf).unwrap();
        f.tree.lock_host(leaf).unwrap();
        f.tree.lock(leaf).unwrap();
        assert_eq!(f.tree.drop_host_subtree(middle), Err(TreeError::Locked { node: leaf, locks: 1 }));
        f.tree.unlock(leaf).unwrap();
        assert_eq!(f.tree.drop_host_subtree(middle).map(|pages| pages.len()), Ok(3));
        assert!(f.tree.node(leaf).is_none(), "it was on the host alone");
        assert!(f.tree.node(middle).unwrap().host().is_none() && f.tree.node(middle).unwrap().device().is_some());
        assert_eq!((f.tree.node(top).unwrap().host_locks(), f.tree.host_valid().total()), (0, 2));
        assert_eq!(f.tree.self_check(), Ok(()));
        assert_eq!(f.tree.drop_host_subtree(middle), Err(TreeError::NotSaved { node: middle }));
    }

    #[test]
    fn only_what_has_a_copy_is_demoted() {
        let mut f = Fixture::new(1);
        let id = f.insert(&[1]);
        assert_eq!(f.tree.demote(id), Err(TreeError::NotSaved { node: id }));
        f.save(id);
        assert_eq!(f.tree.drop_device(id), Err(TreeError::AlreadySaved { node: id }));
        assert_eq!(f.tree.demote(id).map(|pages| pages.len()), Ok(1));
        assert_eq!(f.tree.demote(id), Err(TreeError::NotResident { node: id }));
    }
}
