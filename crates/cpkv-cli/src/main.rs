//! The `cpkv` command.
fn main() {}
