//! The planner from outside: recorded plans, all small forests, random forests.

mod equivalence;
mod exhaustive;
mod support;
mod vectors;
