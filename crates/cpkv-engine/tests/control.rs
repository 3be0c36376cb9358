//! The engine as an embedding engine meets it: what it decides, what it refuses, and what no rank may see differently.

use cpkv_core::{LaneCounts, OpId, Owner, RequestId, Tier};
use cpkv_engine::{
    Config, ControlPlane, CopyKind, Engine, EngineError, Key, OpOrigin, RequestState, SubmitOptions, WritePolicy,
};
use cpkv_sim::{Fault, FaultPlan, SimClock, SimConfig, SimDevice};

/// Tokens of `pages` pages of stream `stream`: pages of 16 tokens, different in every token.
fn tokens(stream: u32, pages: u32) -> Vec<u32> {
    (0..pages * 16).map(|at| stream * 1_000_000 + at).collect()
}

/// Some pages of one stream, then some of another.
fn fork(a: (u32, u32), b: (u32, u32)) -> Vec<u32> {
    [tokens(a.0, a.1), tokens(b.0, b.1)].concat()
}

fn key(tokens: &[u32]) -> Key<'_> {
    Key { namespace: None, tokens }
}

fn control(config: Config) -> ControlPlane {
    ControlPlane::new(config).expect("a valid configuration")
}

fn submit(control: &mut ControlPlane, tokens: &[u32]) -> RequestId {
    control.submit(key(tokens), SubmitOptions::default()).expect("it fits").0.expect("it has tokens")
}

/// Runs a request to its end, its load-back included.
fn run(control: &mut ControlPlane, tokens: &[u32]) {
    let id = submit(control, tokens);
    let mut plan = control.step();
    if plan.loading == [id] {
        let load = plan.started.iter().find(|copy| copy.kind == CopyKind::LoadBack).expect("its load-back");
        control.ack(load.op).expect("it is in flight");
        plan = control.step();
    }
    assert_eq!(plan.admitted, [id], "{plan:?}");
    control.forward_done();
    control.finish(id, None).expect("it runs");
}

fn in_flight(control: &ControlPlane) -> Vec<OpId> {
    control.operations().map(|(op, _)| op).collect()
}

#[test]
fn what_if_changes_nothing_and_comes_true() {
    let mut control = control(Config::small(2, 6, 8));
    run(&mut control, &tokens(1, 8));
    run(&mut control, &tokens(2, 2));
    let (before, digest) = (control.stats(), control.digest());
    // Three pages of the first prompt and six new ones: two pages are free, the rest must be evicted.
    let prompt = fork((1, 3), (9, 6));
    let answer = control.what_if(key(&prompt), SubmitOptions::default()).expect("it can be asked");
    assert_eq!((control.stats(), control.digest()), (before, digest));
    assert_eq!((answer.device_pages, answer.host_pages), (3, 0));
    assert_eq!(answer.needs_per_lane.total(), 6);
    assert!(answer.missing.is_zero() && answer.limiting_lane.is_none());

    let id = submit(&mut control, &prompt);
    let plan = control.step();
    assert_eq!(plan.admitted, [id]);
    assert_eq!(plan.victims_pages, answer.victims_pages);
    assert_eq!(plan.batch[0].prefix.len(), 3);
    control.self_check().expect("every page in one place");
}

#[test]
fn what_if_names_the_limiting_lane() {
    let mut control = control(Config::small(4, 2, 0));
    control.hold(&[Owner(2), Owner(2)]).expect("they are free");
    let answer = control.what_if(key(&tokens(1, 4)), SubmitOptions::default()).expect("it can be asked");
    assert_eq!(answer.limiting_lane, Some(Owner(2)));
    assert_eq!(answer.missing, LaneCounts::from([0, 0, 1, 0]));
}

/// C12: what can never fit is refused at submit, with the pool and the lane.
#[test]
fn what_never_fits_is_refused_at_submit() {
    let mut control = control(Config::small(2, 4, 0));
    let refused = control.submit(key(&tokens(1, 9)), SubmitOptions::default());
    let error = refused.expect_err("nine pages, and eight in all");
    assert_eq!(error, EngineError::RequestTooLarge { tier: Tier::Device, lane: Owner(0), need: 5, capacity: 4 });
    assert_eq!(control.stats().queued, 0);
    assert!(control.submit(key(&tokens(1, 8)), SubmitOptions::default()).is_ok(), "eight fit");
}

/// A prefix whose owners leave no room for the rest of the prompt on one lane is computed again: the request would
/// wait for ever otherwise.
#[test]
fn a_prefix_in_its_requests_own_way_is_computed_again() {
    let mut config = Config::small(2, 3, 0);
    config.placement = cpkv_core::Placement::Zigzag;
    let mut control = control(config);
    // Zigzag gives one page to lane 0, each time.
    run(&mut control, &tokens(1, 1));
    run(&mut control, &fork((1, 1), (2, 1)));
    run(&mut control, &[fork((1, 1), (2, 1)), tokens(3, 1)].concat());
    assert_eq!(control.stats().device_evictable, LaneCounts::from([3, 0]));
    // The whole prompt is cached up to its last page, which lane 0 has no place for. From the start, four pages are
    // two on each lane.
    let prompt = [fork((1, 1), (2, 1)), tokens(3, 1), tokens(4, 1)].concat();
    let id = submit(&mut control, &prompt);
    let plan = control.step();
    assert_eq!(plan.admitted, [id], "{plan:?}");
    assert_eq!((plan.batch[0].prefix.len(), plan.batch[0].new_pages.len()), (0, 4));
    control.forward_done();
    control.finish(id, None).expect("it runs");
    control.self_check().expect("every page in one place");
    assert_eq!(control.match_prefix(key(&prompt)).device_pages, 4);
}

