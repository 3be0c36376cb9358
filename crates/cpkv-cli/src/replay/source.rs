//! Where requests come from: a trace or the built-in workload.

use crate::clairvoyant::Chains;
use crate::trace::{BlockTokens, TraceRow};
use crate::workload::WorkRequest;
use xxhash_rust::xxh3::xxh3_64;

/// Requests in the order of their arrival.
#[derive(Debug)]
pub(super) enum Source {
    /// A recorded trace: tokens are made from block ids.
    Trace { rows: Vec<TraceRow>, tokens: BlockTokens, block_size: u32 },
    /// A generated workload.
    Workload { requests: Vec<WorkRequest>, block_size: u32 },
}

impl Source {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Trace { rows, .. } => rows.len(),
            Self::Workload { requests, .. } => requests.len(),
        }
    }

    /// When request `index` arrives, nanoseconds after the first.
    pub(super) fn time_ns(&self, index: usize) -> u64 {
        match self {
            Self::Trace { rows, .. } => rows[index].time_ns - rows[0].time_ns,
            Self::Workload { requests, .. } => requests[index].time_ns - requests[0].time_ns,
        }
    }

    /// What a report calls request `index`: the line of the trace, or the number in the workload, from 1.
    pub(super) fn name(&self, index: usize) -> String {
        match self {
            Self::Trace { rows, .. } => format!("line {}", rows[index].line),
            Self::Workload { .. } => format!("request {}", index + 1),
        }
    }

    /// Blocks of the prompt, a partial last one included.
    pub(super) fn blocks(&self, index: usize) -> u64 {
        match self {
            Self::Trace { rows, .. } => rows[index].blocks.len() as u64,
            Self::Workload { requests, block_size } => {
                (requests[index].tokens.len() as u64).div_ceil(u64::from(*block_size))
            }
        }
    }

    /// The prompt of request `index`.
    pub(super) fn prompt(&mut self, index: usize) -> Vec<u32> {
        match self {
            Self::Trace { rows, tokens, block_size } => tokens.prompt(&rows[index], *block_size),
            Self::Workload { requests, .. } => requests[index].tokens.clone(),
        }
    }

    /// How many tokens request `index` generates.
    pub(super) fn output_tokens(&self, index: usize) -> u64 {
        match self {
            Self::Trace { rows, .. } => rows[index].output_tokens,
            Self::Workload { requests, .. } => requests[index].output.len() as u64,
        }
    }

    /// The tokens that request `index` generates. A trace doesn't know them: they are new ones, shared with nobody.
    pub(super) fn output(&mut self, index: usize) -> Vec<u32> {
        match self {
            Self::Trace { rows, tokens, .. } => {
                let mut output = Vec::new();
                tokens.extend_fresh(rows[index].output_tokens as u32, &mut output);
                output
            }
            Self::Workload { requests, .. } => requests[index].output.clone(),
        }
    }

    /// Every request as the chain of its whole blocks.
    pub(super) fn block_chains(&self) -> Chains {
        let mut chains = Chains::new();
        match self {
            Self::Trace { rows, block_size, .. } => {
                rows.iter().for_each(|row| chains.push(row.whole_blocks(*block_size).iter().copied()));
            }
            Self::Workload { requests, block_size } => {
                for request in requests {
                    let blocks = request.tokens.chunks_exact(*block_size as usize);
                    chains.push(blocks.map(|block| xxh3_64(bytemuck::cast_slice(block))));
                }
            }
        }
        chains
    }

    /// The most blocks of request `index` that can hit: at least one token is computed (contract C16).
    pub(super) fn hit_cap(&self, index: usize) -> u64 {
        let (tokens, block_size) = match self {
            Self::Trace { rows, block_size, .. } => (rows[index].input_tokens, *block_size),
            Self::Workload { requests, block_size } => (requests[index].tokens.len() as u64, *block_size),
        };
        tokens.saturating_sub(1) / u64::from(block_size)
    }
}
