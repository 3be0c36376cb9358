//! The engine: prefix tree, allocators, planner, admission and transfers behind one facade that advances by `step`.
//!
//! Two layers, and the border between them is the crate's point:
//!
//! - [`ControlPlane`] decides. It is plain state without a device, a clock or a random number in it: the same calls on
//!   N ranks give the same decisions, and [`ControlPlane::digest`] proves it (contract C7). It decides for *all* lanes.
//! - [`Engine`] adds the memory of the *local* lanes: it carries the copies that were decided to the backend, and
//!   reports which of them are complete. A completion enters a decision only when the embedding engine has agreed on
//!   it with the other ranks and calls [`Engine::ack`] or [`Engine::fail`].
//!
//! The flow of one request, the same top to bottom in the code: key -> match -> need per lane -> admit -> plan ->
//! evict -> reserve -> load back (layer by layer) -> forward -> insert -> back up -> ack -> demote. Follow it in
//! `request.rs` and `step.rs`.
//!
//! What the caller does: [`Engine::submit`] requests, call [`Engine::step`], run the forward pass over the returned
//! batch, call [`Engine::forward_done`], and [`Engine::finish`] what is complete. Between steps it polls
//! [`Engine::completed`], agrees with the other ranks, and acknowledges.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod backup;
mod config;
mod control;
mod counters;
mod digest;
mod engine;
mod error;
mod evict;
mod load_back;
mod log;
mod operation;
mod owners;
mod request;
mod step;
mod view;
mod what_if;

pub use config::{Config, ConfigError, OutputReserve, QueueOrder, WritePolicy};
pub use control::{ControlPlane, Inserted, Key, Locked, Matched, Stats};
pub use counters::{Counters, LaneTotals};
pub use engine::{Engine, OpCompletion, StartError};
pub use error::EngineError;
pub use evict::Evicted;
pub use load_back::LoadBackStarted;
pub use log::{LoggedCall, OperationLog};
pub use operation::{CopyKind, CopyOrder, OpOrigin, Operation, StartedCopy};
pub use request::{Ended, HitTokens, Request, RequestState, SubmitOptions};
pub use step::{BatchEntry, Refusal, StepPlan, StopReason};
pub use what_if::WhatIf;
