//! What the engine has done so far: monotone counters (contract C18).

use cpkv_core::LaneCounts;

/// Sums per lane, wide enough never to wrap.
pub type LaneTotals = Vec<u64>;

/// Monotone counters of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Device pages freed by eviction, per lane.
    pub evicted_pages: LaneTotals,
    /// Device pages evicted without a host copy: recomputed when asked for again. Part of `evicted_pages`.
    pub dropped_pages: LaneTotals,
    /// Host pages freed by eviction, per lane.
    pub host_evicted_pages: LaneTotals,
    /// Pages whose backup was acknowledged, per lane.
    pub backed_up_pages: LaneTotals,
    /// Pages whose load-back was acknowledged, per lane.
    pub loaded_pages: LaneTotals,
    /// Backups started and failed.
    pub backups_started: u64,
    /// Backups that ended as failed.
    pub backups_failed: u64,
    /// Load-backs started.
    pub loads_started: u64,
    /// Load-backs that ended as failed.
    pub loads_failed: u64,
    /// Copies that ended after they were no longer known.
    pub late_ends: u64,
    /// Eviction plans made on the device.
    pub device_plans: u64,
    /// Nodes evicted from the device.
    pub device_victims: u64,
    /// Requests admitted (each admission of a retracted request counts).
    pub admitted: u64,
    /// Chunks continued.
    pub chunks: u64,
    /// Prompt tokens of admissions.
    pub input_tokens: u64,
    /// Prompt tokens of admissions that were found on the device.
    pub hit_device_tokens: u64,
    /// Prompt tokens of admissions that were loaded from the host.
    pub hit_host_tokens: u64,
}

impl Counters {
    pub(crate) fn new(lanes: usize) -> Self {
        let zero = || vec![0; lanes];
        Self {
            evicted_pages: zero(),
            dropped_pages: zero(),
            host_evicted_pages: zero(),
            backed_up_pages: zero(),
            loaded_pages: zero(),
            ..Self::default()
        }
    }
}

/// Adds page counts per lane to totals.
pub(crate) fn add(totals: &mut LaneTotals, counts: &LaneCounts) {
    for (total, pages) in totals.iter_mut().zip(counts.as_slice()) {
        *total += u64::from(*pages);
    }
}
