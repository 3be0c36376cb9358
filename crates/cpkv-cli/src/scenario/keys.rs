//! Keys of scenarios: pages of named streams.

use crate::error::CliError;
use rustc_hash::FxHashMap;

/// The most tokens of one key: what a typing error may ask for, and no machine's memory.
const KEY_TOKENS_MAX: u64 = 1 << 26;

/// Gives every page of every stream tokens that depend on the stream's name and the page's number alone.
///
/// Pages are numbered in the order in which they are first seen, so that two different pages differ in every token,
/// whatever the page size: no hash can make them equal. Looked up by key, never iterated.
#[derive(Debug, Default)]
pub struct Streams {
    names: FxHashMap<String, u32>,
    pages: FxHashMap<(u32, u32), u32>,
}

impl Streams {
    /// The tokens of `["A:0..3", "B:0..2"]`, with `tail` further tokens of the next page.
    ///
    /// # Errors
    /// What is wrong with which part, and what is allowed.
    pub fn tokens(&mut self, parts: &[String], tail: u32, page_size: u32) -> Result<Vec<u32>, String> {
        let mut tokens = Vec::new();
        let mut next = None;
        for part in parts {
            let (name, start, end) = parse(part)?;
            let total = tokens.len() as u64 + u64::from(end - start) * u64::from(page_size);
            if total > KEY_TOKENS_MAX {
                return Err(format!("{part:?} makes a key of {total} tokens, at most {KEY_TOKENS_MAX} are allowed"));
            }
            for page in start..end {
                self.page(name, page, page_size, &mut tokens);
            }
            next = Some((name, end));
        }
        if tail >= page_size {
            return Err(format!("tail: {tail} is out of range, 0 to {} (fewer than a page)", page_size - 1));
        }
        if tail > 0 {
            let (name, page) = next.ok_or("tail: the key has no stream whose next page it could begin")?;
            self.page(name, page, tail, &mut tokens);
        }
        Ok(tokens)
    }

    fn page(&mut self, name: &str, page: u32, tokens: u32, into: &mut Vec<u32>) {
        let streams = self.names.len() as u32;
        let stream = match self.names.get(name) {
            Some(stream) => *stream,
            None => *self.names.entry(name.to_owned()).or_insert(streams),
        };
        let pages = self.pages.len() as u32;
        let id = *self.pages.entry((stream, page)).or_insert(pages);
        // The offset's constant keeps the tokens of one page apart without making two pages meet.
        into.extend((0..tokens).map(|offset| id ^ offset.wrapping_mul(0x9E37_79B9)));
    }
}

fn parse(part: &str) -> Result<(&str, u32, u32), String> {
    let wrong = || format!("{part:?} is no run of pages, write \"STREAM:FIRST..END\", e.g. \"A:0..3\"");
    let (name, range) = part.rsplit_once(':').ok_or_else(wrong)?;
    let (start, end) = range.split_once("..").ok_or_else(wrong)?;
    let (start, end) = (start.parse().map_err(|_| wrong())?, end.parse().map_err(|_| wrong())?);
    if name.is_empty() || start > end {
        return Err(wrong());
    }
    Ok((name, start, end))
}

/// A malformed key, as bad input of a line.
pub(super) fn bad_key(file: &str, line: u64, what: String) -> CliError {
    CliError::bad(file, Some(line), "key", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_shared_by_name_and_number_alone() {
        let mut streams = Streams::default();
        let parts = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
        let long = streams.tokens(&parts(&["A:0..8"]), 0, 4).unwrap();
        let forked = streams.tokens(&parts(&["A:0..3", "B:0..2"]), 0, 4).unwrap();
        assert_eq!(long[..12], forked[..12]);
        assert!(long[12..20].iter().zip(&forked[12..]).all(|(a, b)| a != b), "different pages differ in every token");
        let tail = streams.tokens(&parts(&["A:0..3"]), 2, 4).unwrap();
        assert_eq!(tail, long[..14]);
        assert_eq!(streams.tokens(&parts(&["A:0..0"]), 3, 4).unwrap(), long[..3]);
    }

    #[test]
    fn pages_of_one_token_differ_too() {
        let mut streams = Streams::default();
        let tokens = streams.tokens(&["A:0..70000".to_owned()], 0, 1).unwrap();
        let distinct: std::collections::BTreeSet<u32> = tokens.iter().copied().collect();
        assert_eq!(distinct.len(), tokens.len());
    }

    #[test]
    fn what_is_no_key_is_said() {
        let mut streams = Streams::default();
        for part in ["A", "A:3", "A:3..1", ":0..1", "A:-1..2", "A:0..4294967296", "A:x..2"] {
            assert!(streams.tokens(&[part.to_owned()], 0, 16).unwrap_err().contains("no run of pages"), "{part}");
        }
        assert!(streams.tokens(&["A:0..4294967295".to_owned()], 0, 16).unwrap_err().contains("at most"));
        assert!(streams.tokens(&["A:0..1".to_owned()], 16, 16).unwrap_err().contains("0 to 15"));
        assert!(streams.tokens(&[], 3, 16).is_err());
    }
}
