//! Keys, and the longest cached prefix of one: first what is on the device, then what is on the host alone.

use crate::node::Parent;
use crate::{Tree, TreeError};
use cpkv_core::NodeId;

/// What a prefix is looked up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key<'a> {
    /// Tenant, adapter or salt: equal tokens in two namespaces share nothing. `None` is a namespace of its own.
    pub namespace: Option<&'a str>,
    /// Token ids. Only whole pages count, the rest is ignored.
    pub tokens: &'a [u32],
}

/// A node on a matched path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathStep {
    /// The node.
    pub node: NodeId,
    /// Pages of it that matched, at least 1.
    pub pages: u32,
    /// Pages of the node. Only the last step of a path may have matched fewer.
    pub len: u32,
}

/// The longest cached prefix of a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Match {
    /// The nodes, top first.
    pub path: Vec<PathStep>,
    /// Leading pages that are on the device.
    pub device_pages: u32,
    /// Pages beyond these that have a valid host copy.
    pub host_pages: u32,
    /// Both together.
    pub pages: u32,
}

impl Tree {
    /// The longest cached prefix of a key. Touches nothing and splits nothing. O(tokens of the prefix).
    #[must_use]
    pub fn match_prefix(&self, key: Key<'_>) -> Match {
        let mut found = Match::default();
        let Some(namespace) = self.namespaces.find(key.namespace) else { return found };
        let mut parent = Parent::Root(namespace);
        let mut rest = self.whole_pages(key.tokens);
        while let Some(slot) = self.child(parent, rest) {
            let node = &self.arena[slot];
            let pages = node.common_pages(rest, self.page_size);
            found.path.push(PathStep { node: node.id, pages, len: node.len });
            found.pages += pages;
            // Residency is closed under prefix: once off the device, always off it.
            if node.device.is_some() {
                found.device_pages += pages;
            } else {
                found.host_pages += pages;
            }
            if pages < node.len {
                break;
            }
            rest = &rest[node.tokens.len()..];
            parent = Parent::Node(slot);
        }
        found
    }

    /// Makes the first `pages` pages of a match end at a node border, by at most one split. Returns the node that
    /// ends there, `None` for 0 pages.
    ///
    /// Splits since the match, also by an earlier call, don't matter: the path's old ids kept the tails.
    ///
    /// # Errors
    /// [`TreeError::BeyondMatch`] for more pages than matched, [`TreeError::UnknownNode`] where the node at that place
    /// is gone.
    pub fn prepare_path(&mut self, m: &Match, pages: u32) -> Result<Option<NodeId>, TreeError> {
        if pages == 0 {
            return Ok(None);
        }
        let beyond = TreeError::BeyondMatch { asked: pages, matched: m.pages };
        let mut end = 0;
        let step = m.path.iter().find(|step| {
            end += step.pages;
            end >= pages
        });
        let id = step.ok_or(beyond.clone())?.node;
        // The pieces of a node that was split since lie above it.
        let slot =
            self.slots_up(Some(self.slot(id)?)).find(|slot| self.arena[*slot].start < pages).ok_or(beyond.clone())?;
        let node = &self.arena[slot];
        if pages > node.end() {
            return Err(beyond);
        }
        if pages == node.end() {
            return Ok(Some(node.id));
        }
        let at = pages - node.start;
        let upper = self.split_slot(slot, at);
        Ok(Some(self.arena[upper].id))
    }

