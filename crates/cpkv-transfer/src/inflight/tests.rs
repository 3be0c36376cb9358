//! The table against a naive one: all observables after every operation.

use super::*;
use crate::Submitted;
use cpkv_core::DeviceError;
use proptest::prelude::*;

/// Fences are indices into a list of statuses that the test moves.
type Fence = usize;

#[derive(Debug, Clone)]
enum Op {
    /// An operation with this id, and per lane a part: fences of a submission, or a refusal with or without a rest.
    Insert {
        op: u64,
        parts: Vec<PartKind>,
    },
    /// A fence that is pending is reached, or fails.
    Reach {
        fence: prop::sample::Index,
        fails: bool,
    },
    Poll,
    Abort {
        op: u64,
    },
    End {
        op: u64,
    },
}

#[derive(Debug, Clone, Copy)]
enum PartKind {
    Submitted { fences: usize },
    Refused { rest: bool },
}

/// Ids from a small range: some are in flight, some have ended, some never were.
fn op() -> impl Strategy<Value = Op> {
    let part = prop_oneof![
        4 => (0usize..4).prop_map(|fences| PartKind::Submitted { fences }),
        1 => any::<bool>().prop_map(|rest| PartKind::Refused { rest }),
    ];
    prop_oneof![
        3 => (0u64..8, prop::collection::vec(part, 0..4)).prop_map(|(op, parts)| Op::Insert { op, parts }),
        8 => (any::<prop::sample::Index>(), prop::bool::weighted(0.2))
            .prop_map(|(fence, fails)| Op::Reach { fence, fails }),
        4 => Just(Op::Poll),
        1 => (0u64..8).prop_map(|op| Op::Abort { op }),
        4 => (0u64..8).prop_map(|op| Op::End { op }),
    ]
}

/// What a naive implementer writes: a list in the order of insertion, everything worked out anew each time.
#[derive(Debug, Clone)]
struct NaiveOp {
    op: u64,
    payload: u64,
    fences: Vec<Fence>,
    refused: bool,
    aborted: bool,
    /// As of the last poll.
    complete: bool,
}

impl NaiveOp {
    fn fails(&self, fences: &[FenceStatus]) -> bool {
        let failed = |fence: &Fence| matches!(fences[*fence], FenceStatus::Failed(_));
        self.aborted || self.refused || self.fences.iter().any(failed)
    }
}

#[derive(Debug, Default)]
struct Naive {
    in_flight: Vec<NaiveOp>,
    fences: Vec<FenceStatus>,
    payloads: u64,
    late: u64,
    ended: u64,
}

impl Naive {
    fn find(&self, op: u64) -> Option<usize> {
        self.in_flight.iter().position(|known| known.op == op)
    }
}

/// Fences of one stream are reached in order: reaches the first pending one at or after the drawn place.
fn reach(fences: &mut [FenceStatus], place: usize, fails: bool) {
    if let Some(fence) = fences[place..].iter_mut().find(|fence| **fence == FenceStatus::Pending) {
        *fence = if fails {
            FenceStatus::Failed(DeviceError::CopyFailed { what: "no".to_owned() })
        } else {
            FenceStatus::Done
        };
    }
}

fn poll<P>(table: &mut InFlight<Fence, P>, fences: &[FenceStatus]) -> Vec<(OpId, Completion)> {
    table.poll_done(|_, fence| fences[fence].clone())
}

fn step(table: &mut InFlight<Fence, u64>, naive: &mut Naive, op: &Op) -> Result<(), TestCaseError> {
    match op {
        Op::Insert { op, parts } => {
            let (payload, before) = (naive.payloads, naive.fences.len());
            let mut made = Vec::new();
            for (lane, kind) in (0..).map(Owner).zip(parts) {
                let first = naive.fences.len();
                let part = match kind {
                    PartKind::Submitted { fences } => {
                        naive.fences.resize(first + fences, FenceStatus::Pending);
                        let fences = (first..first + fences).collect();
                        Part::Submitted(Submitted { fences, ..Submitted::new(0) })
                    }
                    PartKind::Refused { rest } => {
                        naive.fences.resize(first + usize::from(*rest), FenceStatus::Pending);
                        Part::Refused { why: "refused".to_owned(), rest: rest.then_some(first) }
                    }
                };
                made.push((lane, part));
            }
            let inserted = table.insert(OpId(*op), payload, made.clone());
            if naive.find(*op).is_some() {
                prop_assert_eq!(inserted, Err(InsertError { op: OpId(*op), payload, parts: made }));
                naive.fences.truncate(before);
            } else {
                prop_assert_eq!(inserted, Ok(()));
                naive.payloads += 1;
                let refused = parts.iter().any(|kind| matches!(kind, PartKind::Refused { .. }));
                let fences = (before..naive.fences.len()).collect();
                naive.in_flight.push(NaiveOp {
                    op: *op,
                    payload,
                    fences,
                    refused,
                    aborted: false,
                    complete: parts.is_empty(),
                });
            }
        }
        Op::Reach { fence, fails } => {
            if !naive.fences.is_empty() {
                let place = fence.index(naive.fences.len());
                reach(&mut naive.fences, place, *fails);
            }
        }
        Op::Poll => {
            let mut expected = Vec::new();
            let fences = &naive.fences;
            for known in &mut naive.in_flight {
                known.complete = known.fences.iter().all(|fence| fences[*fence] != FenceStatus::Pending);
                if known.complete {
                    expected.push((OpId(known.op), known.fails(fences)));
                }
            }
            expected.sort_unstable();
            let came: Vec<(OpId, bool)> =
                poll(table, fences).into_iter().map(|(op, end)| (op, end != Completion::Done)).collect();
            prop_assert_eq!(came, expected);
        }
        Op::Abort { op } => {
            let found = naive.find(*op);
            prop_assert_eq!(table.abort(OpId(*op)), found.is_some());
            if let Some(place) = found {
                naive.in_flight[place].aborted = true;
            }
        }
        Op::End { op } => {
            let ended = table.end(OpId(*op)).map(|(payload, end)| (payload, end != Completion::Done));
            match naive.find(*op) {
                None => {
                    naive.late += 1;
                    prop_assert_eq!(ended, Err(EndError::Unknown { op: OpId(*op) }));
                }
                Some(place) if !naive.in_flight[place].complete => {
                    prop_assert_eq!(ended, Err(EndError::Running { op: OpId(*op) }));
                }
                Some(place) => {
                    let known = naive.in_flight.remove(place);
                    naive.ended += 1;
                    prop_assert_eq!(ended, Ok((known.payload, known.fails(&naive.fences))));
                }
            }
        }
    }
    Ok(())
}

