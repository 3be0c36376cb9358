//! What a replay reports: for people a page of text, for machines one JSON object.

use super::args::ReplayArgs;
use crate::rig::{Forward, Rig};
use crate::scenario::ScenarioConfig;
use crate::stats::Recorder;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A request that was refused.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) request: String,
    pub(super) reason: String,
}

/// What a replay counts as it goes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) refused: Vec<Refused>,
    pub(super) input_tokens: u64,
    pub(super) hit_device_tokens: u64,
    pub(super) hit_host_tokens: u64,
    pub(super) blocks: u64,
    pub(super) blocks_hit: u64,
    pub(super) steps: u64,
    pub(super) stops: BTreeMap<String, u64>,
    pub(super) compute_ns: u64,
    pub(super) ttft_ns: Recorder,
    pub(super) queueing_ns: Recorder,
    pub(super) copy_ns: Recorder,
    pub(super) copies_failed: u64,
    /// Measured on this machine, per step.
    pub(super) decision_ns: Recorder,
}

impl Tally {
    /// Counts a step that had something to decide.
    pub(super) fn step(&mut self, forward: &Forward, queued: u64) {
        if queued == 0 && forward.plan.batch.is_empty() && forward.plan.refused.is_empty() {
            return;
        }
        self.steps += 1;
        self.compute_ns += forward.end_ns - forward.start_ns;
        let reason = forward.plan.stopped.reason().unwrap_or_else(|| "continue".to_owned());
        *self.stops.entry(reason).or_default() += 1;
    }
}

/// What the replay found beside its counts.
pub(super) struct Findings<'a> {
    pub(super) args: &'a ReplayArgs,
    pub(super) config: &'a ScenarioConfig,
    pub(super) source: String,
    pub(super) skipped: u64,
    /// From the first arrival to the last, nanoseconds.
    pub(super) span_ns: u64,
    pub(super) wall_s: f64,
    /// Blocks that a cache of the same size with knowledge of the future would have hit.
    pub(super) clairvoyant_blocks: Option<u64>,
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// Rounded to what a report shows, so that no noise of arithmetic is in the JSON.
fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

fn milliseconds(ns: &Recorder) -> Value {
    let summary = ns.summary();
    let ms = |ns: u64| rounded(ns as f64 / 1e6, 3);
    json!({ "p50": ms(summary.p50), "p90": ms(summary.p90), "p99": ms(summary.p99), "max": ms(summary.max) })
}

/// The fullest lane over the mean: 1 is balance.
fn balance(totals: &[u64]) -> f64 {
    let (sum, max) = (totals.iter().sum::<u64>(), totals.iter().max().copied().unwrap_or(0));
    if sum == 0 { 1.0 } else { rounded(max as f64 * totals.len() as f64 / sum as f64, 4) }
}

/// The machine's report. Everything measured in real time is under `measured`; the rest is equal from run to run.
pub(super) fn json_report(tally: &Tally, findings: &Findings<'_>, rig: &mut Rig) -> Value {
    let decisions = tally.decision_ns.summary();
    let verified = rig.verified().clone();
    let transfers = rig.transfer_stats();
    let control = rig.engine().control();
    let (counters, stats) = (control.counters(), control.stats());
    let host = control.host_lanes().counters();
    let used: Vec<u64> = stats
        .device_free
        .as_slice()
        .iter()
        .map(|free| u64::from(findings.config.device_pages) - u64::from(*free))
        .collect();
    let offered = offered_load(tally, findings);
    let per = |all: u64, each: u64| if each == 0 { 0.0 } else { rounded(all as f64 / each as f64, 3) };
    let mut report = json!({
        "source": findings.source,
        "config": findings.config,
        "requests": tally.requests,
        "skipped_rows": findings.skipped,
        "refused": tally.refused.iter()
            .map(|refused| json!({ "request": refused.request, "reason": refused.reason }))
            .collect::<Vec<_>>(),
        "tokens": {
            "input": tally.input_tokens,
            "hit_device": tally.hit_device_tokens,
            "hit_host": tally.hit_host_tokens,
        },
        "blocks": {
            "total": tally.blocks,
            "hit": tally.blocks_hit,
            "hit_percent": rounded(percent(tally.blocks_hit, tally.blocks), 4),
        },
        "evicted_pages": counters.evicted_pages,
        "dropped_pages": counters.dropped_pages,
        "host_evicted_pages": counters.host_evicted_pages,
        "loaded_pages": counters.loaded_pages,
        "backed_up_pages": counters.backed_up_pages,
        "device_pages_used": used,
        "lane_balance": {
            "device_used": balance(&used),
            "evicted": balance(&counters.evicted_pages),
            "loaded": balance(&counters.loaded_pages),
        },
        "steps": tally.steps,
        "chunks": counters.chunks,
        "stops": tally.stops,
        "device_victims": counters.device_victims,
        "extents_per_reservation": per(host.extents, host.reservations),
        "descriptors_per_transfer": {
            "device_to_host": per(transfers.device_to_host.descriptors, transfers.device_to_host.submissions),
            "host_to_device": per(transfers.host_to_device.descriptors, transfers.host_to_device.submissions),
        },
        "copies": {
            "backups": counters.backups_started,
            "load_backs": counters.loads_started,
            "failed": tally.copies_failed,
            "modelled_ms": milliseconds(&tally.copy_ns),
        },
        "ttft_ms": milliseconds(&tally.ttft_ns),
        "queueing_ms": milliseconds(&tally.queueing_ns),
        "times_are": "modelled on a virtual clock, except under measured",
        "offered_load": offered,
        "verify": { "pages": verified.pages, "wrong": verified.wrong },
        "digest": format!("{:016x}", control.digest()),
        "measured": {
            "decision_ns": { "p50": decisions.p50, "p99": decisions.p99, "max": decisions.max },
            "wall_s": rounded(findings.wall_s, 3),
        },
    });
    if let Some(hits) = findings.clairvoyant_blocks {
        let best = percent(hits, tally.blocks);
        report["clairvoyant"] = json!({
            "hit": hits,
            "hit_percent": rounded(best, 4),
            "gap_points": rounded(best - percent(tally.blocks_hit, tally.blocks), 4),
        });
    }
    report
}

