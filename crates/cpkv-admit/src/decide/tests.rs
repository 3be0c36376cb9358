//! Tests of the batch: worked cases, and a naive model that keeps every member and adds up anew.

use proptest::prelude::*;

use super::*;

fn candidate(input_tokens: u64, cached_tokens: u64) -> Candidate {
    Candidate { input_tokens, cached_tokens, page_size: 4 }
}

/// Asks and, where it fits, commits.
fn offer(batch: &mut Batch, candidate: &Candidate) -> Result<Shape, Stop> {
    let shape = batch.shape(candidate)?;
    batch.check(&shape)?;
    batch.commit(&shape);
    Ok(shape)
}

fn other(limit: Limit, value: u64, bound: u64) -> Stop {
    Stop::Other { limit, value, bound }
}

#[test]
fn prompts_are_tested_against_what_is_left_of_the_chunk() {
    // FAULTS E15: chunk 8, prompts 4 and 8: the first pass computes 8.
    let mut batch = Batch::new(&Limits { chunk_tokens: Some(8), ..Limits::default() });
    assert!(!offer(&mut batch, &candidate(4, 0)).unwrap().chunked);
    assert_eq!(batch.chunk_tokens_left(), Some(4));
    let cut = offer(&mut batch, &candidate(8, 0)).unwrap();
    assert_eq!(cut, Shape { extend_tokens: 4, chunked: true, cached_tokens: 0 });
    assert_eq!(batch.extend_tokens(), 8);
    assert_eq!(batch.shape(&candidate(1, 0)), Err(other(Limit::ChunkTokens, 9, 8)));
    // The rest comes as a prompt of which 4 tokens are cached.
    let mut next = Batch::new(&Limits { chunk_tokens: Some(8), ..Limits::default() });
    let rest = offer(&mut next, &candidate(8, 4)).unwrap();
    assert_eq!(rest, Shape { extend_tokens: 4, chunked: false, cached_tokens: 4 });
}

#[test]
fn less_than_a_page_of_the_chunk_is_nothing() {
    let mut batch = Batch::new(&Limits { chunk_tokens: Some(11), ..Limits::default() });
    assert_eq!(offer(&mut batch, &candidate(8, 0)).unwrap().extend_tokens, 8);
    assert_eq!(batch.shape(&candidate(2, 0)), Err(other(Limit::ChunkTokens, 10, 11)));
}

#[test]
fn a_request_larger_than_every_limit_runs_alone() {
    let limits = Limits {
        batch_requests: Some(1),
        input_tokens: Some(1),
        extend_tokens: Some(1),
        cached_tokens: Some(1),
        chunk_tokens: Some(8),
        ..Limits::default()
    };
    let mut batch = Batch::new(&limits);
    let shape = offer(&mut batch, &candidate(100, 40)).unwrap();
    assert_eq!(shape, Shape { extend_tokens: 8, chunked: true, cached_tokens: 40 }, "the cut applies all the same");
    assert_eq!(offer(&mut batch, &candidate(1, 0)), Err(other(Limit::BatchRequests, 2, 1)));
}

#[test]
fn a_second_cached_request_over_the_cached_limit_waits() {
    // The report that the limit comes from: a second request with 4,096 cached tokens.
    let mut batch = Batch::new(&Limits { cached_tokens: Some(4096), ..Limits::default() });
    offer(&mut batch, &candidate(4100, 4096)).unwrap();
    assert_eq!(offer(&mut batch, &candidate(4100, 4096)), Err(other(Limit::CachedTokens, 8192, 4096)));
    assert!(offer(&mut batch, &candidate(4, 0)).is_ok(), "the sum is at the limit, which fits");
}

#[test]
fn the_sum_may_reach_a_limit() {
    let mut batch = Batch::new(&Limits { input_tokens: Some(10), ..Limits::default() });
    offer(&mut batch, &candidate(5, 0)).unwrap();
    offer(&mut batch, &candidate(5, 0)).unwrap();
    assert_eq!(batch.check_next(4), Err(other(Limit::InputTokens, 11, 10)));
}

