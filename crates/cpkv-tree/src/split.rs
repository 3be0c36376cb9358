//! Splits: the tail keeps the id, the new upper half takes the next one, and both keep what was true of the whole.

use crate::node::{NONE, Node};
use crate::{Tree, TreeError};
use cpkv_core::{LaneCounts, NodeId, PageId};

impl Tree {
    /// Splits a node after its first `at` pages. Returns the new node, which has these pages and is the old one's
    /// parent. O(pages of the node).
    ///
    /// Both halves have the node's uses, ticks, priority, base, locks and copies in flight. Locks taken at the node
    /// stay with the old id, and so are given back through it.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`]; [`TreeError::SplitPoint`] unless `0 < at < len`.
    pub fn split(&mut self, id: NodeId, at: u32) -> Result<NodeId, TreeError> {
        let slot = self.slot(id)?;
        let len = self.arena[slot].len;
        if at == 0 || at >= len {
            return Err(TreeError::SplitPoint { node: id, at, len });
        }
        let upper = self.split_slot(slot, at);
        Ok(self.arena[upper].id)
    }

    /// Splits with `0 < at < len`. Returns the slot of the new upper half; the tail keeps its own.
    pub(crate) fn split_slot(&mut self, slot: u32, at: u32) -> u32 {
        let id = self.fresh_id();
        let tail = &mut self.arena[slot];
        cpkv_core::strict_assert!(at > 0 && at < tail.len, "node {} is split at {at} of {} pages", tail.id, tail.len);
        // Both halves get memory of their own, so that a short one doesn't keep the long allocation alive.
        let tokens = cut(&mut tail.tokens, (at * self.page_size) as usize);
        let device = tail.device.as_mut().map(|pages| cut(pages, at as usize));
        let host = tail.host.as_mut().map(|pages| cut(pages, at as usize));
        let pages: &[PageId] = device.as_deref().or(host.as_deref()).expect("a node is on a tier");
        let counts = LaneCounts::of_owners(self.striping.lanes(), pages.iter().map(|page| self.striping.owner(*page)));
        tail.counts -= &counts;
        let upper = Node {
            id,
            namespace: tail.namespace,
            parent: tail.parent,
            first_child: NONE,
            prev: NONE,
            next: NONE,
            hash: tail.hash,
            start: tail.start,
            len: at,
            tokens,
            counts,
            base: tail.base,
            tick: tail.tick,
            created: tail.created,
            uses: tail.uses,
            priority: tail.priority,
            lock: tail.lock,
            own_lock: 0,
            host_lock: tail.host_lock,
            own_host_lock: 0,
            backup: tail.backup,
            load: tail.load,
            device_children: u32::from(device.is_some()),
            host_children: u32::from(host.is_some()),
            device,
            host,
            // With a child on each of its tiers it is on no frontier, and the tail stays where it was.
            device_key: None,
            host_key: None,
        };
        tail.start += at;
        tail.len -= at;
        tail.hash = self.children.hash(&tail.tokens[..self.page_size as usize]);
        // Pages only moved between nodes; a copy in flight pins one node more.
        self.figures.pins += u64::from(upper.backup.is_some() || upper.load.is_some());
        let new = self.arena.insert(upper);
        self.slots.insert(id, new);
        self.link_between(slot, new);
        new
    }
}

/// Takes the first `at` elements off, leaving the rest, both in allocations of their own length.
fn cut<T: Copy>(whole: &mut Box<[T]>, at: usize) -> Box<[T]> {
    let head = whole[..at].into();
    *whole = whole[at..].into();
    head
}

#[cfg(test)]
mod tests {
    use crate::TreeError;
    use crate::fixture::Fixture;
    use cpkv_core::{NodeId, OpId};

    /// Faults F3 and Q1, contract C5: a backup over a node that splits twice while it runs.
    #[test]
    fn a_split_under_a_copy_pins_both_halves_until_its_end() {
        let mut f = Fixture::new(1);
        let tail = f.insert(&[1, 2, 3, 4, 5, 6, 7, 8]);
        f.tree.lock(tail).unwrap();
        f.tree.lock_host(tail).unwrap();
        f.tree.set_backup(tail, 0, Some(OpId(1))).unwrap();
        f.insert(&[1, 2, 3, 20, 21]);
        f.insert(&[1]);
        let pieces = f.tree.pieces(tail, 0);
        let lengths: Vec<u32> = pieces.iter().map(|id| f.tree.node(*id).unwrap().len()).collect();
        assert_eq!((lengths, pieces[2], f.tree.pins()), (vec![1, 2, 5], tail, 3));
        assert!(pieces.iter().all(|id| f.tree.node(*id).unwrap().pending_backup() == Some(OpId(1))));
        assert_eq!(f.tree.device_frontier().count(), 1, "of all, only what was added beside may go");

        f.tree.set_backup(tail, 0, None).unwrap();
        f.tree.unlock(tail).unwrap();
        f.tree.unlock_host(tail).unwrap();
        for id in &pieces {
            f.save(*id);
        }
        assert_eq!((f.tree.pins(), f.tree.host_valid().total()), (0, 8));
        assert!(pieces.iter().all(|id| f.tree.node(*id).unwrap().locks() == 0));
        assert_eq!(f.tree.self_check(), Ok(()));
    }

    /// Fault N5: the short half owns its own page and nothing more.
    #[test]
    fn halves_have_memory_of_their_own() {
        let mut f = Fixture::new(2);
        let tail = f.insert(&(0..1000).collect::<Vec<_>>());
        let old = f.tree.node(tail).unwrap().device().unwrap().as_ptr_range();
        let upper = f.tree.split(tail, 1).unwrap();
        assert_eq!((f.span(upper), f.span(tail)), ((0, 1), (1, 999)));
        let place = |id| f.tree.node(id).unwrap().device().unwrap().as_ptr();
        assert!(!old.contains(&place(upper)) && !old.contains(&place(tail)));
        assert_eq!(f.tree.node(upper).unwrap().device_counts().unwrap().as_slice(), [1, 0]);
        assert_eq!(f.tree.node(tail).unwrap().device_counts().unwrap().as_slice(), [499, 500]);
    }

    #[test]
    fn a_split_leaves_a_page_on_each_side() {
        let mut f = Fixture::new(1);
        let id = f.insert(&[1, 2]);
        for at in [0, 2, 3] {
            assert_eq!(f.tree.split(id, at), Err(TreeError::SplitPoint { node: id, at, len: 2 }));
        }
        assert_eq!(f.tree.split(NodeId(9), 1), Err(TreeError::UnknownNode { node: NodeId(9) }));
        assert_eq!((f.tree.nodes(), f.tree.split(id, 1)), (1, Ok(NodeId(2))));
    }
}
