//! What `cpkv plan` prints, and how it refuses.

use super::*;

const ONE: &str = r#"{"lanes":2,"deficits":[0,2],"nodes":[{"id":1,"parent":null,"counts":[3,1],"retention":[0,1],"evictable":true},{"id":2,"parent":1,"counts":[0,1],"retention":[0,2],"evictable":true}]}"#;

/// Runs over a file of this text. The file's folder is cut from errors.
fn run_on(text: impl AsRef<[u8]>, change: impl FnOnce(&mut PlanArgs)) -> (Result<(), CliError>, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    std::fs::write(&file, text).unwrap();
    let mut args =
        PlanArgs { file, algorithm: "heap".into(), order: "contribution".into(), json: false, explain: false };
    change(&mut args);
    let mut out = Vec::new();
    let result = run(&args, &mut out).map_err(|error| {
        let cut = |text: String| text.replace(&format!("{}/", folder.path().display()), "");
        match error {
            CliError::BadInput(text) => CliError::BadInput(cut(text)),
            CliError::Failed(text) => CliError::Failed(cut(text)),
        }
    });
    (result, String::from_utf8(out).unwrap())
}

fn printed(text: &str) -> String {
    let (result, out) = run_on(text, |_| {});
    assert_eq!(result, Ok(()));
    out
}

fn refused(text: impl AsRef<[u8]>) -> String {
    match run_on(text, |_| {}) {
        (Err(CliError::BadInput(what)), out) => {
            assert!(out.is_empty() && !what.contains('\n'), "{out} {what}");
            what
        }
        other => panic!("not refused: {other:?}"),
    }
}

const PLAN: &str = "{\"victims\":[2,1],\"planned_freed\":[3,2],\"remaining\":[0,0]}\n";

#[test]
fn one_object_may_span_lines_and_objects_may_come_one_per_line() {
    assert_eq!(printed(ONE), PLAN);
    assert_eq!(printed(&ONE.replace(",\"", ",\r\n\"")), PLAN);
    assert_eq!(printed(&format!("\u{feff}{ONE}\r\n\r\n{ONE}\r\n")), PLAN.repeat(2));
}

#[test]
fn every_algorithm_prints_the_same() {
    for algorithm in Algorithm::ALL {
        assert_eq!(run_on(ONE, |args| args.algorithm = algorithm.name().into()).1, PLAN);
    }
}

#[test]
fn orders_differ_and_json_adds_what_it_took() {
    let text = r#"{"lanes":1,"deficits":[2],"nodes":[{"id":1,"parent":null,"counts":[2],"retention":[1,0],"evictable":true},{"id":2,"parent":null,"counts":[1],"retention":[0,0],"evictable":true}]}"#;
    assert_eq!(printed(text), "{\"victims\":[1],\"planned_freed\":[2],\"remaining\":[0]}\n");
    let (_, out) = run_on(text, |args| (args.order, args.json) = ("retention".into(), true));
    let expected = r#"{"victims":[2,1],"planned_freed":[3],"remaining":[0],"given_up":[1,0],"counters":{"scored":2,"reevaluated":0,"pushed":0,"visited":2}}"#;
    assert_eq!(out.trim_end(), expected);
}

#[test]
fn an_explained_plan_is_a_table_or_steps() {
    let (_, table) = run_on(ONE, |args| args.explain = true);
    let expected = "\
line 1: deficits [0, 2]
  step  victim  contribution  unlock  retention   freed  deficits after
     1       2             1       1     [0, 2]  [0, 1]          [0, 1]
     2       1             1       0     [0, 1]  [3, 1]          [0, 0]
  2 victims, freed [3, 2], remaining [0, 0], given up retention up to [0, 2]
";
    assert_eq!(table, expected);
    let (_, out) = run_on(ONE, |args| (args.json, args.explain) = (true, true));
    let line: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(line["steps"][1]["node"], 1);
    assert_eq!(line["steps"][0]["deficits_after"], json!([0, 1]));
}

