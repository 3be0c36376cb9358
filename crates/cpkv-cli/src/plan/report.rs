//! How `cpkv plan` explains a plan: a table for people, steps and counters for machines.

use super::case::Case;
use cpkv_core::{LaneCounts, RetentionKey};
use cpkv_plan::Plan;
use serde_json::{Value, json};
use std::io::Write;

/// What finding the plan took.
pub(super) fn counters(plan: &Plan) -> Value {
    let counters = plan.counters;
    json!({
        "scored": counters.scored,
        "reevaluated": counters.reevaluated,
        "pushed": counters.pushed,
        "visited": counters.visited,
    })
}

/// The steps of an explained plan.
pub(super) fn steps(plan: &Plan) -> Value {
    let step = |step: &cpkv_plan::Step| {
        json!({
            "node": step.node.0,
            "contribution": step.contribution,
            "unlock": step.unlock,
            "retention": step.retention.0,
            "freed": step.freed.as_slice(),
            "deficits_after": step.deficits_after.as_slice(),
        })
    };
    plan.steps.iter().map(step).collect()
}

/// A table with one row per victim, and a line that sums up.
pub(super) fn table(case: &Case, plan: &Plan, out: &mut dyn Write) -> std::io::Result<()> {
    const HEAD: [&str; 7] = ["step", "victim", "contribution", "unlock", "retention", "freed", "deficits after"];
    let mut rows = vec![HEAD.map(str::to_owned)];
    for (at, step) in plan.steps.iter().enumerate() {
        rows.push([
            (at + 1).to_string(),
            step.node.to_string(),
            step.contribution.to_string(),
            step.unlock.to_string(),
            key(step.retention),
            lanes(&step.freed),
            lanes(&step.deficits_after),
        ]);
    }
    let widths: [usize; 7] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or_default());
    writeln!(out, "line {}: deficits {}", case.line, lanes(&LaneCounts::from(case.deficits.clone())))?;
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        writeln!(out, "  {}", cells.join("  "))?;
    }
    let given_up = plan.given_up.map_or("nothing".into(), |retention| format!("retention up to {}", key(retention)));
    writeln!(
        out,
        "  {} victims, freed {}, remaining {}, given up {given_up}",
        plan.victims.len(),
        lanes(&plan.planned_freed),
        lanes(&plan.remaining),
    )
}

fn lanes(counts: &LaneCounts) -> String {
    format!("{:?}", counts.as_slice())
}

fn key(retention: RetentionKey) -> String {
    format!("{:?}", retention.0)
}