    /// The tokens of a key without the partial page at its end.
    pub(crate) fn whole_pages<'a>(&self, tokens: &'a [u32]) -> &'a [u32] {
        let pages = tokens.len() / self.page_size as usize;
        &tokens[..pages.min(u32::MAX as usize) * self.page_size as usize]
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{Fixture, PAGE_SIZE, key};
    use crate::{Key, Match, Retention, Tree, TreeConfig, TreeError};
    use cpkv_core::NodeId;

    /// Contract C17, with a hash function under which every page collides.
    #[test]
    fn keys_match_by_their_tokens_whatever_the_hash_does() {
        let config = TreeConfig { page_size: PAGE_SIZE, lanes: 2, retention: Retention::Slru };
        let mut f = Fixture::new(2);
        f.tree = Tree::with_equal_hashes(config).unwrap();
        for name in 1..40 {
            f.insert(&[name, name + 1]);
            f.insert(&[name, name + 2]);
        }
        for name in 1..40 {
            for (names, pages) in [([name, name + 1], 2), ([name, name + 2], 2), ([name, name + 3], 1), ([50, name], 0)]
            {
                assert_eq!(f.tree.match_prefix(key(&f.tokens(&names))).pages, pages, "{names:?}");
            }
        }
        assert_eq!(f.tree.self_check(), Ok(()));
    }

    /// Contract C17, fault H1: a namespace holds on both tiers, and none is not the empty one.
    #[test]
    fn namespaces_share_nothing() {
        let mut f = Fixture::new(2);
        let tokens = f.tokens(&[1, 2]);
        let names = [None, Some(""), Some("a"), Some("b")];
        for namespace in names {
            assert_eq!(f.tree.match_prefix(Key { namespace, tokens: &tokens }), Match::default());
            let inserted = f.insert_as(namespace, &[1, 2]);
            assert_eq!((inserted.matched_pages, inserted.taken), (0, 0..2));
            let tail = inserted.tail.unwrap();
            assert_eq!(f.tree.node(tail).unwrap().namespace(), namespace);
            f.save(tail);
            f.tree.demote(tail).unwrap();
        }
        for namespace in names {
            assert_eq!(f.tree.match_prefix(Key { namespace, tokens: &tokens }).host_pages, 2);
        }
        assert_eq!(f.tree.match_prefix(Key { namespace: Some("c"), tokens: &tokens }).pages, 0);
    }

    #[test]
    fn a_match_gives_the_device_part_then_the_host_part() {
        let mut f = Fixture::new(2);
        let top = f.insert(&[1, 2]);
        let leaf = f.insert(&[1, 2, 3, 4, 5]);
        f.save(top);
        f.save(leaf);
        f.tree.demote(leaf).unwrap();
        let mut tokens = f.tokens(&[1, 2, 3, 4, 9]);
        tokens.push(7);
        let found = f.tree.match_prefix(key(&tokens));
        assert_eq!((found.device_pages, found.host_pages, found.pages), (2, 2, 4));
        let path: Vec<_> = found.path.iter().map(|step| (step.node, step.pages, step.len)).collect();
        assert_eq!(path, [(top, 2, 2), (leaf, 2, 3)]);
        assert_eq!(f.tree.match_prefix(key(&tokens[..PAGE_SIZE as usize - 1])), Match::default(), "no whole page");
    }

    #[test]
    fn a_path_is_prepared_by_one_split_at_most() {
        let mut f = Fixture::new(2);
        let leaf = f.insert(&[1, 2, 3, 4]);
        let found = f.tree.match_prefix(key(&f.tokens(&[1, 2, 3])));
        assert_eq!(f.tree.prepare_path(&found, 0), Ok(None));
        assert_eq!(f.tree.prepare_path(&found, 4), Err(TreeError::BeyondMatch { asked: 4, matched: 3 }));
        assert_eq!(f.tree.nodes(), 1);
        let three = f.tree.prepare_path(&found, 3).unwrap().unwrap();
        let one = f.tree.prepare_path(&found, 1).unwrap().unwrap();
        assert_eq!((f.span(one), f.span(three), f.span(leaf)), ((0, 1), (1, 2), (3, 1)));
        assert_eq!(f.tree.prepare_path(&found, 3), Ok(Some(three)), "the match outlives its splits");
        assert_eq!(f.tree.nodes(), 3);
        f.tree.drop_device(leaf).unwrap();
        assert_eq!(f.tree.prepare_path(&found, 3), Err(TreeError::UnknownNode { node: leaf }));
        assert_eq!(f.tree.match_prefix(key(&f.tokens(&[1, 2, 3]))).path.last().map(|step| step.node), Some(three));
        assert!(f.tree.node(NodeId(99)).is_none());
    }
}