#[test]
fn an_expectation_is_compared_field_by_field() {
    let expecting = |expect: &str| ONE.replacen('{', &format!("{{\"expect\":{expect},"), 1);
    let right = expecting(r#"{"victims":[2,1],"planned_freed":[3,2],"remaining":[0,0]}"#);
    assert_eq!(printed(&right), PLAN);
    let wrong = expecting(r#"{"victims":[2,1],"planned_freed":[3,1]}"#);
    let (result, out) = run_on(format!("{right}\n{wrong}\n{right}\n"), |_| {});
    assert_eq!(result, Err(CliError::Failed("f:2: planned_freed: expected [3, 1], came [3, 2]".into())));
    assert_eq!(out, PLAN.repeat(2), "the plan that differs is printed, the next isn't");
    assert_eq!(
        refused(expecting(r#"{"victim":[2]}"#)),
        "f:1: expect.victim: unknown field; one of victims, planned_freed, remaining"
    );
}

#[test]
fn a_fault_is_one_line_with_file_line_and_field() {
    let max = u32::MAX;
    let cases = [
        (r#""lanes":2"#, r#""lanes":0"#, "lanes: 0 is out of range, an integer from 1 to 64".to_owned()),
        (r#""lanes":2"#, r#""lanes":65"#, "lanes: 65 is out of range, an integer from 1 to 64".into()),
        (r#""lanes":2,"#, "", "lanes: missing".into()),
        ("[0,2]", "[0]", "deficits: 1 values for 2 lanes".into()),
        ("[0,2],", "[0,-2],", format!("deficits[1]: -2 is out of range, an integer from 0 to {max}")),
        ("[0,2],", "[0,2.5],", format!("deficits[1]: 2.5 is out of range, an integer from 0 to {max}")),
        ("[0,2],", "[0,4294967296],", format!("deficits[1]: 4294967296 is out of range, an integer from 0 to {max}")),
        ("[0,2],", "[0,\"2\"],", format!("deficits[1]: \"2\" where an integer from 0 to {max} is due")),
        ("[0,2],", "null,", "deficits: null where an array is due".into()),
        ("\"deficits\"", "\"deficit\"", "deficit: unknown field; one of lanes, deficits, nodes, expect, note".into()),
        ("\"parent\":1,", "", "nodes[1].parent: missing".into()),
        ("\"parent\":1", "\"parent\":7", "nodes[1].parent: node 2 has parent 7, which is unknown".into()),
        ("\"parent\":null", "\"parent\":2", "nodes[0].parent: node 1 is its own ancestor".into()),
        ("\"id\":2", "\"id\":1", "nodes[1].id: node 1 is there twice".into()),
        ("[3,1]", "[3]", "nodes[0].counts: node 1 has 1 counts, the forest has 2 lanes".into()),
        ("[3,1]", "[3,4294967295]", format!("nodes[1].counts: with node 2 the pages of lane 1 exceed {max}")),
        ("\"retention\":[0,1]", "\"retention\":[1]", "nodes[0].retention: 1 values, two are due".into()),
        (
            "[0,2],\"evictable\":true",
            "[0,2],\"evictable\":1",
            "nodes[1].evictable: 1 where true or false is due".into(),
        ),
        (
            "[0,2],\"evictable\":true",
            "[0,2],\"evictable\":false",
            "nodes[1].evictable: node 2 is not evictable but its parent 1 is".into(),
        ),
    ];
    for (from, to, what) in cases {
        let text = ONE.replacen(from, to, 1);
        assert_ne!(text, ONE, "{from}");
        assert_eq!(refused(format!("{ONE}\n{text}")).strip_prefix("f:2: "), Some(what.as_str()), "{to}");
    }
}

#[test]
fn a_file_that_is_no_json_is_named_with_its_line() {
    assert_eq!(refused(""), "f: no case: the file is empty");
    assert_eq!(refused("\n \r\n"), "f: no case: the file is empty");
    assert_eq!(refused("[1]"), "f:1: an array where an object is due");
    assert_eq!(refused(b"{\n\xff}"), "f:2: not UTF-8");
    assert_eq!(refused("{\n\"lanes\": 2,\n}"), "f:3: not JSON: trailing comma at column 1");
    let cut = &ONE[..40];
    assert!(refused(format!("{ONE}\n{cut}")).starts_with("f:2: not JSON: EOF while parsing"));
    assert!(refused(format!("{cut}\n{ONE}")).starts_with("f:1: not JSON: EOF while parsing"));
    assert!(refused(format!("{ONE} {ONE}")).starts_with("f:1: not JSON: trailing characters"));
    let (result, _) = run_on("", |args| args.file = "no/such/file".into());
    assert!(matches!(result, Err(CliError::BadInput(what)) if what.starts_with("no/such/file: ")));
}

#[test]
fn an_unknown_algorithm_or_order_is_refused() {
    let (result, _) = run_on(ONE, |args| args.algorithm = "fast".into());
    let what = "cpkv plan: --algorithm: \"fast\" is unknown; one of greedy, memo, heap";
    assert_eq!(result, Err(CliError::BadInput(what.into())));
    let (result, _) = run_on(ONE, |args| args.order = "age".into());
    let what = "cpkv plan: --order: \"age\" is unknown; one of contribution, retention";
    assert_eq!(result, Err(CliError::BadInput(what.into())));
}
