//! The first line of a scenario, also the file of `--config`: names and defaults of the format.

use crate::error::CliError;
use crate::rig::RigConfig;
use cpkv_admit::{Limits, OutputReserve, QueueOrder};
use cpkv_core::{Geometry, HostLayout, Placement, RowPool};
use cpkv_engine::{Config, ConfigError, WritePolicy};
use cpkv_plan::{Algorithm, EvictAmount, EvictOrder};
use cpkv_tree::Retention;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;

/// A configuration as scenario files write it. Page counts are usable pages per lane, padding not counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the format, and their meanings are the engine's")]
pub struct ScenarioConfig {
    pub lanes: usize,
    pub page_size: u32,
    pub device_pages: u32,
    pub host_pages: u32,
    pub placement: PlacementName,
    pub retention: RetentionName,
    pub write_policy: WritePolicyName,
    pub load_back: LoadBackName,
    pub evict_amount: EvictAmountName,
    pub device_free_room: u32,
    pub host_free_room: u32,
    pub layers: u32,
    pub row_bytes: u32,
    pub host_layout: HostLayoutName,
    pub completions: Completions,
    pub evict_order: EvictOrderName,
    pub output_reserve: OutputReserveName,
    pub max_new: u32,
    pub queue_order: QueueOrderName,
    pub selective_uses: u32,
    pub max_batch_requests: Option<u32>,
    pub max_input_tokens: Option<u64>,
    pub chunk_tokens: Option<u64>,
    pub max_extend_tokens: Option<u64>,
    pub max_cached_tokens: Option<u64>,
    pub max_buffer_bytes: Option<u64>,
    pub load_back_min_pages: u32,
    pub planner: PlannerName,
    pub seed: u64,
}

impl Default for ScenarioConfig {
    fn default() -> Self {
        Self {
            lanes: 4,
            page_size: 16,
            device_pages: 16,
            host_pages: 32,
            placement: PlacementName::Rotated,
            retention: RetentionName::Slru,
            write_policy: WritePolicyName::Manual,
            load_back: LoadBackName::AllOrNothing,
            evict_amount: EvictAmountName::Shortfall,
            device_free_room: 0,
            host_free_room: 0,
            layers: 2,
            row_bytes: 8,
            host_layout: HostLayoutName::PageFirstDirect,
            completions: Completions::Manual,
            evict_order: EvictOrderName::Contribution,
            output_reserve: OutputReserveName::None,
            max_new: 0,
            queue_order: QueueOrderName::Fcfs,
            selective_uses: 2,
            max_batch_requests: None,
            max_input_tokens: None,
            chunk_tokens: None,
            max_extend_tokens: None,
            max_cached_tokens: None,
            max_buffer_bytes: None,
            load_back_min_pages: 1,
            planner: PlannerName::Heap,
            seed: 1,
        }
    }
}

/// How copies end in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completions {
    /// Only by `ack` and `fail` lines.
    Manual,
    /// Every step ends the copies submitted before it.
    Auto,
}

