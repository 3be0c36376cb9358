//! The order in which requests are asked: a pure comparison key.

use std::cmp::Reverse;

/// How the queue is ordered. Either order ends in the sequence number and is total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum QueueOrder {
    /// First come, first served.
    #[default]
    Fcfs,
    /// The larger priority first, among equals first come, first served.
    Priority,
}

/// A place in the queue: the smaller key is asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderKey(Reverse<i64>, u64);

impl QueueOrder {
    /// The key of a request with this priority and this number in the order of submission. A request that goes back to
    /// the queue keeps its number, so it keeps its place.
    #[must_use]
    pub fn key(self, priority: i64, sequence: u64) -> OrderKey {
        match self {
            QueueOrder::Fcfs => OrderKey(Reverse(0), sequence),
            QueueOrder::Priority => OrderKey(Reverse(priority), sequence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(by: QueueOrder, queue: &[(i64, u64)]) -> Vec<u64> {
        let mut queue = queue.to_vec();
        queue.sort_by_key(|(priority, sequence)| by.key(*priority, *sequence));
        queue.into_iter().map(|(_, sequence)| sequence).collect()
    }

    #[test]
    fn priority_goes_first_and_ties_keep_the_order_of_submission() {
        let queue = [(0, 3), (5, 2), (-1, 0), (5, 1), (i64::MIN, 5), (i64::MAX, 4)];
        assert_eq!(order(QueueOrder::Fcfs, &queue), [0, 1, 2, 3, 4, 5]);
        assert_eq!(order(QueueOrder::Priority, &queue), [4, 1, 2, 3, 0, 5]);
    }
}
