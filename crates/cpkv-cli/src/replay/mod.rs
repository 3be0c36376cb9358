//! `cpkv replay`: the main job.

mod args;
mod drive;
mod report;
mod source;

pub use args::{Model, ReplayArgs};

use crate::clairvoyant::{Victim, hits_per_request};
use crate::error::CliError;
use crate::rig::{Recorder, Rig};
use crate::scenario::ScenarioConfig;
use crate::timeline::Timeline;
use crate::trace::{BlockTokens, TraceOptions, read_trace};
use crate::workload::generate;
use drive::Drive;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::Findings;
use source::Source;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;
use std::time::Instant;

/// Runs the command.
///
/// # Errors
/// [`CliError`]: bad input (nothing was printed), a broken invariant, wrong bytes or a stall.
#[expect(clippy::disallowed_methods, reason = "wall time is reported under `measured` alone")]
pub fn run(args: &ReplayArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let started = Instant::now();
    let config = args.scenario()?;
    let rig_config = args.rig(&config)?;
    if args.block_size == 0 || args.block_size > 1 << 20 {
        return Err(CliError::BadInput(format!("--block-size: {} is out of range, 1 to 1048576", args.block_size)));
    }
    let (source, name, skipped) = open_source(args, &config)?;
    let span_ns = match source.len() {
        0 => 0,
        len => source.time_ns(len - 1).saturating_sub(source.time_ns(0)),
    };
    let mut rig = Rig::new(rig_config)?;
    let recorder = match &args.record {
        Some(path) => Some(Recorder::new(Box::new(create(path)?), &config)),
        None => None,
    };
    if let Some(recorder) = &recorder {
        rig.engine().set_log(Some(Box::new(recorder.clone())));
    }
    let timeline = match &args.timeline {
        Some(path) => Some(Timeline::new(Box::new(create(path)?))),
        None => None,
    };

    let progress = progress_bar(source.len() as u64);
    let mut drive = Drive::new(args, rig, source, recorder, timeline, progress);
    let outcome = drive.run();
    drive.progress.finish_and_clear();
    let Drive { mut rig, source, recorder, timeline, tally, .. } = drive;
    let written = |error: std::io::Error| CliError::Failed(format!("writing a file: {error}"));
    if let Some(timeline) = timeline {
        timeline.finish().map_err(written)?;
    }
    if let Some(recorder) = recorder {
        recorder.finish(rig.engine().control().digest()).map_err(written)?;
    }
    outcome?;

    let clairvoyant_blocks = args.sequential.then(|| clairvoyant(args, &config, &source));
    let findings = Findings {
        args,
        config: &config,
        source: name,
        skipped,
        span_ns,
        wall_s: started.elapsed().as_secs_f64(),
        clairvoyant_blocks,
    };
    let report = report::json_report(&tally, &findings, &mut rig);
    let text = if args.json { format!("{report}\n") } else { report::text_report(&report, &tally, args) };
    out.write_all(text.as_bytes()).map_err(|error| CliError::Failed(format!("standard output: {error}")))?;
    if args.json
        && let Some(warning) = report::warning(&report, args)
    {
        eprintln!("cpkv: warning: {warning}");
    }
    match rig.verified().first_wrong() {
        None => Ok(()),
        Some(what) => Err(CliError::Failed(format!("wrong bytes: {what}"))),
    }
}

fn open_source(args: &ReplayArgs, config: &ScenarioConfig) -> Result<(Source, String, u64), CliError> {
    let Some(path) = &args.trace else {
        let workload = args.workload(config);
        let name = format!("built-in workload: {workload}");
        let mut requests = generate(&workload)?;
        requests.truncate(args.limit.map_or(usize::MAX, |limit| limit as usize));
        return Ok((Source::Workload { requests, block_size: args.block_size }, name, 0));
    };
    let options = TraceOptions { block_size: args.block_size, lenient: args.lenient, limit: args.limit };
    let trace = read_trace(path, &options)?;
    if let Some(first) = &trace.first_error {
        eprintln!("cpkv: warning: {} rows skipped; the first: {first}", trace.skipped);
    }
    let source = Source::Trace { rows: trace.rows, tokens: BlockTokens::default(), block_size: args.block_size };
    Ok((source, path.display().to_string(), trace.skipped))
}

fn create(path: &Path) -> Result<BufWriter<std::fs::File>, CliError> {
    std::fs::File::create(path).map(BufWriter::new).map_err(|error| CliError::bad(path.display(), None, "", error))
}

fn progress_bar(len: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
    }
    let bar = ProgressBar::new(len);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} requests, {per_sec}, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// Blocks that a cache as large as both tiers together would hit if it knew the future.
fn clairvoyant(args: &ReplayArgs, config: &ScenarioConfig, source: &Source) -> u64 {
    let pages = (u64::from(config.device_pages) + u64::from(config.host_pages)) * config.lanes as u64;
    let blocks = pages * u64::from(config.page_size) / u64::from(args.block_size);
    let hits = hits_per_request(&source.block_chains(), blocks, Victim::FarthestNextUse);
    hits.into_iter().enumerate().map(|(index, hits)| u64::from(hits).min(source.hit_cap(index))).sum()
}
