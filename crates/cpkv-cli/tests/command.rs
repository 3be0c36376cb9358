//! The `cpkv` command as a user meets it: exit status, one-line errors, equal output from run to run.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn cpkv(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cpkv")).args(args).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a replay and returns its JSON, split in what is measured and the rest.
fn replay(args: &[&str]) -> (Value, Value) {
    let output = cpkv(&[&["replay", "--json"], args].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    let mut report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let measured = report.as_object_mut().expect("an object").remove("measured").expect("measured figures");
    (report, measured)
}

/// The conversation trace of the shared folder, if it is there.
fn conversation_trace() -> Option<PathBuf> {
    let shared = std::env::var_os("CPKV_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let trace = shared.join("traces/conversation_trace.jsonl");
    if trace.exists() {
        return Some(trace);
    }
    eprintln!("skipped: {} is not there (set CPKV_SHARED)", trace.display());
    None
}

fn file(dir: &tempfile::TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, content).expect("a temporary file");
    path.display().to_string()
}

const ROW: &str = r#"{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}"#;

/// Bad input is one line that names file, line, field and range, exit status 2, and no report.
#[test]
fn bad_input_is_named_in_one_line() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str, content: &str| file(&dir, name, content);
    let rows = |second: &str| format!("{ROW}\n{second}\n");
    let folder = dir.path().display().to_string();
    let cases: Vec<(Vec<String>, &[&str])> = vec![
        (vec!["/no/such/file".into()], &["/no/such/file"]),
        (vec![folder], &["directory"]),
        (vec![path("empty", "")], &["empty"]),
        (vec![path("cut", &format!("{ROW}\n{}", &ROW[..40]))], &["cut:2"]),
        (
            vec![path("field", &rows(r#"{"timestamp": 0, "output_length": 5, "hash_ids": [1]}"#))],
            &["field:2", "input_length"],
        ),
        (vec![path("negative", &rows(&ROW.replace("600", "-1")))], &["negative:2", "input_length"]),
        (vec![path("fraction", &rows(&ROW.replace("600", "600.5")))], &["fraction:2", "input_length"]),
        (vec![path("wide", &rows(&ROW.replace("[1, 2]", "[1, 18446744073709551616]")))], &["wide:2", "hash_ids"]),
        (vec![path("ids", &rows(&ROW.replace("[1, 2]", "[1, 2, 3]")))], &["ids:2", "hash_ids"]),
        (
            vec![path("blocks", &ROW.replace("[1, 2]", "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"))],
            &["blocks:1", "--block-size 64"],
        ),
        (
            vec![path("time", &format!("{}\n{ROW}\n", ROW.replace("\"timestamp\": 0", "\"timestamp\": 9")))],
            &["time:2", "timestamp"],
        ),
        (vec![path("ok", ROW), "--block-size=0".into()], &["block-size", "1 to"]),
        (vec![path("ok", ROW), "--lanes=0".into()], &["lanes", "0 is out of range, 1 to 64"]),
        (vec![path("ok", ROW), "--lanes=65".into()], &["lanes", "65 is out of range, 1 to 64"]),
        (vec![path("ok", ROW), "--page-size=0".into()], &["page-size", "1 to 65536"]),
        (vec![path("ok", ROW), "--device-pages=0".into()], &["device-pages", "1 to 4194304"]),
        (vec![path("ok", ROW), "--device-pages=4194305".into()], &["device-pages", "1 to 4194304"]),
        (
            vec![path("ok", ROW), "--lanes=64".into(), "--page-size=4096".into(), "--device-pages=4194304".into()],
            &["device_pages", "bytes of memory are available"],
        ),
        (vec![path("ok", ROW), "--speed=0".into()], &["speed"]),
        (vec![path("ok", ROW), "--speed=nan".into()], &["speed"]),
        (vec![path("ok", ROW), "--chunk-tokens=3".into()], &["chunk_tokens"]),
        (vec![path("ok", ROW), "--placement=sideways".into()], &["placement"]),
        (
            vec![path("ok", ROW), format!("--config={}", path("config", "{\"lanes\": 0}"))],
            &["config", "lanes", "1 to 64"],
        ),
        (vec![path("ok", ROW), format!("--config={}", path("config2", "{\n\"lanse\": 4}"))], &["config2", "lanse"]),
        (
            vec![path("ok", ROW), format!("--config={}", path("config3", "{\n\"layers\": -4}"))],
            &["config3:2", "layers"],
        ),
    ];
    for (args, needles) in cases {
        let args: Vec<&str> = std::iter::once("replay").chain(args.iter().map(String::as_str)).collect();
        let output = cpkv(&args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert_eq!(text(&output.stdout), "", "{args:?}: no partial report");
        assert!(!error.contains("panicked"), "{args:?}: {error}");
        for needle in needles {
            assert!(error.contains(needle), "{args:?} should name {needle:?}: {error}");
        }
        // Options that the argument parser refuses come with a usage hint below the line.
        assert!(error.lines().count() == 1 || error.contains("For more information"), "{args:?}: {error}");
    }
}

#[test]
fn line_ends_of_other_systems_are_read() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (unix, _) = replay(&[&file(&dir, "unix", format!("{ROW}\n{ROW}\n"))]);
    let (dos, _) = replay(&[&file(&dir, "dos", format!("{ROW}\r\n{ROW}"))]);
    assert_eq!(unix["tokens"], dos["tokens"]);
    assert_eq!(unix["requests"], 2);
    assert_eq!(unix["blocks"]["hit"], 0, "they arrive at once, and one batch computes both");
}

/// FAULTS N1: ids that differ above bit 32 share nothing.
#[test]
fn ids_are_64_bits_wide() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let row =
        |id: u64| format!(r#"{{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [{id}, 7]}}"#);
    let (report, _) = replay(&[&file(&dir, "wide", format!("{}\n{}\n", row(1), row((1 << 32) + 1))), "--sequential"]);
    assert_eq!(report["blocks"]["hit"], 0);
    let (report, _) = replay(&[&file(&dir, "same", format!("{}\n{}\n", row(1), row(1))), "--sequential"]);
    assert_eq!(report["blocks"]["hit"], 1, "the second block is capped: one token is always computed (C16)");
}

/// The same seed gives the same JSON, byte for byte, `measured` apart; another seed another workload.
#[test]
fn a_replay_is_equal_from_run_to_run() {
    let args = ["--conversations", "40", "--device-pages", "96", "--host-pages", "200"];
    let (first, _) = replay(&args);
    let (second, _) = replay(&args);
    assert_eq!(first.to_string(), second.to_string());
    assert_ne!(first["loaded_pages"], serde_json::json!([0, 0, 0, 0, 0, 0, 0, 0]), "small pools load back");
    assert_eq!(first["verify"]["wrong"], 0);
    assert!(first["verify"]["pages"].as_u64() > Some(1000));
    let (other, _) = replay(&[&args[..], &["--seed", "2"]].concat());
    assert_ne!(first["digest"], other["digest"]);
}

/// What a replay records is a scenario that holds, down to the digest of all decisions.
#[test]
fn a_recorded_replay_is_a_scenario_that_holds() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let sets: [&[&str]; 4] = [
        &["--write-policy", "write_through"],
        &["--insert-output", "--placement", "zigzag", "--write-policy", "write_through_selective"],
        &["--write-policy", "write_back", "--retention", "lru"],
        &["--sequential", "--insert-output", "--page-size", "48"],
    ];
    for set in sets {
        let record = dir.path().join("run.jsonl").display().to_string();
        let args =
            [&["--conversations", "20", "--device-pages", "96", "--host-pages", "160", "--record", &record], set]
                .concat();
        let (report, _) = replay(&args);
        let output = cpkv(&["scenario", &record]);
        assert!(output.status.success(), "{set:?}: {}", text(&output.stderr));
        let recorded = std::fs::read_to_string(&record).expect("the recorded run");
        assert!(recorded.contains(report["digest"].as_str().expect("a digest")), "{set:?}");
        let requests = recorded.lines().filter(|line| line.contains(r#""op":"submit""#)).count();
        assert_eq!(report["requests"], requests);
    }
}

#[test]
fn the_timeline_is_a_chrome_trace() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let timeline = dir.path().join("timeline.json").display().to_string();
    replay(&["--conversations", "10", "--timeline", &timeline]);
    let events: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(&timeline).expect("the timeline")).expect("an array of events");
    let spans: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert!(spans.iter().any(|span| span["name"].as_str().is_some_and(|name| name.starts_with("forward"))));
    assert!(spans.iter().any(|span| span["name"].as_str().is_some_and(|name| name.starts_with("backup"))));
    assert!(spans.iter().all(|span| span["dur"].as_f64() >= Some(0.0)));
}

/// A load above what the modelled compute serves is warned of, and the speed that is proposed is below it.
#[test]
fn an_overload_is_warned_of() {
    let output = cpkv(&["replay", "--conversations", "20", "--speed", "200"]);
    let report = text(&output.stdout);
    let warning = report.lines().find(|line| line.starts_with("warning: offered load")).expect("a warning");
    let speed = warning.rsplit(' ').next().expect("a speed");
    let (calm, _) = replay(&["--conversations", "20", "--speed", speed]);
    assert!(calm["offered_load"].as_f64() < Some(1.0), "{speed}: {}", calm["offered_load"]);
}

/// Leaf-first LRU on single pages hits these shares of all block ids of the conversation trace; whole nodes as victims
/// stay within half a point. Measured independently.
#[test]
fn the_conversation_trace_hits_what_lru_hits() {
    let Some(trace) = conversation_trace() else { return };
    let trace = trace.display().to_string();
    for (pages, percent) in [("5000", 11.85), ("20000", 29.36), ("50000", 35.61), ("200000", 36.60)] {
        let (report, _) = replay(&[
            &trace,
            "--page-size",
            "512",
            "--lanes",
            "1",
            "--host-pages",
            "0",
            "--device-pages",
            pages,
            "--retention",
            "lru",
            "--evict-order",
            "retention",
            "--device-free-room",
            "0",
            "--sequential",
            "--row-bytes",
            "1",
        ]);
        let hit = report["blocks"]["hit_percent"].as_f64().expect("a share");
        let tolerance = if pages == "200000" { 0.005 } else { 0.5 };
        assert!((hit - percent).abs() <= tolerance, "{pages} pages: {hit} %, expected {percent} %");
        assert_eq!(report["blocks"]["total"], 288_500);
        assert_eq!(report["verify"]["wrong"], 0);
        assert!(report["clairvoyant"]["hit_percent"].as_f64() >= Some(hit));
    }
}

/// The whole trace with two tiers on eight lanes, every byte checked.
#[test]
fn the_conversation_trace_replays_without_a_wrong_byte() {
    let Some(trace) = conversation_trace() else { return };
    let (report, _) = replay(&[&trace.display().to_string(), "--verify", "full"]);
    assert_eq!(report["requests"], 12_031);
    assert_eq!(report["refused"], serde_json::json!([]));
    assert_eq!(report["verify"]["wrong"], 0);
    assert!(report["verify"]["pages"].as_u64() > Some(1_000_000));
}

/// A request that could never fit is refused by name, and the others run.
#[test]
fn what_never_fits_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let big = r#"{"timestamp": 0, "input_length": 2048, "output_length": 1, "hash_ids": [3, 4, 5, 6]}"#;
    let trace = file(&dir, "big", format!("{ROW}\n{big}\n"));
    let (report, _) = replay(&[&trace, "--lanes", "2", "--device-pages", "8", "--host-pages", "8"]);
    assert_eq!(report["refused"][0]["request"], "line 2");
    let reason = report["refused"][0]["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("request_too_large device"), "{reason}");
    assert_eq!(report["requests"], 2);
}

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).expect("the README")
}

