//! A forest as plain data, validated: for files, tests and benches.

use crate::Forest;
use cpkv_core::{LANES_MAX, LaneCounts, NodeId, Owner, RetentionKey};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::ops::Range;

/// Up to this many pages a forest keeps a list of its pages' owners, one byte each, so that counting them anew costs
/// what it costs in a real tree. Larger forests expand their counts on demand.
const PAGE_LIST_MAX: u64 = 1 << 24;

/// One resident node, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanNode {
    /// Its id, unique in the forest.
    pub id: u64,
    /// The id of its parent, `None` under the root. Parents may come after their children.
    pub parent: Option<u64>,
    /// Pages per lane.
    pub counts: Vec<u32>,
    /// Its retention key, e.g. `[segment, last access]`: the smaller gives way first.
    pub retention: [u64; 2],
    /// Whether it may be evicted once its children are gone.
    pub evictable: bool,
}

/// Why nodes don't make a forest. Each names the node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForestError {
    /// The number of lanes is out of range.
    #[error("{lanes} is out of range, 1 to {LANES_MAX}")]
    Lanes {
        /// The number asked for.
        lanes: usize,
    },
    /// Two nodes have one id.
    #[error("node {node} is there twice")]
    DuplicateId {
        /// The id.
        node: u64,
    },
    /// The counts of a node aren't one per lane.
    #[error("node {node} has {found} counts, the forest has {lanes} lanes")]
    WrongLanes {
        /// The node.
        node: u64,
        /// Its counts.
        found: usize,
        /// The lanes of the forest.
        lanes: usize,
    },
    /// The pages of a lane, summed over the forest up to this node, exceed `u32`.
    #[error("with node {node} the pages of lane {lane} exceed {}", u32::MAX)]
    CountOverflow {
        /// The node.
        node: u64,
        /// The lane.
        lane: usize,
    },
    /// The parent isn't in the forest.
    #[error("node {node} has parent {parent}, which is unknown")]
    UnknownParent {
        /// The node.
        node: u64,
        /// The parent.
        parent: u64,
    },
    /// The node is its own ancestor.
    #[error("node {node} is its own ancestor")]
    Cycle {
        /// The node.
        node: u64,
    },
    /// Evictable nodes aren't closed downward: a node that isn't evictable hangs under one that is.
    #[error("node {node} is not evictable but its parent {parent} is")]
    NotClosed {
        /// The node.
        node: u64,
        /// The parent.
        parent: u64,
    },
}

impl ForestError {
    /// The node that is off, if it is a node.
    #[must_use]
    pub fn node(&self) -> Option<u64> {
        match *self {
            ForestError::Lanes { .. } => None,
            ForestError::DuplicateId { node }
            | ForestError::WrongLanes { node, .. }
            | ForestError::CountOverflow { node, .. }
            | ForestError::UnknownParent { node, .. }
            | ForestError::Cycle { node }
            | ForestError::NotClosed { node, .. } => Some(node),
        }
    }

    /// The field that is off: of the node, or `lanes`.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            ForestError::Lanes { .. } => "lanes",
            ForestError::DuplicateId { .. } => "id",
            ForestError::WrongLanes { .. } | ForestError::CountOverflow { .. } => "counts",
            ForestError::UnknownParent { .. } | ForestError::Cycle { .. } => "parent",
            ForestError::NotClosed { .. } => "evictable",
        }
    }
}

/// A node as the forest keeps it.
#[derive(Debug, Clone)]
struct Kept {
    parent: Option<usize>,
    counts: LaneCounts,
    retention: RetentionKey,
    evictable: bool,
    children: u32,
    /// Where its owners lie in the page list.
    pages: Range<usize>,
}

/// A validated forest over plain data. Immutable.
#[derive(Debug, Clone)]
pub struct VecForest {
    lanes: usize,
    ids: Vec<NodeId>,
    nodes: Vec<Kept>,
    places: FxHashMap<NodeId, usize>,
    eligible: Vec<NodeId>,
    /// `None` in forests of more than `PAGE_LIST_MAX` pages.
    page_list: Option<Vec<Owner>>,
}

