//! From a parent and a page to the child that starts with it: hashes find candidates, tokens decide (contract C17).

use crate::Tree;
use crate::node::{NONE, Node, Parent};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// Child slots by parent and hash of the child's first page. Never iterated.
#[derive(Debug, Clone)]
pub(crate) struct ChildTable {
    table: FxHashMap<(Parent, u64), SmallVec<[u32; 4]>>,
    mask: u64,
}

impl ChildTable {
    /// `mask` is taken of every hash: all ones, or 0 in tests that make all hashes equal.
    pub(crate) fn new(mask: u64) -> Self {
        Self { table: FxHashMap::default(), mask }
    }

    /// The hash of a page: xxh3 with its fixed seed over the tokens in little-endian order.
    pub(crate) fn hash(&self, page: &[u32]) -> u64 {
        let bytes: SmallVec<[u8; 1024]> = page.iter().flat_map(|token| token.to_le_bytes()).collect();
        xxh3_64(&bytes) & self.mask
    }

    pub(crate) fn get(&self, parent: Parent, hash: u64) -> &[u32] {
        self.table.get(&(parent, hash)).map_or(&[], |slots| slots)
    }

    pub(crate) fn add(&mut self, parent: Parent, hash: u64, slot: u32) {
        self.table.entry((parent, hash)).or_default().push(slot);
    }

    pub(crate) fn remove(&mut self, parent: Parent, hash: u64, slot: u32) {
        let slots = self.table.get_mut(&(parent, hash)).expect("every child is listed");
        slots.retain(|other| *other != slot);
        if slots.is_empty() {
            self.table.remove(&(parent, hash));
        }
    }

    pub(crate) fn replace(&mut self, parent: Parent, hash: u64, old: u32, new: u32) {
        let slots = self.table.get_mut(&(parent, hash)).expect("every child is listed");
        *slots.iter_mut().find(|slot| **slot == old).expect("every child is listed") = new;
    }

    /// Keys with at least one child.
    pub(crate) fn keys(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn clear(&mut self) {
        self.table.clear();
    }
}

/// Names of namespaces, interned. No namespace is one of its own, and not the one named by the empty string.
#[derive(Debug, Clone, Default)]
pub(crate) struct Namespaces {
    by_name: BTreeMap<String, u32>,
    names: Vec<String>,
}

impl Namespaces {
    pub(crate) fn find(&self, name: Option<&str>) -> Option<u32> {
        name.map_or(Some(0), |name| self.by_name.get(name).copied())
    }

    pub(crate) fn intern(&mut self, name: Option<&str>) -> u32 {
        if let Some(found) = self.find(name) {
            return found;
        }
        let name = name.expect("no namespace is always found");
        self.names.push(name.to_owned());
        let namespace = self.names.len() as u32;
        self.by_name.insert(name.to_owned(), namespace);
        namespace
    }

    pub(crate) fn name(&self, namespace: u32) -> Option<&str> {
        namespace.checked_sub(1).map(|index| self.names[index as usize].as_str())
    }
}

impl Tree {
    /// The child of `parent` that starts with the first page of `rest`.
    pub(crate) fn child(&self, parent: Parent, rest: &[u32]) -> Option<u32> {
        let page = rest.get(..self.page_size as usize)?;
        let hash = self.children.hash(page);
        self.children
            .get(parent, hash)
            .iter()
            .copied()
            .find(|slot| self.arena[*slot].tokens[..self.page_size as usize] == *page)
    }

    /// Slots of a node's children, the youngest link first.
    pub(crate) fn child_slots<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = u32> + 'a {
        let listed = |slot: u32| (slot != NONE).then_some(slot);
        std::iter::successors(listed(node.first_child), move |slot| listed(self.arena[*slot].next))
    }

    /// Enters a node, already in the arena, under its parent.
    pub(crate) fn link(&mut self, slot: u32) {
        let (parent, hash) = (self.arena[slot].parent, self.arena[slot].hash);
        self.children.add(parent, hash, slot);
        if let Some(parent) = parent.slot() {
            let next = std::mem::replace(&mut self.arena[parent].first_child, slot);
            self.arena[slot].next = next;
            if next != NONE {
                self.arena[next].prev = slot;
            }
        }
    }

    /// Takes a node from under its parent.
    pub(crate) fn unlink(&mut self, slot: u32) {
        let node = &self.arena[slot];
        let (parent, hash, prev, next) = (node.parent, node.hash, node.prev, node.next);
        self.children.remove(parent, hash, slot);
        self.join_siblings(parent, prev, next);
    }

    /// Puts the new node `new` where `old` hangs; `old` becomes its only child. Hashes are set already.
    pub(crate) fn link_between(&mut self, old: u32, new: u32) {
        let (parent, prev, next) = (self.arena[new].parent, self.arena[old].prev, self.arena[old].next);
        self.children.replace(parent, self.arena[new].hash, old, new);
        (self.arena[new].prev, self.arena[new].next) = (prev, next);
        if let Some(parent) = parent.slot() {
            match prev {
                NONE => self.arena[parent].first_child = new,
                prev => self.arena[prev].next = new,
            }
            if next != NONE {
                self.arena[next].prev = new;
            }
        }
        let tail = &mut self.arena[old];
        (tail.parent, tail.prev, tail.next) = (Parent::Node(new), NONE, NONE);
        self.link(old);
    }

    fn join_siblings(&mut self, parent: Parent, prev: u32, next: u32) {
        let Some(parent) = parent.slot() else { return };
        match prev {
            NONE => self.arena[parent].first_child = next,
            prev => self.arena[prev].next = next,
        }
        if next != NONE {
            self.arena[next].prev = prev;
        }
    }
}
