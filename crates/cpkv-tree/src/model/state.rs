//! What the model knows: one record per page, facts per node, and a list of locks. Everything else is derived.

use crate::retention::{RetentionPolicy, host_key};
use crate::{Duplicate, Insert, Inserted, Key, Match, NodeFacts, PathStep, TreeConfig, TreeError};
use cpkv_core::{NodeId, OpId, Owner, PageId, RetentionKey, Striping, Tick};
use std::collections::BTreeMap;

/// A page's name: its namespace, and all tokens of its chain up to its own end.
pub(super) type PageKey = (Option<String>, Vec<u32>);

#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) node: NodeId,
    pub(super) device: Option<PageId>,
    pub(super) host: Option<PageId>,
    pub(super) backup: Option<OpId>,
    pub(super) load: Option<OpId>,
}

/// The naive tree.
#[derive(Debug, Clone)]
pub struct Model {
    pub(super) config: TreeConfig,
    pub(super) striping: Striping,
    pub(super) next_id: u64,
    pub(super) pages: BTreeMap<PageKey, Page>,
    pub(super) nodes: BTreeMap<NodeId, (NodeFacts, Option<Owner>)>,
    /// Where each lock was taken: the last page of its path.
    pub(super) locks: Vec<PageKey>,
    pub(super) host_locks: Vec<PageKey>,
}

impl Model {
    /// As [`Tree::new`](crate::Tree::new).
    ///
    /// # Errors
    /// As there.
    pub fn new(config: TreeConfig) -> Result<Model, TreeError> {
        let striping = Striping::new(config.lanes)?;
        if config.page_size == 0 {
            return Err(TreeError::PageSize);
        }
        Ok(Model {
            config,
            striping,
            next_id: 1,
            pages: BTreeMap::new(),
            nodes: BTreeMap::new(),
            locks: Vec::new(),
            host_locks: Vec::new(),
        })
    }

    /// As [`Tree::reset`](crate::Tree::reset).
    pub fn reset(&mut self) {
        let next_id = self.next_id;
        *self = Self::new(self.config).expect("the configuration was valid before");
        self.next_id = next_id;
    }

    /// As [`Tree::ids`](crate::Tree::ids).
    #[must_use]
    pub fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    /// As [`Tree::match_prefix`](crate::Tree::match_prefix).
    #[must_use]
    pub fn match_prefix(&self, key: Key<'_>) -> Match {
        let mut found = Match::default();
        for page in self.page_keys(key) {
            let Some(page) = self.pages.get(&page) else { break };
            found.pages += 1;
            if page.device.is_some() {
                found.device_pages += 1;
            } else {
                found.host_pages += 1;
            }
            match found.path.last_mut() {
                Some(step) if step.node == page.node => step.pages += 1,
                _ => found.path.push(PathStep { node: page.node, pages: 1, len: self.span(page.node).len() as u32 }),
            }
        }
        found
    }

    /// The device page, then the host page at each position of a key's match.
    #[must_use]
    pub fn places(&self, key: Key<'_>) -> Vec<(Option<PageId>, Option<PageId>)> {
        self.page_keys(key).map_while(|page| self.pages.get(&page)).map(|page| (page.device, page.host)).collect()
    }

    /// As [`Tree::prepare_path`](crate::Tree::prepare_path), for a match of the model as it is now.
    ///
    /// # Errors
    /// As there.
    pub fn prepare_path(&mut self, m: &Match, pages: u32) -> Result<Option<NodeId>, TreeError> {
        if pages > m.pages {
            return Err(TreeError::BeyondMatch { asked: pages, matched: m.pages });
        }
        let mut start = 0;
        for step in &m.path {
            if (start + 1..start + step.len).contains(&pages) {
                return self.split(step.node, pages - start).map(Some);
            }
            start += step.len;
            if start == pages {
                return Ok(Some(step.node));
            }
        }
        Ok(None)
    }

    /// As [`Tree::split`](crate::Tree::split).
    ///
    /// # Errors
    /// As there.
    pub fn split(&mut self, id: NodeId, at: u32) -> Result<NodeId, TreeError> {
        self.known(id)?;
        let span = self.span(id);
        let len = span.len() as u32;
        if at == 0 || at >= len {
            return Err(TreeError::SplitPoint { node: id, at, len });
        }
        let upper = self.fresh_id();
        for page in &span[..at as usize] {
            self.page(page).node = upper;
        }
        self.nodes.insert(upper, self.nodes[&id]);
        Ok(upper)
    }

