//! Ranks that are told the same decide the same: one control plane per rank, fed the same calls, with the copies that
//! end between two calls acknowledged in another order on each.

use cpkv_core::{OpId, Owner};
use cpkv_engine::{Config, ControlPlane};
use cpkv_tests::call::Call;
use cpkv_tests::chance::{self, Calls};
use cpkv_tests::target::Target;
use cpkv_tests::{Reproduce, seeds};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

const RANKS: usize = 3;
const SEEDS: u64 = 150;
const CALLS: u32 = 200;

/// Where the ranks' digests first differ: the call's number. Also how many groups of two acks and more there were.
fn run(
    seed: u64,
    configs: [Config; RANKS],
    mut plant: impl FnMut(u32, usize, &mut ControlPlane),
) -> (Option<u32>, u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut calls = Calls::new(seed, &configs[0]);
    let mut ranks = configs.map(|config| ControlPlane::new(config).expect("a valid configuration"));
    let mut groups = 0;
    for at in 0..CALLS {
        let ends: Vec<Call> = match calls.next(ranks[0].control()) {
            Call::End { op: OpId(u64::MAX), .. } => continue,
            Call::End { agreed_failure, .. } => {
                let ops: Vec<OpId> = ranks[0].operations().map(|(op, _)| op).filter(|_| rng.random_bool(0.8)).collect();
                ops.into_iter().map(|op| Call::End { op, agreed_failure: agreed_failure && op.0 % 2 == 0 }).collect()
            }
            call => {
                for (rank, control) in ranks.iter_mut().enumerate() {
                    let result = control.call(&call);
                    if let (0, Ok(reply)) = (rank, &result) {
                        calls.learn(&call, reply);
                    }
                }
                Vec::new()
            }
        };
        groups += u64::from(ends.len() > 1);
        for (rank, control) in ranks.iter_mut().enumerate() {
            let mut ends = ends.clone();
            match rank {
                0 => {}
                1 => ends.reverse(),
                _ => ends.shuffle(&mut rng),
            }
            for end in ends {
                // Where a rank has gone another way already it may not know the copy: the digests tell.
                let _ = control.call(&end);
            }
            plant(at, rank, control);
            control.check().unwrap_or_else(|what| panic!("call {at}, rank {rank}: {what}"));
        }
        if ranks.iter().any(|control| control.digest() != ranks[0].digest()) {
            return (Some(at), groups);
        }
        assert!(ranks.iter().all(|control| control.stats() == ranks[0].stats()), "equal digests and other figures");
    }
    (None, groups)
}

fn config(seed: u64) -> Config {
    chance::config(&mut StdRng::seed_from_u64(seed))
}

/// C7, over the whole interface: digests are equal after every call.
#[test]
fn acks_in_any_order_give_one_digest() {
    let mut groups = 0;
    for seed in seeds(SEEDS) {
        let _reproduce = Reproduce { seed, test: "replicas" };
        let config = config(seed);
        let (differs, seen) = run(seed, [config.clone(), config.clone(), config.clone()], |_, _, _| {});
        assert_eq!(differs, None, "the ranks part at that call, of {config:?}");
        groups += seen;
    }
    assert!(groups > 0, "no two acks came together");
}

/// The digest tells: a rank that takes a single page more than the others, and one that is set up otherwise.
#[test]
fn a_rank_that_goes_another_way_is_seen_at_once() {
    let mut planted = 0;
    for seed in seeds(40) {
        let _reproduce = Reproduce { seed, test: "replicas" };
        let config = config(seed);
        let mut planted_at = None;
        let configs = [config.clone(), config.clone(), config];
        let (differs, _) = run(seed, configs, |at, rank, control| {
            if rank == 2 && at >= 50 && planted_at.is_none() && control.hold(&[Owner(0)]).is_ok() {
                planted_at = Some(at);
            }
        });
        assert_eq!(differs, planted_at);
        planted += u32::from(planted_at.is_some());
    }
    assert!(planted > 0, "no page was free for it");
    let same = config(1);
    let other = Config { load_back_min_pages: same.load_back_min_pages + 1, ..same.clone() };
    let (differs, _) = run(1, [same.clone(), same, other], |_, _, _| {});
    assert!(differs.is_some_and(|at| at < 3), "configuration is part of the digest from the start");
}
