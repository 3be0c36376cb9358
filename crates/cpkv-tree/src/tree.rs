//! The tree itself: its parts, its configuration and the look-ups by node.

use crate::arena::Arena;
use crate::children::{ChildTable, Namespaces};
use crate::frontier::{Figures, Frontiers};
use crate::node::Node;
use crate::{NodeRef, Retention, TreeError};
use cpkv_core::{NodeId, Striping, Tick};
use rustc_hash::FxHashMap;

/// What a tree is made for. Fixed for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeConfig {
    /// Tokens per page, at least 1.
    pub page_size: u32,
    /// Owner lanes, 1 to 64.
    pub lanes: usize,
    /// What gives way first.
    pub retention: Retention,
}

/// An arena radix tree over whole pages, with residency per tier. See the [crate's docs](crate).
#[derive(Debug, Clone)]
pub struct Tree {
    pub(crate) page_size: u32,
    pub(crate) striping: Striping,
    pub(crate) retention: Retention,
    pub(crate) next_id: u64,
    pub(crate) arena: Arena,
    /// Slots by id. Never iterated.
    pub(crate) slots: FxHashMap<NodeId, u32>,
    pub(crate) children: ChildTable,
    pub(crate) namespaces: Namespaces,
    pub(crate) figures: Figures,
    pub(crate) frontiers: Frontiers,
}

impl Tree {
    /// An empty tree.
    ///
    /// # Errors
    /// [`TreeError::Lanes`] and [`TreeError::PageSize`].
    pub fn new(config: TreeConfig) -> Result<Tree, TreeError> {
        Self::with_hash_mask(config, u64::MAX)
    }

    /// An empty tree under whose hash function all pages collide: matching must not depend on hashes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[cfg(any(test, feature = "testing"))]
    pub fn with_equal_hashes(config: TreeConfig) -> Result<Tree, TreeError> {
        Self::with_hash_mask(config, 0)
    }

    fn with_hash_mask(config: TreeConfig, mask: u64) -> Result<Tree, TreeError> {
        let striping = Striping::new(config.lanes)?;
        if config.page_size == 0 {
            return Err(TreeError::PageSize);
        }
        Ok(Tree {
            page_size: config.page_size,
            striping,
            retention: config.retention,
            next_id: 1,
            arena: Arena::default(),
            slots: FxHashMap::default(),
            children: ChildTable::new(mask),
            namespaces: Namespaces::default(),
            figures: Figures::zero(config.lanes),
            frontiers: Frontiers::default(),
        })
    }

    /// Forgets every node and namespace. Ids go on rising: a name from before stays unknown.
    pub fn reset(&mut self) {
        self.arena = Arena::default();
        self.slots = FxHashMap::default();
        self.children.clear();
        self.namespaces = Namespaces::default();
        self.figures = Figures::zero(self.striping.lanes());
        self.frontiers = Frontiers::default();
    }

