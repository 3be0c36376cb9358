//! Everything that can be seen from outside, of the tree and of the model, in one comparable form.

use super::Model;
use crate::Tree;
use cpkv_core::{LaneCounts, NodeId, OpId, Owner, PageId, RetentionKey, Tick};

/// All that a [`NodeRef`](crate::NodeRef) shows; fields as its methods.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the method of NodeRef with its name")]
pub struct NodeView {
    pub id: NodeId,
    pub parent: Option<NodeId>,
    pub namespace: Option<String>,
    pub start: u32,
    pub len: u32,
    pub tokens: Vec<u32>,
    pub device: Option<Vec<PageId>>,
    pub host: Option<Vec<PageId>>,
    pub device_counts: Option<LaneCounts>,
    pub host_counts: Option<LaneCounts>,
    pub base: Option<Owner>,
    pub uses: u32,
    pub tick: Tick,
    pub created: Tick,
    pub priority: i64,
    pub locks: u32,
    pub host_locks: u32,
    pub pending_backup: Option<OpId>,
    pub pending_load: Option<OpId>,
    pub device_children: u32,
    pub host_children: u32,
    pub retention: RetentionKey,
    pub host_retention: RetentionKey,
    pub children: Vec<NodeId>,
}

/// All nodes, figures and frontiers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the method of Tree with its name; nodes are in id order")]
pub struct Observed {
    pub nodes: Vec<NodeView>,
    pub device_evictable: LaneCounts,
    pub device_locked: LaneCounts,
    pub host_valid: LaneCounts,
    pub host_evictable: LaneCounts,
    pub pins: u64,
    pub device_frontier: Vec<(RetentionKey, NodeId)>,
    pub host_frontier: Vec<(RetentionKey, NodeId)>,
}

impl Observed {
    /// What a tree shows.
    #[must_use]
    pub fn of_tree(tree: &Tree) -> Observed {
        let view = |id: NodeId| {
            let node = tree.node(id).expect("ids are of live nodes");
            assert_eq!(node.end(), node.start() + node.len());
            NodeView {
                id: node.id(),
                parent: node.parent(),
                namespace: node.namespace().map(str::to_owned),
                start: node.start(),
                len: node.len(),
                tokens: node.tokens().to_vec(),
                device: node.device().map(<[_]>::to_vec),
                host: node.host().map(<[_]>::to_vec),
                device_counts: node.device_counts().cloned(),
                host_counts: node.host_counts().cloned(),
                base: node.base(),
                uses: node.uses(),
                tick: node.tick(),
                created: node.created(),
                priority: node.priority(),
                locks: node.locks(),
                host_locks: node.host_locks(),
                pending_backup: node.pending_backup(),
                pending_load: node.pending_load(),
                device_children: node.device_children(),
                host_children: node.host_children(),
                retention: node.retention(),
                host_retention: node.host_retention(),
                children: node.children().map(|child| child.id()).collect(),
            }
        };
        let nodes: Vec<NodeView> = tree.ids().into_iter().map(view).collect();
        assert_eq!(tree.nodes(), nodes.len() as u64);
        Observed {
            nodes,
            device_evictable: tree.device_evictable().clone(),
            device_locked: tree.device_locked().clone(),
            host_valid: tree.host_valid().clone(),
            host_evictable: tree.host_evictable().clone(),
            pins: tree.pins(),
            device_frontier: tree.device_frontier().collect(),
            host_frontier: tree.host_frontier().collect(),
        }
    }

    /// What a model shows, all of it computed from its pages.
    #[must_use]
    pub fn of_model(model: &Model) -> Observed {
        let nodes: Vec<NodeView> = model.ids().into_iter().map(|id| view(model, id)).collect();
        let sum = |counts: &mut dyn Iterator<Item = Option<&LaneCounts>>| {
            let mut sum = LaneCounts::zero(model.config.lanes);
            counts.flatten().for_each(|counts| sum += counts);
            sum
        };
        let has = |id: &NodeId, on: fn(&NodeView) -> bool| nodes.iter().any(|node| node.id == *id && on(node));
        let mut device_frontier: Vec<_> = nodes
            .iter()
            .filter(|node| node.device.is_some() && node.locks == 0)
            .filter(|node| !node.children.iter().any(|child| has(child, |child| child.device.is_some())))
            .map(|node| (node.retention, node.id))
            .collect();
        let mut host_frontier: Vec<_> = nodes
            .iter()
            .filter(|node| node.host.is_some() && node.host_locks == 0)
            .filter(|node| !node.children.iter().any(|child| has(child, |child| child.host.is_some())))
            .map(|node| (node.host_retention, node.id))
            .collect();
        device_frontier.sort_unstable();
        host_frontier.sort_unstable();
        Observed {
            device_evictable: sum(&mut nodes.iter().filter(|n| n.locks == 0).map(|n| n.device_counts.as_ref())),
            device_locked: sum(&mut nodes.iter().filter(|n| n.locks > 0).map(|n| n.device_counts.as_ref())),
            host_valid: sum(&mut nodes.iter().map(|n| n.host_counts.as_ref())),
            host_evictable: sum(&mut nodes.iter().filter(|n| n.host_locks == 0).map(|n| n.host_counts.as_ref())),
            pins: nodes.iter().filter(|n| n.pending_backup.is_some() || n.pending_load.is_some()).count() as u64,
            device_frontier,
            host_frontier,
            nodes,
        }
    }
}

fn view(model: &Model, id: NodeId) -> NodeView {
    let span = model.span(id);
    let (namespace, end) = span.last().expect("a node has pages").clone();
    let pages: Vec<_> = span.iter().map(|key| &model.pages[key]).collect();
    let device: Option<Vec<PageId>> = pages.iter().map(|page| page.device).collect();
    let host: Option<Vec<PageId>> = pages.iter().map(|page| page.host).collect();
    let counts = |pages: &Option<Vec<PageId>>| {
        let owners = pages.iter().flatten().map(|page| model.striping.owner(*page));
        pages.is_some().then(|| LaneCounts::of_owners(model.config.lanes, owners))
    };
    let (facts, base) = model.nodes[&id];
    let children = model.children(id);
    let on = |tier: fn(&Model, NodeId) -> bool| children.iter().filter(|child| tier(model, **child)).count() as u32;
    NodeView {
        id,
        parent: model.parent(id),
        namespace,
        start: model.start(id),
        len: span.len() as u32,
        tokens: end[end.len() - span.len() * model.config.page_size as usize..].to_vec(),
        device_counts: counts(&device),
        host_counts: counts(&host),
        device,
        host,
        base,
        uses: facts.uses,
        tick: facts.tick,
        created: facts.created,
        priority: facts.priority,
        locks: model.locks_on(id, &model.locks),
        host_locks: model.locks_on(id, &model.host_locks),
        pending_backup: pages[0].backup,
        pending_load: pages[0].load,
        device_children: on(|model, child| model.first(child).device.is_some()),
        host_children: on(|model, child| model.first(child).host.is_some()),
        retention: model.retention(id),
        host_retention: model.host_retention(id),
        children,
    }
}
