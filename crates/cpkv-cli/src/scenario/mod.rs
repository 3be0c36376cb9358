//! `cpkv scenario FILE...`: small, readable reproductions, run against the engine on the simulator.
//!
//! JSON lines, one operation each; after every line all invariants are checked, then what the line expects. The first
//! failure ends the file.

mod config;
mod keys;
mod line;
mod names;
mod run;

pub use config::{
    Completions, EvictAmountName, EvictOrderName, HostLayoutName, LoadBackName, OutputReserveName, PlacementName,
    PlannerName, QueueOrderName, RetentionName, ScenarioConfig, WritePolicyName,
};
pub use keys::Streams;

use crate::error::CliError;
use line::{Line, Op};
use run::{Refused, Run, stats_json};
use serde_json::{Map, Value, json};
use std::io::{BufRead, Write};
use std::path::PathBuf;

/// Runs scenario files against the engine on the simulator.
#[derive(Debug, clap::Args)]
pub struct ScenarioArgs {
    /// Scenario files, JSON lines.
    #[arg(required_unless_present = "defaults")]
    pub files: Vec<PathBuf>,
    /// Print each line's result as one JSON line.
    #[arg(long)]
    pub json: bool,
    /// Print the defaults of the config line and stop.
    #[arg(long)]
    pub defaults: bool,
}

/// Runs the command.
///
/// # Errors
/// [`CliError`]: bad input, or the first expectation or invariant that failed.
pub fn run(args: &ScenarioArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::Failed(format!("standard output: {error}"));
    if args.defaults {
        let text = serde_json::to_string(&ScenarioConfig::default()).expect("plain data");
        return writeln!(out, "{text}").map_err(failed);
    }
    for path in &args.files {
        let name = path.display().to_string();
        let mut json_lines: Vec<Value> = Vec::new();
        let result = open(path, &name).and_then(|reader| run_lines(&name, reader, &mut |line| json_lines.push(line)));
        if args.json {
            for line in &json_lines {
                writeln!(out, "{line}").map_err(failed)?;
            }
        }
        let lines = result?;
        if !args.json {
            writeln!(out, "{name}: {lines} lines hold").map_err(failed)?;
        }
    }
    Ok(())
}

fn open(path: &std::path::Path, name: &str) -> Result<impl BufRead + use<>, CliError> {
    let bad = |error: std::io::Error| CliError::bad(name, None, "", error);
    let file = std::fs::File::open(path).map_err(bad)?;
    if file.metadata().map_err(bad)?.is_dir() {
        return Err(CliError::bad(name, None, "", "is a directory"));
    }
    Ok(std::io::BufReader::new(file))
}