    /// Nodes, roots not counted. O(1).
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.arena.len() as u64
    }

    /// Ids of all nodes, ascending. O(nodes log nodes): for tests and checks.
    #[must_use]
    pub fn ids(&self) -> Vec<NodeId> {
        let mut ids: Vec<NodeId> = self.arena.iter().map(|(_, node)| node.id).collect();
        ids.sort_unstable();
        ids
    }

    /// The node with this id; `None` if there is none. O(1).
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<NodeRef<'_>> {
        let slot = self.slot(id).ok()?;
        Some(NodeRef { tree: self, node: &self.arena[slot] })
    }

    /// The node, its parent, and so on to the child of the root. Nothing for an unknown id.
    pub fn path_up(&self, id: NodeId) -> impl Iterator<Item = NodeRef<'_>> {
        self.slots_up(self.slot(id).ok()).map(|slot| NodeRef { tree: self, node: &self.arena[slot] })
    }

    /// Records an access: sets the tick of the node and all its ancestors. A tick never falls.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`].
    pub fn touch(&mut self, id: NodeId, tick: Tick) -> Result<(), TreeError> {
        let mut at = Some(self.slot(id)?);
        while let Some(slot) = at {
            let node = &mut self.arena[slot];
            node.tick = node.tick.max(tick);
            at = node.parent.slot();
            self.refresh(slot);
        }
        Ok(())
    }

    pub(crate) fn slot(&self, id: NodeId) -> Result<u32, TreeError> {
        self.slots.get(&id).copied().ok_or(TreeError::UnknownNode { node: id })
    }

    pub(crate) fn slots_up(&self, from: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(from, |slot| self.arena[*slot].parent.slot())
    }

    /// The next id. Ids are never used again.
    pub(crate) fn fresh_id(&mut self) -> NodeId {
        let id = NodeId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Enters a new node under its parent.
    pub(crate) fn add_node(&mut self, node: Node) -> u32 {
        let (id, parent) = (node.id, node.parent.slot());
        let (device, host) = (node.device.is_some(), node.host.is_some());
        self.figures.add(&node);
        let slot = self.arena.insert(node);
        self.slots.insert(id, slot);
        self.link(slot);
        if let Some(parent) = parent {
            self.arena[parent].device_children += u32::from(device);
            self.arena[parent].host_children += u32::from(host);
            self.refresh(parent);
        }
        self.refresh(slot);
        slot
    }

    /// Takes out a node that is on no tier any more and has no children, lock or copy in flight.
    pub(crate) fn remove_node(&mut self, slot: u32) {
        self.unlink(slot);
        let node = self.arena.remove(slot);
        cpkv_core::strict_assert!(
            node.device.is_none() && node.host.is_none() && node.first_child == crate::node::NONE,
            "node {} is removed while it is in use",
            node.id
        );
        self.slots.remove(&node.id);
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{Fixture, key};
    use crate::{Retention, Tree, TreeConfig, TreeError};
    use cpkv_core::{NodeId, StripingError, Tick};

    #[test]
    fn a_configuration_out_of_range_is_named() {
        let config = TreeConfig { page_size: 0, lanes: 1, retention: Retention::Lru };
        assert_eq!(Tree::new(config).unwrap_err().to_string(), "page_size: 0 is out of range, at least 1");
        let config = TreeConfig { page_size: 1, lanes: 65, retention: Retention::Lru };
        assert_eq!(Tree::new(config).unwrap_err(), TreeError::Lanes(StripingError { lanes: 65 }));
    }

    #[test]
    fn a_reset_forgets_everything_and_uses_no_name_again() {
        let mut f = Fixture::new(2);
        let old = f.insert(&[1, 2]);
        f.insert_as(Some("t"), &[3]);
        f.save(old);
        f.tree.lock(old).unwrap();
        f.tree.reset();
        assert_eq!((f.tree.nodes(), f.tree.ids(), f.tree.self_check()), (0, vec![], Ok(())));
        assert!(f.tree.device_locked().is_zero() && f.tree.host_valid().is_zero());
        assert_eq!(f.tree.unlock(old), Err(TreeError::UnknownNode { node: old }));
        assert_eq!(f.insert(&[1, 2]), NodeId(3));
    }

    #[test]
    fn a_touch_reaches_all_ancestors() {
        let mut f = Fixture::new(1);
        let (top, leaf) = (f.insert(&[1]), f.insert(&[1, 2]));
        let beside = f.insert(&[1, 3]);
        f.tree.touch(leaf, Tick(50)).unwrap();
        let ticks = |f: &Fixture| [top, leaf, beside].map(|id| f.tree.node(id).unwrap().tick().0);
        assert_eq!(ticks(&f), [50, 50, 3]);
        assert_eq!(f.tree.device_frontier().map(|(_, id)| id).collect::<Vec<_>>(), [beside, leaf]);
        f.tree.touch(leaf, Tick(7)).unwrap();
        assert_eq!(ticks(&f), [50, 50, 3], "the clock doesn't run back");
        assert_eq!(f.tree.path_up(leaf).map(|node| node.id()).collect::<Vec<_>>(), [leaf, top]);
    }

    /// Nothing recurses: a chain of thousands of nodes is locked, matched, demoted and dropped whole.
    #[test]
    fn a_chain_of_thousands_of_nodes_is_walked_by_loops() {
        const NODES: u32 = 3000;
        let mut f = Fixture::new(2);
        let names: Vec<u32> = (0..NODES).collect();
        let tail = f.insert(&names);
        f.save(tail);
        let mut upper = tail;
        for at in (1..NODES).rev() {
            upper = f.tree.split(upper, at).unwrap();
        }
        assert_eq!(f.tree.nodes(), u64::from(NODES));
        f.tree.lock(tail).unwrap();
        assert!(f.tree.device_evictable().is_zero());
        f.tree.unlock(tail).unwrap();
        assert_eq!(f.tree.match_prefix(key(&f.tokens(&names))).path.len(), NODES as usize);
        assert_eq!(f.tree.self_check(), Ok(()));
        for _ in 0..NODES {
            let (_, id) = f.tree.device_frontier().next().expect("each node exposes its parent");
            f.tree.demote(id).unwrap();
        }
        assert_eq!(f.tree.drop_host_subtree(upper).map(|pages| pages.len()), Ok(NODES as usize));
        assert_eq!((f.tree.nodes(), f.tree.self_check()), (0, Ok(())));
    }

    /// A prefix that everybody shares has a child per request: each comes and goes at the cost of one.
    #[test]
    fn a_node_may_have_a_hundred_thousand_children() {
        const CHILDREN: u32 = 100_000;
        let mut f = Fixture::new(4);
        let top = f.insert(&[0]);
        for name in 1..=CHILDREN {
            let pages = f.pages(2);
            let tokens = f.tokens(&[0, name]);
            let insert = crate::Insert { pages: &pages, base: None, tick: Tick(1), finished: true, priority: 0 };
            f.tree.insert(key(&tokens), insert).unwrap();
        }
        assert_eq!(f.tree.node(top).unwrap().device_children(), CHILDREN);
        assert_eq!((f.tree.nodes(), f.tree.self_check()), (u64::from(CHILDREN) + 1, Ok(())));
        let ids: Vec<NodeId> = f.tree.node(top).unwrap().children().map(|child| child.id()).collect();
        assert!(ids.is_sorted());
        for id in ids {
            f.tree.drop_device(id).unwrap();
        }
        assert_eq!(f.tree.device_frontier().map(|(_, id)| id).collect::<Vec<_>>(), [top]);
        assert_eq!(f.tree.self_check(), Ok(()));
    }
}
