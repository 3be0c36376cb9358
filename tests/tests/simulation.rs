//! The whole engine by chance: random configurations and calls on the simulator. After every call all structures are
//! checked, no byte is wrong, a refused call has changed nothing; at the end everything ends and every page is free.

use cpkv_cli::rig::{Rig, RigConfig};
use cpkv_engine::{EngineError, RequestState, StepPlan};
use cpkv_sim::{FaultPlan, FaultRates};
use cpkv_tests::call::{Call, Reply};
use cpkv_tests::chance::{self, Calls};
use cpkv_tests::target::Target;
use cpkv_tests::{Reproduce, seeds};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

const SEEDS: u64 = 400;
const CALLS: u32 = 250;

/// How often each outcome came up.
#[derive(Default)]
struct Coverage(BTreeMap<String, u64>);

impl Coverage {
    fn saw(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    fn step(&mut self, plan: &StepPlan) {
        let mut saw = |what: &str, times: usize| *self.0.entry(what.to_owned()).or_default() += times as u64;
        saw("step admits", plan.admitted.len());
        saw("step loads", plan.loading.len());
        saw("step refuses", plan.refused.len());
        saw("step evicts", plan.victims_pages.len());
        saw(
            "step continues a chunk",
            plan.batch.iter().filter(|entry| !plan.admitted.contains(&entry.request)).count(),
        );
        let reason = plan.stopped.reason().unwrap_or_default();
        let reason = if reason.starts_with("lane:") { "lane" } else { &reason };
        self.saw(format!("step stops: {} {reason}", plan.stopped.outcome()));
    }
}

#[test]
fn whatever_is_called_nothing_is_lost() {
    let mut coverage = Coverage::default();
    for seed in seeds(SEEDS) {
        let _reproduce = Reproduce { seed, test: "simulation" };
        if let Err((at, what)) = run(seed, &mut coverage) {
            panic!("seed {seed}, call {at}: {what}");
        }
    }
    if std::env::var_os("CPKV_SEED").is_some() {
        return;
    }
    for (what, times) in &coverage.0 {
        println!("{times:>8} {what}");
    }
    for what in EXPECTED {
        let times = coverage.0.get(*what).copied().unwrap_or_default();
        assert!(times >= 10, "{what:?} came up {times} times: the run doesn't show that it holds");
    }
}

/// What has to come up for the run to mean something.
const EXPECTED: &[&str] = &[
    "insert",
    "match",
    "what_if",
    "lock",
    "unlock",
    "hold",
    "release",
    "backup",
    "load_back",
    "ack",
    "fail",
    "evict_device",
    "evict_host",
    "submit",
    "step",
    "finish",
    "abort",
    "retract",
    "reset",
    "insert: lane_full",
    "insert: owner_mismatch",
    "hold: lane_full",
    "backup: host_full",
    "backup: in_flight",
    "load_back: lane_full",
    "load_back: in_flight",
    "load_back: nothing_to_load",
    "submit: request_too_large",
    "submit: owner_mismatch",
    "unlock: unknown_name",
    "release: unknown_name",
    "ack: unknown_name",
    "finish: unknown_name",
    "finish: in_flight",
    "finish: not_its_prompt",
    "abort: unknown_name",
    "retract: unknown_name",
    "step admits",
    "step loads",
    "step evicts",
    "step continues a chunk",
    "step stops: continue ",
    "step stops: no_token lane",
    "step stops: other batch_requests",
    "step stops: other input_tokens",
    "step stops: other chunk_tokens",
    "step stops: other extend_tokens",
    "step stops: other cached_tokens",
    "a load is joined",
    "a copy's bytes fail",
    "a copy spans nodes",
    "pages checked",
];

fn run(seed: u64, coverage: &mut Coverage) -> Result<(), (u32, String)> {
    let mut rng = StdRng::seed_from_u64(seed);
    let config = chance::config(&mut rng);
    let mut calls = Calls::new(seed, &config);
    let mut rig = RigConfig::new(config.clone(), seed);
    if rng.random_bool(0.3) {
        rig.faults = FaultPlan {
            rates: FaultRates {
                fail_copy_per_million: 50_000,
                delay_copy_per_million: 200_000,
                delay_max_ns: 5_000_000,
                ..FaultRates::default()
            },
            ..FaultPlan::default()
        };
    }
    let mut rig = Rig::new(rig).map_err(|error| (0, error.to_string()))?;
    let located = |at: u32, call: &Call| {
        let call = call.clone();
        let config = config.clone();
        move |what: String| (at, format!("{what}\nin {call:?}\nof {config:?}"))
    };
    for at in 0..CALLS {
        let call = calls.next(Target::control(&rig));
        let place = located(at, &call);
        let before = (Target::control(&rig).stats(), Target::control(&rig).digest());
        let result = rig.call(&call);
        rig.check().map_err(&place)?;
        let after = (Target::control(&rig).stats(), Target::control(&rig).digest());
        match result {
            Ok(reply) => {
                coverage.saw(call.name());
                if let Reply::Step(plan) = &reply {
                    coverage.step(plan);
                }
                calls.learn(&call, &reply);
                if matches!(call, Call::Match { .. } | Call::WhatIf { .. }) && before != after {
                    return Err(place(format!("a question changed {before:?} to {after:?}")));
                }
            }
            Err(Ok(broke)) => return Err(place(broke)),
            Err(Err(refused)) => {
                coverage.saw(format!("{}: {}", call.name(), refused.name()));
                if before != after {
                    return Err(place(format!("a refusal ({refused}) changed {before:?} to {after:?}")));
                }
                missing_is_told(&refused).map_err(&place)?;
            }
        }
        watch(&rig, coverage);
    }
    let failed = {
        let counters = Target::control(&rig).counters();
        counters.backups_failed + counters.loads_failed
    };
    calls.drain(&mut rig).map_err(|what| (CALLS, format!("{what}\nof {config:?}")))?;
    let counters = Target::control(&rig).counters();
    for _ in failed..counters.backups_failed + counters.loads_failed {
        coverage.saw("a copy's bytes fail");
    }
    *coverage.0.entry("pages checked".into()).or_default() += rig.verified().pages;
    Ok(())
}

/// A refusal for want of room says what is missing (contract C11).
fn missing_is_told(refused: &EngineError) -> Result<(), String> {
    match refused {
        EngineError::LaneFull { missing } | EngineError::HostFull { missing } if missing.is_zero() => {
            Err(format!("{refused:?} says that nothing is missing"))
        }
        EngineError::RequestTooLarge { need, capacity, .. } if need <= capacity => {
            Err(format!("{refused:?}, and it fits"))
        }
        _ => Ok(()),
    }
}

/// States that are rare and must come up.
fn watch(rig: &Rig, coverage: &mut Coverage) {
    let control = Target::control(rig);
    let mut waited_for = BTreeSet::new();
    for request in control.active_requests() {
        if let RequestState::Loading { op, .. } = request.state
            && !waited_for.insert(op)
        {
            coverage.saw("a load is joined");
        }
    }
    // A copy that was asked for one node reads or fills as many as it was split into since.
    let stats = control.stats();
    if stats.operations == 1 && stats.pins > 1 {
        coverage.saw("a copy spans nodes");
    }
}