#[test]
fn limits_are_met_in_order() {
    let all = Limits {
        batch_requests: Some(1),
        chunk_tokens: Some(4),
        input_tokens: Some(4),
        extend_tokens: Some(4),
        cached_tokens: Some(4),
        ..Limits::default()
    };
    let without = |limits: &Limits, limit| match limit {
        Limit::BatchRequests => Limits { batch_requests: None, ..*limits },
        Limit::ChunkTokens => Limits { chunk_tokens: None, ..*limits },
        Limit::InputTokens => Limits { input_tokens: None, ..*limits },
        Limit::ExtendTokens => Limits { extend_tokens: None, ..*limits },
        Limit::CachedTokens => Limits { cached_tokens: None, ..*limits },
        Limit::BufferBytes => *limits,
    };
    let mut limits = all;
    for limit in Limit::ALL.into_iter().take(5) {
        let mut batch = Batch::new(&limits);
        offer(&mut batch, &candidate(8, 4)).unwrap();
        match offer(&mut batch, &candidate(8, 4)) {
            Err(Stop::Other { limit: met, .. }) => assert_eq!(met, limit),
            other => panic!("expected {limit}, got {other:?}"),
        }
        limits = without(&limits, limit);
    }
    assert_eq!(limits, Limits::default());
}

#[test]
fn a_shape_from_before_a_commit_meets_the_chunk_budget() {
    for (extend_tokens, named) in
        [(None, Limit::ChunkTokens), (Some(20), Limit::ChunkTokens), (Some(8), Limit::ExtendTokens)]
    {
        let mut batch = Batch::new(&Limits { chunk_tokens: Some(8), extend_tokens, ..Limits::default() });
        let stale = batch.shape(&candidate(8, 0)).unwrap();
        offer(&mut batch, &candidate(4, 0)).unwrap();
        assert_eq!(batch.check(&stale), Err(other(named, 12, 8)));
    }
}

#[test]
fn stops_say_why() {
    let no_token = Stop::NoToken { tier: Tier::Device, lane: Owner(3), need: 2, have: 1 };
    assert_eq!((no_token.outcome(), no_token.reason().as_str()), ("no_token", "lane:3"));
    assert_eq!(no_token.to_string(), "no_token: lane 3 of the device tier needs 2 pages and can give 1");
    let stop = other(Limit::CachedTokens, 9, 8);
    assert_eq!((stop.outcome(), stop.reason().as_str()), ("other", "cached_tokens"));
    assert_eq!(stop.to_string(), "other: cached_tokens would be 9, the limit is 8");
}

#[test]
fn self_check_names_the_sum_that_is_off() {
    let mut batch = Batch::new(&Limits { input_tokens: Some(10), ..Limits::default() });
    let shape = batch.shape(&candidate(8, 0)).unwrap();
    batch.commit(&shape);
    assert_eq!(batch.self_check(), Ok(()));
    batch.commit(&shape); // without asking
    assert_eq!(batch.self_check(), Err("input_tokens: 16 in a batch of 2, at most 10".to_owned()));
}

/// The naive model: all members, and every sum made anew in 128 bits.
#[derive(Debug)]
struct Model {
    limits: Limits,
    members: Vec<Shape>,
}

impl Model {
    fn sum(&self, what: impl Fn(&Shape) -> u64) -> u128 {
        self.members.iter().map(|shape| u128::from(what(shape))).sum()
    }

    /// The rules of the text, one after another.
    fn offer(&mut self, candidate: &Candidate) -> Result<Shape, Limit> {
        let over = |bound: Option<u64>, sum: u128| bound.is_some_and(|bound| sum > u128::from(bound));
        let first = self.members.is_empty();
        let members = self.members.len() as u128;
        if !first && over(self.limits.batch_requests.map(u64::from), members + 1) {
            return Err(Limit::BatchRequests);
        }
        let p = u128::from(candidate.page_size);
        let cached = u128::from(candidate.cached_tokens);
        let mut extend = u128::from(candidate.input_tokens) - cached;
        let mut chunked = false;
        if let Some(chunk) = self.limits.chunk_tokens {
            let left = u128::from(chunk) - self.sum(|shape| shape.extend_tokens);
            let floor = left / p * p;
            if extend > floor {
                (extend, chunked) = (floor, true);
            }
            if extend == 0 {
                return Err(Limit::ChunkTokens);
            }
        }
        let extend_sum = self.sum(|shape| shape.extend_tokens) + extend;
        for (limit, bound, sum) in [
            (Limit::InputTokens, self.limits.input_tokens, extend_sum),
            (Limit::ExtendTokens, self.limits.extend_tokens, extend_sum),
            (Limit::CachedTokens, self.limits.cached_tokens, self.sum(|shape| shape.cached_tokens) + cached),
        ] {
            if !first && over(bound, sum) {
                return Err(limit);
            }
        }
        let shape = Shape { extend_tokens: extend as u64, chunked, cached_tokens: cached as u64 };
        self.members.push(shape);
        Ok(shape)
    }
}

fn limits() -> impl Strategy<Value = Limits> {
    let tokens = || proptest::option::of(prop_oneof![1u64..40, 1u64..400]);
    (proptest::option::of(1u32..6), tokens(), proptest::option::of(8u64..120), tokens(), tokens()).prop_map(
        |(batch_requests, input_tokens, chunk_tokens, extend_tokens, cached_tokens)| Limits {
            batch_requests,
            input_tokens,
            chunk_tokens,
            extend_tokens,
            cached_tokens,
            buffer_bytes: None,
        },
    )
}

