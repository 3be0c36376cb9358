//! Path locks: counts on a node and all its ancestors, so that being covered is read in O(1).

use crate::{Tree, TreeError};
use cpkv_core::NodeId;

impl Tree {
    /// Locks the path down to a node: neither it nor an ancestor leaves the device until the
    /// [`unlock`](Self::unlock). O(nodes of the path).
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`].
    pub fn lock(&mut self, id: NodeId) -> Result<(), TreeError> {
        let slot = self.slot(id)?;
        self.add_locks(slot, 1, true);
        Ok(())
    }

    /// Gives back a lock taken at this node.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`]; [`TreeError::NotLocked`] where no lock was taken at this very node, though one
    /// below may cover it.
    pub fn unlock(&mut self, id: NodeId) -> Result<(), TreeError> {
        let slot = self.slot(id)?;
        if self.arena[slot].own_lock == 0 {
            return Err(TreeError::NotLocked { node: id });
        }
        self.add_locks(slot, 1, false);
        Ok(())
    }

    /// Locks the host copies of the path down to a node, as far as there are any: they aren't dropped until the
    /// [`unlock_host`](Self::unlock_host). O(nodes of the path).
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`].
    pub fn lock_host(&mut self, id: NodeId) -> Result<(), TreeError> {
        let slot = self.slot(id)?;
        self.add_host_locks(slot, 1, true);
        Ok(())
    }

    /// Gives back a host lock taken at this node.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`]; [`TreeError::NotLocked`] where no host lock was taken at this very node.
    pub fn unlock_host(&mut self, id: NodeId) -> Result<(), TreeError> {
        let slot = self.slot(id)?;
        if self.arena[slot].own_host_lock == 0 {
            return Err(TreeError::NotLocked { node: id });
        }
        self.add_host_locks(slot, 1, false);
        Ok(())
    }

    fn add_locks(&mut self, slot: u32, locks: u32, up: bool) {
        let own = &mut self.arena[slot].own_lock;
        *own = moved(*own, locks, up);
        self.walk_up(slot, |tree, slot| {
            let (old, new) = (tree.arena[slot].lock, moved(tree.arena[slot].lock, locks, up));
            if (old == 0) == (new == 0) {
                tree.arena[slot].lock = new;
            } else {
                tree.edit(slot, |node| node.lock = new);
            }
        });
    }

    pub(crate) fn add_host_locks(&mut self, slot: u32, locks: u32, up: bool) {
        let own = &mut self.arena[slot].own_host_lock;
        *own = moved(*own, locks, up);
        self.walk_up(slot, |tree, slot| {
            let (old, new) = (tree.arena[slot].host_lock, moved(tree.arena[slot].host_lock, locks, up));
            if (old == 0) == (new == 0) {
                tree.arena[slot].host_lock = new;
            } else {
                tree.edit(slot, |node| node.host_lock = new);
            }
        });
    }

    fn walk_up(&mut self, slot: u32, mut change: impl FnMut(&mut Tree, u32)) {
        let mut at = Some(slot);
        while let Some(slot) = at {
            change(self, slot);
            at = self.arena[slot].parent.slot();
        }
    }
}

fn moved(count: u32, by: u32, up: bool) -> u32 {
    if up { count.checked_add(by) } else { count.checked_sub(by) }.expect("locks are given back once each")
}

#[cfg(test)]
mod tests {
    use crate::TreeError;
    use crate::fixture::Fixture;
    use cpkv_core::NodeId;

    /// Fault B7, contract C6: the node itself and every ancestor are covered.
    #[test]
    fn a_locked_path_is_off_the_frontier() {
        let mut f = Fixture::new(1);
        let (top, leaf, beside) = (f.insert(&[1, 2]), f.insert(&[1, 2, 3]), f.insert(&[1, 2, 4, 5]));
        f.tree.lock(leaf).unwrap();
        assert_eq!(f.tree.device_frontier().map(|(_, id)| id).collect::<Vec<_>>(), [beside]);
        assert_eq!((f.tree.device_locked().total(), f.tree.device_evictable().total()), (3, 2));
        assert_eq!(f.tree.drop_device(leaf), Err(TreeError::Locked { node: leaf, locks: 1 }));
        f.tree.drop_device(beside).unwrap();
        assert_eq!(f.tree.device_frontier().count(), 0);
        assert_eq!(f.tree.drop_device(top), Err(TreeError::HasChildren { node: top, children: 1 }));
        f.tree.unlock(leaf).unwrap();
        assert_eq!(f.tree.device_frontier().map(|(_, id)| id).collect::<Vec<_>>(), [leaf]);
    }

    /// Faults B5 and B19: only what took a lock gives one back, where it took it.
    #[test]
    fn a_lock_is_given_back_once_and_where_it_was_taken() {
        let mut f = Fixture::new(1);
        let (top, leaf) = (f.insert(&[1]), f.insert(&[1, 2]));
        f.tree.lock(leaf).unwrap();
        f.tree.lock_host(leaf).unwrap();
        assert_eq!(f.tree.unlock(top), Err(TreeError::NotLocked { node: top }), "the lock is the leaf's");
        assert_eq!(f.tree.unlock_host(top), Err(TreeError::NotLocked { node: top }));
        let upper = f.insert(&[1, 2, 3]);
        f.tree.lock(upper).unwrap();
        assert_eq!(f.tree.node(top).unwrap().locks(), 2);
        f.tree.unlock(leaf).unwrap();
        assert_eq!(f.tree.unlock(leaf), Err(TreeError::NotLocked { node: leaf }));
        f.tree.unlock(upper).unwrap();
        f.tree.unlock_host(leaf).unwrap();
        assert_eq!(f.tree.unlock_host(leaf), Err(TreeError::NotLocked { node: leaf }));
        assert_eq!(f.tree.lock(NodeId(77)), Err(TreeError::UnknownNode { node: NodeId(77) }));
        assert_eq!((f.tree.device_locked().total(), f.tree.self_check()), (0, Ok(())));
    }

    #[test]
    fn a_host_lock_keeps_the_copies_of_its_path() {
        let mut f = Fixture::new(1);
        let (top, leaf) = (f.insert(&[1]), f.insert(&[1, 2]));
        f.save(top);
        f.save(leaf);
        f.tree.lock_host(top).unwrap();
        assert_eq!(f.tree.host_evictable().total(), 1);
        assert_eq!(f.tree.drop_host(leaf).map(|pages| pages.len()), Ok(1));
        assert_eq!(f.tree.drop_host(top), Err(TreeError::HostLocked { node: top, locks: 1 }));
        assert_eq!((f.tree.host_frontier().count(), f.tree.host_valid().total()), (0, 1));
    }
}
