//! Mooncake traces: JSON lines of `timestamp`, `input_length`, `output_length` and `hash_ids`, one id per prompt block.
//!
//! The format is that of the traces published with Mooncake (FAST '25): times in milliseconds, one id per block of 512
//! tokens, equal ids for equal blocks behind equal blocks, the last block possibly partial. The block size isn't in the
//! file, so each row is checked against it.

use super::RowError;
use crate::error::CliError;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The longest line that is read, bytes: 2^21 ids of up to 20 digits take 46 MB.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// The most tokens that a row's input or output has.
const TOKENS_MAX: u64 = 1 << 31;
/// The latest time, milliseconds: 316 years, which holds times since 1970 and fits in nanoseconds.
const TIME_MS_MAX: u64 = 10_000_000_000_000;
/// The largest block, tokens.
const BLOCK_SIZE_MAX: u32 = 1 << 20;

const TIME_ALLOWED: &str = "milliseconds, 0 to 10000000000000";
const INPUT_ALLOWED: &str = "a whole number, 1 to 2147483648";
const OUTPUT_ALLOWED: &str = "a whole number, 0 to 2147483648";
const IDS_ALLOWED: &str = "a list of whole numbers, 0 to 18446744073709551615";
const ID_ALLOWED: &str = "a whole number, 0 to 18446744073709551615";

/// One request of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceRow {
    /// The line of the file, from 1.
    pub line: u64,
    /// When the request arrived, nanoseconds; the origin is the file's.
    pub time_ns: u64,
    /// Tokens of the prompt, at least 1.
    pub input_tokens: u64,
    /// Tokens that were generated.
    pub output_tokens: u64,
    /// The prompt's blocks in order, `ceil(input_tokens / block_size)` ids; the last block may be partial.
    pub blocks: Vec<u64>,
}

impl TraceRow {
    /// The blocks that are whole: only those can be cached and shared.
    #[must_use]
    pub fn whole_blocks(&self, block_size: u32) -> &[u64] {
        let whole = (self.input_tokens / u64::from(block_size.max(1))) as usize;
        &self.blocks[..whole.min(self.blocks.len())]
    }
}

/// How a trace is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceOptions {
    /// Tokens per block, 1 to 1,048,576.
    pub block_size: u32,
    /// Skips and counts rows that break the rules, dates rows without a time like the row above and sorts by time.
    /// Else each of these is an error.
    pub lenient: bool,
    /// Stops after this many rows, at least 1; what follows isn't looked at.
    pub limit: Option<u64>,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self { block_size: 512, lenient: false, limit: None }
    }
}

/// A trace, at least one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The rows by time; ties keep the file's order. Times aren't shifted: a replay that starts at the first request
    /// subtracts [`origin_ns`](Self::origin_ns).
    pub rows: Vec<TraceRow>,
    /// Rows that were left out. 0 unless lenient.
    pub skipped: u64,
    /// Rows without a time stamp that took the time of the row above, or 0. 0 unless lenient.
    pub undated: u64,
    /// What was wrong with the first row that was left out.
    pub first_error: Option<String>,
}

impl Trace {
    /// The time of the first row, nanoseconds.
    #[must_use]
    pub fn origin_ns(&self) -> u64 {
        self.rows.first().map_or(0, |row| row.time_ns)
    }

    /// All ids of all rows, partial blocks too: what hit rates are relative to.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.rows.iter().map(|row| row.blocks.len() as u64).sum()
    }
}

/// Reads a trace file, line by line: memory is the rows' and one line's.
///
/// CRLF, blank lines and a UTF-8 byte order mark are accepted, fields of other names are ignored.
///
/// # Errors
/// [`CliError::BadInput`] for a file that can't be read or has no usable row, options out of range, and, unless
/// lenient, the first bad row with its line and field.
pub fn read_trace(path: &Path, options: &TraceOptions) -> Result<Trace, CliError> {
    let name = path.display();
    let file = File::open(path).map_err(|error| CliError::bad(&name, None, "", error))?;
    // Opening a directory succeeds and reading it fails with words that depend on the system.
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(CliError::bad(&name, None, "", "is a directory, not a trace file"));
    }
    read_rows(BufReader::with_capacity(1 << 16, file), &name, options)
}

