//! `cpkv plan`: plans evictions for forests in a file, and compares with what the file expects.

mod case;
mod report;

use crate::error::CliError;
use case::{Case, Expect};
use clap::Args;
use cpkv_core::LaneCounts;
use cpkv_plan::{Algorithm, EvictOrder, Plan, PlanRequest};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Plan evictions for the forests in a file.
///
/// FILE holds one JSON object, or one object per line: {"lanes": 2, "deficits": [0, 3], "nodes": [{"id": 1, "parent":
/// null, "counts": [4, 2], "retention": [0, 7], "evictable": true}, ..]}, each with an optional "expect" that the plan
/// must equal.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// The file of forests.
    pub file: PathBuf,
    /// How plans are found: greedy, memo or heap. All give the same plan.
    #[arg(long, default_value = Algorithm::default().name())]
    pub algorithm: String,
    /// Which node goes first: contribution or retention.
    #[arg(long, default_value = EvictOrder::Contribution.name())]
    pub order: String,
    /// Add what was given up and what finding the plan took.
    #[arg(long)]
    pub json: bool,
    /// Say why each victim was chosen, as a table; with --json as "steps".
    #[arg(long)]
    pub explain: bool,
}

/// Plans every case of the file and writes one result per case to `out`.
///
/// # Errors
/// [`CliError::BadInput`] for a file or an option that can't be used, before anything is written;
/// [`CliError::Failed`] for the first case whose plan isn't the expected one, after its plan was written.
pub fn run(args: &PlanArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let algorithm: Algorithm = option("--algorithm", &args.algorithm)?;
    let order: EvictOrder = option("--order", &args.order)?;
    for case in case::read(&args.file)? {
        let deficits = LaneCounts::from(case.deficits.clone());
        let request = PlanRequest { deficits: &deficits, order, algorithm, explain: args.explain };
        let plan = cpkv_plan::plan(&case.forest, &request);
        write_plan(args, &case, &plan, out).map_err(|error| CliError::Failed(format!("output: {error}")))?;
        if let Some(difference) = difference(&case.expect, &plan) {
            return Err(CliError::Failed(format!("{}:{}: {difference}", args.file.display(), case.line)));
        }
    }
    Ok(())
}

fn option<T: FromStr<Err = cpkv_plan::UnknownName>>(option: &str, name: &str) -> Result<T, CliError> {
    name.parse().map_err(|unknown| CliError::bad("cpkv plan", None, option, unknown))
}

fn write_plan(args: &PlanArgs, case: &Case, plan: &Plan, out: &mut dyn Write) -> std::io::Result<()> {
    if args.explain && !args.json {
        return report::table(case, plan, out);
    }
    let mut line = json!({
        "victims": plan.victims.iter().map(|id| id.0).collect::<Vec<_>>(),
        "planned_freed": plan.planned_freed.as_slice(),
        "remaining": plan.remaining.as_slice(),
    });
    if args.json {
        line["given_up"] = json!(plan.given_up.map(|key| key.0));
        line["counters"] = report::counters(plan);
        if args.explain {
            line["steps"] = report::steps(plan);
        }
    }
    writeln!(out, "{line}")
}

/// The first field in which a plan isn't what was expected.
fn difference(expect: &Expect, plan: &Plan) -> Option<String> {
    let victims: Vec<u64> = plan.victims.iter().map(|id| id.0).collect();
    let widen = |counts: &LaneCounts| counts.as_slice().iter().map(|pages| u64::from(*pages)).collect();
    [
        ("victims", &expect.victims, victims),
        ("planned_freed", &expect.planned_freed, widen(&plan.planned_freed)),
        ("remaining", &expect.remaining, widen(&plan.remaining)),
    ]
    .into_iter()
    .find_map(|(field, expected, came)| {
        let expected = expected.as_ref().filter(|expected| **expected != came)?;
        Some(format!("{field}: expected {expected:?}, came {came:?}"))
    })
}

/// `FILE` as error messages name it.
fn shown(file: &Path) -> std::path::Display<'_> {
    file.display()
}

#[cfg(test)]
mod tests;
