//! Inserts: what is there already stays, what is missing becomes at most one new node.

use crate::node::{NONE, Node, Parent};
use crate::{Key, Tree, TreeError};
use cpkv_core::{LaneCounts, NodeId, Owner, PageId, Tick};
use std::ops::Range;

/// What an insert brings.
#[derive(Debug, Clone, Copy)]
pub struct Insert<'a> {
    /// The caller's device page at each position of the key, also where the tree has a page already; there it may be
    /// the tree's own. The caller guarantees that no other position of the tree holds one of them.
    pub pages: &'a [PageId],
    /// The base of the chain, kept on the new node.
    pub base: Option<Owner>,
    /// The time of the insert, set on the whole path.
    pub tick: Tick,
    /// Whether the request that computed the pages has ended: then `uses` rises by one along the path.
    pub finished: bool,
    /// The request's priority: nodes of the path keep the highest.
    pub priority: i64,
}

/// A position at which the tree keeps another page than the caller's: the caller repoints to it, then frees its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duplicate {
    /// The position in the key, in pages.
    pub position: u32,
    /// The page that the tree has there.
    pub tree_page: PageId,
}

/// What an insert did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Leading pages that were on the device before.
    pub matched_pages: u32,
    /// Positions whose page the tree took from the caller: all from `matched_pages` to the end, or to `unused_from`.
    pub taken: Range<u32>,
    /// Positions where the tree keeps a page of its own, ascending.
    pub duplicates: Vec<Duplicate>,
    /// The position from which nothing was taken: a host copy there has other owners than the caller's pages, and a
    /// host page keeps the owner of the device page that it backs. The caller frees its pages from there on.
    pub unused_from: Option<u32>,
    /// The last node on the device of the key's path, ending at the key's end or at `unused_from`. `None` where there
    /// is none: an empty key, or nothing resident before `unused_from`.
    pub tail: Option<NodeId>,
    /// The node that was added, if one was.
    pub new_node: Option<NodeId>,
}

impl Tree {
    /// Puts the whole pages of a key in the tree. O(pages of the key + log frontier per node of the path).
    ///
    /// Where the key's path is on the device, the tree's pages stay. Where it is on the host alone, the caller's pages
    /// become its device pages if each has the owner of the host page there; at the first node where one hasn't, the
    /// insert stops. A node that the key leaves, or ends in, is split there; what follows becomes one new node.
    ///
    /// # Errors
    /// [`TreeError::PageCount`] unless there is one page per whole page of the key.
    pub fn insert(&mut self, key: Key<'_>, insert: Insert<'_>) -> Result<Inserted, TreeError> {
        let size = self.page_size as usize;
        let tokens = self.whole_pages(key.tokens);
        let total = (tokens.len() / size) as u32;
        if insert.pages.len() != total as usize {
            return Err(TreeError::PageCount { positions: total, given: insert.pages.len() });
        }
        let mut done = Inserted::default();
        if total == 0 {
            return Ok(done);
        }
        let namespace = self.namespaces.intern(key.namespace);
        let mut parent = Parent::Root(namespace);
        let mut position = 0;
        while let Some(mut slot) = self.child(parent, &tokens[position as usize * size..]) {
            let node = &self.arena[slot];
            let pages = node.common_pages(&tokens[position as usize * size..], self.page_size);
            let given = &insert.pages[position as usize..(position + pages) as usize];
            let resident = node.device.is_some();
            if !resident && self.owner_mismatch(node, given).is_some() {
                done.unused_from = Some(position);
                break;
            }
            if pages < node.len {
                slot = self.split_slot(slot, pages);
            }
            if resident {
                let own = self.arena[slot].device.as_deref().unwrap_or_default();
                let pairs = (position..).zip(own.iter().zip(given)).filter(|(_, (own, given))| own != given);
                done.duplicates.extend(pairs.map(|(position, (own, _))| Duplicate { position, tree_page: *own }));
                done.matched_pages += pages;
            } else {
                self.set_device(slot, Some(given.into()));
            }
            self.visit(slot, &insert);
            position += pages;
            parent = Parent::Node(slot);
        }
        if position < total && done.unused_from.is_none() {
            let rest = (&tokens[position as usize * size..], &insert.pages[position as usize..]);
            let slot = self.add_leaf(parent, namespace, position, rest, &insert);
            done.new_node = Some(self.arena[slot].id);
            parent = Parent::Node(slot);
        }
        done.taken = done.matched_pages..done.unused_from.unwrap_or(total);
        done.tail = parent.slot().map(|slot| self.arena[slot].id);
        Ok(done)
    }

    /// Leaves an insert's mark on a node of its path.
    fn visit(&mut self, slot: u32, insert: &Insert<'_>) {
        let node = &mut self.arena[slot];
        node.tick = node.tick.max(insert.tick);
        node.priority = node.priority.max(insert.priority);
        node.uses = node.uses.saturating_add(insert.finished.into());
        self.refresh(slot);
    }