fn compare(table: &InFlight<Fence, u64>, naive: &Naive) -> Result<(), TestCaseError> {
    prop_assert_eq!(table.self_check(), Ok(()));
    prop_assert_eq!((table.late(), table.ended()), (naive.late, naive.ended));
    prop_assert_eq!((table.len(), table.is_empty()), (naive.in_flight.len(), naive.in_flight.is_empty()));
    let mut ids: Vec<OpId> = naive.in_flight.iter().map(|known| OpId(known.op)).collect();
    ids.sort_unstable();
    prop_assert_eq!(table.ids().collect::<Vec<_>>(), ids);
    for known in &naive.in_flight {
        prop_assert_eq!(table.payload(OpId(known.op)), Some(&known.payload));
        let expected = known.complete.then(|| known.fails(&naive.fences));
        prop_assert_eq!(table.completion(OpId(known.op)).map(|end| end != Completion::Done), expected);
    }
    Ok(())
}

proptest! {
    // 2,000 cases of up to 80 operations.
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_table_equals_the_naive_one(ops in prop::collection::vec(op(), 0..80)) {
        let (mut table, mut naive) = (InFlight::new(), Naive::default());
        for op in &ops {
            step(&mut table, &mut naive, op)?;
            compare(&table, &naive)?;
        }
    }
}

fn copy(fences: &[Fence]) -> Part<Fence> {
    Part::Submitted(Submitted { fences: fences.to_vec(), ..Submitted::new(0) })
}

const OP: OpId = OpId(7);

/// FAULTS D1 and D3, worked scenario 11: aborted at any point, the pages come back once, not before the copy has
/// ended, and a late end is ignored and counted once.
#[test]
fn pages_come_back_once_wherever_the_abort_falls() {
    for aborted_after in 0..=3 {
        let mut fences = vec![FenceStatus::Pending; 3];
        let mut table = InFlight::new();
        table.insert(OP, "pages", vec![(Owner(0), copy(&[0, 1])), (Owner(1), copy(&[2]))]).unwrap();
        for reached in 0..=3 {
            if reached == aborted_after {
                assert!(table.abort(OP));
            }
            let done = poll(&mut table, &fences);
            if reached < 3 {
                assert_eq!((done, table.end(OP)), (vec![], Err(EndError::Running { op: OP })), "{reached} of 3 fences");
                fences[reached] = FenceStatus::Done;
            }
        }
        assert_eq!(table.end(OP), Ok(("pages", Completion::Failed("aborted".to_owned()))));
        assert_eq!((table.end(OP), table.late()), (Err(EndError::Unknown { op: OP }), 1));
        assert!(table.is_empty() && !table.abort(OP) && poll(&mut table, &fences).is_empty());
    }
}

/// FAULTS P5: a completion is found however long after its submission.
#[test]
fn one_failed_lane_fails_the_operation_and_names_itself() {
    let failed = FenceStatus::Failed(DeviceError::CopyFailed { what: "fault".to_owned() });
    let mut table = InFlight::new();
    let parts = vec![(Owner(0), copy(&[0])), (Owner(3), copy(&[1])), (Owner(5), copy(&[2]))];
    table.insert(OP, (), parts).unwrap();
    assert_eq!(poll(&mut table, &[FenceStatus::Done, failed.clone(), FenceStatus::Pending]), []);
    assert_eq!(table.running(OP).map(|(lane, _)| lane).collect::<Vec<_>>(), [Owner(5)]);
    // Fences of parts that have ended aren't asked for again.
    let end = (OP, Completion::Failed("lane 3: copy failed: fault".to_owned()));
    assert_eq!(
        poll(&mut table, &[FenceStatus::Pending, FenceStatus::Pending, FenceStatus::Done]),
        std::slice::from_ref(&end)
    );
    assert_eq!(poll(&mut table, &[]), [end], "until it is ended");
    assert!(table.end(OP).is_ok());
}

#[test]
fn a_lane_with_two_parts_is_refused_and_all_is_given_back() {
    let mut table = InFlight::new();
    let parts = vec![(Owner(2), copy(&[0])), (Owner(1), copy(&[1])), (Owner(2), copy(&[2]))];
    let refused = table.insert(OP, "pages", parts.clone()).unwrap_err();
    assert_eq!((refused.payload, refused.parts), ("pages", parts));
    assert!(table.is_empty());
    assert_eq!(table.self_check(), Ok(()));
}

#[test]
fn the_check_sees_a_lost_operation() {
    let mut table = InFlight::new();
    table.insert(OP, (), vec![(Owner(0), copy(&[0]))]).unwrap();
    assert_eq!(table.self_check(), Ok(()));
    table.operations.clear();
    assert_eq!(table.self_check(), Err("1 operations came, 0 ended and 0 are in flight".to_owned()));
}