impl VecForest {
    /// A forest of these nodes over `lanes` lanes, 1 to 64. O(nodes x lanes + pages).
    ///
    /// # Errors
    /// [`ForestError`] names the first node that is off.
    pub fn new(lanes: usize, nodes: Vec<PlanNode>) -> Result<Self, ForestError> {
        if !(1..=LANES_MAX).contains(&lanes) {
            return Err(ForestError::Lanes { lanes });
        }
        let places = places(&nodes)?;
        let pages = total_pages(lanes, &nodes)?;
        let parents = parents(&nodes, &places)?;
        check_acyclic(&nodes, &parents)?;
        check_closed(&nodes, &parents)?;

        let mut page_list = (pages <= PAGE_LIST_MAX).then(|| Vec::with_capacity(pages as usize));
        let ids: Vec<NodeId> = nodes.iter().map(|node| NodeId(node.id)).collect();
        let mut kept: Vec<Kept> = Vec::with_capacity(nodes.len());
        for (node, parent) in nodes.into_iter().zip(parents) {
            let counts = LaneCounts::from(node.counts);
            let start = page_list.as_ref().map_or(0, Vec::len);
            if let Some(list) = &mut page_list {
                list.extend(expand(&counts));
            }
            kept.push(Kept {
                parent,
                counts,
                retention: RetentionKey(node.retention),
                evictable: node.evictable,
                children: 0,
                pages: start..page_list.as_ref().map_or(0, Vec::len),
            });
        }
        for at in 0..kept.len() {
            if let Some(parent) = kept[at].parent {
                kept[parent].children += 1;
            }
        }
        let mut eligible: Vec<(RetentionKey, NodeId)> = kept
            .iter()
            .zip(&ids)
            .filter(|(node, _)| node.evictable && node.children == 0)
            .map(|(node, id)| (node.retention, *id))
            .collect();
        eligible.sort_unstable();
        let eligible = eligible.into_iter().map(|(_, id)| id).collect();
        Ok(Self { lanes, ids, nodes: kept, places, eligible, page_list })
    }

    /// The ids of all nodes, in the order in which they were given.
    #[must_use]
    pub fn ids(&self) -> &[NodeId] {
        &self.ids
    }

    fn kept(&self, id: NodeId) -> &Kept {
        &self.nodes[*self.places.get(&id).expect("the planner asks about nodes that the forest named")]
    }
}

/// The methods that take an id panic for one that isn't in the forest.
impl Forest for VecForest {
    fn lanes(&self) -> usize {
        self.lanes
    }

    fn eligible(&self) -> Box<dyn Iterator<Item = NodeId> + '_> {
        Box::new(self.eligible.iter().copied())
    }

    fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.kept(id).parent.map(|parent| self.ids[parent])
    }

    fn evictable(&self, id: NodeId) -> bool {
        self.kept(id).evictable
    }

    fn children(&self, id: NodeId) -> u32 {
        self.kept(id).children
    }

    fn counts(&self, id: NodeId) -> Cow<'_, LaneCounts> {
        Cow::Borrowed(&self.kept(id).counts)
    }

    fn owners(&self, id: NodeId) -> Box<dyn Iterator<Item = Owner> + '_> {
        let node = self.kept(id);
        match &self.page_list {
            Some(list) => Box::new(list[node.pages.clone()].iter().copied()),
            None => Box::new(expand(&node.counts)),
        }
    }

    fn retention(&self, id: NodeId) -> RetentionKey {
        self.kept(id).retention
    }
}

/// One owner per page.
fn expand(counts: &LaneCounts) -> impl Iterator<Item = Owner> {
    counts.iter().flat_map(|(owner, pages)| std::iter::repeat_n(owner, pages as usize))
}

fn places(nodes: &[PlanNode]) -> Result<FxHashMap<NodeId, usize>, ForestError> {
    let mut places = FxHashMap::default();
    for (at, node) in nodes.iter().enumerate() {
        if places.insert(NodeId(node.id), at).is_some() {
            return Err(ForestError::DuplicateId { node: node.id });
        }
    }
    Ok(places)
}

/// The pages of all lanes, each lane's within `u32`.
fn total_pages(lanes: usize, nodes: &[PlanNode]) -> Result<u64, ForestError> {
    let mut sums = vec![0u32; lanes];
    for node in nodes {
        if node.counts.len() != lanes {
            return Err(ForestError::WrongLanes { node: node.id, found: node.counts.len(), lanes });
        }
        for (lane, (sum, pages)) in sums.iter_mut().zip(&node.counts).enumerate() {
            *sum = sum.checked_add(*pages).ok_or(ForestError::CountOverflow { node: node.id, lane })?;
        }
    }
    Ok(sums.into_iter().map(u64::from).sum())
}

fn parents(nodes: &[PlanNode], places: &FxHashMap<NodeId, usize>) -> Result<Vec<Option<usize>>, ForestError> {
    let parent = |node: &PlanNode| {
        let Some(parent) = node.parent else { return Ok(None) };
        places.get(&NodeId(parent)).copied().map(Some).ok_or(ForestError::UnknownParent { node: node.id, parent })
    };
    nodes.iter().map(parent).collect()
}

