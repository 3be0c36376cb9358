//! The operations of a scenario, as its lines write them.

use super::config::ScenarioConfig;
use crate::error::CliError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// One line: an operation with what it expects.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) op: Op,
    pub(super) expect: Option<Map<String, Value>>,
    pub(super) expect_error: Option<String>,
}

/// Page counts: one per lane, or one number where there is one lane.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum PerLane {
    One(u32),
    All(Vec<u32>),
}

/// A key, with its namespace.
#[derive(Debug)]
pub(super) struct KeyText {
    pub(super) key: Vec<String>,
    pub(super) tail: u32,
    pub(super) namespace: Option<String>,
}

/// Declares the fields of each operation, once for the parser and once for the runner.
macro_rules! ops {
    ($($name:literal $variant:ident { $($(#[$attr:meta])* $field:ident: $type:ty,)* })*) => {
        /// An operation.
        #[derive(Debug)]
        pub(super) enum Op {
            Config(Box<ScenarioConfig>),
            $($variant { $($field: $type,)* },)*
        }

        impl Op {
            fn parse(op: &str, fields: Map<String, Value>) -> Result<Self, (String, String)> {
                match op {
                    "config" => Ok(Op::Config(Box::new(fields_of(fields)?))),
                    $($name => {
                        #[derive(Deserialize)]
                        #[serde(deny_unknown_fields)]
                        struct Fields { $($(#[$attr])* $field: $type,)* }
                        let Fields { $($field,)* } = fields_of(fields)?;
                        Ok(Op::$variant { $($field,)* })
                    })*
                    _ => {
                        let known = ["config", $($name,)*].join(", ");
                        Err(("op".into(), format!("{op:?} is unknown; one of {known}")))
                    }
                }
            }
        }
    };
}

ops! {
    "insert" Insert { key: Vec<String>, #[serde(default)] tail: u32, namespace: Option<String>, owners: Option<Vec<u8>>, }
    "match" Match { key: Vec<String>, #[serde(default)] tail: u32, namespace: Option<String>, }
    "lock" Lock { key: Vec<String>, #[serde(default)] tail: u32, namespace: Option<String>, r#as: String, }
    "unlock" Unlock { name: String, }
    "hold" Hold { r#as: String, owners: Vec<u8>, }
    "release" Release { name: String, }
    "backup" Backup { key: Vec<String>, #[serde(default)] tail: u32, namespace: Option<String>, r#as: String, }
    "load_back" LoadBack { key: Vec<String>, #[serde(default)] tail: u32, namespace: Option<String>, r#as: String, }
    "ack" Ack { name: String, }
    "fail" Fail { name: String, }
    "evict_device" EvictDevice { deficits: PerLane, }
    "evict_host" EvictHost { pages: PerLane, }
    "submit" Submit {
        request: String, key: Vec<String>, #[serde(default)] tail: u32, namespace: Option<String>,
        max_new: Option<u32>, #[serde(default)] priority: i64, owners: Option<Vec<u8>>,
    }
    "step" Step { #[serde(default = "once")] times: u32, }
    "finish" Finish { request: String, key: Option<Vec<String>>, #[serde(default)] tail: u32, }
    "abort" Abort { request: String, }
    "retract" Retract { request: String, }
    "reset" Reset {}
    "stats" Stats {}
    "digest" Digest {}
}

fn once() -> u32 {
    1
}

/// The error is the field's path and what is wrong with it.
fn fields_of<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, (String, String)> {
    serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| {
        let path = error.path().to_string();
        (if path == "." { String::new() } else { path }, error.inner().to_string())
    })
}

impl Line {
    /// Parses one line; `None` for a blank one and a comment.
    ///
    /// # Errors
    /// [`CliError::BadInput`] with file, line and field.
    pub(super) fn parse(file: &str, number: u64, text: &str) -> Result<Option<Self>, CliError> {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        let bad = |field: &str, what: String| CliError::bad(file, Some(number), field, what);
        let mut fields: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| bad("", format!("no JSON object: {error}")))?;
        fields.remove("note");
        let expect = match fields.remove("expect") {
            None => None,
            Some(Value::Object(expect)) => Some(expect),
            Some(_) => return Err(bad("expect", "must be an object of result fields".into())),
        };
        let expect_error = match fields.remove("expect_error") {
            None => None,
            Some(Value::String(name)) => Some(name),
            Some(_) => return Err(bad("expect_error", "must be the name of an error".into())),
        };
        let op = match fields.remove("op") {
            Some(Value::String(op)) => op,
            Some(_) => return Err(bad("op", "must be the name of an operation".into())),
            None => return Err(bad("op", "is missing".into())),
        };
        let op = Op::parse(&op, fields).map_err(|(field, what)| bad(&field, what))?;
        Ok(Some(Self { number, op, expect, expect_error }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Line::parse("f", 7, text).unwrap_err().to_string()
    }

    #[test]
    fn malformed_lines_name_line_and_field() {
        assert!(error("{").starts_with("f:7: no JSON object"));
        assert_eq!(error("{}"), "f:7: op: is missing");
        assert!(error(r#"{"op":"jump"}"#).starts_with("f:7: op: \"jump\" is unknown; one of config, insert"));
        assert!(error(r#"{"op":"insert"}"#).contains("missing field `key`"));
        assert!(error(r#"{"op":"insert","key":["A:0..1"],"kye":1}"#).contains("kye"));
        assert!(error(r#"{"op":"config","lanes":-1}"#).starts_with("f:7: lanes: "));
        assert!(error(r#"{"op":"config","device_pages":1.5}"#).starts_with("f:7: device_pages: "));
        assert!(error(r#"{"op":"config","placement":"up"}"#).starts_with("f:7: placement: "));
        assert!(Line::parse("f", 1, " # a comment").unwrap().is_none());
        assert!(Line::parse("f", 1, "").unwrap().is_none());
    }
}