/// Reads a trace from any reader; `name` stands for the file in errors.
///
/// # Errors
/// As [`read_trace`].
pub fn read_rows(mut reader: impl BufRead, name: &dyn Display, options: &TraceOptions) -> Result<Trace, CliError> {
    if !(1..=BLOCK_SIZE_MAX).contains(&options.block_size) {
        let what = format!("{} is out of range, 1 to {BLOCK_SIZE_MAX}", options.block_size);
        return Err(CliError::bad("--block-size", None, "", what));
    }
    if options.limit == Some(0) {
        return Err(CliError::bad("--limit", None, "", "0 is out of range, 1 or more"));
    }
    let mut trace = Trace { rows: Vec::new(), skipped: 0, undated: 0, first_error: None };
    let mut buffer = Vec::new();
    for line in 1.. {
        buffer.clear();
        let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut buffer);
        if read.map_err(|error| CliError::bad(name, Some(line), "", error))? == 0 {
            break;
        }
        if buffer.len() as u64 == LINE_BYTES_MAX && !buffer.ends_with(b"\n") {
            return Err(CliError::bad(name, Some(line), "", format!("a line has at most {LINE_BYTES_MAX} bytes")));
        }
        let mut text = buffer.as_slice();
        if line == 1 {
            text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        }
        let text = text.trim_ascii();
        if text.is_empty() {
            continue;
        }
        match parse_row(line, text, options, trace.rows.last()) {
            Ok((row, dated)) => {
                trace.undated += u64::from(!dated);
                trace.rows.push(row);
            }
            Err(error) if options.lenient => {
                trace.skipped += 1;
                trace.first_error.get_or_insert_with(|| error.at(name, line).to_string());
            }
            Err(error) => return Err(error.at(name, line)),
        }
        if options.limit == Some(trace.rows.len() as u64) {
            break;
        }
    }
    if trace.rows.is_empty() {
        let what = match &trace.first_error {
            Some(first) => format!("no usable row, {} skipped, the first: {first}", trace.skipped),
            None => "no rows".to_owned(),
        };
        return Err(CliError::bad(name, None, "", what));
    }
    trace.rows.sort_by_key(|row| row.time_ns);
    Ok(trace)
}

/// The fields as they stand: their types are checked one by one, so that an error names the field.
#[derive(Deserialize)]
struct RawRow {
    timestamp: Option<Value>,
    input_length: Option<Value>,
    output_length: Option<Value>,
    hash_ids: Option<Value>,
}

/// A row, and whether it had a time of its own.
fn parse_row(
    line: u64,
    text: &[u8],
    options: &TraceOptions,
    above: Option<&TraceRow>,
) -> Result<(TraceRow, bool), RowError> {
    let text = std::str::from_utf8(text).map_err(|error| RowError::NotUtf8 { column: error.valid_up_to() + 1 })?;
    // A list would be taken for a row with its fields in order.
    if !text.starts_with('{') {
        return Err(RowError::NotAnObject);
    }
    let raw: RawRow = serde_json::from_str(text).map_err(|error| {
        let what = error.to_string();
        let what = what.split(" at line 1 column").next().unwrap_or_default().to_owned();
        RowError::NotJson { what, column: error.column(), cut: error.is_eof() }
    })?;
    let above_ns = above.map_or(0, |row| row.time_ns);
    let (time_ns, dated) = match raw.timestamp {
        Some(value) => (time_ns(&value)?, true),
        None if options.lenient => (above_ns, false),
        None => return Err(RowError::Missing { field: "timestamp", allowed: TIME_ALLOWED }),
    };
    let input_tokens = whole_number("input_length", raw.input_length, 1, INPUT_ALLOWED)?;
    let output_tokens = whole_number("output_length", raw.output_length, 0, OUTPUT_ALLOWED)?;
    let blocks = ids(raw.hash_ids)?;
    let (ids, block_size) = (blocks.len() as u64, options.block_size);
    if ids != input_tokens.div_ceil(block_size.into()) {
        return Err(RowError::BlockCount { ids, input_tokens, block_size });
    }
    if time_ns < above_ns && !options.lenient {
        return Err(RowError::Backwards { time_ms: in_ms(time_ns), above_ms: in_ms(above_ns) });
    }
    Ok((TraceRow { line, time_ns, input_tokens, output_tokens, blocks }, dated))
}

fn out_of_range(field: impl Into<String>, value: &Value, allowed: &'static str) -> RowError {
    let mut got = value.to_string();
    if got.chars().count() > 40 {
        got = got.chars().take(40).chain("...".chars()).collect();
    }
    RowError::OutOfRange { field: field.into(), got, allowed }
}

