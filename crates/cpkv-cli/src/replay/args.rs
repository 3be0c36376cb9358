//! The options of `cpkv replay`, and the configuration that they make.

use crate::error::CliError;
use crate::rig::{RigConfig, Verify};
use crate::scenario::{
    EvictAmountName, EvictOrderName, HostLayoutName, OutputReserveName, PlacementName, PlannerName, QueueOrderName,
    RetentionName, ScenarioConfig, WritePolicyName,
};
use crate::workload::WorkloadConfig;
use cpkv_core::{Geometry, Preset};
use cpkv_sim::ComputeModel;
use std::path::PathBuf;

/// Replay a recorded trace, or a built-in workload, on the simulator.
///
/// Bytes really move: small rows, so that traces fit, and every page is checked against a pattern made of its tokens.
/// Times are modelled; decision times are measured.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// A trace in Mooncake's format, JSON lines. Without it: a built-in workload, see `--conversations`.
    pub trace: Option<PathBuf>,
    /// Print one JSON object instead of a report.
    #[arg(long)]
    pub json: bool,

    /// Context-parallel ranks, each with a lane in both tiers, 1 to 64. Default: 8.
    #[arg(long)]
    pub lanes: Option<usize>,
    /// Tokens per page. Default: 64.
    #[arg(long)]
    pub page_size: Option<u32>,
    /// Tokens per block of the trace; blocks are what the trace's ids name.
    #[arg(long, default_value_t = 512)]
    pub block_size: u32,
    /// Device pages per lane. Default: 1024.
    #[arg(long, conflicts_with = "device_bytes")]
    pub device_pages: Option<u32>,
    /// Host pages per lane, 0 for no host tier. Default: 8192.
    #[arg(long, conflicts_with = "host_bytes")]
    pub host_pages: Option<u32>,
    /// Device memory per lane for pages of `--model`, in bytes.
    #[arg(long)]
    pub device_bytes: Option<u64>,
    /// Host memory per lane for pages of `--model`, in bytes.
    #[arg(long)]
    pub host_bytes: Option<u64>,
    /// The model whose pages are counted by `--device-bytes` and timed by the bandwidths.
    #[arg(long, value_enum, default_value_t = Model::DsaFp8)]
    pub model: Model,
    /// How new pages get their owners. Default: rotated.
    #[arg(long, value_enum)]
    pub placement: Option<PlacementName>,
    /// Which nodes give way first. Default: slru.
    #[arg(long, value_enum)]
    pub retention: Option<RetentionName>,
    /// When nodes are backed up. Default: write_through.
    #[arg(long, value_enum)]
    pub write_policy: Option<WritePolicyName>,
    /// Uses after which `write_through_selective` backs up. Default: 2.
    #[arg(long)]
    pub selective_uses: Option<u32>,
    /// The planner's algorithm; all give the same plans. Default: heap.
    #[arg(long, value_enum)]
    pub planner: Option<PlannerName>,
    /// The order of evictions. Default: by_purpose.
    #[arg(long, value_enum)]
    pub evict_order: Option<EvictOrderName>,
    /// How much an operation that lacks room evicts. Default: shortfall_plus_room.
    #[arg(long, value_enum)]
    pub evict_amount: Option<EvictAmountName>,
    /// Pages per lane kept free on the device. Default: 1 % of them.
    #[arg(long)]
    pub device_free_room: Option<u32>,
    /// Pages per lane kept free on the host. Default: 1 % of them.
    #[arg(long)]
    pub host_free_room: Option<u32>,
    /// The least host pages worth a load-back. Default: 1.
    #[arg(long)]
    pub load_back_min_pages: Option<u32>,
    /// The order of bytes in the host pools. Default: page_first_direct.
    #[arg(long, value_enum)]
    pub host_layout: Option<HostLayoutName>,
    /// Layers whose rows really move. Default: 2.
    #[arg(long)]
    pub layers: Option<u32>,
    /// Bytes per token and layer that really move. Default: 8.
    #[arg(long)]
    pub row_bytes: Option<u32>,
    /// Room for output that a request reserves. Default: none; full with `--insert-output`.
    #[arg(long, value_enum)]
    pub output_reserve: Option<OutputReserveName>,
    /// The order of waiting requests. Default: fcfs.
    #[arg(long, value_enum)]
    pub queue_order: Option<QueueOrderName>,

    /// Requests per batch, at most.
    #[arg(long)]
    pub max_batch_requests: Option<u32>,
    /// Tokens computed per batch, at most.
    #[arg(long)]
    pub max_input_tokens: Option<u64>,
    /// Tokens computed per step: longer prompts are cut into chunks. 0: no limit. Default: 16384.
    #[arg(long)]
    pub chunk_tokens: Option<u64>,
    /// Tokens to compute per batch, at most, capped by the chunk.
    #[arg(long)]
    pub max_extend_tokens: Option<u64>,
    /// Cached tokens per batch, at most.
    #[arg(long)]
    pub max_cached_tokens: Option<u64>,

    /// Device to host, GB/s of the model's bytes per lane (modelled).
    #[arg(long, default_value_t = 50.0)]
    pub d2h_gbps: f64,
    /// Host to device, GB/s of the model's bytes per lane (modelled).
    #[arg(long, default_value_t = 50.0)]
    pub h2d_gbps: f64,
    /// The compute model `a,b,c` of t(n) = a + b n + c n (n + 2 prefix), milliseconds and tokens. Default: fitted to
    /// published times of GLM-5.2 FP8 on 8 H20.
    #[arg(long, value_delimiter = ',', num_args = 1)]
    pub compute: Option<Vec<f64>>,

    /// Replay at most this many requests.
    #[arg(long)]
    pub limit: Option<u64>,
    /// Arrival rate, as a multiple of the trace's.
    #[arg(long, default_value_t = 1.0)]
    pub speed: f64,
    /// Each request ends before the next arrives.
    #[arg(long)]
    pub sequential: bool,
    /// Cache the generated tokens too.
    #[arg(long)]
    pub insert_output: bool,
    /// A file with the keys of a scenario's config line; options go before it.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Write the operations down as a scenario.
    #[arg(long)]
    pub record: Option<PathBuf>,
    /// Write streams, layers and steps as Chrome trace events.
    #[arg(long)]
    pub timeline: Option<PathBuf>,
    /// Skip and count rows that break the format's rules.
    #[arg(long)]
    pub lenient: bool,
    /// Check every structure after every step (slow).
    #[arg(long)]
    pub self_check: bool,
    /// The seed of the built-in workload.
    #[arg(long)]
    pub seed: Option<u64>,
    /// How many pages' bytes are checked.
    #[arg(long, value_enum, default_value_t = Verify::Full)]
    pub verify: Verify,

    /// Built-in workload: conversations.
    #[arg(long)]
    pub conversations: Option<u32>,
    /// Built-in workload: turns of a conversation, at most.
    #[arg(long)]
    pub turns: Option<u32>,
}

