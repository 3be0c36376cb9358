//! Random forests: all algorithms equal the definition, in both orders, and plans keep what the planner promises.

use crate::support::{Naive, Unlock, decision, naive, planned};
use cpkv_core::{LaneCounts, NodeId};
use cpkv_plan::{Algorithm, EvictOrder, Forest, PlanNode, VecForest};
use proptest::prelude::*;
use std::collections::BinaryHeap;

/// One node of a random forest, in few numbers so that a failing case shrinks to something readable.
#[derive(Debug, Clone)]
struct Draw {
    /// Its parent: the node `back` places before it, the root when there is none.
    back: usize,
    /// Pages, on which lane they begin, and whether they all lie there or go round the lanes.
    pages: u32,
    lane: usize,
    cyclic: bool,
    retention: (u64, u64),
    locked: bool,
}

fn draws(nodes: usize) -> impl Strategy<Value = Vec<Draw>> {
    let draw = (
        0usize..8,
        prop_oneof![2 => Just(0), 3 => 1u32..4, 3 => 1u32..40, 1 => 40u32..200],
        0usize..64,
        any::<bool>(),
        (0u64..2, 0u64..6),
        prop::bool::weighted(0.08),
    );
    prop::collection::vec(draw, 0..nodes).prop_map(|draws| {
        let draw =
            |(back, pages, lane, cyclic, retention, locked)| Draw { back, pages, lane, cyclic, retention, locked };
        draws.into_iter().map(draw).collect()
    })
}

/// Deficits by lane: one lane alone, or some of each.
fn deficits() -> impl Strategy<Value = Vec<(usize, u32)>> {
    let size = || prop_oneof![3 => 1u32..8, 3 => 1u32..100, 1 => 100u32..4000];
    prop_oneof![
        prop::collection::vec((0usize..64, size()), 1..2),
        prop::collection::vec((0usize..64, size()), 0..12),
        size().prop_map(|pages| (0..64).map(|lane| (lane, pages)).collect()),
    ]
}

fn lanes() -> impl Strategy<Value = usize> {
    prop_oneof![Just(1usize), 2usize..=8, 9usize..=64]
}

/// The forest that was drawn. Ids don't follow the order of the nodes; a lock covers the path to the root.
fn nodes(draws: &[Draw], lanes: usize) -> Vec<PlanNode> {
    let parent = |at: usize| draws[at].back.checked_sub(1).and_then(|back| at.checked_sub(back + 1));
    // 389 is prime and larger than any forest here.
    let id = |at: usize| (at as u64 + 1) * 100 % 389;
    let mut evictable = vec![true; draws.len()];
    for at in (0..draws.len()).rev() {
        evictable[at] &= !draws[at].locked;
        if let Some(parent) = parent(at).filter(|_| !evictable[at]) {
            evictable[parent] = false;
        }
    }
    (0..draws.len())
        .map(|at| {
            let Draw { pages, lane, cyclic, retention, .. } = draws[at];
            let mut counts = vec![0; lanes];
            for page in 0..pages as usize {
                counts[(lane + if cyclic { page } else { 0 }) % lanes] += 1;
            }
            PlanNode {
                id: id(at),
                parent: parent(at).map(id),
                counts,
                retention: [retention.0, retention.1],
                evictable: evictable[at],
            }
        })
        .collect()
}

fn deficits_of(drawn: &[(usize, u32)], lanes: usize) -> Vec<u32> {
    let mut deficits = vec![0; lanes];
    for (lane, pages) in drawn {
        deficits[lane % lanes] = *pages;
    }
    deficits
}

/// Compares all algorithms with the definition and checks what every plan promises.
fn check(draws: &[Draw], lanes: usize, drawn: &[(usize, u32)]) -> Result<(), TestCaseError> {
    let nodes = nodes(draws, lanes);
    let deficits = deficits_of(drawn, lanes);
    let wanted = LaneCounts::from(deficits.clone());
    let forest = VecForest::new(lanes, nodes.clone()).expect("drawn forests are valid");
    let mut evictable = LaneCounts::zero(lanes);
    for node in nodes.iter().filter(|node| node.evictable) {
        evictable += &LaneCounts::from(node.counts.clone());
    }
    for order in EvictOrder::ALL {
        let expected = naive(&nodes, &deficits, *order, Unlock::AllAncestors);
        for algorithm in Algorithm::ALL {
            let plan = planned(&forest, &wanted, *order, *algorithm);
            prop_assert_eq!(&decision(&plan), &expected, "{:?} {:?}", algorithm, order);
            // A deficit remains only where everything evictable on that lane is gone.
            prop_assert_eq!(&plan.remaining, &wanted.saturating_sub(&evictable), "{:?} {:?}", algorithm, order);
            prop_assert_eq!(plan.steps.len(), plan.victims.len());
            let mut state = Naive::new(&nodes, &deficits, Unlock::AllAncestors);
            for step in &plan.steps {
                let at = nodes.iter().position(|node| NodeId(node.id) == step.node).expect("victims are nodes");
                prop_assert!(state.eligible(at) && state.short(), "victim {} is due", step.node);
                prop_assert_eq!((step.contribution, step.unlock), state.score(at));
                prop_assert!(step.contribution + step.unlock > 0, "victim {} helps", step.node);
                state.evict(at);
                prop_assert_eq!(step.deficits_after.as_slice(), &state.deficits);
                prop_assert_eq!(&step.freed, &*forest.counts(step.node));
            }
            prop_assert_eq!(plan.given_up, plan.victims.iter().map(|id| forest.retention(*id)).max());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 18_000, ..ProptestConfig::default() })]

    #[test]
    fn small_forests(draws in draws(12), lanes in lanes(), deficits in deficits()) {
        check(&draws, lanes, &deficits)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn forests_of_up_to_sixty_nodes(draws in draws(60), lanes in lanes(), deficits in deficits()) {
        check(&draws, lanes, &deficits)?;
    }
}