fn time_ns(value: &Value) -> Result<u64, RowError> {
    let refused = || out_of_range("timestamp", value, TIME_ALLOWED);
    if let Some(ms) = value.as_u64() {
        return if ms <= TIME_MS_MAX { Ok(ms * 1_000_000) } else { Err(refused()) };
    }
    match value.as_f64() {
        Some(ms) if (0.0..=TIME_MS_MAX as f64).contains(&ms) => Ok((ms * 1e6).round() as u64),
        _ => Err(refused()),
    }
}

/// Nanoseconds as decimal milliseconds, as short as they go.
fn in_ms(ns: u64) -> String {
    let text = format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn whole_number(field: &'static str, value: Option<Value>, min: u64, allowed: &'static str) -> Result<u64, RowError> {
    let value = value.ok_or(RowError::Missing { field, allowed })?;
    value
        .as_u64()
        .filter(|number| (min..=TOKENS_MAX).contains(number))
        .ok_or_else(|| out_of_range(field, &value, allowed))
}

fn ids(value: Option<Value>) -> Result<Vec<u64>, RowError> {
    let value = value.ok_or(RowError::Missing { field: "hash_ids", allowed: IDS_ALLOWED })?;
    let Value::Array(list) = &value else { return Err(out_of_range("hash_ids", &value, IDS_ALLOWED)) };
    // An id beyond 64 bits comes out of the parser as a float and is refused: cut ids would merge prefixes.
    let id =
        |(at, id): (usize, &Value)| id.as_u64().ok_or_else(|| out_of_range(format!("hash_ids[{at}]"), id, ID_ALLOWED));
    list.iter().enumerate().map(id).collect()
}

/// Token ids for blocks of which only the id is known.
///
/// Blocks are numbered in the order of their first use, and the token at offset `j` of block `d` is `d ^ mix(j)` with a
/// bijection `mix`. So, whatever the block sizes: two blocks differ in the token at *every* offset, no matter how short
/// the block or the page is, and no token comes twice in one block. Chains therefore share exactly the tokens of the
/// blocks that they share.
#[derive(Debug, Clone, Default)]
pub struct BlockTokens {
    numbers: FxHashMap<u64, u32>,
    fresh: u32,
}

impl BlockTokens {
    /// No block yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many blocks were seen.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.numbers.len() as u64
    }

    /// Appends the tokens of `block`: its `block_size`, or the first `upto` where the prompt ends in it. O(tokens).
    pub fn extend_tokens(&mut self, block: u64, block_size: u32, upto: u64, out: &mut Vec<u32>) {
        let next = u32::try_from(self.numbers.len()).expect("2^32 numbered blocks take more memory than there is");
        let number = *self.numbers.entry(block).or_insert(next);
        let tokens = upto.min(block_size.into()) as u32;
        out.extend((0..tokens).map(|offset| number ^ mix32(offset)));
    }

    /// Appends `tokens` tokens of a block that nobody else has: what a request generated, which no trace knows. O(tokens).
    pub fn extend_fresh(&mut self, tokens: u32, out: &mut Vec<u32>) {
        // Counted down from the top: known blocks would have to number 2^32 to meet them.
        self.fresh += 1;
        let number = u32::MAX - self.fresh;
        out.extend((0..tokens).map(|offset| number ^ mix32(offset)));
    }

    /// The prompt of a row: `input_tokens` tokens.
    #[must_use]
    pub fn prompt(&mut self, row: &TraceRow, block_size: u32) -> Vec<u32> {
        let mut out = Vec::with_capacity(row.input_tokens as usize);
        for block in &row.blocks {
            self.extend_tokens(*block, block_size, row.input_tokens - out.len() as u64, &mut out);
        }
        out
    }
}