    fn add_leaf(
        &mut self,
        parent: Parent,
        namespace: u32,
        start: u32,
        (tokens, pages): (&[u32], &[PageId]),
        insert: &Insert<'_>,
    ) -> u32 {
        let node = Node {
            id: self.fresh_id(),
            namespace,
            parent,
            first_child: NONE,
            prev: NONE,
            next: NONE,
            hash: self.children.hash(&tokens[..self.page_size as usize]),
            start,
            len: pages.len() as u32,
            tokens: tokens.into(),
            device: Some(pages.into()),
            host: None,
            counts: LaneCounts::of_owners(self.striping.lanes(), pages.iter().map(|page| self.striping.owner(*page))),
            base: insert.base,
            tick: insert.tick,
            created: insert.tick,
            uses: insert.finished.into(),
            priority: insert.priority,
            lock: 0,
            own_lock: 0,
            host_lock: 0,
            own_host_lock: 0,
            backup: None,
            load: None,
            device_children: 0,
            host_children: 0,
            device_key: None,
            host_key: None,
        };
        self.add_node(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, key};

    fn insert(f: &mut Fixture, names: &[u32], pages: &[PageId]) -> Inserted {
        let insert = Insert { pages, base: None, tick: Tick(99), finished: false, priority: 0 };
        let tokens = f.tokens(names);
        let inserted = f.tree.insert(key(&tokens), insert).unwrap();
        f.tree.self_check().unwrap();
        inserted
    }

    /// Fault D13: who computes what is there already learns which page to use instead, position by position.
    #[test]
    fn duplicates_name_the_page_to_repoint_to() {
        let mut f = Fixture::new(2);
        let first = f.pages(3);
        insert(&mut f, &[1, 2, 3], &first);
        let mut second = f.pages(4);
        second[1] = first[1];
        let inserted = insert(&mut f, &[1, 2, 3, 4], &second);
        let duplicates: Vec<_> = inserted.duplicates.iter().map(|d| (d.position, d.tree_page)).collect();
        assert_eq!(duplicates, [(0, first[0]), (2, first[2])], "the caller held the tree's page at position 1");
        assert_eq!((inserted.matched_pages, inserted.taken), (3, 3..4));
        assert_eq!(inserted.tail, inserted.new_node);
    }

    #[test]
    fn a_key_that_leaves_a_node_splits_it_and_adds_one_node() {
        let mut f = Fixture::new(2);
        let old = f.insert(&[1, 2, 3, 4]);
        let inserted = f.insert_as(None, &[1, 2, 8, 9, 10]);
        assert_eq!((inserted.matched_pages, inserted.taken, f.tree.nodes()), (2, 2..5, 3));
        assert_eq!((f.span(old), f.span(inserted.tail.unwrap())), ((2, 2), (2, 3)), "the tail keeps its id");
        assert_eq!(f.tree.node(old).unwrap().parent(), f.tree.node(inserted.tail.unwrap()).unwrap().parent());
        let ended = f.insert_as(None, &[1]);
        assert_eq!((ended.new_node, f.span(ended.tail.unwrap()), f.tree.nodes()), (None, (0, 1), 4));
    }

    #[test]
    fn pages_attach_to_a_host_only_path_as_far_as_owners_are_equal() {
        let mut f = Fixture::new(2);
        let top = f.insert(&[1, 2]);
        let leaf = f.insert(&[1, 2, 3, 4]);
        for id in [top, leaf] {
            f.save(id);
        }
        for id in [leaf, top] {
            f.tree.demote(id).unwrap();
        }
        // The last page of the second node would have the wrong owner: the first node is taken, nothing beyond it.
        let mut pages = f.pages(5);
        pages[3] = f.page(Owner(0));
        let inserted = insert(&mut f, &[1, 2, 3, 4, 5], &pages);
        assert_eq!((inserted.taken, inserted.unused_from, inserted.tail), (0..2, Some(2), Some(top)));
        assert_eq!((inserted.new_node, f.tree.nodes()), (None, 2));
        assert_eq!(f.tree.node(top).unwrap().device(), Some(&pages[..2]));
        // A key that ends inside the node brings only pages that fit.
        let mut pages = f.pages(3);
        pages[..2].copy_from_slice(f.tree.node(top).unwrap().device().unwrap());
        let inserted = insert(&mut f, &[1, 2, 3], &pages);
        assert_eq!((inserted.matched_pages, inserted.taken, inserted.unused_from), (2, 2..3, None));
        let found = f.tree.match_prefix(key(&f.tokens(&[1, 2, 3, 4])));
        assert_eq!((found.device_pages, found.host_pages), (3, 1));
        assert!(f.tree.node(inserted.tail.unwrap()).unwrap().host().is_some(), "the host copy stays");
    }

    #[test]
    fn nothing_fits_under_a_root_of_other_owners() {
        let mut f = Fixture::new(2);
        let top = f.insert(&[1]);
        f.save(top);
        f.tree.demote(top).unwrap();
        let pages = [f.page(Owner(1)), f.page(Owner(0))];
        let inserted = insert(&mut f, &[1, 2], &pages);
        assert_eq!(inserted, Inserted { unused_from: Some(0), ..Inserted::default() });
    }

    #[test]
    fn uses_rise_once_per_finished_insert_and_ticks_reach_the_whole_path() {
        let mut f = Fixture::new(1);
        let top = f.insert(&[1, 2]);
        let leaf = f.insert(&[1, 2, 3]);
        let pages = f.pages(3);
        insert(&mut f, &[1, 2, 3], &pages);
        let facts = |id| f.tree.node(id).map(|node| (node.uses(), node.tick(), node.created())).unwrap();
        assert_eq!((facts(top), facts(leaf)), ((2, Tick(99), Tick(1)), (1, Tick(99), Tick(2))));
    }

    #[test]
    fn an_empty_or_misfitting_insert_changes_nothing() {
        let mut f = Fixture::new(1);
        assert_eq!(f.insert_as(Some("t"), &[]), Inserted::default());
        let pages = f.pages(1);
        let insert = Insert { pages: &pages, base: None, tick: Tick(1), finished: true, priority: 0 };
        let tokens = f.tokens(&[1, 2]);
        assert_eq!(f.tree.insert(key(&tokens), insert), Err(TreeError::PageCount { positions: 2, given: 1 }));
        assert_eq!(f.tree.nodes(), 0);
        assert_eq!(f.tree.namespaces.find(Some("t")), None);
    }
}