/// Unlock ignores siblings, since only then is the heap the greedy argmin.
mod why_unlock_ignores_siblings {
    use super::*;

    fn node(id: u64, parent: Option<u64>, pages: u32) -> PlanNode {
        PlanNode { id, parent, counts: vec![pages], retention: [0, 0], evictable: true }
    }

    /// The lazy heap over the naive planner, in contribution order.
    fn naive_heap(nodes: &[PlanNode], deficits: &[u32], unlock: Unlock) -> Vec<u64> {
        let mut state = Naive::new(nodes, deficits, unlock);
        let key = |state: &Naive<'_>, at: usize| (state.score(at), std::cmp::Reverse((nodes[at].id, at)));
        let mut queue: BinaryHeap<_> =
            (0..nodes.len()).filter(|at| state.eligible(*at)).map(|at| key(&state, at)).collect();
        let mut victims = Vec::new();
        while state.short() {
            let Some(queued) = queue.pop() else { break };
            let (id, at) = queued.1.0;
            let now = key(&state, at);
            if now.0 == (0, 0) {
                continue;
            }
            if now != queued {
                queue.push(now);
                continue;
            }
            state.evict(at);
            victims.push(id);
            if let Some(parent) = nodes.iter().position(|node| Some(node.id) == nodes[at].parent)
                && state.eligible(parent)
            {
                queue.push(key(&state, parent));
            }
        }
        victims
    }

    /// Four nodes, one page each: 4 over 1 and 3, and 2 alone. The deficit is 2.
    fn four_nodes() -> Vec<PlanNode> {
        vec![node(4, None, 1), node(1, Some(4), 1), node(3, Some(4), 1), node(2, None, 1)]
    }

    /// When only parents that this eviction exposes count, evicting 1 improves the score of 3: the greedy argmin takes
    /// 3 next, and the heap, which still holds 3's old score, takes 2.
    #[test]
    fn the_other_rule_makes_the_heap_wrong() {
        let nodes = four_nodes();
        let greedy = naive(&nodes, &[2], EvictOrder::Contribution, Unlock::ExposedParents);
        assert_eq!(greedy.victims, [1, 3]);
        assert_eq!(naive_heap(&nodes, &[2], Unlock::ExposedParents), [1, 2]);
    }

    #[test]
    fn our_rule_makes_it_right() {
        let nodes = four_nodes();
        assert_eq!(naive_heap(&nodes, &[2], Unlock::AllAncestors), [1, 3]);
        let forest = VecForest::new(1, nodes).unwrap();
        for algorithm in Algorithm::ALL {
            let plan = planned(&forest, &LaneCounts::from([2]), EvictOrder::Contribution, *algorithm);
            assert_eq!(plan.victims, [NodeId(1), NodeId(3)], "{algorithm:?}");
            assert_eq!((plan.steps[1].contribution, plan.steps[1].unlock), (1, 1));
        }
    }

    /// Two empty siblings under a parent that could meet the deficit: the other rule gives up.
    #[test]
    fn the_other_rule_gives_up_on_empty_siblings() {
        let nodes = vec![node(1, None, 5), node(2, Some(1), 0), node(3, Some(1), 0)];
        let greedy = naive(&nodes, &[5], EvictOrder::Contribution, Unlock::ExposedParents);
        assert_eq!((greedy.victims, greedy.remaining), (vec![], vec![5]));
        let forest = VecForest::new(1, nodes).unwrap();
        for order in EvictOrder::ALL {
            for algorithm in Algorithm::ALL {
                let plan = planned(&forest, &LaneCounts::from([5]), *order, *algorithm);
                assert_eq!(plan.victims, [2, 3, 1].map(NodeId), "{algorithm:?} {order:?}");
                assert!(plan.remaining.is_zero());
            }
        }
    }
}

/// A chain of 5,000 nodes, empty but for its top: no recursion, and the whole chain goes for the top's one page.
#[test]
fn a_deep_chain_is_walked_without_recursion() {
    let depth = 5_000;
    let chain = (1..=depth)
        .map(|id| PlanNode {
            id,
            parent: (id > 1).then(|| id - 1),
            counts: vec![u32::from(id == 1)],
            retention: [0, id],
            evictable: true,
        })
        .collect();
    let forest = VecForest::new(1, chain).unwrap();
    for order in EvictOrder::ALL {
        for algorithm in Algorithm::ALL {
            let plan = planned(&forest, &LaneCounts::from([1]), *order, *algorithm);
            assert_eq!(plan.victims.len() as u64, depth);
            assert_eq!(plan.victims.last(), Some(&NodeId(1)));
        }
    }
}