/// Runs one scenario. `sink` takes the result of every line. Returns how many operations there were.
///
/// # Errors
/// [`CliError`]: bad input, or the first expectation or invariant that failed, with file and line.
pub fn run_lines(file: &str, reader: impl BufRead, sink: &mut dyn FnMut(Value)) -> Result<u64, CliError> {
    let mut run: Option<Run<'_>> = None;
    let mut operations = 0;
    for (number, text) in (1u64..).zip(reader.lines()) {
        let text = text.map_err(|error| CliError::bad(file, Some(number), "", error))?;
        let Some(line) = Line::parse(file, number, &text)? else { continue };
        operations += 1;
        let (number, op) = (line.number, line.op);
        let Some(run) = &mut run else {
            let Op::Config(config) = op else {
                return Err(CliError::bad(file, Some(number), "op", "the first line must be config"));
            };
            run = Some(Run::new(file, number, *config)?);
            sink(json!({ "line": number, "result": {} }));
            continue;
        };
        let before = stats_json(&run.stats());
        let outcome = run.execute(number, op);
        let failed = |what: String| CliError::Failed(format!("{file}:{number}: {what}"));
        let located = |error: CliError| match error {
            CliError::Failed(what) => failed(what),
            bad => bad,
        };
        let (error, fields) = match outcome {
            Ok(fields) => (None, fields),
            Err(Refused::Error { name, fields }) => (Some(name), fields),
            Err(Refused::Stop(error)) => return Err(located(error)),
        };
        sink(match error {
            None => json!({ "line": number, "result": fields }),
            Some(name) => json!({ "line": number, "error": name, "fields": fields }),
        });
        run.self_check().map_err(located)?;
        match (error, line.expect_error.as_deref()) {
            (None, None) => {}
            (Some(name), Some(expected)) if name == expected => {}
            (Some(name), Some(expected)) => {
                return Err(failed(format!("expected error {expected}, came error {name} {}", Value::Object(fields))));
            }
            (Some(name), None) => {
                return Err(failed(format!("expected success, came error {name} {}", Value::Object(fields))));
            }
            (None, Some(expected)) => {
                return Err(failed(format!("expected error {expected}, came {}", Value::Object(fields))));
            }
        }
        if error.is_some() {
            let after = stats_json(&run.stats());
            if before != after {
                return Err(failed(format!("the refused operation changed the figures from {before} to {after}")));
            }
        }
        compare(&line.expect.unwrap_or_default(), &fields).map_err(failed)?;
    }
    if run.is_none() {
        return Err(CliError::bad(file, None, "", "has no line; the first must be config"));
    }
    Ok(operations)
}

/// Each field that is named must equal the result's, arrays whole.
fn compare(expect: &Map<String, Value>, result: &Map<String, Value>) -> Result<(), String> {
    for (field, expected) in expect {
        match result.get(field) {
            Some(came) if came == expected => {}
            Some(came) => return Err(format!("{field}: expected {expected}, came {came}")),
            None => {
                let known: Vec<&str> = result.keys().map(String::as_str).collect();
                return Err(format!("{field}: expected {expected}, and the result has only {}", known.join(", ")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Result<u64, CliError> {
        run_lines("f", text.as_bytes(), &mut |_| {})
    }

    const CONFIG: &str = r#"{"op":"config","lanes":1,"device_pages":4,"host_pages":4}"#;

    #[test]
    fn an_expectation_that_fails_names_line_field_and_both_values() {
        let text = format!("{CONFIG}\n\n{}", r#"{"op":"insert","key":["A:0..2"],"expect":{"new_pages":3}}"#);
        assert_eq!(lines(&text).unwrap_err(), CliError::Failed("f:3: new_pages: expected 3, came 2".into()));
    }

    #[test]
    fn an_error_that_is_not_expected_ends_the_file() {
        let text = format!("{CONFIG}\n{}", r#"{"op":"insert","key":["A:0..5"]}"#);
        let error = lines(&text).unwrap_err();
        assert_eq!(error.exit_status(), 1);
        assert!(error.to_string().contains(r#"came error lane_full {"missing":[1],"pool":"device"}"#), "{error}");
    }

    #[test]
    fn the_first_line_is_config_and_no_other() {
        assert!(lines("").unwrap_err().to_string().contains("first must be config"));
        assert!(lines(r#"{"op":"stats"}"#).unwrap_err().to_string().contains("must be config"));
        assert_eq!(lines(&format!("{CONFIG}\n{CONFIG}")).unwrap_err().exit_status(), 2);
    }

    #[test]
    fn a_name_is_used_once() {
        let text = [
            CONFIG,
            r#"{"op":"hold","as":"h","owners":[0]}"#,
            r#"{"op":"hold","as":"h","owners":[0],"expect_error":"name_in_use"}"#,
            r#"{"op":"release","name":"h"}"#,
            r#"{"op":"release","name":"h","expect_error":"unknown_name"}"#,
            r#"{"op":"unlock","name":"h","expect_error":"unknown_name"}"#,
        ];
        assert_eq!(lines(&text.join("\n")), Ok(6));
    }
}