/// The finalizer of MurmurHash3 (A. Appleby, public domain), a bijection on 32 bits.
fn mix32(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LENIENT: TraceOptions = TraceOptions { block_size: 512, lenient: true, limit: None };

    fn read(text: impl AsRef<[u8]>, options: &TraceOptions) -> Result<Trace, CliError> {
        read_rows(text.as_ref(), &"t", options)
    }

    fn row(time: &str, length: &str, ids: &str) -> String {
        format!("{{\"timestamp\": {time}, \"input_length\": {length}, \"output_length\": 3, \"hash_ids\": {ids}}}\n")
    }

    /// The error of the second line, behind a good first one.
    fn refused(second: impl AsRef<[u8]>) -> String {
        let text = [row("0", "5", "[0]").as_bytes(), second.as_ref()].concat();
        let error = read(&text, &TraceOptions::default()).expect_err("the second row is bad");
        let lenient = read(&text, &LENIENT).expect("the first row is good");
        assert_eq!((lenient.rows.len(), lenient.skipped), (1, 1), "{error}");
        assert_eq!(lenient.first_error.as_deref(), Some(error.to_string().as_str()));
        assert_eq!(error.exit_status(), 2);
        error.to_string()
    }

    #[test]
    fn good_rows_are_read() {
        let text =
            format!("\u{feff}{}\r\n  \n{}", row("10", "513", "[0, 7]").trim_end(), row("46.926808", "512", "[3]"));
        let trace = read(text, &TraceOptions::default()).unwrap();
        assert_eq!((trace.skipped, trace.undated, trace.origin_ns(), trace.block_count()), (0, 0, 10_000_000, 3));
        assert_eq!(
            trace.rows[0],
            TraceRow { line: 1, time_ns: 10_000_000, input_tokens: 513, output_tokens: 3, blocks: vec![0, 7] }
        );
        assert_eq!((trace.rows[1].line, trace.rows[1].time_ns), (3, 46_926_808));
        assert_eq!(trace.rows[0].whole_blocks(512), [0]);
        assert_eq!(trace.rows[1].whole_blocks(512), [3]);
    }

    #[test]
    fn bad_rows_name_line_and_field() {
        let start = |text: String, start: &str| assert!(text.starts_with(start), "{text}\nis not\n{start}");
        start(
            refused(row("-1", "5", "[0]")),
            "t:2: timestamp: -1 is out of range, must be milliseconds, 0 to 10000000000000",
        );
        start(refused(row("1e30", "5", "[0]")), "t:2: timestamp: 1e+30 is out of range");
        start(refused(row("\"5\"", "5", "[0]")), "t:2: timestamp: \"5\" is out of range");
        start(refused(row("NaN", "5", "[0]")), "t:2: not a JSON row: expected value (column 15)");
        start(refused(row("1e999", "5", "[0]")), "t:2: not a JSON row: number out of range");
        start(
            refused(row("0", "0", "[]")),
            "t:2: input_length: 0 is out of range, must be a whole number, 1 to 2147483648",
        );
        start(refused(row("0", "1.5", "[1]")), "t:2: input_length: 1.5 is out of range");
        start(refused(row("0", "2147483649", "[1]")), "t:2: input_length: 2147483649 is out of range");
        start(refused(row("0", "5", "7")), "t:2: hash_ids: 7 is out of range, must be a list of whole numbers");
        start(refused(row("0", "5", "[]")), "t:2: hash_ids: 0 ids, but 5 tokens in blocks of 512 need 1");
        start(refused(row("0", "600", "[1, -2]")), "t:2: hash_ids[1]: -2 is out of range, must be a whole number");
        start(refused(row("0", "5", "[18446744073709551616]")), "t:2: hash_ids[0]: 1.8446744073709552e+19 is out");
        start(
            refused("{\"timestamp\": 0, \"input_length\": 5, \"hash_ids\": [1]}"),
            "t:2: output_length: missing, must be",
        );
        start(refused("{\"timestamp\": 0, \"timestamp\": 0}"), "t:2: not a JSON row: duplicate field `timestamp`");
        start(refused("[0, 5, 3, [1]]"), "t:2: a row must be a JSON object");
        start(refused(b"{\"timestamp\": \"\xff\"}"), "t:2: not UTF-8, from byte 16 of the line on");
        let cut = refused("{\"timestamp\": 0, \"input_length\": 5, \"hash_ids\": [1");
        start(cut.clone(), "t:2: not a JSON row: EOF while parsing a list (column 50)");
        assert!(cut.ends_with("is the line cut?"));
    }

    #[test]
    fn ids_have_64_bits() {
        let text =
            row("0", "512", "[1]") + &row("0", "512", "[4294967297]") + &row("0", "512", "[18446744073709551615]");
        let trace = read(text, &TraceOptions::default()).unwrap();
        let mut tokens = BlockTokens::new();
        let prompts: Vec<_> = trace.rows.iter().map(|row| tokens.prompt(row, 512)).collect();
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            assert!(prompts[a].iter().zip(&prompts[b]).all(|(a, b)| a != b), "no token is shared, so no page is");
        }
    }

    #[test]
    fn rows_without_a_time_keep_the_origin() {
        let text =
            "{\"input_length\": 5, \"output_length\": 0, \"hash_ids\": [1]}\n".to_owned() + &row("100", "5", "[1]");
        let error = read(&text, &TraceOptions::default()).unwrap_err().to_string();
        assert_eq!(error, "t:1: timestamp: missing, must be milliseconds, 0 to 10000000000000");
        let trace = read(&text, &LENIENT).unwrap();
        assert_eq!(trace.rows.iter().map(|row| row.time_ns).collect::<Vec<_>>(), [0, 100_000_000]);
        assert_eq!((trace.skipped, trace.undated), (0, 1));
    }

    #[test]
    fn time_runs_forward() {
        let text = row("10", "5", "[1]") + &row("10", "5", "[2]") + &row("5", "5", "[3]") + &row("10", "5", "[4]");
        let error = read(&text, &TraceOptions::default()).unwrap_err().to_string();
        assert_eq!(
            error,
            "t:3: timestamp: 5 is before the row above, 10; sort the file or pass --lenient, which sorts"
        );
        let trace = read(&text, &LENIENT).unwrap();
        assert_eq!(
            trace.rows.iter().map(|row| row.blocks[0]).collect::<Vec<_>>(),
            [3, 1, 2, 4],
            "ties keep their order"
        );
        assert_eq!(trace.skipped, 0);
    }

    #[test]
    fn the_limit_comes_before_what_follows() {
        let text = row("0", "5", "[1]") + &row("0", "5", "[2]") + "nonsense";
        let options = TraceOptions { limit: Some(2), ..Default::default() };
        assert_eq!(read(&text, &options).unwrap().rows.len(), 2);
        let error = read(&text, &TraceOptions { limit: Some(0), ..options }).unwrap_err().to_string();
        assert_eq!(error, "--limit: 0 is out of range, 1 or more");
        let error = read(&text, &TraceOptions { block_size: 0, ..options }).unwrap_err().to_string();
        assert_eq!(error, "--block-size: 0 is out of range, 1 to 1048576");
    }

    #[test]
    fn files_without_rows_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let says = |path: &Path, what: &str| {
            let error = read_trace(path, &TraceOptions::default()).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
            assert_eq!(error.exit_status(), 2);
        };
        says(&folder.path().join("missing.jsonl"), "No such file");
        says(folder.path(), "is a directory, not a trace file");
        let empty = folder.path().join("empty.jsonl");
        std::fs::write(&empty, "\n\r\n").unwrap();
        says(&empty, "empty.jsonl: no rows");
        let error = read("x\ny\n", &LENIENT).unwrap_err().to_string();
        assert!(error.starts_with("t: no usable row, 2 skipped, the first: t:1: a row must be"), "{error}");
    }

    #[test]
    fn a_partial_block_is_the_start_of_the_whole_one() {
        let mut tokens = BlockTokens::new();
        let mut prompt = |input_tokens, blocks| {
            tokens.prompt(&TraceRow { line: 1, time_ns: 0, input_tokens, output_tokens: 0, blocks }, 16)
        };
        let (short, long) = (prompt(20, vec![9, 4]), prompt(32, vec![9, 4]));
        assert_eq!((short.len(), long.len()), (20, 32));
        assert_eq!(long[..20], short[..]);
        assert_eq!(tokens.blocks(), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Two ids never agree at an offset, whatever the sizes; the tokens of one block are all different.
        #[test]
        fn blocks_never_agree(ids in prop::collection::btree_set(any::<u64>(), 2..8), sizes in prop::collection::vec(1u32..600, 8)) {
            let mut tokens = BlockTokens::new();
            let streams: Vec<Vec<u32>> = ids.iter().zip(&sizes).map(|(id, size)| {
                let mut out = Vec::new();
                tokens.extend_tokens(*id, *size, u64::MAX, &mut out);
                out
            }).collect();
            for (at, a) in streams.iter().enumerate() {
                let distinct: std::collections::BTreeSet<_> = a.iter().collect();
                prop_assert_eq!(distinct.len(), a.len());
                for b in &streams[..at] {
                    prop_assert!(a.iter().zip(b).all(|(a, b)| a != b));
                }
            }
        }

        /// Any bytes end in rows or in an error of one line, never in a panic.
        #[test]
        fn any_text_is_answered(text in "(\\{\"(timestamp|hash_ids|input_length)\": ?[-0-9.e\\[\\],]{0,9}[,}]?\n?){0,4}", lenient: bool) {
            if let Err(error) = read(text, &TraceOptions { lenient, ..Default::default() }) {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }
}
