//! The `cpkv` command.

use clap::{Parser, Subcommand};
use cpkv_cli::error::CliError;
use cpkv_cli::{plan, replay, scenario};
use std::io::Write;
use std::process::ExitCode;

/// The control plane of a context-parallel KV cache: replays traces, plans evictions and runs scenarios.
#[derive(Debug, Parser)]
#[command(name = "cpkv", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replay a recorded trace, or a built-in workload, on the simulator.
    Replay(Box<replay::ReplayArgs>),
    /// Plan evictions over forests given as JSON.
    Plan(plan::PlanArgs),
    /// Run scenario files against the engine on the simulator.
    Scenario(scenario::ScenarioArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Reports are printed whole: a failed run leaves no half of one.
    let mut out = Vec::new();
    let result = match &cli.command {
        Command::Replay(args) => replay::run(args, &mut out),
        Command::Plan(args) => plan::run(args, &mut out),
        Command::Scenario(args) => scenario::run(args, &mut out),
    };
    // A reader that closed its end early has all it wanted.
    let _ = std::io::stdout().write_all(&out);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text: &dyn std::fmt::Display = match &error {
                CliError::BadInput(_) | CliError::Failed(_) => &error,
            };
            eprintln!("cpkv: {text}");
            ExitCode::from(error.exit_status())
        }
    }
}