/// Declares an enum with the names of the format and its conversion from and to the library's own.
macro_rules! names {
    ($(#[$doc:meta])* $name:ident => $of:ty { $($variant:ident = $value:expr,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
        #[serde(rename_all = "snake_case")]
        #[value(rename_all = "snake_case")]
        #[allow(missing_docs, reason = "the names are those of the format")]
        pub enum $name { $($variant,)* }

        impl From<$name> for $of {
            fn from(name: $name) -> $of {
                match name { $($name::$variant => $value,)* }
            }
        }
    };
}

names! {
    /// Placements.
    PlacementName => Placement {
        Rotated = Placement::Rotated,
        Zigzag = Placement::Zigzag,
        Explicit = Placement::Explicit,
    }
}
names! {
    /// Retention policies.
    RetentionName => Retention {
        Lru = Retention::Lru,
        Slru = Retention::Slru,
        Lfu = Retention::Lfu,
        Fifo = Retention::Fifo,
        Priority = Retention::Priority,
    }
}
names! {
    /// Write policies.
    WritePolicyName => WritePolicy {
        Manual = WritePolicy::Manual,
        WriteThrough = WritePolicy::WriteThrough,
        WriteThroughSelective = WritePolicy::WriteThroughSelective,
        WriteBack = WritePolicy::WriteBack,
    }
}
names! {
    /// How much a load-back loads.
    LoadBackName => () {
        AllOrNothing = (),
    }
}
names! {
    /// How much an operation evicts.
    EvictAmountName => EvictAmount {
        FullNeed = EvictAmount::FullNeed,
        Shortfall = EvictAmount::Shortfall,
        ShortfallPlusRoom = EvictAmount::ShortfallPlusRoom,
    }
}
names! {
    /// Host layouts.
    HostLayoutName => HostLayout {
        LayerFirst = HostLayout::LayerFirst,
        PageFirst = HostLayout::PageFirst,
        PageFirstDirect = HostLayout::PageFirstDirect,
    }
}
names! {
    /// Orders of eviction. `by_purpose`: contribution for load-backs, retention for extends and free room.
    EvictOrderName => Option<EvictOrder> {
        Contribution = Some(EvictOrder::Contribution),
        Retention = Some(EvictOrder::Retention),
        ByPurpose = None,
    }
}
names! {
    /// Room for output.
    OutputReserveName => OutputReserve {
        None = OutputReserve::None,
        Full = OutputReserve::Full,
        Sglang = OutputReserve::Sglang,
    }
}
names! {
    /// Orders of the queue.
    QueueOrderName => QueueOrder {
        Fcfs = QueueOrder::Fcfs,
        Priority = QueueOrder::Priority,
    }
}
names! {
    /// Planner algorithms. All give the same plans.
    PlannerName => Algorithm {
        Greedy = Algorithm::Greedy,
        Memo = Algorithm::Memo,
        Heap = Algorithm::Heap,
    }
}

impl ScenarioConfig {
    /// The engine's configuration.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is out of range.
    pub fn engine(&self) -> Result<Config, ConfigError> {
        let geometry = Geometry::new(self.layers, self.page_size, &[RowPool { name: "kv", row_bytes: self.row_bytes }])
            .map_err(|error| ConfigError {
                field: error.field,
                what: format!("{} is out of range, {} to {}", error.value, error.min, error.max),
            })?;
        let config = Config {
            host_layout: self.host_layout.into(),
            placement: self.placement.into(),
            retention: self.retention.into(),
            write_policy: self.write_policy.into(),
            selective_uses: self.selective_uses,
            load_back_min_pages: self.load_back_min_pages,
            evict_amount: self.evict_amount.into(),
            evict_order: self.evict_order.into(),
            planner: self.planner.into(),
            device_free_room: self.device_free_room,
            host_free_room: self.host_free_room,
            limits: self.limits(),
            output_reserve: self.output_reserve.into(),
            queue_order: self.queue_order.into(),
            ..Config::new(self.lanes, geometry, self.device_pages, self.host_pages)
        };
        config.validate()?;
        Ok(config)
    }

    /// Reads a file with one JSON object of the same keys as a scenario's config line; keys that it lacks are taken
    /// from `defaults`.
    ///
    /// # Errors
    /// [`CliError::BadInput`] with file, line and field.
    pub fn read(path: &Path, defaults: &Self) -> Result<Self, CliError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| CliError::bad(&file, None, "", error))?;
        let given: Map<String, Value> = serde_json::from_str(&text).map_err(|error| {
            CliError::bad(&file, Some(error.line().max(1) as u64), "", format!("no JSON object: {error}"))
        })?;
        let Ok(Value::Object(mut fields)) = serde_json::to_value(defaults) else {
            unreachable!("a configuration is plain data")
        };
        for (field, value) in given {
            if field == "op" && value == "config" || field == "note" {
                continue;
            }
            fields.insert(field, value);
        }
        serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| {
            let field = error.path().to_string();
            let line = text.lines().position(|line| line.contains(&format!("\"{field}\""))).map(|at| at as u64 + 1);
            CliError::bad(&file, line, if field == "." { "" } else { &field }, error.inner())
        })
    }

    fn limits(&self) -> Limits {
        Limits {
            batch_requests: self.max_batch_requests,
            input_tokens: self.max_input_tokens,
            chunk_tokens: self.chunk_tokens,
            extend_tokens: self.max_extend_tokens,
            cached_tokens: self.max_cached_tokens,
            buffer_bytes: self.max_buffer_bytes,
        }
    }

    /// The rig's configuration: the engine's on the simulator with its default speeds.
    ///
    /// # Errors
    /// As [`engine`](Self::engine).
    pub fn rig(&self) -> Result<RigConfig, ConfigError> {
        Ok(RigConfig::new(self.engine()?, self.seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_in_range_and_survive_a_round_trip() {
        let config = ScenarioConfig::default();
        assert!(config.engine().is_ok());
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<ScenarioConfig>(&json).unwrap(), config);
        assert_eq!(serde_json::from_str::<ScenarioConfig>("{}").unwrap(), config);
    }
}
