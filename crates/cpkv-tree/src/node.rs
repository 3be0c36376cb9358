//! A node: a run of whole pages, its copies per tier and the facts that decisions read.

use crate::Tree;
use crate::retention::{NodeFacts, RetentionPolicy, host_key};
use cpkv_core::{LaneCounts, NodeId, OpId, Owner, PageId, RetentionKey, Tick};

/// No slot: the end of a sibling list.
pub(crate) const NONE: u32 = u32::MAX;

/// What a node hangs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Parent {
    /// The root of a namespace.
    Root(u32),
    /// The node in this slot.
    Node(u32),
}

impl Parent {
    pub(crate) fn slot(self) -> Option<u32> {
        match self {
            Parent::Root(_) => None,
            Parent::Node(slot) => Some(slot),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) namespace: u32,
    pub(crate) parent: Parent,
    /// Children are a list through the nodes themselves: a wide node costs no more per child than a narrow one.
    pub(crate) first_child: u32,
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// Of the first page.
    pub(crate) hash: u64,
    /// Position of the first page in the chain.
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) tokens: Box<[u32]>,
    pub(crate) device: Option<Box<[PageId]>>,
    pub(crate) host: Option<Box<[PageId]>>,
    /// Pages per lane: one count for both tiers, as their owners are equal pairwise.
    pub(crate) counts: LaneCounts,
    pub(crate) base: Option<Owner>,
    pub(crate) tick: Tick,
    pub(crate) created: Tick,
    pub(crate) uses: u32,
    pub(crate) priority: i64,
    /// Locks at this node and below, and those taken at this very node.
    pub(crate) lock: u32,
    pub(crate) own_lock: u32,
    pub(crate) host_lock: u32,
    pub(crate) own_host_lock: u32,
    pub(crate) backup: Option<OpId>,
    pub(crate) load: Option<OpId>,
    pub(crate) device_children: u32,
    pub(crate) host_children: u32,
    /// Keys under which the node stands in the frontiers now.
    pub(crate) device_key: Option<RetentionKey>,
    pub(crate) host_key: Option<RetentionKey>,
}

impl Node {
    pub(crate) fn end(&self) -> u32 {
        self.start + self.len
    }

    pub(crate) fn facts(&self) -> NodeFacts {
        NodeFacts { uses: self.uses, tick: self.tick, created: self.created, priority: self.priority }
    }

    /// Leading whole pages that the node and `rest`, which is of whole pages, have in common.
    pub(crate) fn common_pages(&self, rest: &[u32], page_size: u32) -> u32 {
        if let Some(head) = rest.get(..self.tokens.len())
            && head == &*self.tokens
        {
            return self.len;
        }
        let size = page_size as usize;
        self.tokens.chunks_exact(size).zip(rest.chunks_exact(size)).take_while(|(mine, other)| mine == other).count()
            as u32
    }
}

/// A read-only view of one node.
#[derive(Debug, Clone, Copy)]
pub struct NodeRef<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) node: &'a Node,
}

#[expect(clippy::len_without_is_empty, reason = "a node has at least one page")]
impl<'a> NodeRef<'a> {
    /// The node's id.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.node.id
    }

    /// The parent; `None` for a child of a root.
    #[must_use]
    pub fn parent(&self) -> Option<NodeId> {
        self.node.parent.slot().map(|slot| self.tree.arena[slot].id)
    }

    /// The namespace that the node's key is in.
    #[must_use]
    pub fn namespace(&self) -> Option<&'a str> {
        self.tree.namespaces.name(self.node.namespace)
    }

    /// Pages of the node, at least 1.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.node.len
    }

    /// Position of the first page in the chain, in pages.
    #[must_use]
    pub fn start(&self) -> u32 {
        self.node.start
    }

    /// Position after the last page in the chain, in pages.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.node.end()
    }

    /// The node's tokens, `len * page_size` of them.
    #[must_use]
    pub fn tokens(&self) -> &'a [u32] {
        &self.node.tokens
    }

    /// The device pages, one per page; `None` where the node isn't on the device.
    #[must_use]
    pub fn device(&self) -> Option<&'a [PageId]> {
        self.node.device.as_deref()
    }

    /// The pages of the valid host copy, one per page; `None` where there is none.
    #[must_use]
    pub fn host(&self) -> Option<&'a [PageId]> {
        self.node.host.as_deref()
    }

    /// Device pages per lane; `None` where the node isn't on the device.
    #[must_use]
    pub fn device_counts(&self) -> Option<&'a LaneCounts> {
        self.node.device.as_ref().map(|_| &self.node.counts)
    }

    /// Host pages per lane; `None` where there is no valid host copy.
    #[must_use]
    pub fn host_counts(&self) -> Option<&'a LaneCounts> {
        self.node.host.as_ref().map(|_| &self.node.counts)
    }

    /// The base of the chain under rotated placement: page `P` of the chain belongs to `(base + P) mod N`.
    #[must_use]
    pub fn base(&self) -> Option<Owner> {
        self.node.base
    }

    /// Finished inserts that went through the node.
    #[must_use]
    pub fn uses(&self) -> u32 {
        self.node.uses
    }

    /// The last access.
    #[must_use]
    pub fn tick(&self) -> Tick {
        self.node.tick
    }

    /// The insert that made the node, or what it was split from.
    #[must_use]
    pub fn created(&self) -> Tick {
        self.node.created
    }

    /// The highest priority of an insert that went through the node.
    #[must_use]
    pub fn priority(&self) -> i64 {
        self.node.priority
    }

    /// Path locks on the node and below it.
    #[must_use]
    pub fn locks(&self) -> u32 {
        self.node.lock
    }

    /// Host locks on the node and below it.
    #[must_use]
    pub fn host_locks(&self) -> u32 {
        self.node.host_lock
    }

    /// The backup in flight that reads the node.
    #[must_use]
    pub fn pending_backup(&self) -> Option<OpId> {
        self.node.backup
    }

    /// The load-back in flight that reads the node's host copy.
    #[must_use]
    pub fn pending_load(&self) -> Option<OpId> {
        self.node.load
    }

    /// Children on the device.
    #[must_use]
    pub fn device_children(&self) -> u32 {
        self.node.device_children
    }

    /// Children with a valid host copy.
    #[must_use]
    pub fn host_children(&self) -> u32 {
        self.node.host_children
    }

    /// The retention key: the smaller gives way first.
    #[must_use]
    pub fn retention(&self) -> RetentionKey {
        self.tree.retention.key(&self.node.facts())
    }

    /// The retention key on the host tier: copies of nodes that are on the device too go first, then as
    /// [`retention`](Self::retention).
    #[must_use]
    pub fn host_retention(&self) -> RetentionKey {
        host_key(self.retention(), self.node.device.is_some())
    }

    /// The children in id order. O(children log children).
    pub fn children(&self) -> impl Iterator<Item = NodeRef<'a>> + use<'a> {
        let tree = self.tree;
        let mut children: Vec<&Node> = tree.child_slots(self.node).map(|slot| &tree.arena[slot]).collect();
        children.sort_unstable_by_key(|node| node.id);
        children.into_iter().map(move |node| NodeRef { tree, node })
    }
}
