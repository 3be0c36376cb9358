//! Reading `cpkv plan` files: every fault is named with its line and its field.

use super::shown;
use crate::error::CliError;
use cpkv_core::LANES_MAX;
use cpkv_plan::{PlanNode, VecForest};
use serde_json::{Map, Value};
use std::path::Path;

/// One forest with its deficits.
#[derive(Debug)]
pub(super) struct Case {
    /// The line on which its object begins.
    pub(super) line: u64,
    pub(super) deficits: Vec<u32>,
    pub(super) forest: VecForest,
    pub(super) expect: Expect,
}

/// What a case expects; `None`: anything.
#[derive(Debug, Default)]
pub(super) struct Expect {
    pub(super) victims: Option<Vec<u64>>,
    pub(super) planned_freed: Option<Vec<u64>>,
    pub(super) remaining: Option<Vec<u64>>,
}

/// All cases of a file, which holds one object over any number of lines, or one object per line.
pub(super) fn read(file: &Path) -> Result<Vec<Case>, CliError> {
    let bytes = std::fs::read(file).map_err(|error| CliError::bad(shown(file), None, "", error))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        CliError::bad(shown(file), Some(line as u64), "", "not UTF-8")
    })?;
    // Some editors put a byte order mark first.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    objects(file, text)?.into_iter().map(|(line, value)| case(file, line, &value)).collect()
}

/// The objects of a file, each with the line on which it begins.
fn objects(file: &Path, text: &str) -> Result<Vec<(u64, Value)>, CliError> {
    let lines: Vec<(u64, &str)> = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()).collect();
    let Some((first, head)) = lines.first() else {
        return Err(CliError::bad(shown(file), None, "", "no case: the file is empty"));
    };
    // A first line that is complete by itself makes the file JSON lines. So do lines that all open an object: the first
    // is then cut short, and the one to blame.
    let one_per_line = serde_json::from_str::<Value>(head).is_ok()
        || (lines.len() > 1 && lines.iter().all(|(_, line)| line.starts_with('{')));
    if one_per_line {
        let parse = |(line, text): (u64, &str)| {
            serde_json::from_str(text).map(|value| (line, value)).map_err(|error| syntax(file, line, &error))
        };
        return lines.into_iter().map(parse).collect();
    }
    let value = serde_json::from_str(text).map_err(|error| syntax(file, error.line() as u64, &error))?;
    Ok(vec![(*first, value)])
}

fn syntax(file: &Path, line: u64, error: &serde_json::Error) -> CliError {
    let text = error.to_string();
    // The line is in front already; the one in the message counts from the beginning of the text that was parsed.
    let what = text.rfind(" at line ").map_or(text.as_str(), |at| &text[..at]);
    CliError::bad(shown(file), Some(line), "", format!("not JSON: {what} at column {}", error.column()))
}

fn case(file: &Path, line: u64, value: &Value) -> Result<Case, CliError> {
    let bad = |(field, what): Fault| CliError::bad(shown(file), Some(line), &field, what);
    let object = Fields::new("", value, &["lanes", "deficits", "nodes", "expect", "note"]).map_err(bad)?;
    let lanes = object.number("lanes", 1, LANES_MAX as u64).map_err(bad)? as usize;
    let deficits = object.counts("deficits").map_err(bad)?;
    if deficits.len() != lanes {
        return Err(bad(("deficits".into(), format!("{} values for {lanes} lanes", deficits.len()))));
    }
    let nodes = object.array("nodes").map_err(bad)?;
    let nodes: Vec<PlanNode> =
        (0..).zip(nodes).map(|(at, node)| plan_node(at, node)).collect::<Result<_, _>>().map_err(bad)?;
    let expect = match object.get("expect") {
        None => Expect::default(),
        Some(value) => expect(value).map_err(bad)?,
    };
    let ids: Vec<u64> = nodes.iter().map(|node| node.id).collect();
    let forest = VecForest::new(lanes, nodes).map_err(|error| {
        // The last node of that id: of two with one id, the second is one too many.
        let field = match error.node().and_then(|node| ids.iter().rposition(|id| *id == node)) {
            Some(at) => format!("nodes[{at}].{}", error.field()),
            None => error.field().to_owned(),
        };
        bad((field, error.to_string()))
    })?;
    Ok(Case { line, deficits, forest, expect })
}

