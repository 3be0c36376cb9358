//! Timelines of a run in the Chrome trace event format, for Perfetto and `chrome://tracing`.
//!
//! A JSON array of complete events (`"ph": "X"`) with times in microseconds; each track is a thread, named by a metadata
//! event before its first span (Trace Event Format, "JSON Array Format").

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::io::{self, Write};

/// Writes spans as they come; nothing is kept but the names of the tracks.
///
/// Give it a buffered writer. A write that fails ends the writing, and [`finish`](Self::finish) tells.
pub struct Timeline {
    out: Box<dyn Write>,
    tracks: BTreeMap<String, usize>,
    events: u64,
    failed: Option<io::Error>,
}

impl Timeline {
    /// A timeline without spans. Writes nothing yet.
    #[must_use]
    pub fn new(out: Box<dyn Write>) -> Self {
        Self { out, tracks: BTreeMap::new(), events: 0, failed: None }
    }

    /// A span on a track, times in nanoseconds of the run. One that ends before it starts gets length 0.
    ///
    /// Tracks show in the order of their first span; spans may come in any order.
    pub fn span(&mut self, track: &str, name: &str, start_ns: u64, end_ns: u64, args: &[(&str, Value)]) {
        let tid = match self.tracks.get(track) {
            Some(tid) => *tid,
            None => {
                let tid = self.tracks.len() + 1;
                self.tracks.insert(track.to_owned(), tid);
                let text = text(track);
                self.event(format_args!(
                    r#"{{"name":"thread_name","ph":"M","pid":1,"tid":{tid},"args":{{"name":{text}}}}}"#
                ));
                self.event(format_args!(
                    r#"{{"name":"thread_sort_index","ph":"M","pid":1,"tid":{tid},"args":{{"sort_index":{tid}}}}}"#
                ));
                tid
            }
        };
        let (name, ts, dur) = (text(name), Micros(start_ns), Micros(end_ns.saturating_sub(start_ns)));
        let args: serde_json::Map<String, Value> =
            args.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        let args = Value::Object(args);
        self.event(format_args!(
            r#"{{"name":{name},"ph":"X","ts":{ts},"dur":{dur},"pid":1,"tid":{tid},"args":{args}}}"#
        ));
    }

    /// Ends the array and flushes. Without it the file lacks its last bracket, which viewers forgive.
    ///
    /// # Errors
    /// The first write that failed, here or before.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.out.write_all(if self.events == 0 { b"[\n]\n" } else { b"\n]\n" })?;
        self.out.flush()
    }

    fn event(&mut self, event: fmt::Arguments<'_>) {
        if self.failed.is_some() {
            return;
        }
        let before = if self.events == 0 { "[\n" } else { ",\n" };
        self.events += 1;
        self.failed = write!(self.out, "{before}{event}").err();
    }
}

impl Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeline").field("tracks", &self.tracks).field("events", &self.events).finish_non_exhaustive()
    }
}

/// A JSON string, quoted.
fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// Nanoseconds as decimal microseconds, exact: as a float, late times would lose their last digits.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(spans: impl FnOnce(&mut Timeline)) -> Vec<Value> {
        let out = Shared::default();
        let mut timeline = Timeline::new(Box::new(out.clone()));
        spans(&mut timeline);
        timeline.finish().unwrap();
        serde_json::from_slice(&out.0.borrow()).unwrap()
    }

    #[test]
    fn nothing_is_an_empty_array() {
        assert!(written(|_| ()).is_empty());
    }

    #[test]
    fn spans_stand_on_named_tracks() {
        let events = written(|timeline| {
            timeline.span("lane 0 load", "op \"1\"\n", 1_500, 4_000, &[("bytes", json!(64)), ("ok", json!(true))]);
            timeline.span("compute", "step", 0, 1, &[]);
            timeline.span("lane 0 load", "op 2", 9_000, 8_000, &[]);
        });
        assert_eq!(events.len(), 3 + 2 * 2);
        assert_eq!(
            events[0],
            json!({"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "lane 0 load"}})
        );
        assert_eq!(
            events[2],
            json!({"name": "op \"1\"\n", "ph": "X", "ts": 1.5, "dur": 2.5, "pid": 1, "tid": 1,
                   "args": {"bytes": 64, "ok": true}})
        );
        assert_eq!((&events[5]["tid"], &events[5]["dur"], &events[5]["args"]), (&json!(2), &json!(0.001), &json!({})));
        assert_eq!((&events[6]["tid"], &events[6]["dur"]), (&json!(1), &json!(0.0)));
    }

    #[test]
    fn a_failed_write_is_told_once() {
        let mut timeline = Timeline::new(Box::new(Full));
        timeline.span("a", "b", 0, 1, &[]);
        timeline.span("a", "b", 1, 2, &[]);
        assert_eq!(timeline.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
