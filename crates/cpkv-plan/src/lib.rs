//! The eviction planner: which cached prefixes give way, lane by lane.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
