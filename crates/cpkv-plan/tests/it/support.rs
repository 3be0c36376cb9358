//! The definition of a plan, written once more over plain arrays and sharing no code with the crate.

use cpkv_core::{LaneCounts, NodeId};
use cpkv_plan::{Algorithm, EvictOrder, Plan, PlanNode, PlanRequest, VecForest, plan};
use std::cmp::Reverse;

/// What a plan decides.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) victims: Vec<u64>,
    pub(crate) freed: Vec<u32>,
    pub(crate) remaining: Vec<u32>,
}

/// How unlock is defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unlock {
    /// Over all evictable ancestors, siblings ignored: the crate's rule.
    AllAncestors,
    /// Over the parents that this eviction would expose: the rule that the crate warns of.
    ExposedParents,
}

/// The naive planner's view: the nodes, and which of them are gone.
pub(crate) struct Naive<'a> {
    pub(crate) nodes: &'a [PlanNode],
    pub(crate) gone: Vec<bool>,
    pub(crate) deficits: Vec<u32>,
    pub(crate) unlock: Unlock,
}

impl<'a> Naive<'a> {
    pub(crate) fn new(nodes: &'a [PlanNode], deficits: &[u32], unlock: Unlock) -> Self {
        Self { nodes, gone: vec![false; nodes.len()], deficits: deficits.to_vec(), unlock }
    }

    fn children(&self, at: usize) -> usize {
        let id = Some(self.nodes[at].id);
        (0..self.nodes.len()).filter(|child| !self.gone[*child] && self.nodes[*child].parent == id).count()
    }

    pub(crate) fn eligible(&self, at: usize) -> bool {
        self.nodes[at].evictable && !self.gone[at] && self.children(at) == 0
    }

    fn contribution(&self, at: usize) -> u64 {
        self.nodes[at].counts.iter().zip(&self.deficits).map(|(have, want)| u64::from(*have.min(want))).sum()
    }

    /// Contribution and unlock.
    pub(crate) fn score(&self, at: usize) -> (u64, u64) {
        let mut unlock = 0;
        let mut above = self.nodes[at].parent;
        while let Some(id) = above {
            let parent = self.nodes.iter().position(|node| node.id == id).unwrap();
            let counts = self.unlock == Unlock::AllAncestors || self.children(parent) == 1;
            if !self.nodes[parent].evictable || !counts {
                break;
            }
            unlock += self.contribution(parent);
            above = self.nodes[parent].parent;
        }
        (self.contribution(at), unlock)
    }

    pub(crate) fn evict(&mut self, at: usize) {
        self.gone[at] = true;
        for (deficit, pages) in self.deficits.iter_mut().zip(&self.nodes[at].counts) {
            *deficit -= (*pages).min(*deficit);
        }
    }

    pub(crate) fn short(&self) -> bool {
        self.deficits.iter().any(|deficit| *deficit > 0)
    }

    pub(crate) fn decision(self, victims: &[usize]) -> Decision {
        let mut freed = vec![0; self.deficits.len()];
        for at in victims {
            for (sum, pages) in freed.iter_mut().zip(&self.nodes[*at].counts) {
                *sum += pages;
            }
        }
        Decision { victims: victims.iter().map(|at| self.nodes[*at].id).collect(), freed, remaining: self.deficits }
    }
}

/// The greedy argmin of the definition.
pub(crate) fn naive(nodes: &[PlanNode], deficits: &[u32], order: EvictOrder, unlock: Unlock) -> Decision {
    let mut state = Naive::new(nodes, deficits, unlock);
    let mut victims = Vec::new();
    while state.short() {
        let best = (0..nodes.len())
            .filter(|at| state.eligible(*at))
            .filter(|at| state.score(*at) != (0, 0))
            .min_by_key(|at| {
                let node = &nodes[*at];
                let score = if order == EvictOrder::Contribution { state.score(*at) } else { (0, 0) };
                (Reverse(score), node.retention, node.id)
            });
        let Some(best) = best else { break };
        state.evict(best);
        victims.push(best);
    }
    state.decision(&victims)
}

/// The crate's plan, explained.
pub(crate) fn planned(forest: &VecForest, deficits: &LaneCounts, order: EvictOrder, algorithm: Algorithm) -> Plan {
    plan(forest, &PlanRequest { deficits, order, algorithm, explain: true })
}

/// What the crate's plan decides.
pub(crate) fn decision(plan: &Plan) -> Decision {
    Decision {
        victims: plan.victims.iter().map(|NodeId(id)| *id).collect(),
        freed: plan.planned_freed.as_slice().to_vec(),
        remaining: plan.remaining.as_slice().to_vec(),
    }
}