/// C4: an ack that comes before the local copy has ended is refused, and the pages stay.
#[test]
fn an_ack_before_the_copys_end_is_refused() {
    let clock = SimClock::new();
    let device = SimDevice::new(SimConfig::default(), clock.clone());
    let mut engine = Engine::new(Config::small(1, 4, 4), vec![(Owner(0), device)]).expect("pools");
    let prompt = tokens(1, 4);
    engine.insert(key(&prompt), None).expect("room");
    engine.forward_done([]).expect("no fence");
    let (op, _) = engine.backup(key(&prompt)).expect("room");
    let op = op.expect("something to save");
    assert_eq!(engine.ack(op), Err(EngineError::InFlight));
    assert_eq!(engine.fail(op), Err(EngineError::InFlight));
    assert!(engine.completed().is_empty());
    assert_eq!(engine.control().stats().host_pending, LaneCounts::from([4]));
    clock.advance_by(1_000_000_000);
    assert_eq!(engine.completed().len(), 1);
    assert_eq!(engine.ack(op), Ok(vec![4]));
    assert_eq!(engine.ack(op), Err(EngineError::UnknownName { what: "copy" }), "once");
    assert_eq!(engine.control().counters().late_ends, 1);
    engine.self_check().expect("every page in one place");
}

/// C7, C8: a backend that fails changes no decision. Only the agreed end of a copy does.
#[test]
fn a_failing_backend_changes_no_decision() {
    let run = |faults: Vec<Fault>| {
        let sim = SimConfig { faults: FaultPlan { script: faults, ..FaultPlan::default() }, ..SimConfig::default() };
        let mut config = Config::small(2, 4, 4);
        config.write_policy = WritePolicy::WriteThrough;
        let lanes = Owner::all(2).map(|owner| (owner, SimDevice::new(sim.clone(), SimClock::new()))).collect();
        let mut engine = Engine::new(config, lanes).expect("pools");
        let mut digests = Vec::new();
        for stream in 1..8 {
            let prompt = tokens(stream, 3);
            let (id, _) = engine.submit(key(&prompt), SubmitOptions::default()).expect("it fits");
            let id = id.expect("it has tokens");
            let plan = engine.step();
            engine.forward_done([]).expect("no fence");
            if plan.admitted.is_empty() {
                engine.abort(id).expect("it is queued");
            } else {
                engine.finish(id, None).expect("it runs");
            }
            digests.push(engine.control().digest());
        }
        (digests, engine.completed().iter().any(|completion| completion.error.is_some()))
    };
    let (healthy, _) = run(vec![]);
    let (failing, failed) = run(vec![Fault::LoseAtCopy { nth: 1 }]);
    assert!(failed, "the device was lost");
    assert_eq!(healthy, failing);
}

/// C7: replicas that are fed the same calls agree after every step, in whatever order the acks between two steps come.
#[test]
fn replicas_agree_whatever_the_order_of_acks() {
    let digests = |reversed: bool| {
        let mut config = Config::small(2, 9, 9);
        config.write_policy = WritePolicy::WriteThrough;
        let mut control = control(config);
        let mut digests = Vec::new();
        for (round, stream) in [1, 2, 3, 1, 4, 2, 5, 1].into_iter().enumerate() {
            run(&mut control, &tokens(stream, 3));
            if round % 2 == 1 {
                let mut ops = in_flight(&control);
                assert!(ops.len() > 1 || round > 1, "several copies end between two steps");
                if reversed {
                    ops.reverse();
                }
                for op in ops {
                    control.ack(op).expect("it is in flight");
                }
            }
            control.self_check().expect("every page in one place");
            digests.push(control.digest());
        }
        digests
    };
    assert_eq!(digests(false), digests(true));
    let mut other = control(Config::small(2, 9, 8));
    run(&mut other, &tokens(1, 3));
    assert!(!digests(false).contains(&other.digest()), "another configuration is another digest");
}

/// All planners decide the same: the digest doesn't tell them apart.
#[test]
fn planners_give_one_digest() {
    let digest = |planner| {
        let mut config = Config::small(2, 6, 0);
        config.planner = planner;
        let mut control = control(config);
        for stream in 10..40 {
            run(&mut control, &fork((stream % 4, 2), (stream, 3)));
        }
        assert!(control.counters().device_victims > 5);
        control.digest()
    };
    let first = digest(cpkv_plan::Algorithm::Greedy);
    for planner in cpkv_plan::Algorithm::ALL {
        assert_eq!(digest(*planner), first, "{planner:?}");
    }
}