fn plan_node(at: usize, value: &Value) -> Result<PlanNode, Fault> {
    let node = Fields::new(&format!("nodes[{at}]"), value, &["id", "parent", "counts", "retention", "evictable"])?;
    let retention = node.numbers("retention", u64::MAX)?;
    let retention = retention
        .try_into()
        .map_err(|found: Vec<u64>| (node.name("retention"), format!("{} values, two are due", found.len())))?;
    Ok(PlanNode {
        id: node.number("id", 0, u64::MAX)?,
        parent: match node.due("parent")? {
            Value::Null => None,
            _ => Some(node.number("parent", 0, u64::MAX)?),
        },
        counts: node.counts("counts")?,
        retention,
        evictable: node.truth("evictable")?,
    })
}

fn expect(value: &Value) -> Result<Expect, Fault> {
    let object = Fields::new("expect", value, &["victims", "planned_freed", "remaining"])?;
    let numbers = |field| object.get(field).map(|_| object.numbers(field, u64::MAX)).transpose();
    Ok(Expect {
        victims: numbers("victims")?,
        planned_freed: numbers("planned_freed")?,
        remaining: numbers("remaining")?,
    })
}

/// A field and what is wrong with it.
type Fault = (String, String);

/// The fields of one object, under the name by which faults call it.
struct Fields<'a> {
    name: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The fields of `value`, which is an object with none but the `known` ones.
    fn new(name: &str, value: &'a Value, known: &[&str]) -> Result<Self, Fault> {
        let Value::Object(fields) = value else {
            return Err((name.to_owned(), format!("{} where an object is due", brief(value))));
        };
        let object = Self { name: name.to_owned(), fields };
        match fields.keys().find(|field| !known.contains(&field.as_str())) {
            Some(field) => Err((object.name(field), format!("unknown field; one of {}", known.join(", ")))),
            None => Ok(object),
        }
    }

    fn name(&self, field: &str) -> String {
        if self.name.is_empty() { field.to_owned() } else { format!("{}.{field}", self.name) }
    }

    fn get(&self, field: &str) -> Option<&'a Value> {
        self.fields.get(field)
    }

    fn due(&self, field: &str) -> Result<&'a Value, Fault> {
        self.get(field).ok_or_else(|| (self.name(field), "missing".into()))
    }

    fn number(&self, field: &str, min: u64, max: u64) -> Result<u64, Fault> {
        number(self.due(field)?, min, max).map_err(|what| (self.name(field), what))
    }

    fn truth(&self, field: &str) -> Result<bool, Fault> {
        let value = self.due(field)?;
        value.as_bool().ok_or_else(|| (self.name(field), format!("{} where true or false is due", brief(value))))
    }

    fn array(&self, field: &str) -> Result<&'a Vec<Value>, Fault> {
        let value = self.due(field)?;
        value.as_array().ok_or_else(|| (self.name(field), format!("{} where an array is due", brief(value))))
    }

    fn numbers(&self, field: &str, max: u64) -> Result<Vec<u64>, Fault> {
        let name = |at| format!("{}[{at}]", self.name(field));
        let each = |(at, value): (usize, &Value)| number(value, 0, max).map_err(|what| (name(at), what));
        self.array(field)?.iter().enumerate().map(each).collect()
    }

    /// Pages per lane.
    fn counts(&self, field: &str) -> Result<Vec<u32>, Fault> {
        Ok(self.numbers(field, u32::MAX.into())?.into_iter().map(|pages| pages as u32).collect())
    }
}

fn number(value: &Value, min: u64, max: u64) -> Result<u64, String> {
    match value.as_u64() {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ if value.is_number() => Err(format!("{value} is out of range, an integer from {min} to {max}")),
        _ => Err(format!("{} where an integer from {min} to {max} is due", brief(value))),
    }
}

/// A value, or its kind when it is long.
fn brief(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) if text.chars().count() > 40 => "a string".into(),
        _ => value.to_string(),
    }
}
