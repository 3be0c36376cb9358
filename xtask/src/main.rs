//! Automation of the workspace: each chore is one command, so that CI and a developer run the same thing.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod ci;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Automation of the workspace")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything a change must pass, in order, up to the first failure
    Ci {
        /// Run this step alone
        #[arg(long, value_name = "STEP")]
        only: Option<ci::Step>,
    },
    /// What no compiler checks: layering, file headers, banned words, the contract ledger
    Tidy,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = workspace_root().and_then(|root| match args.command {
        Command::Ci { only } => ci::run(&root, only),
        Command::Tidy => tidy::run(&root),
    });
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

/// The workspace that `cargo xtask` was called in. The variable is read when the command runs: two clones that share
/// one target folder share the binary as well.
fn workspace_root() -> anyhow::Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = PathBuf::from(manifest).parent().context("xtask lies in a workspace")?.to_path_buf();
    root.canonicalize().with_context(|| format!("no workspace at {}", root.display()))
}