/// Models whose page weights are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Model {
    /// Llama 3.1 8B in bf16: 32 layers, 4,096 B rows.
    Mha,
    /// DeepSeek V3 in bf16: 61 layers, 1,152 B rows.
    Mla,
    /// GLM-5.2 in FP8: 78 layers, 656 B rows and 132 B index rows.
    DsaFp8,
}

impl Model {
    fn preset(self) -> Preset {
        match self {
            Self::Mha => Preset::Mha,
            Self::Mla => Preset::Mla,
            Self::DsaFp8 => Preset::DsaFp8,
        }
    }
}

impl ReplayArgs {
    /// The engine's configuration, as a scenario would write it.
    ///
    /// # Errors
    /// [`CliError::BadInput`] names the file, line and field, or the option, that is wrong.
    pub(super) fn scenario(&self) -> Result<ScenarioConfig, CliError> {
        let option = |name: &str, what: String| CliError::BadInput(format!("--{name}: {what}"));
        let mut config = match &self.config {
            Some(path) => ScenarioConfig::read(path, &Self::defaults())?,
            None => Self::defaults(),
        };
        macro_rules! set {
            ($($field:ident)*) => { $(if let Some(value) = self.$field { config.$field = value; })* };
        }
        set!(lanes page_size device_pages host_pages placement retention write_policy selective_uses planner
             evict_order evict_amount load_back_min_pages host_layout layers row_bytes queue_order seed);
        macro_rules! limit {
            ($($field:ident)*) => { $(if self.$field.is_some() { config.$field = self.$field; })* };
        }
        limit!(max_batch_requests max_input_tokens chunk_tokens max_extend_tokens max_cached_tokens);
        config.chunk_tokens = config.chunk_tokens.filter(|tokens| *tokens > 0);
        if let Some(reserve) = self.output_reserve {
            config.output_reserve = reserve;
        } else if self.insert_output {
            config.output_reserve = OutputReserveName::Full;
        }
        if !(1..=65_536).contains(&config.page_size) {
            return Err(option("page-size", format!("{} is out of range, 1 to 65536", config.page_size)));
        }
        let page = self.model_page_bytes(config.page_size);
        let pages = |name: &str, bytes: Option<u64>| -> Result<Option<u32>, CliError> {
            bytes
                .map(|bytes| {
                    u32::try_from(bytes / page).ok().filter(|pages| *pages > 0).ok_or_else(|| {
                        option(name, format!("{bytes} bytes are {} pages of {page} bytes", bytes / page))
                    })
                })
                .transpose()
        };
        config.device_pages = pages("device-bytes", self.device_bytes)?.unwrap_or(config.device_pages);
        config.host_pages = pages("host-bytes", self.host_bytes)?.unwrap_or(config.host_pages);
        if self.config.is_none() {
            config.device_free_room = config.device_pages.div_ceil(100);
            config.host_free_room = config.host_pages.div_ceil(100);
        }
        set!(device_free_room host_free_room);
        config.engine().map_err(|error| {
            let place = match &self.config {
                Some(path) => format!("{}: ", path.display()),
                None => "--".to_owned(),
            };
            let field = if self.config.is_some() { error.field.to_owned() } else { error.field.replace('_', "-") };
            CliError::BadInput(format!("{place}{field}: {}", error.what))
        })?;
        Ok(config)
    }

