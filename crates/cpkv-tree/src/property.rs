//! The tree against its model: random operations, all observables compared after each, and `self_check`.

use crate::model::{Model, Observed};
use crate::{Insert, Key, Retention, Tree, TreeConfig, TreeError};
use cpkv_core::{LaneCounts, NodeId, OpId, Owner, PageId, Striping, Tick};
use proptest::prelude::*;

/// A key: a namespace, page names, and tokens beyond the last whole page.
#[derive(Debug, Clone)]
struct KeyOf {
    namespace: u8,
    pages: Vec<u8>,
    partial: bool,
}

/// How the owners of an insert's or an attach's pages are chosen.
#[derive(Debug, Clone, Copy)]
enum Owners {
    /// As what is there already, else cyclic.
    Fitting,
    /// Cyclic from a base, whatever is there.
    From(u8),
}

#[derive(Debug, Clone)]
struct InsertOf {
    key: KeyOf,
    owners: Owners,
    /// The caller holds the tree's own page where there is one.
    own_pages: bool,
    finished: bool,
    /// With a tick from the past.
    behind: bool,
    /// With a page too few.
    short: bool,
    priority: i8,
}

/// Nodes are named by their place among the live ids; a place past the last is an id that isn't live.
#[derive(Debug, Clone)]
enum Op {
    Insert(InsertOf),
    Split {
        node: u8,
        at: u8,
    },
    Prepare {
        key: KeyOf,
        pages: u8,
        stale: bool,
    },
    Touch {
        node: u8,
        behind: bool,
    },
    Attach {
        node: u8,
        host: bool,
        owners: Owners,
        short: bool,
    },
    /// Saves the whole path down to a node, parents first.
    SavePath {
        node: u8,
    },
    Demote {
        node: u8,
    },
    DropDevice {
        node: u8,
    },
    DropHost {
        node: u8,
    },
    DropHostSubtree {
        node: u8,
    },
    /// Takes the first node of a frontier.
    Evict {
        host: bool,
    },
    Lock {
        node: u8,
        host: bool,
    },
    Unlock {
        node: u8,
        host: bool,
    },
    Pending {
        node: u8,
        from: u8,
        op: Option<u8>,
        load: bool,
    },
    Reset,
}

fn any_key() -> impl Strategy<Value = KeyOf> {
    (0u8..3, prop::collection::vec(0u8..2, 0..7), any::<bool>()).prop_map(|(namespace, pages, partial)| KeyOf {
        namespace: namespace.saturating_sub(1),
        pages,
        partial,
    })
}

fn any_owners() -> impl Strategy<Value = Owners> {
    prop_oneof![4 => Just(Owners::Fitting), 1 => (0u8..4).prop_map(Owners::From)]
}

fn any_insert() -> impl Strategy<Value = InsertOf> {
    let rarely = || prop::bool::weighted(0.05);
    (any_key(), any_owners(), any::<bool>(), any::<bool>(), rarely(), rarely(), any::<i8>()).prop_map(
        |(key, owners, own_pages, finished, behind, short, priority)| InsertOf {
            key,
            owners,
            own_pages,
            finished,
            behind,
            short,
            priority,
        },
    )
}

fn any_op() -> impl Strategy<Value = Op> {
    let node = || 0u8..32;
    prop_oneof![
        24 => any_insert().prop_map(Op::Insert),
        5 => (node(), 0u8..6).prop_map(|(node, at)| Op::Split { node, at }),
        5 => (any_key(), 0u8..7, any::<bool>()).prop_map(|(key, pages, stale)| Op::Prepare { key, pages, stale }),
        4 => (node(), any::<bool>()).prop_map(|(node, behind)| Op::Touch { node, behind }),
        8 => (node(), any::<bool>(), any_owners(), prop::bool::weighted(0.05))
            .prop_map(|(node, host, owners, short)| Op::Attach { node, host, owners, short }),
        8 => node().prop_map(|node| Op::SavePath { node }),
        5 => node().prop_map(|node| Op::Demote { node }),
        3 => node().prop_map(|node| Op::DropDevice { node }),
        3 => node().prop_map(|node| Op::DropHost { node }),
        2 => node().prop_map(|node| Op::DropHostSubtree { node }),
        10 => prop::bool::weighted(0.3).prop_map(|host| Op::Evict { host }),
        6 => (node(), any::<bool>()).prop_map(|(node, host)| Op::Lock { node, host }),
        8 => (node(), any::<bool>()).prop_map(|(node, host)| Op::Unlock { node, host }),
        7 => (node(), 0u8..5, prop::option::weighted(0.5, 0u8..2), any::<bool>())
            .prop_map(|(node, from, op, load)| Op::Pending { node, from, op, load }),
        1 => Just(Op::Reset),
    ]
}

