//! The `cpkv` command as a library: trace readers, the scenario runner, replay and reports.
//!
//! This crate composes the engine with a backend; nothing else in the workspace does.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod clairvoyant;
pub mod error;
pub mod plan;
pub mod replay;
pub mod rig;
pub mod scenario;
pub mod stats;
pub mod timeline;
pub mod trace;
pub mod workload;

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