    fn defaults() -> ScenarioConfig {
        ScenarioConfig {
            lanes: 8,
            page_size: 64,
            device_pages: 1024,
            host_pages: 8192,
            write_policy: WritePolicyName::WriteThrough,
            evict_amount: EvictAmountName::ShortfallPlusRoom,
            evict_order: EvictOrderName::ByPurpose,
            chunk_tokens: Some(16_384),
            device_free_room: 11,
            host_free_room: 82,
            ..ScenarioConfig::default()
        }
    }

    /// Bytes of a page of the model.
    fn model_page_bytes(&self, page_size: u32) -> u64 {
        Geometry::preset(self.model.preset(), page_size).map_or(1, |geometry| geometry.page_bytes_all())
    }

    /// The rig's configuration.
    ///
    /// # Errors
    /// [`CliError::BadInput`] names the option that is out of range.
    pub(super) fn rig(&self, config: &ScenarioConfig) -> Result<RigConfig, CliError> {
        let positive = |name: &str, value: f64| {
            if value.is_finite() && (0.001..=100_000.0).contains(&value) {
                Ok(value)
            } else {
                Err(CliError::BadInput(format!("--{name}: {value} is out of range, 0.001 to 100000")))
            }
        };
        positive("speed", self.speed)?;
        let mut rig = config.rig().map_err(|error| CliError::BadInput(error.to_string()))?;
        rig.verify = self.verify;
        rig.compute = self.compute_model()?;
        // The rows that really move are small: their bandwidth is scaled so that a page takes the model's time.
        let scale = rig.engine.geometry.page_bytes_all() as f64 / self.model_page_bytes(config.page_size) as f64;
        let scaled = |gbps: f64| ((gbps * 1e9 * scale) as u64).max(1);
        rig.bandwidth_d2h = scaled(positive("d2h-gbps", self.d2h_gbps)?);
        rig.bandwidth_h2d = scaled(positive("h2d-gbps", self.h2d_gbps)?);
        Ok(rig)
    }

    fn compute_model(&self) -> Result<ComputeModel, CliError> {
        match self.compute.as_deref() {
            None => Ok(ComputeModel::default()),
            Some([a, b, c]) if [a, b, c].iter().all(|term| term.is_finite() && (0.0..=1e6).contains(*term)) => {
                Ok(ComputeModel { a_ms: *a, b_ms_per_token: *b, c_ms_per_token2: *c })
            }
            Some(_) => Err(CliError::BadInput("--compute: write a,b,c, each a number from 0 to 1000000".to_owned())),
        }
    }

    /// The built-in workload.
    pub(super) fn workload(&self, config: &ScenarioConfig) -> WorkloadConfig {
        let mut workload = WorkloadConfig { seed: config.seed, ..WorkloadConfig::default() };
        if let Some(conversations) = self.conversations {
            workload.conversations = conversations;
        }
        if let Some(turns) = self.turns {
            workload.turns = turns;
        }
        workload
    }
}