/// C15: a step restores the free-room targets of both tiers by planned eviction, before anybody needs them.
#[test]
fn a_step_restores_free_room() {
    let mut config = Config::small(2, 8, 8);
    (config.device_free_room, config.host_free_room) = (2, 3);
    config.write_policy = WritePolicy::WriteThrough;
    let mut control = control(config);
    for stream in 1..=4 {
        control.insert(key(&tokens(stream, 4)), None).expect("room");
        for op in in_flight(&control) {
            control.ack(op).expect("it is in flight");
        }
    }
    assert_eq!(control.stats().device_free, LaneCounts::from([0, 0]));
    let plan = control.step();
    let stats = control.stats();
    assert_eq!(plan.victims_pages, [4], "one node is enough for two pages a lane");
    assert!(stats.device_free.covers(&LaneCounts::splat(2, 2)), "{stats:?}");
    assert!(stats.host_free.covers(&LaneCounts::splat(2, 3)), "{stats:?}");
    assert!(control.step().victims_pages.is_empty(), "and no more than that");
}

/// Write-back: a node that isn't saved leaves the device only after its copy has been acknowledged.
#[test]
fn write_back_frees_after_the_ack() {
    let mut config = Config::small(1, 4, 4);
    config.write_policy = WritePolicy::WriteBack;
    let mut control = control(config);
    let first = tokens(1, 4);
    run(&mut control, &first);
    let second = submit(&mut control, &tokens(2, 4));
    let plan = control.step();
    assert!(plan.admitted.is_empty() && plan.stopped.outcome() == "no_token");
    assert!(matches!(plan.started[..], [copy] if copy.kind == CopyKind::Backup && copy.origin == OpOrigin::Policy(1)));
    assert_eq!(control.stats().device_free, LaneCounts::from([0]));
    assert!(control.step().started.is_empty(), "what is staged counts as coming");
    control.ack(plan.started[0].op).expect("it is in flight");
    assert_eq!(control.stats().device_free, LaneCounts::from([4]));
    assert_eq!(control.step().admitted, [second]);
    assert_eq!(control.match_prefix(key(&first)).host_pages, 4, "nothing was lost");
    control.self_check().expect("every page in one place");
}

/// C18: counters only rise, and what is used stays within the pools.
#[test]
fn counters_rise_and_use_stays_within_the_pools() {
    let mut config = Config::small(2, 5, 5);
    config.write_policy = WritePolicy::WriteThrough;
    let mut control = control(config);
    let mut last = control.counters().clone();
    for round in 0..30u32 {
        run(&mut control, &fork((round % 3, 2), (10 + round % 7, 2)));
        for op in in_flight(&control) {
            if round % 4 == 0 {
                control.fail(op).expect("it is in flight");
            } else {
                control.ack(op).expect("it is in flight");
            }
        }
        let now = control.counters().clone();
        for (before, after) in [
            (&last.evicted_pages, &now.evicted_pages),
            (&last.backed_up_pages, &now.backed_up_pages),
            (&last.host_evicted_pages, &now.host_evicted_pages),
        ] {
            assert!(before.iter().zip(after).all(|(before, after)| before <= after));
        }
        assert!(last.admitted < now.admitted && last.input_tokens < now.input_tokens);
        let (stats, pools) = (control.stats(), LaneCounts::splat(2, 5));
        assert!(pools.covers(&stats.device_free) && pools.covers(&stats.host_valid));
        control.self_check().expect("every page in one place");
        last = now;
    }
    assert!(last.evicted_pages.iter().sum::<u64>() > 0 && last.backups_failed > 0);
}

/// Two requests with one prefix on the host wait for one load-back.
#[test]
fn requests_with_one_prefix_share_its_load() {
    let mut control = control(Config::small(1, 8, 4));
    let prefix = tokens(1, 4);
    control.insert(key(&prefix), None).expect("room");
    let (op, _) = control.backup(key(&prefix)).expect("room");
    control.ack(op.expect("it was unsaved")).expect("it is in flight");
    control.evict_device(&LaneCounts::from([4]));
    control.take_started();
    let (one, two) = (submit(&mut control, &fork((1, 4), (2, 1))), submit(&mut control, &fork((1, 4), (3, 1))));
    let plan = control.step();
    assert_eq!((plan.loading.clone(), plan.started.len()), (vec![one, two], 1));
    control.self_check().expect("every page in one place");
    // The load fails: both wait again, and what could not be read is gone.
    control.fail(plan.started[0].op).expect("it is in flight");
    assert_eq!((control.stats().queued, control.match_prefix(key(&prefix)).host_pages), (2, 0));
    assert_eq!(control.stats().device_free, LaneCounts::from([8]));
    control.self_check().expect("every page in one place");
    // Five pages each: they fit one after the other.
    assert_eq!(control.step().admitted, [one]);
    control.forward_done();
    control.finish(one, None).expect("it runs");
    assert_eq!(control.step().admitted, [two]);
    assert_eq!(control.request(two).map(|request| request.state), Some(RequestState::Running));
}
