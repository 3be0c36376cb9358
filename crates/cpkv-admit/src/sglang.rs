//! The incumbent's accounting: SGLang's prefill adder on one lane, as a small state machine.
//!
//! It exists to show what that rule decides next to ours on the same queue. The rule is that of SGLang 0.5.23, held to
//! recorded decisions: one lane, nothing mixed in from decode, prefixes neither shared nor locked before they are
//! asked, no host hits, `ignore_eos` off. Sums are held at the largest number, so absurd queues are refused.

use crate::OutputReserve;
use crate::shape::{ceil, floor};

/// What the pool holds when the batch is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SglangPool {
    /// Tokens per page, 1 or more; 0 is read as 1.
    pub page_size: u32,
    /// Free pages.
    pub free_pages: u64,
    /// Evictable pages. The prefixes of the candidates count until the candidates are admitted.
    pub evictable_pages: u64,
}

/// The limits of the rule; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SglangLimits {
    /// The input budget, tokens.
    pub max_input_tokens: Option<u64>,
    /// The chunk budget, tokens; `None` is no chunking.
    pub chunk_tokens: Option<u64>,
    /// Requests per batch.
    pub max_requests: Option<u32>,
}

/// A waiting request. Numbers are tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SglangCandidate {
    /// Length of the prompt.
    pub input_tokens: u64,
    /// What of it is on the device: whole pages, fewer tokens than the prompt.
    pub device_hit_tokens: u64,
    /// The most that it may generate.
    pub max_new_tokens: u64,
}

/// What the rule says about the *next* candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SglangVerdict {
    /// Ask it.
    Continue,
    /// Memory is short: don't.
    NoToken,
    /// Another limit is reached: don't.
    Other,
}

/// The answer to one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SglangAnswer {
    /// Whether to go on. A candidate can be admitted and still be the last.
    pub verdict: SglangVerdict,
    /// Whether this candidate is in the batch.
    pub admitted: bool,
    /// What is computed of it, tokens; 0 when not admitted.
    pub extend_tokens: u64,
    /// Whether it was cut.
    pub chunked: bool,
}

/// The adder: a batch being formed by SGLang's rule.
#[derive(Debug, Clone)]
pub struct SglangAdder {
    page_size: u32,
    /// Tokens free or evictable; a locked prefix leaves.
    room_tokens: u64,
    /// Tokens charged to the members.
    charged_tokens: u64,
    input_left: Option<u64>,
    chunk_left: Option<u64>,
    requests: u32,
    max_requests: Option<u32>,
}

impl SglangVerdict {
    /// The name in recordings: `CONTINUE`, `NO_TOKEN` or `OTHER`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SglangVerdict::Continue => "CONTINUE",
            SglangVerdict::NoToken => "NO_TOKEN",
            SglangVerdict::Other => "OTHER",
        }
    }
}

impl SglangAnswer {
    fn refused(verdict: SglangVerdict) -> Self {
        Self { verdict, admitted: false, extend_tokens: 0, chunked: false }
    }
}

impl SglangAdder {
    /// An empty batch over `pool`.
    #[must_use]
    pub fn new(pool: &SglangPool, limits: &SglangLimits) -> Self {
        let pages = pool.free_pages.saturating_add(pool.evictable_pages);
        Self {
            page_size: pool.page_size.max(1),
            room_tokens: pages.saturating_mul(u64::from(pool.page_size.max(1))),
            charged_tokens: 0,
            input_left: limits.max_input_tokens,
            chunk_left: limits.chunk_tokens,
            requests: 0,
            max_requests: limits.max_requests,
        }
    }

    /// Asks one candidate, and admits it if it fits. O(1). After a verdict other than
    /// [`Continue`](SglangVerdict::Continue) the incumbent asks nobody else in this step.
    pub fn ask(&mut self, candidate: &SglangCandidate) -> SglangAnswer {
        if self.max_requests.is_some_and(|max| self.requests >= max) {
            return SglangAnswer::refused(SglangVerdict::Other);
        }
        let extend = candidate.input_tokens.saturating_sub(candidate.device_hit_tokens);
        let reserve = OutputReserve::Sglang.tokens(candidate.max_new_tokens);
        let page = u64::from(self.page_size);
        // The incumbent asks twice, with the prefix still evictable and with it locked. Locking only takes room away,
        // so the second question decides both.
        let need = extend.saturating_add(reserve).saturating_add(page);
        let locked_room = self.room_tokens.saturating_sub(candidate.device_hit_tokens);
        if self.charged_tokens.saturating_add(need) >= locked_room {
            return SglangAnswer::refused(SglangVerdict::NoToken);
        }
        let rounded = ceil(extend, self.page_size);
        let (extend, chunked) = match self.chunk_left {
            None if self.requests > 0 && self.input_left.is_some_and(|left| rounded >= left) => {
                return SglangAnswer::refused(SglangVerdict::Other);
            }
            Some(left) if rounded > left => match floor(left, self.page_size) {
                0 => return SglangAnswer::refused(SglangVerdict::Other),
                cut => (cut, true),
            },
            _ => (extend, false),
        };
        self.admit(locked_room, extend, if chunked { 0 } else { reserve });
        SglangAnswer { verdict: self.verdict(), admitted: true, extend_tokens: extend, chunked }
    }