/// The part of the README between a marker's code fence and its end.
fn readme_block(marker: &str) -> String {
    let readme = readme();
    let from = readme.find(marker).unwrap_or_else(|| panic!("the README has {marker}"));
    let fence = from + readme[from..].find("```").expect("a code fence");
    let start = fence + readme[fence..].find('\n').expect("a line end") + 1;
    let end = start + readme[start..].find("```").expect("the fence's end");
    readme[start..end].to_owned()
}

/// What the README shows is what the command prints, but for what is measured.
#[test]
fn the_readme_shows_what_replay_prints() {
    let output = cpkv(&["replay"]);
    let printed = |text: &str| -> Vec<String> {
        text.lines().map(str::trim_end).filter(|line| !line.contains("measured")).map(str::to_owned).collect()
    };
    assert_eq!(printed(&text(&output.stdout)), printed(&readme_block("<!-- output: replay -->")));
}

#[test]
fn the_readmes_scenario_and_plan_hold() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let scenario = file(&dir, "readme.jsonl", readme_block("<!-- scenario -->"));
    let output = cpkv(&["scenario", &scenario]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let readme = readme();
    let from = readme.find("echo '").expect("the plan's case") + "echo '".len();
    let case = &readme[from..from + readme[from..].find('\'').expect("its end")];
    let output = cpkv(&["plan", "--json", &file(&dir, "case.json", case)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let plan: Value = serde_json::from_slice(&output.stdout).expect("a plan");
    assert_eq!(plan["victims"], serde_json::json!([2, 1]), "the leaf goes before its parent");
}
