//! Workloads and bench targets.
