//! The batch being formed: the next candidate fits it, or a reason why not.

use std::fmt;

use cpkv_core::{Owner, Tier};

use crate::{Candidate, Limit, Limits, Shape};

/// Why the next candidate isn't admitted. It ends the batch of this step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A lane can't hold it, now. Made by the caller, who knows the lanes.
    NoToken {
        /// The tier of the pool.
        tier: Tier,
        /// The lane that is short; the first one.
        lane: Owner,
        /// Pages needed on that lane.
        need: u32,
        /// Pages that the lane could give: free and evictable.
        have: u64,
    },
    /// A limit of the batch.
    Other {
        /// Which one.
        limit: Limit,
        /// What the batch would come to with the candidate, uncut, in the unit of the limit.
        value: u64,
        /// The limit's value.
        bound: u64,
    },
}

/// A prefill batch being formed for one step. O(1) and free of allocation in every call.
///
/// Sums are held at `u64::MAX`, so a limit of that is no limit.
///
/// An empty batch takes every shape (contract C12): a request larger than a limit runs alone, only cut to the chunk
/// budget. So no batch of more than one member exceeds a limit.
///
/// Limits are used as they are; with limits that [`Limits::validate`] refuses nothing breaks, but a chunk budget below
/// a page admits no long prompt, ever.
#[derive(Debug, Clone)]
pub struct Batch {
    limits: Limits,
    requests: u32,
    extend_tokens: u64,
    cached_tokens: u64,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self { limits: *limits, requests: 0, extend_tokens: 0, cached_tokens: 0 }
    }

    /// Whether nothing is admitted yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// Members so far.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// Extend tokens of all members.
    #[must_use]
    pub fn extend_tokens(&self) -> u64 {
        self.extend_tokens
    }

    /// Cached tokens of all members.
    #[must_use]
    pub fn cached_tokens(&self) -> u64 {
        self.cached_tokens
    }

    /// What is left of the chunk budget of this step, tokens; `None` without one.
    #[must_use]
    pub fn chunk_tokens_left(&self) -> Option<u64> {
        self.limits.chunk_tokens.map(|chunk| chunk.saturating_sub(self.extend_tokens))
    }

    /// The piece of `candidate` that this step may compute: all that isn't cached, cut to `floor_p` of what is left of
    /// the chunk budget where it is longer than that.
    ///
    /// # Errors
    /// [`Stop::Other`] with `batch_requests` when the batch is full, else with `chunk_tokens` when less than a page is
    /// left of the budget.
    pub fn shape(&self, candidate: &Candidate) -> Result<Shape, Stop> {
        self.within(Limit::BatchRequests, u64::from(self.requests), 1)?;
        candidate.cut(self.chunk_tokens_left()).ok_or_else(|| Stop::Other {
            limit: Limit::ChunkTokens,
            value: self.extend_tokens.saturating_add(candidate.uncut_extend()),
            bound: self.limits.chunk_tokens.unwrap_or(u64::MAX),
        })
    }

    /// Whether `shape` fits beside what is admitted. Everything fits an empty batch. Asked after the lanes, and before
    /// any load-back.
    ///
    /// # Errors
    /// [`Stop::Other`] with the first limit that the sum would exceed, in the order input, extend, cached, buffer. The
    /// extend cap is the smaller of `extend_tokens` and the chunk budget, and the name is the smaller one's: that
    /// matters for a shape that was cut before a later commit took from the budget.
    pub fn check(&self, shape: &Shape) -> Result<(), Stop> {
        self.within(Limit::InputTokens, self.extend_tokens, shape.extend_tokens)?;
        let extend = match (self.limits.extend_tokens, self.limits.chunk_tokens) {
            (cap, Some(chunk)) if cap.is_none_or(|cap| chunk < cap) => Limit::ChunkTokens,
            _ => Limit::ExtendTokens,
        };
        self.within(extend, self.extend_tokens, shape.extend_tokens)?;
        self.within(Limit::CachedTokens, self.cached_tokens, shape.cached_tokens)
        // Buffer bytes stand here, last, once they are estimated; until then `Limits::validate` refuses the limit.
    }

    /// Takes `shape`, which this batch made and checked, into the batch.
    pub fn commit(&mut self, shape: &Shape) {
        self.requests = self.requests.saturating_add(1);
        self.extend_tokens = self.extend_tokens.saturating_add(shape.extend_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(shape.cached_tokens);
    }

    /// What the smallest candidate, one token that isn't cached, would be told: an outcome about the next candidate
    /// when nobody is waiting.
    ///
    /// # Errors
    /// The [`Stop`] that every next candidate would meet, lanes aside.
    pub fn check_next(&self, page_size: u32) -> Result<(), Stop> {
        self.check(&self.shape(&Candidate { input_tokens: 1, cached_tokens: 0, page_size })?)
    }

    /// Whether the sums are those of a batch that was formed by these rules.
    ///
    /// # Errors
    /// The sum that is off: above its limit with more than one member, or above 0 with none.
    pub fn self_check(&self) -> Result<(), String> {
        for (limit, sum) in [
            (Limit::BatchRequests, u64::from(self.requests)),
            (Limit::ChunkTokens, self.extend_tokens),
            (Limit::InputTokens, self.extend_tokens),
            (Limit::ExtendTokens, self.extend_tokens),
            (Limit::CachedTokens, self.cached_tokens),
        ] {
            let most = match self.requests {
                0 => 0,
                1 => continue,
                _ => self.limits.get(limit).unwrap_or(u64::MAX),
            };
            if sum > most {
                return Err(format!("{limit}: {sum} in a batch of {}, at most {most}", self.requests));
            }
        }
        Ok(())
    }

    /// Whether `sum` grown by `more` keeps `limit`; everything does in an empty batch.
    fn within(&self, limit: Limit, sum: u64, more: u64) -> Result<(), Stop> {
        let value = sum.saturating_add(more);
        match self.limits.get(limit) {
            Some(bound) if value > bound && !self.is_empty() => Err(Stop::Other { limit, value, bound }),
            _ => Ok(()),
        }
    }
}

impl Stop {
    /// The outcome's outer name, as scheduler users know it: `no_token` or `other`. (A batch that no stop ended is
    /// `continue`.)
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        match self {
            Stop::NoToken { .. } => "no_token",
            Stop::Other { .. } => "other",
        }
    }

    /// The reason in one word: `lane:K` or the name of the limit.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Stop::NoToken { lane, .. } => format!("lane:{lane}"),
            Stop::Other { limit, .. } => limit.name().to_owned(),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::NoToken { tier, lane, need, have } => {
                write!(f, "no_token: lane {lane} of the {tier} tier needs {need} pages and can give {have}")
            }
            Stop::Other { limit, value, bound } => write!(f, "other: {limit} would be {value}, the limit is {bound}"),
        }
    }
}

#[cfg(test)]
mod tests;
