//! Identifiers, as newtypes of fixed width.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A context-parallel rank, 0..N, as the owner of pages; also the name of its lane.
    Owner(u8)
}
id! {
    /// A logical page of one tier. Owner and physical place follow from it, see [`Striping`](crate::Striping).
    PageId(u32)
}
id! {
    /// A node of the prefix tree. Ids rise monotonically and are never used again.
    NodeId(u64)
}
id! {
    /// A copy between tiers, from its reservation to its end.
    OpId(u64)
}
id! {
    /// A request, in the order of submission.
    RequestId(u64)
}
id! {
    /// A path lock taken by name.
    LockId(u64)
}
id! {
    /// Pages taken outside the tree.
    HoldId(u64)
}
id! {
    /// The logical clock: one tick per insert, admission or lock.
    Tick(u64)
}

impl Owner {
    /// The lane's index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// All owners of a system with `lanes` lanes, in order.
    pub fn all(lanes: usize) -> impl DoubleEndedIterator<Item = Owner> + Clone {
        debug_assert!(lanes <= crate::LANES_MAX);
        (0..lanes as u8).map(Owner)
    }
}
