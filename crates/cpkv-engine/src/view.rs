//! The tree as the planner sees it: one forest per tier, without what the planning operation itself stands on.

use cpkv_core::{LaneCounts, NodeId, Owner, RetentionKey, Striping};
use cpkv_plan::Forest;
use cpkv_tree::{Match, NodeRef, Tree};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The path that an operation matched: never a victim of its own plan (contract C6).
///
/// Planning happens before anything changes, so a match that ends inside a node is protected as if the node were split
/// there already: the matched pages are not evictable, the rest keeps the node's id, as a split would leave it.
#[derive(Debug, Default)]
pub(crate) struct Protected {
    nodes: BTreeSet<NodeId>,
    boundary: Option<(NodeId, u32)>,
}

impl Protected {
    /// The first `pages` pages of a match.
    pub(crate) fn path(found: &Match, pages: u32) -> Self {
        let mut protected = Self::default();
        let mut left = pages;
        for step in &found.path {
            if left == 0 {
                break;
            }
            let taken = step.pages.min(left);
            if taken == step.len {
                protected.nodes.insert(step.node);
            } else {
                protected.boundary = Some((step.node, taken));
            }
            left -= taken;
        }
        protected
    }

    /// The path down to a node, the whole of it.
    pub(crate) fn down_to(tree: &Tree, tail: Option<NodeId>) -> Self {
        let nodes = tail.into_iter().flat_map(|tail| tree.path_up(tail)).map(|node| node.id()).collect();
        Self { nodes, boundary: None }
    }

    /// Counts of a node's pages that the path doesn't cover.
    fn rest<'a>(
        &self,
        striping: Striping,
        id: NodeId,
        pages: &[cpkv_core::PageId],
        all: &'a LaneCounts,
    ) -> Cow<'a, LaneCounts> {
        match self.boundary {
            Some((node, taken)) if node == id => {
                let rest = pages[taken as usize..].iter().map(|page| striping.owner(*page));
                Cow::Owned(LaneCounts::of_owners(striping.lanes(), rest))
            }
            _ => Cow::Borrowed(all),
        }
    }

    /// Pages of an owner sequence's part that the path doesn't cover.
    fn skip(&self, id: NodeId) -> usize {
        match self.boundary {
            Some((node, taken)) if node == id => taken as usize,
            _ => 0,
        }
    }

    /// Takes the protected pages out of `evictable`. `counts` gives a node's pages if they count as evictable now.
    fn subtract(
        &self,
        mut evictable: LaneCounts,
        counts: impl Fn(NodeId, Option<u32>) -> Option<LaneCounts>,
    ) -> LaneCounts {
        for id in &self.nodes {
            if let Some(pages) = counts(*id, None) {
                evictable -= &pages;
            }
        }
        if let Some((id, taken)) = self.boundary
            && let Some(pages) = counts(id, Some(taken))
        {
            evictable -= &pages;
        }
        evictable
    }
}

/// The device tier's forest.
#[derive(Debug)]
pub(crate) struct DeviceView<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) striping: Striping,
    pub(crate) protected: &'a Protected,
}

/// The host tier's forest: copies of resident nodes (mirrors) count, and go first.
#[derive(Debug)]
pub(crate) struct HostView<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) striping: Striping,
    pub(crate) protected: &'a Protected,
}

fn node(tree: &Tree, id: NodeId) -> NodeRef<'_> {
    tree.node(id).expect("the planner asks only for nodes that the view gave it")
}

impl DeviceView<'_> {
    /// Pages per lane that could be evicted: exactly what a plan for everything would free.
    pub(crate) fn evictable_pages(&self) -> LaneCounts {
        self.protected.subtract(self.tree.device_evictable().clone(), |id, taken| {
            let node = node(self.tree, id);
            let pages = node.device().filter(|_| node.locks() == 0)?;
            Some(first_counts(self.striping, pages, taken))
        })
    }
}

impl HostView<'_> {
    /// Pages per lane that could be evicted: exactly what a plan for everything would free.
    pub(crate) fn evictable_pages(&self) -> LaneCounts {
        self.protected.subtract(self.tree.host_evictable().clone(), |id, taken| {
            let node = node(self.tree, id);
            let pages = node.host().filter(|_| node.host_locks() == 0)?;
            Some(first_counts(self.striping, pages, taken))
        })
    }
}

fn first_counts(striping: Striping, pages: &[cpkv_core::PageId], taken: Option<u32>) -> LaneCounts {
    let taken = taken.map_or(pages.len(), |taken| taken as usize);
    LaneCounts::of_owners(striping.lanes(), pages[..taken].iter().map(|page| striping.owner(*page)))
}

impl Forest for DeviceView<'_> {
    fn lanes(&self) -> usize {
        self.striping.lanes()
    }

    fn eligible(&self) -> Box<dyn Iterator<Item = NodeId> + '_> {
        Box::new(self.tree.device_frontier().map(|(_, id)| id).filter(|id| !self.protected.nodes.contains(id)))
    }

    fn parent(&self, id: NodeId) -> Option<NodeId> {
        node(self.tree, id).parent()
    }

    fn evictable(&self, id: NodeId) -> bool {
        let node = node(self.tree, id);
        node.device().is_some() && node.locks() == 0 && !self.protected.nodes.contains(&id)
    }

    fn children(&self, id: NodeId) -> u32 {
        node(self.tree, id).device_children()
    }

    fn counts(&self, id: NodeId) -> Cow<'_, LaneCounts> {
        let node = node(self.tree, id);
        match (node.device(), node.device_counts()) {
            (Some(pages), Some(counts)) => self.protected.rest(self.striping, id, pages, counts),
            _ => Cow::Owned(LaneCounts::zero(self.lanes())),
        }
    }

    fn owners(&self, id: NodeId) -> Box<dyn Iterator<Item = Owner> + '_> {
        let pages = node(self.tree, id).device().unwrap_or_default();
        Box::new(pages[self.protected.skip(id).min(pages.len())..].iter().map(|page| self.striping.owner(*page)))
    }

    fn retention(&self, id: NodeId) -> RetentionKey {
        node(self.tree, id).retention()
    }
}

impl Forest for HostView<'_> {
    fn lanes(&self) -> usize {
        self.striping.lanes()
    }

    fn eligible(&self) -> Box<dyn Iterator<Item = NodeId> + '_> {
        Box::new(self.tree.host_frontier().map(|(_, id)| id).filter(|id| !self.protected.nodes.contains(id)))
    }

    fn parent(&self, id: NodeId) -> Option<NodeId> {
        node(self.tree, id).parent()
    }

    fn evictable(&self, id: NodeId) -> bool {
        let node = node(self.tree, id);
        node.host().is_some() && node.host_locks() == 0 && !self.protected.nodes.contains(&id)
    }

    fn children(&self, id: NodeId) -> u32 {
        node(self.tree, id).host_children()
    }

    fn counts(&self, id: NodeId) -> Cow<'_, LaneCounts> {
        let node = node(self.tree, id);
        match (node.host(), node.host_counts()) {
            (Some(pages), Some(counts)) => self.protected.rest(self.striping, id, pages, counts),
            _ => Cow::Owned(LaneCounts::zero(self.lanes())),
        }
    }

    fn owners(&self, id: NodeId) -> Box<dyn Iterator<Item = Owner> + '_> {
        let pages = node(self.tree, id).host().unwrap_or_default();
        Box::new(pages[self.protected.skip(id).min(pages.len())..].iter().map(|page| self.striping.owner(*page)))
    }

    fn retention(&self, id: NodeId) -> RetentionKey {
        node(self.tree, id).host_retention()
    }
}
