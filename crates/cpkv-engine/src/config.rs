//! What an engine is set up with. Configuration is agreed at start: equal on all ranks, and part of the digest.

use cpkv_admit::Limits;
use cpkv_core::{Geometry, HostLayout, Placement, RowPool, Striping};
use cpkv_plan::{Algorithm, EvictAmount, EvictOrder};
use cpkv_tree::Retention;

/// When nodes are backed up to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WritePolicy {
    /// Only by a call.
    #[default]
    Manual,
    /// As soon as a request that used the node has finished.
    WriteThrough,
    /// Once `selective_uses` finished requests have used the node.
    WriteThroughSelective,
    /// When the node is evicted from the device: staged to the host first, freed after the ack.
    WriteBack,
}

pub use cpkv_admit::{OutputReserve, QueueOrder};

/// Configuration of an engine. Page counts are per lane and don't count padding.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Context-parallel ranks, 1 to 64.
    pub lanes: usize,
    /// Layers and rows of a page; its page size is the engine's, in tokens.
    pub geometry: Geometry,
    /// Usable device pages per lane, 1 to 4,194,304.
    pub device_pages: u32,
    /// Host pages per lane, 0 (no host tier) to 4,194,304.
    pub host_pages: u32,
    /// The order of bytes in the host pools.
    pub host_layout: HostLayout,
    /// How new pages get their owners.
    pub placement: Placement,
    /// Which nodes give way first.
    pub retention: Retention,
    /// When nodes are backed up.
    pub write_policy: WritePolicy,
    /// Uses after which `WriteThroughSelective` backs a node up.
    pub selective_uses: u32,
    /// The least host pages worth a load-back.
    pub load_back_min_pages: u32,
    /// How much an operation that lacks room evicts.
    pub evict_amount: EvictAmount,
    /// The order of every eviction; `None`: `Contribution` for load-backs, `Retention` for extends and free room.
    pub evict_order: Option<EvictOrder>,
    /// The planner's algorithm. All give the same plans.
    pub planner: Algorithm,
    /// Pages per lane that each step keeps free on the device.
    pub device_free_room: u32,
    /// Pages per lane that each step keeps free on the host.
    pub host_free_room: u32,
    /// Limits of one prefill batch.
    pub limits: Limits,
    /// Room for generated tokens.
    pub output_reserve: OutputReserve,
    /// The order of waiting requests.
    pub queue_order: QueueOrder,
}

/// A configuration value that is out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {what}")]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// What is wrong, with the allowed range.
    pub what: String,
}

/// The most pages per lane in either tier.
const PAGES_MAX: u32 = 4_194_304;

impl Config {
    /// A configuration with the engine's defaults: rotated placement, SLRU, free room of 1 % (at least a page) on both
    /// tiers, write-through. `geometry` names the page size.
    #[must_use]
    pub fn new(lanes: usize, geometry: Geometry, device_pages: u32, host_pages: u32) -> Self {
        Self {
            lanes,
            geometry,
            device_pages,
            host_pages,
            host_layout: HostLayout::default(),
            placement: Placement::default(),
            retention: Retention::Slru,
            write_policy: WritePolicy::WriteThrough,
            selective_uses: 2,
            load_back_min_pages: 1,
            evict_amount: EvictAmount::ShortfallPlusRoom,
            evict_order: None,
            planner: Algorithm::default(),
            device_free_room: device_pages.div_ceil(100),
            host_free_room: host_pages.div_ceil(100),
            limits: Limits::default(),
            output_reserve: OutputReserve::default(),
            queue_order: QueueOrder::default(),
        }
    }

    /// A small configuration for tests and examples: 2 layers of 8-byte rows, 16 tokens per page, no free room,
    /// manual backups, evictions in contribution order by the shortfall.
    #[must_use]
    pub fn small(lanes: usize, device_pages: u32, host_pages: u32) -> Self {
        let geometry =
            Geometry::new(2, 16, &[RowPool { name: "kv", row_bytes: 8 }]).expect("2, 16 and 8 are in their ranges");
        Self {
            write_policy: WritePolicy::Manual,
            evict_amount: EvictAmount::Shortfall,
            evict_order: Some(EvictOrder::Contribution),
            device_free_room: 0,
            host_free_room: 0,
            ..Self::new(lanes, geometry, device_pages, host_pages)
        }
    }

    /// Tokens per page.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        self.geometry.page_size()
    }

    /// Checks every field's range.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is out of range, with the range.
    pub fn validate(&self) -> Result<Striping, ConfigError> {
        let striping = Striping::new(self.lanes).map_err(|error| ConfigError {
            field: "lanes",
            what: error.to_string().trim_start_matches("lanes: ").to_owned(),
        })?;
        let range = |field, value: u32, min: u32, max: u32| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(ConfigError { field, what: format!("{value} is out of range, {min} to {max}") })
            }
        };
        range("device_pages", self.device_pages, 1, PAGES_MAX)?;
        range("host_pages", self.host_pages, 0, PAGES_MAX)?;
        range("device_free_room", self.device_free_room, 0, self.device_pages)?;
        range("host_free_room", self.host_free_room, 0, self.host_pages)?;
        range("load_back_min_pages", self.load_back_min_pages, 1, PAGES_MAX)?;
        range("selective_uses", self.selective_uses, 1, u32::MAX)?;
        // Logical page ids are 32 bits wide: page * lanes + owner.
        let pages = u64::from(self.device_pages.max(self.host_pages)) + 1;
        if pages * self.lanes as u64 > u64::from(u32::MAX) {
            return Err(ConfigError { field: "device_pages", what: "lanes x pages exceed 32-bit page ids".into() });
        }
        self.limits
            .validate(self.page_size())
            .map_err(|error| ConfigError { field: "limits", what: error.to_string() })?;
        Ok(striping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_named() {
        let mut config = Config::small(65, 4, 4);
        assert_eq!(config.validate().unwrap_err().to_string(), "lanes: 65 is out of range, 1 to 64");
        config.lanes = 4;
        config.device_pages = 0;
        assert_eq!(config.validate().unwrap_err().to_string(), "device_pages: 0 is out of range, 1 to 4194304");
        config.device_pages = 4;
        config.device_free_room = 5;
        assert_eq!(config.validate().unwrap_err().field, "device_free_room");
        config.device_free_room = 0;
        assert!(config.validate().is_ok());
    }
}
