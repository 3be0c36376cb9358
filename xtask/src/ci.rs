//! The list of what a change must pass, and the one place where it stands.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;

/// One step of `cargo xtask ci`, in the order in which they run: cheap ones first, so that a slip costs seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// Formatting
    Fmt,
    /// Lints of all targets, warnings denied
    Clippy,
    /// The checks of `cargo xtask tidy`
    Tidy,
    /// The documentation builds, warnings and broken links denied
    Doc,
    /// All tests
    Test,
    /// Licences and sources; only where cargo-deny is installed
    Deny,
}

impl Step {
    /// What follows `cargo` on the command line.
    fn command(self) -> &'static [&'static str] {
        match self {
            Step::Fmt => &["fmt", "--all", "--check"],
            Step::Clippy => &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"],
            Step::Tidy => &["xtask", "tidy"],
            Step::Doc => &["doc", "--workspace", "--no-deps"],
            Step::Test => &["test", "--workspace", "--all-features"],
            Step::Deny => &["deny", "check", "licenses", "sources"],
        }
    }

    /// The name that `--only` takes.
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Runs all steps, or only one, printing each command.
///
/// # Errors
/// The first step that fails, by name; later steps don't run.
pub(crate) fn run(root: &Path, only: Option<Step>) -> anyhow::Result<()> {
    in_order(only, |step| execute(root, step))
}

fn in_order(only: Option<Step>, mut execute: impl FnMut(Step) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for step in Step::value_variants().iter().copied().filter(|step| only.is_none_or(|only| only == *step)) {
        execute(step).with_context(|| format!("step {0} failed (cargo xtask ci --only {0})", step.name()))?;
    }
    Ok(())
}

fn execute(root: &Path, step: Step) -> anyhow::Result<()> {
    let line = step.command().join(" ");
    println!("==> {}cargo {line}", if step == Step::Doc { "RUSTDOCFLAGS=\"-D warnings\" " } else { "" });
    if step == Step::Tidy {
        return crate::tidy::run(root);
    }
    if step == Step::Deny && !cargo(root, &["deny", "--version"]).output().is_ok_and(|probe| probe.status.success()) {
        println!("skipped: cargo-deny is not installed");
        return Ok(());
    }
    let mut command = cargo(root, step.command());
    if step == Step::Doc {
        command.env("RUSTDOCFLAGS", "-D warnings");
    }
    let status = command.status()?;
    ensure!(status.success(), "cargo {line}: {status}");
    Ok(())
}

/// The cargo that runs this command, or the one on the path.
pub(crate) fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root).stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_named_and_ends_the_run() {
        let mut ran = Vec::new();
        let error = in_order(None, |step| {
            ran.push(step);
            ensure!(step != Step::Tidy, "planted");
            Ok(())
        })
        .unwrap_err();
        assert_eq!(ran, [Step::Fmt, Step::Clippy, Step::Tidy]);
        assert!(error.to_string().starts_with("step tidy failed"), "{error}");
    }

    #[test]
    fn only_runs_the_step_of_that_name() {
        for step in Step::value_variants() {
            let mut ran = Vec::new();
            in_order(Step::from_str(&step.name(), false).ok(), |step| {
                ran.push(step);
                Ok(())
            })
            .unwrap();
            assert_eq!(ran, [*step]);
        }
    }
}