fn any_config() -> impl Strategy<Value = (TreeConfig, bool)> {
    let retention = prop::sample::select(vec![
        Retention::Lru,
        Retention::Slru,
        Retention::Lfu,
        Retention::Fifo,
        Retention::Priority,
    ]);
    (1u32..4, 1usize..5, retention, any::<bool>())
        .prop_map(|(page_size, lanes, retention, collide)| (TreeConfig { page_size, lanes, retention }, collide))
}

struct Pair {
    tree: Tree,
    model: Model,
    striping: Striping,
    page_size: u32,
    fresh: u32,
    tick: u64,
}

impl Pair {
    fn new(config: TreeConfig, collide: bool) -> Self {
        let tree = if collide { Tree::with_equal_hashes(config) } else { Tree::new(config) };
        Self {
            tree: tree.unwrap(),
            model: Model::new(config).unwrap(),
            striping: Striping::new(config.lanes).unwrap(),
            page_size: config.page_size,
            fresh: 0,
            tick: 0,
        }
    }

    fn namespace(key: &KeyOf) -> Option<&'static str> {
        [None, Some("")][usize::from(key.namespace)]
    }

    fn tokens(&self, key: &KeyOf) -> Vec<u32> {
        // Pages differ in their last token alone.
        let mut tokens: Vec<u32> =
            key.pages.iter().flat_map(|name| (1..self.page_size).map(|_| 7).chain([u32::from(*name)])).collect();
        if key.partial && self.page_size > 1 {
            tokens.push(7);
        }
        tokens
    }

    fn id(&self, node: u8) -> NodeId {
        let ids = self.model.ids();
        ids.get(usize::from(node) % (ids.len() + 1)).copied().unwrap_or(NodeId(u64::from(node) * 1000))
    }

    fn page(&mut self, owner: Owner) -> PageId {
        self.fresh += 1;
        self.striping.logical(owner, self.fresh)
    }

    /// New pages for positions that hold `there` now.
    fn pages(&mut self, there: &[Option<PageId>], owners: Owners, start: u32) -> Vec<PageId> {
        let lanes = self.striping.lanes() as u32;
        let pick = |position: u32, there: Option<PageId>| match (owners, there) {
            (Owners::Fitting, Some(page)) => self.striping.owner(page),
            (Owners::Fitting, None) => Owner((position % lanes) as u8),
            (Owners::From(base), _) => Owner(((position + u32::from(base)) % lanes) as u8),
        };
        let owners: Vec<Owner> = (start..).zip(there).map(|(position, there)| pick(position, *there)).collect();
        owners.into_iter().map(|owner| self.page(owner)).collect()
    }

    fn insert(&mut self, op: &InsertOf) {
        let InsertOf { key, owners, own_pages, finished, behind, short, priority } = op;
        let tokens = self.tokens(key);
        let of = Key { namespace: Self::namespace(key), tokens: &tokens };
        let places = self.model.places(of);
        let mut there: Vec<Option<PageId>> = places.iter().map(|(device, host)| device.or(*host)).collect();
        there.resize(key.pages.len(), None);
        let mut pages = self.pages(&there, *owners, 0);
        if *own_pages {
            for (page, (device, _)) in pages.iter_mut().zip(&places) {
                *page = device.unwrap_or(*page);
            }
        }
        if *short {
            pages.pop();
        }
        self.tick += 1;
        let tick = Tick(if *behind { self.tick / 2 } else { self.tick });
        let base = Some(Owner(priority.unsigned_abs() % 4));
        let insert = Insert { pages: &pages, base, tick, finished: *finished, priority: i64::from(*priority) };
        assert_eq!(self.tree.insert(of, insert), self.model.insert(of, insert));
        assert_eq!(self.tree.match_prefix(of), self.model.match_prefix(of));
    }

    fn attach(&mut self, id: NodeId, host: bool, owners: Owners, short: bool) -> Result<(), TreeError> {
        let node = self.tree.node(id);
        let there: Vec<Option<PageId>> =
            node.and_then(|n| n.device().or(n.host())).unwrap_or_default().iter().copied().map(Some).collect();
        let start = node.map_or(0, |node| node.start());
        let mut pages = self.pages(&there, owners, start);
        if short {
            pages.pop();
        }
        let (tree, model) = if host {
            (self.tree.attach_host(id, pages.clone()), self.model.attach_host(id, pages))
        } else {
            (self.tree.attach_device(id, pages.clone()), self.model.attach_device(id, pages))
        };
        assert_eq!(tree, model);
        tree
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Insert(op) => self.insert(op),
            Op::Split { node, at } => {
                let id = self.id(*node);
                assert_eq!(self.tree.split(id, (*at).into()), self.model.split(id, (*at).into()));
            }
            Op::Prepare { key, pages, stale } => {
                let tokens = self.tokens(key);
                let of = Key { namespace: Self::namespace(key), tokens: &tokens };
                let found = self.tree.match_prefix(of);
                assert_eq!(found, self.model.match_prefix(of));
                if *stale && found.pages > 0 {
                    // A split after the match doesn't matter to it.
                    let before = self.tree.prepare_path(&found, found.pages / 2);
                    let again = self.model.match_prefix(of);
                    assert_eq!(before, self.model.prepare_path(&again, found.pages / 2));
                }
                let pages = u32::from(*pages);
                let again = self.model.match_prefix(of);
                assert_eq!(self.tree.prepare_path(&found, pages), self.model.prepare_path(&again, pages));
            }
            Op::Touch { node, behind } => {
                self.tick += 1;
                let (id, tick) = (self.id(*node), Tick(if *behind { self.tick / 2 } else { self.tick }));
                assert_eq!(self.tree.touch(id, tick), self.model.touch(id, tick));
                let path: Vec<NodeId> = self.tree.path_up(id).map(|node| node.id()).collect();
                assert_eq!(path, self.model.path_up(id));
            }
            Op::Attach { node, host, owners, short } => {
                let _ = self.attach(self.id(*node), *host, *owners, *short);
            }
            Op::SavePath { node } => {
                for id in self.model.pieces(self.id(*node), 0) {
                    let _ = self.attach(id, true, Owners::Fitting, false);
                }
            }
            Op::Demote { node } => {
                let id = self.id(*node);
                assert_eq!(self.tree.demote(id), self.model.demote(id));
            }
            Op::DropDevice { node } => {
                let id = self.id(*node);
                assert_eq!(self.tree.drop_device(id), self.model.drop_device(id));
            }
            Op::DropHost { node } => {
                let id = self.id(*node);
                assert_eq!(self.tree.drop_host(id), self.model.drop_host(id));
            }
            Op::DropHostSubtree { node } => self.drop_host_subtree(self.id(*node)),
            Op::Evict { host } => drop(self.evict(*host)),
            Op::Lock { node, host } => {
                let id = self.id(*node);
                let tree = if *host { self.tree.lock_host(id) } else { self.tree.lock(id) };
                assert_eq!(tree, self.model.lock(id, *host));
            }
            Op::Unlock { node, host } => {
                let id = self.id(*node);
                let tree = if *host { self.tree.unlock_host(id) } else { self.tree.unlock(id) };
                assert_eq!(tree, self.model.unlock(id, *host));
            }
            Op::Pending { node, from, op, load } => {
                let (id, from, op) = (self.id(*node), u32::from(*from), op.map(|op| OpId(op.into())));
                assert_eq!(self.tree.pieces(id, from), self.model.pieces(id, from));
                let tree = if *load { self.tree.set_load(id, from, op) } else { self.tree.set_backup(id, from, op) };
                assert_eq!(tree, self.model.set_pending(id, from, op, *load));
            }
            Op::Reset => {
                self.tree.reset();
                self.model.reset();
            }
        }
    }

    fn drop_host_subtree(&mut self, id: NodeId) {
        match (self.tree.drop_host_subtree(id), self.model.drop_host_subtree(id)) {
            (Ok(mut tree), Ok(mut model)) => {
                tree.sort_unstable();
                model.sort_unstable();
                assert_eq!(tree, model);
            }
            // With several reasons to refuse, which one is named first isn't fixed.
            (Err(_), Err(_)) => {}
            (tree, model) => panic!("{tree:?} and {model:?}"),
        }
    }

    /// Evicts the first node of a frontier. Returns its pages, none where a copy in flight holds it.
    fn evict(&mut self, host: bool) -> Option<Vec<PageId>> {
        if host {
            let (_, id) = self.tree.host_frontier().next()?;
            let pages = self.tree.drop_host(id);
            assert_eq!(pages, self.model.drop_host(id));
            return pages.ok();
        }
        let (_, id) = self.tree.device_frontier().next()?;
        let saved = self.tree.node(id)?.host().is_some();
        let (tree, model) = if saved {
            (self.tree.demote(id), self.model.demote(id))
        } else {
            (self.tree.drop_device(id), self.model.drop_device(id))
        };
        assert_eq!(tree, model);
        tree.ok()
    }

    fn check(&self) {
        assert_eq!(Observed::of_tree(&self.tree), Observed::of_model(&self.model));
        assert_eq!(self.tree.self_check(), Ok(()));
    }

    /// With no copy in flight, evicting leaf by leaf frees exactly what the figures call evictable.
    fn drain(&mut self) {
        for id in self.model.ids() {
            for load in [false, true] {
                let cleared = if load { self.tree.set_load(id, 0, None) } else { self.tree.set_backup(id, 0, None) };
                assert_eq!(cleared, self.model.set_pending(id, 0, None, load));
            }
        }
        // Device locks keep nodes in the tree, host locks what waits for its backup: both are given back first.
        for id in self.model.ids() {
            while self.tree.unlock_host(id).is_ok() {
                self.model.unlock(id, true).unwrap();
            }
        }
        let expected = self.tree.device_evictable().clone();
        let mut freed = LaneCounts::zero(self.striping.lanes());
        while let Some(pages) = self.evict(false) {
            freed += &LaneCounts::of_owners(freed.lanes(), pages.iter().map(|page| self.striping.owner(*page)));
        }
        assert_eq!((freed, self.tree.device_frontier().count()), (expected, 0));
        for id in self.model.ids() {
            while self.tree.unlock(id).is_ok() {
                self.model.unlock(id, false).unwrap();
            }
        }
        let expected = self.tree.host_evictable().clone();
        assert_eq!(&expected, self.tree.host_valid());
        let mut freed = LaneCounts::zero(self.striping.lanes());
        while let Some(pages) = self.evict(true) {
            freed += &LaneCounts::of_owners(freed.lanes(), pages.iter().map(|page| self.striping.owner(*page)));
        }
        assert_eq!(freed, expected);
        while self.evict(false).is_some() {}
        assert_eq!((self.tree.nodes(), self.tree.pins()), (0, 0));
        self.check();
    }
}

proptest! {
    // 8,000 runs of up to 60 operations reach every operation in every outcome, and take seconds.
    #![proptest_config(ProptestConfig { cases: 8_000, ..ProptestConfig::default() })]

    /// A failing case is shrunk and printed whole: configuration and operations.
    #[test]
    fn the_tree_does_what_the_model_does(
        (config, collide) in any_config(),
        ops in prop::collection::vec(any_op(), 1..60),
    ) {
        let mut pair = Pair::new(config, collide);
        for op in &ops {
            pair.apply(op);
            pair.check();
        }
        pair.drain();
    }
}
