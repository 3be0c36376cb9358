//! What the unit tests share: a tree of one-token-named pages, and pages of either tier that are never given twice.

use crate::{Insert, Inserted, Key, Retention, Tree, TreeConfig};
use cpkv_core::{NodeId, Owner, PageId, Striping, Tick};

/// Tokens per page in unit tests.
pub(crate) const PAGE_SIZE: u32 = 4;

pub(crate) struct Fixture {
    pub(crate) tree: Tree,
    striping: Striping,
    fresh: u32,
    tick: u64,
}

pub(crate) fn key(tokens: &[u32]) -> Key<'_> {
    Key { namespace: None, tokens }
}

impl Fixture {
    pub(crate) fn new(lanes: usize) -> Self {
        let config = TreeConfig { page_size: PAGE_SIZE, lanes, retention: Retention::Slru };
        let striping = Striping::new(lanes).unwrap();
        Self { tree: Tree::new(config).unwrap(), striping, fresh: 1, tick: 0 }
    }

    /// Tokens of the pages with these names.
    pub(crate) fn tokens(&self, names: &[u32]) -> Vec<u32> {
        names.iter().flat_map(|name| (0..PAGE_SIZE).map(move |token| name * 100 + token)).collect()
    }

    /// A page of this owner that no call has given before.
    pub(crate) fn page(&mut self, owner: Owner) -> PageId {
        self.fresh += 1;
        self.striping.logical(owner, self.fresh)
    }

    /// New pages with cyclic owners from lane 0.
    pub(crate) fn pages(&mut self, count: u32) -> Vec<PageId> {
        let lanes = self.striping.lanes() as u32;
        (0..count).map(|position| self.page(Owner((position % lanes) as u8))).collect()
    }

    pub(crate) fn insert_as(&mut self, namespace: Option<&str>, names: &[u32]) -> Inserted {
        let pages = self.pages(names.len() as u32);
        self.tick += 1;
        let insert = Insert { pages: &pages, base: Some(Owner(0)), tick: Tick(self.tick), finished: true, priority: 0 };
        let tokens = self.tokens(names);
        let inserted = self.tree.insert(Key { namespace, tokens: &tokens }, insert).unwrap();
        self.tree.self_check().unwrap();
        inserted
    }

    /// Inserts a key as a finished request; returns the last node of its path.
    pub(crate) fn insert(&mut self, names: &[u32]) -> NodeId {
        self.insert_as(None, names).tail.unwrap()
    }

    /// Gives a node a host copy with the right owners.
    pub(crate) fn save(&mut self, id: NodeId) {
        let device = self.tree.node(id).unwrap().device().unwrap().to_vec();
        let pages = device.iter().map(|page| self.page(self.striping.owner(*page))).collect();
        self.tree.attach_host(id, pages).unwrap();
    }

    /// `(start, pages)` of a node.
    pub(crate) fn span(&self, id: NodeId) -> (u32, u32) {
        let node = self.tree.node(id).unwrap();
        (node.start(), node.len())
    }
}
