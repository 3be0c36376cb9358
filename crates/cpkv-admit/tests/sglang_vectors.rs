//! The `sglang` rule against decisions recorded from SGLang 0.5.23: every row, exactly.

use std::path::{Path, PathBuf};

use cpkv_admit::{SglangAdder, SglangAnswer, SglangCandidate, SglangLimits, SglangPool};
use serde::Deserialize;

#[derive(Deserialize)]
struct Line {
    page_size: u32,
    free_pages: u64,
    evictable_pages: u64,
    limits: LineLimits,
    queue: Vec<Waiting>,
    expect: Vec<Expected>,
}

#[derive(Deserialize)]
struct LineLimits {
    max_input_tokens: Option<u64>,
    chunk_tokens: Option<u64>,
    max_requests: Option<u32>,
}

#[derive(Deserialize)]
struct Waiting {
    id: u64,
    input_tokens: u64,
    device_hit_tokens: u64,
    host_hit_tokens: u64,
    max_new_tokens: u64,
    ignore_eos: bool,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Expected {
    id: u64,
    verdict: String,
    admitted: bool,
    extend_tokens: u64,
    chunked: bool,
}

/// The folder of shared vectors: `CPKV_SHARED`, else beside the workspace.
fn shared() -> PathBuf {
    std::env::var_os("CPKV_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from)
}

/// Asks the queue in order, up to the first verdict that isn't CONTINUE.
fn decide(line: &Line) -> Vec<Expected> {
    let pool =
        SglangPool { page_size: line.page_size, free_pages: line.free_pages, evictable_pages: line.evictable_pages };
    let limits = SglangLimits {
        max_input_tokens: line.limits.max_input_tokens,
        chunk_tokens: line.limits.chunk_tokens,
        max_requests: line.limits.max_requests,
    };
    let mut adder = SglangAdder::new(&pool, &limits);
    let mut rows = Vec::new();
    for waiting in &line.queue {
        assert!(waiting.host_hit_tokens == 0 && !waiting.ignore_eos, "the rule knows neither");
        let SglangAnswer { verdict, admitted, extend_tokens, chunked } = adder.ask(&SglangCandidate {
            input_tokens: waiting.input_tokens,
            device_hit_tokens: waiting.device_hit_tokens,
            max_new_tokens: waiting.max_new_tokens,
        });
        rows.push(Expected { id: waiting.id, verdict: verdict.name().to_owned(), admitted, extend_tokens, chunked });
        if verdict.name() != "CONTINUE" {
            break;
        }
    }
    rows
}

#[test]
fn recorded_decisions_are_reproduced() {
    let path = shared().join("vectors/admission_sglang.jsonl");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: no recorded decisions at {} (set CPKV_SHARED to their folder)", path.display());
        return;
    };
    let mut lines = 0;
    for (i, line) in text.lines().enumerate() {
        let parsed: Line = serde_json::from_str(line).unwrap_or_else(|e| panic!("line {}: {e}", i + 1));
        assert_eq!(decide(&parsed), parsed.expect, "line {}: {line}", i + 1);
        lines += 1;
    }
    assert_eq!(lines, 300);
}
