//! Moves pages between the tiers: descriptors, backups, load-backs.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
