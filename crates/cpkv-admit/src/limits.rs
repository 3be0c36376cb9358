//! The limits of one prefill batch: what each sums, which one caps which, and what values make sense.

use std::fmt;

/// The limits of one prefill batch; `None` is no limit. A batch fits a limit when its sum is at most the limit.
///
/// | field | sums over the batch |
/// |---|---|
/// | `batch_requests` | members |
/// | `input_tokens` | extend tokens of the shapes, as they are: not rounded to pages, without cached tokens |
/// | `chunk_tokens` | the same; it doesn't refuse but cuts, until less than a page is left of it |
/// | `extend_tokens` | the same |
/// | `cached_tokens` | cached tokens of the shapes: device hit and host hit |
/// | `buffer_bytes` | the estimate of temporary buffers for the batch as a whole |
///
/// `input_tokens`, `chunk_tokens` and `extend_tokens` bound one and the same sum, so the smallest is what a batch of
/// more than one member gets, see [`Limits::effective`]. They differ for a request that is alone: only the chunk budget
/// bounds what it computes in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// The most requests in a batch.
    pub batch_requests: Option<u32>,
    /// The input budget, tokens.
    pub input_tokens: Option<u64>,
    /// The most tokens computed in one step: longer extends are cut to whole pages. At least a page.
    pub chunk_tokens: Option<u64>,
    /// The most extend tokens, tokens.
    pub extend_tokens: Option<u64>,
    /// The most cached tokens, tokens.
    pub cached_tokens: Option<u64>,
    /// The most temporary buffer, bytes. Refused by [`Limits::validate`] until there is an estimator.
    pub buffer_bytes: Option<u64>,
}

/// The name of a limit, in the order in which a candidate meets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// Requests per batch.
    BatchRequests,
    /// The chunk budget of the step.
    ChunkTokens,
    /// The input budget.
    InputTokens,
    /// Extend tokens.
    ExtendTokens,
    /// Cached tokens.
    CachedTokens,
    /// Temporary buffer bytes.
    BufferBytes,
}

/// Why limits can't be used: change the field named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// A value that would stop every batch for ever.
    #[error("{limit}: {value} is out of range, {min} to {max}")]
    OutOfRange {
        /// The limit that is off.
        limit: Limit,
        /// Its value.
        value: u64,
        /// The least allowed.
        min: u64,
        /// The most allowed.
        max: u64,
    },
    /// A limit on buffer bytes, which nothing estimates yet: kept silently, it would promise what isn't checked.
    #[error("{}: {value} can't be kept, temporary buffers aren't estimated", Limit::BufferBytes)]
    NotEstimated {
        /// The limit asked for, bytes.
        value: u64,
    },
}

/// One limit, as set and as it binds a batch of more than one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectiveLimit {
    /// Which one.
    pub limit: Limit,
    /// The value set.
    pub set: Option<u64>,
    /// The value that binds: the smaller of what is set and of what caps it.
    pub effective: Option<u64>,
    /// The limit that caps it, where that is smaller than what is set.
    pub capped_by: Option<Limit>,
}

/// All limits as they bind, for the report at start: one line each, so that a user who raises one limit sees which
/// other one still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectiveLimits([EffectiveLimit; 6]);

impl Limit {
    /// All limits, in the order in which a candidate meets them.
    pub const ALL: [Limit; 6] = [
        Limit::BatchRequests,
        Limit::ChunkTokens,
        Limit::InputTokens,
        Limit::ExtendTokens,
        Limit::CachedTokens,
        Limit::BufferBytes,
    ];

    /// The name in reports and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Limit::BatchRequests => "batch_requests",
            Limit::InputTokens => "input_tokens",
            Limit::ChunkTokens => "chunk_tokens",
            Limit::ExtendTokens => "extend_tokens",
            Limit::CachedTokens => "cached_tokens",
            Limit::BufferBytes => "buffer_bytes",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Limits {
    /// The value set for `limit`.
    #[must_use]
    pub fn get(&self, limit: Limit) -> Option<u64> {
        match limit {
            Limit::BatchRequests => self.batch_requests.map(u64::from),
            Limit::InputTokens => self.input_tokens,
            Limit::ChunkTokens => self.chunk_tokens,
            Limit::ExtendTokens => self.extend_tokens,
            Limit::CachedTokens => self.cached_tokens,
            Limit::BufferBytes => self.buffer_bytes,
        }
    }

    /// Checks the values for pages of `page_size` tokens. To be called once, at start.
    ///
    /// # Errors
    /// [`LimitsError::OutOfRange`] for a limit of 0, or a chunk budget below one page: it would cut every long prompt
    /// to nothing. [`LimitsError::NotEstimated`] for a limit on buffer bytes.
    pub fn validate(&self, page_size: u32) -> Result<(), LimitsError> {
        for limit in Limit::ALL {
            let min = if limit == Limit::ChunkTokens { u64::from(page_size.max(1)) } else { 1 };
            let max = if limit == Limit::BatchRequests { u64::from(u32::MAX) } else { u64::MAX };
            if let Some(value) = self.get(limit).filter(|value| *value < min) {
                return Err(LimitsError::OutOfRange { limit, value, min, max });
            }
        }
        self.buffer_bytes.map_or(Ok(()), |value| Err(LimitsError::NotEstimated { value }))
    }

    /// What each limit comes to for a batch of more than one member.
    ///
    /// The input budget, the extend cap and the chunk budget bound the same sum, so the first two come to the smallest
    /// of the three. The chunk budget isn't capped: a request alone is cut to it whatever the others say.
    #[must_use]
    pub fn effective(&self) -> EffectiveLimits {
        EffectiveLimits(Limit::ALL.map(|limit| {
            let set = self.get(limit);
            let (effective, binding) = match limit {
                Limit::InputTokens | Limit::ExtendTokens => self.least_token_limit(limit),
                _ => (set, limit),
            };
            EffectiveLimit { limit, set, effective, capped_by: (binding != limit).then_some(binding) }
        }))
    }

    /// The least of the limits on extend tokens, with its name; `first` of equals.
    fn least_token_limit(&self, first: Limit) -> (Option<u64>, Limit) {
        let mut least = (self.get(first), first);
        for limit in [Limit::ChunkTokens, Limit::InputTokens, Limit::ExtendTokens] {
            if let Some(value) = self.get(limit)
                && least.0.is_none_or(|least| value < least)
            {
                least = (Some(value), limit);
            }
        }
        least
    }
}

impl EffectiveLimits {
    /// One limit.
    #[must_use]
    pub fn get(&self, limit: Limit) -> EffectiveLimit {
        self.0[limit as usize]
    }