/// Modelled compute over the time in which the requests arrive; `null` where they arrive at once.
fn offered_load(tally: &Tally, findings: &Findings<'_>) -> Value {
    let span = findings.span_ns as f64 / findings.args.speed;
    if span <= 0.0 { Value::Null } else { rounded(tally.compute_ns as f64 / span, 4).into() }
}

/// What a person should know before reading the times.
pub(super) fn warning(report: &Value, args: &ReplayArgs) -> Option<String> {
    let load = report["offered_load"].as_f64()?;
    (load > 1.0 && !args.sequential).then(|| {
        let speed = (args.speed / load * 0.7 * 1000.0).floor() / 1000.0;
        format!(
            "offered load {load:.2}: requests arrive faster than the modelled compute serves them, so that TTFT is \
             mostly queueing; try --speed {speed}"
        )
    })
}

/// The report for people.
pub(super) fn text_report(report: &Value, tally: &Tally, args: &ReplayArgs) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<24} {value}");
    };
    let config = &report["config"];
    row("source", report["source"].as_str().unwrap_or_default().to_owned());
    row(
        "engine",
        format!(
            "{} lanes of {} device and {} host pages of {} tokens; {}, {}, {}",
            config["lanes"],
            config["device_pages"],
            config["host_pages"],
            config["page_size"],
            plain(&config["placement"]),
            plain(&config["retention"]),
            plain(&config["write_policy"]),
        ),
    );
    row(
        "requests",
        format!("{} ({} refused, {} rows skipped)", tally.requests, tally.refused.len(), report["skipped_rows"]),
    );
    for refused in tally.refused.iter().take(5) {
        row("", format!("refused: {}: {}", refused.request, refused.reason));
    }
    row(
        "hit rate, tokens",
        format!(
            "{:.2} % device, {:.2} % host, of {}",
            percent(tally.hit_device_tokens, tally.input_tokens),
            percent(tally.hit_host_tokens, tally.input_tokens),
            tally.input_tokens
        ),
    );
    row(
        "hit rate, blocks",
        format!("{:.2} %, {} of {}", percent(tally.blocks_hit, tally.blocks), tally.blocks_hit, tally.blocks),
    );
    if let Some(clairvoyant) = report.get("clairvoyant") {
        row("  clairvoyant", format!("{} %, {} points more", clairvoyant["hit_percent"], clairvoyant["gap_points"]));
    }
    for (name, field) in [
        ("evicted pages per lane", "evicted_pages"),
        ("loaded pages per lane", "loaded_pages"),
        ("backed up per lane", "backed_up_pages"),
        ("device pages used", "device_pages_used"),
    ] {
        row(name, report[field].to_string());
    }
    let lanes = &report["lane_balance"];
    row("lane balance", format!("fullest over mean: used {}, evicted {}", lanes["device_used"], lanes["evicted"]));
    row("steps", format!("{}, stopped by {}", report["steps"], report["stops"]));
    row("extents per reservation", report["extents_per_reservation"].to_string());
    let descriptors = &report["descriptors_per_transfer"];
    row(
        "descriptors per copy",
        format!("{} to the host, {} to the device", descriptors["device_to_host"], descriptors["host_to_device"]),
    );
    for (name, field) in [("TTFT, modelled", "ttft_ms"), ("queueing, modelled", "queueing_ms")] {
        let ms = &report[field];
        row(name, format!("p50 {} ms, p90 {} ms, p99 {} ms", ms["p50"], ms["p90"], ms["p99"]));
    }
    row("offered load, modelled", report["offered_load"].to_string());
    let measured = &report["measured"]["decision_ns"];
    let us = |value: &Value| value.as_u64().unwrap_or(0) as f64 / 1e3;
    row(
        "decision time, measured",
        format!(
            "p50 {:.1} us, p99 {:.1} us, max {:.1} us a step",
            us(&measured["p50"]),
            us(&measured["p99"]),
            us(&measured["max"])
        ),
    );
    row("bytes checked", format!("{} pages, {} wrong", report["verify"]["pages"], report["verify"]["wrong"]));
    row("digest", plain(&report["digest"]));
    row("wall time, measured", format!("{} s", report["measured"]["wall_s"]));
    if let Some(warning) = warning(report, args) {
        let _ = writeln!(text, "\nwarning: {warning}");
    }
    text
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