    /// As [`Tree::insert`](crate::Tree::insert).
    ///
    /// # Errors
    /// As there.
    pub fn insert(&mut self, key: Key<'_>, insert: Insert<'_>) -> Result<Inserted, TreeError> {
        let keys: Vec<PageKey> = self.page_keys(key).collect();
        let total = keys.len() as u32;
        if insert.pages.len() != keys.len() {
            return Err(TreeError::PageCount { positions: total, given: insert.pages.len() });
        }
        let found = self.match_prefix(key);
        let mut done = Inserted { matched_pages: found.device_pages, ..Inserted::default() };
        let mut known = 0;
        for step in &found.path {
            let stretch = known..known + step.pages;
            let attaches = stretch.clone().all(|position| {
                let page = &self.pages[&keys[position as usize]];
                let owner = self.striping.owner(insert.pages[position as usize]);
                page.device.is_some() || page.host.is_some_and(|host| self.striping.owner(host) == owner)
            });
            if !attaches {
                done.unused_from = Some(known);
                break;
            }
            known = stretch.end;
        }
        let m = Match { pages: known, ..found };
        done.tail = self.prepare_path(&m, known)?;
        for (position, key) in (0..known).zip(&keys) {
            let given = insert.pages[position as usize];
            match &mut self.page(key).device {
                Some(own) if *own == given => {}
                Some(own) => done.duplicates.push(Duplicate { position, tree_page: *own }),
                none => *none = Some(given),
            }
        }
        if known < total && done.unused_from.is_none() {
            let id = self.fresh_id();
            let facts = NodeFacts { uses: 0, tick: insert.tick, created: insert.tick, priority: insert.priority };
            self.nodes.insert(id, (facts, insert.base));
            for (key, page) in keys.iter().zip(insert.pages).skip(known as usize) {
                let page = Page { node: id, device: Some(*page), host: None, backup: None, load: None };
                self.pages.insert(key.clone(), page);
            }
            (done.new_node, done.tail) = (Some(id), Some(id));
        }
        done.taken = done.matched_pages..done.unused_from.unwrap_or(total);
        for id in done.tail.map(|tail| self.path_up(tail)).unwrap_or_default() {
            let (facts, _) = self.nodes.get_mut(&id).expect("it is on the path");
            facts.tick = facts.tick.max(insert.tick);
            facts.priority = facts.priority.max(insert.priority);
            facts.uses += u32::from(insert.finished);
        }
        Ok(done)
    }

    /// As [`Tree::touch`](crate::Tree::touch).
    ///
    /// # Errors
    /// As there.
    pub fn touch(&mut self, id: NodeId, tick: Tick) -> Result<(), TreeError> {
        self.known(id)?;
        for id in self.path_up(id) {
            let (facts, _) = self.nodes.get_mut(&id).expect("it is on the path");
            facts.tick = facts.tick.max(tick);
        }
        Ok(())
    }

    /// Ids as of [`Tree::path_up`](crate::Tree::path_up).
    #[must_use]
    pub fn path_up(&self, id: NodeId) -> Vec<NodeId> {
        let mut path: Vec<NodeId> = Vec::new();
        let mut at = self.nodes.contains_key(&id).then_some(id);
        while let Some(id) = at {
            path.push(id);
            at = self.parent(id);
        }
        path
    }

    /// As [`Tree::pieces`](crate::Tree::pieces).
    #[must_use]
    pub fn pieces(&self, tail: NodeId, from: u32) -> Vec<NodeId> {
        let mut pieces: Vec<NodeId> = self.path_up(tail).into_iter().filter(|id| self.start(*id) >= from).collect();
        pieces.reverse();
        pieces
    }

    pub(super) fn known(&self, id: NodeId) -> Result<(), TreeError> {
        if self.nodes.contains_key(&id) { Ok(()) } else { Err(TreeError::UnknownNode { node: id }) }
    }

    pub(super) fn page(&mut self, key: &PageKey) -> &mut Page {
        self.pages.get_mut(key).expect("the page is known")
    }

    /// The pages of a node, top first. Names of one chain sort by length.
    pub(super) fn span(&self, id: NodeId) -> Vec<PageKey> {
        self.pages.iter().filter(|(_, page)| page.node == id).map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn first(&self, id: NodeId) -> &Page {
        self.pages.values().find(|page| page.node == id).expect("a node has pages")
    }

    pub(super) fn start(&self, id: NodeId) -> u32 {
        (self.span(id)[0].1.len() / self.config.page_size as usize - 1) as u32
    }

    pub(super) fn parent(&self, id: NodeId) -> Option<NodeId> {
        let (namespace, tokens) = self.span(id).swap_remove(0);
        let above = tokens[..tokens.len() - self.config.page_size as usize].to_vec();
        self.pages.get(&(namespace, above)).map(|page| page.node)
    }

    pub(super) fn children(&self, id: NodeId) -> Vec<NodeId> {
        self.nodes.keys().copied().filter(|other| self.parent(*other) == Some(id)).collect()
    }

    pub(super) fn locks_on(&self, id: NodeId, locks: &[PageKey]) -> u32 {
        let (namespace, end) = self.span(id).pop().expect("a node has pages");
        locks.iter().filter(|lock| lock.0 == namespace && lock.1.starts_with(&end)).count() as u32
    }

    pub(super) fn retention(&self, id: NodeId) -> RetentionKey {
        self.config.retention.key(&self.nodes[&id].0)
    }

    pub(super) fn host_retention(&self, id: NodeId) -> RetentionKey {
        host_key(self.retention(id), self.first(id).device.is_some())
    }

    fn fresh_id(&mut self) -> NodeId {
        self.next_id += 1;
        NodeId(self.next_id - 1)
    }

    fn page_keys(&self, key: Key<'_>) -> impl Iterator<Item = PageKey> + use<> {
        let (namespace, tokens) = (key.namespace.map(str::to_owned), key.tokens.to_vec());
        let size = self.config.page_size as usize;
        (1..=tokens.len() / size).map(move |pages| (namespace.clone(), tokens[..pages * size].to_vec()))
    }
}