    fn admit(&mut self, room: u64, extend: u64, reserve: u64) {
        let rounded = ceil(extend, self.page_size);
        let charge = rounded.saturating_add(reserve).saturating_add(u64::from(self.page_size));
        self.room_tokens = room;
        self.charged_tokens = self.charged_tokens.saturating_add(charge);
        self.input_left = self.input_left.map(|left| left.saturating_sub(rounded));
        self.chunk_left = self.chunk_left.map(|left| left.saturating_sub(rounded));
        self.requests = self.requests.saturating_add(1);
    }

    fn verdict(&self) -> SglangVerdict {
        if self.charged_tokens >= self.room_tokens {
            SglangVerdict::NoToken
        } else if self.input_left == Some(0) || self.chunk_left == Some(0) {
            SglangVerdict::Other
        } else {
            SglangVerdict::Continue
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(input_tokens: u64, device_hit_tokens: u64, max_new_tokens: u64) -> SglangCandidate {
        SglangCandidate { input_tokens, device_hit_tokens, max_new_tokens }
    }

    #[test]
    fn exactly_enough_memory_is_not_enough() {
        let pool = SglangPool { page_size: 4, free_pages: 4, evictable_pages: 0 };
        // 16 tokens of room: extend 8, output 4, one page for rounding.
        let refused = SglangAdder::new(&pool, &SglangLimits::default()).ask(&candidate(8, 0, 4));
        assert_eq!(refused, SglangAnswer::refused(SglangVerdict::NoToken));
        let admitted = SglangAdder::new(&pool, &SglangLimits::default()).ask(&candidate(8, 0, 3));
        assert!(admitted.admitted);
    }

    #[test]
    fn a_locked_prefix_is_no_room() {
        // FAULTS E3: the prefix of 8 is all that could be evicted.
        let pool = SglangPool { page_size: 1, free_pages: 2, evictable_pages: 8 };
        let answer = SglangAdder::new(&pool, &SglangLimits::default()).ask(&candidate(12, 8, 0));
        assert_eq!(answer, SglangAnswer::refused(SglangVerdict::NoToken));
    }

    #[test]
    fn a_cut_takes_whole_pages_and_no_output() {
        let pool = SglangPool { page_size: 4, free_pages: 100, evictable_pages: 0 };
        let limits = SglangLimits { chunk_tokens: Some(11), ..SglangLimits::default() };
        let mut adder = SglangAdder::new(&pool, &limits);
        let answer = adder.ask(&candidate(11, 0, 50));
        let expect = SglangAnswer { verdict: SglangVerdict::Continue, admitted: true, extend_tokens: 8, chunked: true };
        assert_eq!(answer, expect);
        assert_eq!(adder.charged_tokens, 8 + 4);
        assert_eq!(adder.ask(&candidate(11, 0, 50)), SglangAnswer::refused(SglangVerdict::Other), "3 left: no page");
    }

    #[test]
    fn the_first_request_passes_the_input_budget() {
        let pool = SglangPool { page_size: 1, free_pages: 100, evictable_pages: 0 };
        let limits = SglangLimits { max_input_tokens: Some(12), max_requests: Some(2), ..SglangLimits::default() };
        let mut adder = SglangAdder::new(&pool, &limits);
        assert_eq!(adder.ask(&candidate(40, 0, 0)).verdict, SglangVerdict::Other, "in, and the budget is used up");
        let mut adder = SglangAdder::new(&pool, &limits);
        assert_eq!(adder.ask(&candidate(4, 0, 0)).verdict, SglangVerdict::Continue);
        assert!(!adder.clone().ask(&candidate(8, 0, 0)).admitted, "8 >= 8 left");
        assert_eq!(adder.ask(&candidate(7, 0, 0)).verdict, SglangVerdict::Continue);
        assert_eq!(adder.ask(&candidate(1, 0, 0)), SglangAnswer::refused(SglangVerdict::Other), "two requests");
    }

    #[test]
    fn absurd_numbers_are_refused_without_overflow() {
        let pool = SglangPool { page_size: u32::MAX, free_pages: u64::MAX, evictable_pages: u64::MAX };
        let answer = SglangAdder::new(&pool, &SglangLimits::default()).ask(&candidate(u64::MAX, 0, u64::MAX));
        assert_eq!(answer.verdict, SglangVerdict::NoToken);
    }
}