/// Walks up from every node, once over each link.
fn check_acyclic(nodes: &[PlanNode], parents: &[Option<usize>]) -> Result<(), ForestError> {
    // The walk that came by first, numbered by the node where it began.
    let mut seen: Vec<Option<usize>> = vec![None; nodes.len()];
    for start in 0..nodes.len() {
        let mut at = Some(start);
        while let Some(here) = at {
            match seen[here] {
                Some(walk) if walk == start => return Err(ForestError::Cycle { node: nodes[here].id }),
                Some(_) => break,
                None => seen[here] = Some(start),
            }
            at = parents[here];
        }
    }
    Ok(())
}

fn check_closed(nodes: &[PlanNode], parents: &[Option<usize>]) -> Result<(), ForestError> {
    for (node, parent) in nodes.iter().zip(parents) {
        if let Some(parent) = parent
            && nodes[*parent].evictable
            && !node.evictable
        {
            return Err(ForestError::NotClosed { node: node.id, parent: nodes[*parent].id });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64, parent: Option<u64>, counts: &[u32]) -> PlanNode {
        PlanNode { id, parent, counts: counts.to_vec(), retention: [0, 100 - id], evictable: true }
    }

    fn refused(lanes: usize, nodes: Vec<PlanNode>) -> (String, Option<u64>, &'static str) {
        let error = VecForest::new(lanes, nodes).unwrap_err();
        (error.to_string(), error.node(), error.field())
    }

    #[test]
    fn what_makes_no_forest_is_named() {
        assert_eq!(refused(0, vec![]), ("0 is out of range, 1 to 64".into(), None, "lanes"));
        assert_eq!(refused(65, vec![]).1, None);
        assert_eq!(
            refused(1, vec![node(1, None, &[1]), node(1, None, &[2])]),
            ("node 1 is there twice".into(), Some(1), "id")
        );
        assert_eq!(
            refused(2, vec![node(1, None, &[1])]),
            ("node 1 has 1 counts, the forest has 2 lanes".into(), Some(1), "counts")
        );
        assert_eq!(
            refused(1, vec![node(1, Some(7), &[1])]),
            ("node 1 has parent 7, which is unknown".into(), Some(1), "parent")
        );
        assert_eq!(refused(1, vec![node(1, Some(1), &[1])]).0, "node 1 is its own ancestor");
        assert_eq!(
            refused(1, vec![node(4, Some(2), &[1]), node(1, Some(2), &[1]), node(2, Some(1), &[1])]).0,
            "node 2 is its own ancestor",
            "node 4 leads to the cycle and isn't on it"
        );
        let locked = PlanNode { evictable: false, ..node(2, Some(1), &[1]) };
        assert_eq!(
            refused(1, vec![node(1, None, &[1]), locked]),
            ("node 2 is not evictable but its parent 1 is".into(), Some(2), "evictable")
        );
        assert_eq!(
            refused(2, vec![node(1, None, &[1, u32::MAX]), node(2, None, &[1, 1])]),
            ("with node 2 the pages of lane 1 exceed 4294967295".into(), Some(2), "counts")
        );
    }

    #[test]
    fn eligible_nodes_come_in_retention_order() {
        let mut locked = node(5, None, &[1, 0]);
        locked.evictable = false;
        let forest =
            VecForest::new(2, vec![node(1, None, &[1, 2]), node(2, Some(3), &[0, 0]), node(3, None, &[2, 0]), locked])
                .unwrap();
        assert_eq!(forest.eligible().collect::<Vec<_>>(), [NodeId(2), NodeId(1)]);
        assert_eq!(forest.children(NodeId(3)), 1);
        assert_eq!(forest.parent(NodeId(2)), Some(NodeId(3)));
        assert_eq!(forest.owners(NodeId(1)).collect::<Vec<_>>(), [Owner(0), Owner(1), Owner(1)]);
    }

    #[test]
    fn a_forest_too_large_for_a_page_list_still_names_its_owners() {
        let large = PAGE_LIST_MAX as u32;
        let forest = VecForest::new(1, vec![node(1, None, &[large]), node(2, None, &[3])]).unwrap();
        assert!(forest.page_list.is_none());
        assert_eq!(forest.owners(NodeId(2)).count(), 3);
        assert_eq!(forest.owners(NodeId(1)).count(), large as usize);
    }
}
