//! Expected plans that were made independently: every algorithm gives each of them exactly.

use cpkv_core::LaneCounts;
use cpkv_plan::{Algorithm, EvictOrder, PlanNode, PlanRequest, VecForest, plan};
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Case {
    lanes: usize,
    deficits: Vec<u32>,
    nodes: Vec<Node>,
    expect: Expect,
}

#[derive(Deserialize)]
struct Node {
    id: u64,
    parent: Option<u64>,
    counts: Vec<u32>,
    retention: [u64; 2],
    evictable: bool,
}

#[derive(Deserialize)]
struct Expect {
    victims: Vec<u64>,
    planned_freed: Vec<u32>,
    remaining: Vec<u32>,
}

#[test]
fn plans_equal_the_recorded_ones() {
    let shared = std::env::var_os("CPKV_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let path = shared.join("vectors/planner.jsonl");
    if !path.exists() {
        println!("skipped: no vectors/planner.jsonl in CPKV_SHARED or in ../shared beside the workspace");
        return;
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let mut cases = 0;
    for (at, line) in text.lines().enumerate() {
        let Case { lanes, deficits, nodes, expect } = serde_json::from_str(line).unwrap();
        let nodes = nodes
            .into_iter()
            .map(|Node { id, parent, counts, retention, evictable }| PlanNode {
                id,
                parent,
                counts,
                retention,
                evictable,
            })
            .collect();
        let forest = VecForest::new(lanes, nodes).unwrap();
        let deficits = LaneCounts::from(deficits);
        for algorithm in Algorithm::ALL {
            let request = PlanRequest::new(&deficits, EvictOrder::Contribution, *algorithm);
            let plan = plan(&forest, &request);
            let what = format!("planner.jsonl:{}: {}", at + 1, algorithm.name());
            assert_eq!(plan.victims.iter().map(|id| id.0).collect::<Vec<_>>(), expect.victims, "{what}");
            assert_eq!(plan.planned_freed.as_slice(), expect.planned_freed, "{what}");
            assert_eq!(plan.remaining.as_slice(), expect.remaining, "{what}");
        }
        cases += 1;
    }
    assert!(cases >= 312, "{cases} cases");
}
