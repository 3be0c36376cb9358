//! How long a forward pass takes: a quadratic fitted to published measurements.

/// The prefill time of `n` new tokens behind a cached prefix: `t = a + b*n + c*n*(n + 2*prefix)` milliseconds.
///
/// `a` is the fixed cost of a pass, `b` the work per token and `c` attention: each new token looks at the prefix and at
/// the new tokens before it, `n*prefix + n*n/2` pairs in all.
///
/// The default is fitted, least squares of the relative error, to the published prefill times of GLM-5.2 FP8 on eight
/// H20 without a prefix: 399.87 ms at 4K tokens, 2,891.98 at 32K, 5,869.68 at 64K, 12,331.04 at 128K and 27,087.90 at
/// 256K. It is off by 0.2 % at most at these points. Times with a prefix are an extrapolation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ComputeModel {
    /// The fixed cost of a forward pass, milliseconds.
    pub a_ms: f64,
    /// The cost of a token, milliseconds.
    pub b_ms_per_token: f64,
    /// The cost of attention, milliseconds per squared token.
    pub c_ms_per_token2: f64,
}

impl Default for ComputeModel {
    fn default() -> Self {
        Self { a_ms: 54.084, b_ms_per_token: 0.084_130, c_ms_per_token2: 7.244_4e-8 }
    }
}

impl ComputeModel {
    /// The modelled time of a pass that computes `new` tokens behind `prefix` cached ones, milliseconds.
    #[must_use]
    pub fn prefill_ms(&self, new: u64, prefix: u64) -> f64 {
        let (new, prefix) = (new as f64, prefix as f64);
        self.a_ms + self.b_ms_per_token * new + self.c_ms_per_token2 * new * (new + 2.0 * prefix)
    }

    /// The same in nanoseconds, rounded; 0 where the model gives less.
    #[must_use]
    pub fn prefill_ns(&self, new: u64, prefix: u64) -> u64 {
        // A cast from a float keeps to the range of the integer.
        (self.prefill_ms(new, prefix) * 1e6).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens and milliseconds as published.
    const MEASURED: [(u64, f64); 5] =
        [(4096, 399.87), (32_768, 2891.98), (65_536, 5869.68), (131_072, 12_331.04), (262_144, 27_087.90)];

    #[test]
    fn the_default_meets_the_published_times_within_two_per_mille() {
        for (tokens, ms) in MEASURED {
            let error = ComputeModel::default().prefill_ms(tokens, 0) / ms - 1.0;
            assert!(error.abs() < 0.002, "{tokens} tokens: off by {:.3} %", error * 100.0);
        }
    }

    #[test]
    fn a_prompt_in_chunks_costs_its_whole_plus_the_fixed_cost_per_chunk() {
        // n(n + 2p) adds up: chunks of 2,048 tokens see the same pairs as one pass of 8,192.
        let model = ComputeModel::default();
        let chunks: f64 = (0..4).map(|chunk| model.prefill_ms(2048, chunk * 2048)).sum();
        assert!((chunks - model.prefill_ms(8192, 0) - 3.0 * model.a_ms).abs() < 1e-6);
    }

    #[test]
    fn nanoseconds_are_rounded() {
        let model = ComputeModel { a_ms: 1.0, b_ms_per_token: 0.5, c_ms_per_token2: 0.25 };
        assert_eq!(model.prefill_ns(2, 3), 1_000_000 + 1_000_000 + 4_000_000);
        assert_eq!(ComputeModel { a_ms: -5.0, ..model }.prefill_ns(0, 0), 0);
    }
}