fn queue(longest: u64) -> impl Strategy<Value = Vec<Candidate>> {
    (1u32..=8).prop_flat_map(move |page_size| {
        let one = (1..=longest, 0..=longest).prop_map(move |(input, hit)| Candidate::capped(input, hit, page_size));
        proptest::collection::vec(one, 1..30)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Every answer and every sum as the naive model has it. The loop goes on after a stop: a smaller candidate that
    /// would still fit must get in, and refusals must change nothing.
    #[test]
    fn batch_equals_the_naive_model(limits in limits(), queue in queue(90)) {
        prop_assert_eq!(limits.validate(queue[0].page_size), Ok(()));
        let mut batch = Batch::new(&limits);
        let mut model = Model { limits, members: Vec::new() };
        for candidate in &queue {
            let before = format!("{batch:?}");
            let shape = batch.shape(candidate);
            prop_assert_eq!(batch.shape(candidate), shape, "asking twice gives one answer");
            let answer = shape.and_then(|shape| {
                assert_eq!(batch.check(&shape), batch.check(&shape));
                batch.check(&shape).map(|()| shape)
            });
            prop_assert_eq!(format!("{batch:?}"), before, "asking changes nothing");
            let named = answer.map_err(|stop| match stop {
                Stop::Other { limit, value, bound } => {
                    assert!(limits.get(limit) == Some(bound));
                    // The chunk budget also stops what would fit it in tokens but not in pages.
                    assert!(value > bound || limit == Limit::ChunkTokens);
                    limit
                }
                Stop::NoToken { .. } => unreachable!("the batch knows no lanes"),
            });
            prop_assert_eq!(named, model.offer(candidate));
            if let Ok(shape) = named {
                batch.commit(&shape);
                if shape.chunked {
                    prop_assert!(shape.extend_tokens > 0);
                    prop_assert_eq!(shape.extend_tokens % u64::from(candidate.page_size), 0);
                    prop_assert_eq!(shape.end_tokens() % u64::from(candidate.page_size), 0);
                }
            }
            prop_assert_eq!(batch.requests() as usize, model.members.len());
            prop_assert_eq!(u128::from(batch.extend_tokens()), model.sum(|shape| shape.extend_tokens));
            prop_assert_eq!(u128::from(batch.cached_tokens()), model.sum(|shape| shape.cached_tokens));
            prop_assert_eq!(batch.self_check(), Ok(()));
        }
        prop_assert!(batch.requests() >= 1, "an empty batch takes its first candidate");
        if batch.requests() > 1 {
            for limit in limits.effective().iter() {
                let sum = match limit.limit {
                    Limit::BatchRequests => u64::from(batch.requests()),
                    Limit::CachedTokens => batch.cached_tokens(),
                    Limit::BufferBytes => 0,
                    _ => batch.extend_tokens(),
                };
                prop_assert!(limit.effective.is_none_or(|bound| sum <= bound), "{} exceeded: {}", limit.limit, sum);
            }
        }
    }

    /// `check_next` is what any candidate meets at least: when it refuses, so does everyone.
    #[test]
    fn what_stops_the_smallest_stops_everyone(limits in limits(), queue in queue(60)) {
        let page_size = queue[0].page_size;
        let mut batch = Batch::new(&limits);
        for candidate in &queue {
            let next = batch.check_next(page_size);
            let answer = offer(&mut batch, candidate);
            prop_assert!(next.is_ok() || answer.is_err());
        }
    }

    /// Sums are held at the end of their range, where a limit of `u64::MAX` is no limit.
    #[test]
    fn sums_never_overflow(
        bound in proptest::option::of(prop_oneof![1u64..100, u64::MAX - 100..=u64::MAX]),
        chunk in proptest::option::of(prop_oneof![16u64..100, u64::MAX - 100..=u64::MAX]),
        queue in proptest::collection::vec((u64::MAX - 100..=u64::MAX, any::<u64>(), 1u32..=16), 1..10),
    ) {
        let limits = Limits {
            input_tokens: bound, chunk_tokens: chunk, extend_tokens: bound, cached_tokens: bound, ..Limits::default()
        };
        let mut batch = Batch::new(&limits);
        for (input, hit, page_size) in queue {
            let _ = offer(&mut batch, &Candidate { input_tokens: input, cached_tokens: hit, page_size });
            let _ = batch.check_next(page_size);
            prop_assert_eq!(batch.self_check(), Ok(()));
        }
    }
}