    /// All of them, in the order in which a candidate meets them.
    pub fn iter(&self) -> impl Iterator<Item = &EffectiveLimit> {
        self.0.iter()
    }
}

impl fmt::Display for EffectiveLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.effective {
            None => write!(f, "{}: none", self.limit)?,
            Some(value) => write!(f, "{}: {value}", self.limit)?,
        }
        match (self.set, self.capped_by) {
            (_, None) => Ok(()),
            (None, Some(by)) => write!(f, " (not set, capped by {by})"),
            (Some(set), Some(by)) => write!(f, " (set to {set}, capped by {by})"),
        }
    }
}

impl fmt::Display for EffectiveLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, limit) in self.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            limit.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_binds_is_printed() {
        // FAULTS E11: two token limits, 16 and 8 pages; raising the larger one changes nothing, and the report says so.
        let limits =
            Limits { input_tokens: Some(256), chunk_tokens: Some(128), cached_tokens: Some(64), ..Limits::default() };
        let text = "batch_requests: none\n\
                    chunk_tokens: 128\n\
                    input_tokens: 128 (set to 256, capped by chunk_tokens)\n\
                    extend_tokens: 128 (not set, capped by chunk_tokens)\n\
                    cached_tokens: 64\n\
                    buffer_bytes: none";
        assert_eq!(limits.effective().to_string(), text);
    }

    #[test]
    fn the_extend_cap_never_lifts_the_input_budget() {
        let limits = Limits { input_tokens: Some(16), extend_tokens: Some(64), ..Limits::default() };
        let effective = limits.effective();
        assert_eq!(effective.get(Limit::InputTokens).effective, Some(16));
        assert_eq!(effective.get(Limit::ExtendTokens).effective, Some(16));
        assert_eq!(effective.get(Limit::ExtendTokens).capped_by, Some(Limit::InputTokens));
        assert_eq!(effective.get(Limit::ChunkTokens).effective, None);
        let equal = Limits { input_tokens: Some(16), extend_tokens: Some(16), ..Limits::default() };
        assert!(equal.effective().iter().all(|limit| limit.capped_by.is_none()));
    }

    #[test]
    fn names_stand_in_order() {
        for (i, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, i);
            assert_eq!(Limits::default().effective().get(limit).limit, limit);
        }
    }

    #[test]
    fn values_that_admit_nothing_are_refused() {
        let none = Limits::default();
        assert_eq!(none.validate(16), Ok(()));
        for (limits, text) in [
            (Limits { batch_requests: Some(0), ..none }, "batch_requests: 0 is out of range, 1 to 4294967295"),
            (Limits { input_tokens: Some(0), ..none }, "input_tokens: 0 is out of range, 1 to 18446744073709551615"),
            (Limits { chunk_tokens: Some(15), ..none }, "chunk_tokens: 15 is out of range, 16 to 18446744073709551615"),
            (Limits { extend_tokens: Some(0), ..none }, "extend_tokens: 0 is out of range, 1 to 18446744073709551615"),
            (Limits { cached_tokens: Some(0), ..none }, "cached_tokens: 0 is out of range, 1 to 18446744073709551615"),
            (Limits { buffer_bytes: Some(0), ..none }, "buffer_bytes: 0 is out of range, 1 to 18446744073709551615"),
            (
                Limits { buffer_bytes: Some(9), ..none },
                "buffer_bytes: 9 can't be kept, temporary buffers aren't estimated",
            ),
        ] {
            assert_eq!(limits.validate(16).unwrap_err().to_string(), text);
        }
        assert_eq!(Limits { chunk_tokens: Some(16), ..none }.validate(16), Ok(()));
    }
}
