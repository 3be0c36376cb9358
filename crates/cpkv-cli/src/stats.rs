//! Figures of a run: distributions of what was recorded, and numbers as people read them.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Significant decimal digits of a recorded value: percentiles are at most 0.1 % above the value recorded.
const DIGITS: u8 = 3;

/// What is told of a distribution. All zero where nothing was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Summary {
    /// Values recorded.
    pub count: u64,
    /// The median, nearest rank: the smallest value that at least half of the values don't exceed.
    pub p50: u64,
    /// The 90th percentile, nearest rank.
    pub p90: u64,
    /// The 99th percentile, nearest rank.
    pub p99: u64,
    /// The largest value, exact.
    pub max: u64,
    /// The mean, exact up to rounding.
    pub mean: f64,
}

/// Records values of one kind, e.g. nanoseconds; keeps counts by size and not the values.
///
/// At most a few hundred KiB, whatever is recorded.
#[derive(Debug, Clone)]
pub struct Recorder {
    histogram: Histogram<u64>,
    sum: u128,
    max: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        let histogram = Histogram::new(DIGITS).expect("3 digits are in the histogram's range");
        Self { histogram, sum: 0, max: 0 }
    }
}

impl Recorder {
    /// Nothing recorded.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records one value. O(1) but for the growth to a new largest value.
    pub fn record(&mut self, value: u64) {
        self.histogram.record(value).expect("a histogram that resizes takes every value");
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Values recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The sum of the values.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The distribution so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let count = self.count();
        if count == 0 {
            return Summary::default();
        }
        let [p50, p90, p99] = self.nearest_ranks([50, 90, 99]);
        Summary { count, p50, p90, p99, max: self.max, mean: self.sum as f64 / count as f64 }
    }

    /// Percentiles in ascending order by nearest rank: the value at place `ceil(count * percent / 100)`.
    ///
    /// Ranks are counted in whole numbers here: a quantile as a float can miss the rank by one.
    fn nearest_ranks<const K: usize>(&self, percents: [u64; K]) -> [u64; K] {
        let rank = |percent: u64| (u128::from(self.count()) * u128::from(percent)).div_ceil(100);
        let mut values = [self.max; K];
        let (mut at, mut seen) = (0, 0u128);
        for step in self.histogram.iter_recorded() {
            seen += u128::from(step.count_at_value());
            while at < K && seen >= rank(percents[at]) {
                // A bucket stands for its upper end; the last one for the largest value, which lies in it.
                values[at] = if seen < self.count().into() { step.value_iterated_to() } else { self.max };
                at += 1;
            }
        }
        values
    }
}

/// A number with its thousands apart: `12,345`.
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share in percent with two digits: `36.60 %`; `-` of nothing.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.2} %", part as f64 * 100.0 / whole as f64) }
}

/// Nanoseconds in the largest unit that leaves a whole digit: `1.250 ms`.
#[must_use]
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.3} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.3} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

/// Bytes in the largest binary unit that leaves a whole digit: `1.50 GiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let unit = ((bytes.ilog2() / 10) as usize).min(UNITS.len());
    format!("{:.2} {}", bytes as f64 / (1u64 << (10 * unit)) as f64, UNITS[unit - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn summary(values: &[u64]) -> Summary {
        let mut recorder = Recorder::new();
        for value in values {
            recorder.record(*value);
        }
        recorder.summary()
    }

    #[test]
    fn ranks_are_the_nearest() {
        assert_eq!(summary(&[]), Summary::default());
        assert_eq!(summary(&[7]), Summary { count: 1, p50: 7, p90: 7, p99: 7, max: 7, mean: 7.0 });
        let ten: Vec<u64> = (1..=10).collect();
        assert_eq!(summary(&ten), Summary { count: 10, p50: 5, p90: 9, p99: 10, max: 10, mean: 5.5 });
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(summary(&hundred), Summary { count: 100, p50: 50, p90: 90, p99: 99, max: 100, mean: 50.5 });
        let large = summary(&[0, u64::MAX]);
        assert_eq!((large.p50, large.p90, large.max), (0, u64::MAX, u64::MAX));
    }

    #[test]
    fn summaries_are_json() {
        let json = serde_json::to_string(&summary(&[1, 2])).unwrap();
        assert_eq!(json, r#"{"count":2,"p50":1,"p90":2,"p99":2,"max":2,"mean":1.5}"#);
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(percent(1, 3), "33.33 %");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(
            [999, 1_250, 1_250_000, 61_000_000_000].map(duration),
            ["999 ns", "1.250 us", "1.250 ms", "61.000 s"]
        );
        assert_eq!([0, 1_023, 1_024, 3 << 29].map(bytes), ["0 B", "1023 B", "1.00 KiB", "1.50 GiB"]);
        assert_eq!(bytes(u64::MAX), "16384.00 PiB");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Each percentile is the sorted list's, within the histogram's precision and never below.
        #[test]
        fn percentiles_equal_the_sorted_list(mut values in prop::collection::vec((any::<u64>(), 0u32..64), 1..300)) {
            let mut values: Vec<u64> = values.drain(..).map(|(value, shift)| value >> shift).collect();
            let found = summary(&values);
            values.sort_unstable();
            for (percent, found) in [(50, found.p50), (90, found.p90), (99, found.p99)] {
                let exact = values[(values.len() * percent).div_ceil(100) - 1];
                prop_assert!(found >= exact && found - exact <= exact / 1000, "p{}: {} for {}", percent, found, exact);
            }
            prop_assert_eq!(found.max, *values.last().unwrap());
        }
    }
}
