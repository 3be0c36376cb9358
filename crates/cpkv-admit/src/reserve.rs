//! Room for output: how much a candidate reserves for what it will generate.

/// The clip that SGLang puts on the output length of one request when it estimates memory, tokens.
pub const SGLANG_MAX_NEW_CLIP: u64 = 4096;

/// The rule for the output reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OutputReserve {
    /// Nothing: a node that only prefills.
    #[default]
    None,
    /// All of `max_new`.
    Full,
    /// As SGLang does: clipped, weighted for running requests by the new-token ratio, and one page per lane for
    /// rounding.
    Sglang,
}

/// SGLang's new-token ratio: the part of its clipped output that a running request is expected to use. In millionths,
/// so that equal configurations decide equally everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NewTokenRatio(u32);

impl NewTokenRatio {
    /// Everything: no request is expected to end early.
    pub const ONE: Self = Self(1_000_000);

    /// A ratio in millionths, held at 1.
    #[must_use]
    pub fn from_millionths(millionths: u32) -> Self {
        Self(millionths.min(Self::ONE.0))
    }
}

impl OutputReserve {
    /// Tokens that a candidate reserves when it may generate `max_new` tokens.
    #[must_use]
    pub fn tokens(self, max_new: u64) -> u64 {
        match self {
            OutputReserve::None => 0,
            OutputReserve::Full => max_new,
            OutputReserve::Sglang => max_new.min(SGLANG_MAX_NEW_CLIP),
        }
    }

    /// Tokens that stay reserved for a running request which has `generated` of its `max_new` tokens; rounded up.
    #[must_use]
    pub fn running_tokens(self, max_new: u64, generated: u64, ratio: NewTokenRatio) -> u64 {
        let left = self.tokens(max_new.saturating_sub(generated));
        match self {
            OutputReserve::None | OutputReserve::Full => left,
            // At most 4096 * 1e6, so this can't overflow.
            OutputReserve::Sglang => (left * u64::from(ratio.0)).div_ceil(u64::from(NewTokenRatio::ONE.0)),
        }
    }

    /// Pages that a request reserves for rounding: one per lane under the `sglang` rule, where the last page of a
    /// striped pool may fall on any lane.
    #[must_use]
    pub fn rounding_pages_per_lane(self) -> u32 {
        u32::from(self == OutputReserve::Sglang)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_differ_in_what_they_keep() {
        let max_new = 5000;
        assert_eq!(OutputReserve::None.tokens(max_new), 0);
        assert_eq!(OutputReserve::Full.tokens(max_new), 5000);
        assert_eq!(OutputReserve::Sglang.tokens(max_new), 4096);
        assert_eq!(OutputReserve::Sglang.tokens(16), 16);
        assert_eq!([OutputReserve::None, OutputReserve::Full].map(OutputReserve::rounding_pages_per_lane), [0, 0]);
        assert_eq!(OutputReserve::Sglang.rounding_pages_per_lane(), 1);
    }

    #[test]
    fn running_requests_are_weighted_by_the_ratio() {
        let ratio = NewTokenRatio::from_millionths(700_000);
        assert_eq!(OutputReserve::Sglang.running_tokens(110, 100, ratio), 7);
        assert_eq!(OutputReserve::Sglang.running_tokens(101, 100, ratio), 1, "a part of a token takes a token");
        assert_eq!(OutputReserve::Sglang.running_tokens(u64::MAX, 0, NewTokenRatio::from_millionths(u32::MAX)), 4096);
        assert_eq!(OutputReserve::Sglang.running_tokens(5, 9, ratio), 0);
        assert_eq!(OutputReserve::Full.running_tokens(110, 100, ratio), 10);
        assert_eq!(OutputReserve::None.running_tokens(110, 100, ratio), 0);
    }
}
