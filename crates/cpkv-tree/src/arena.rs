//! Slots for nodes: places are used again, ids never.

use crate::node::Node;
use std::ops::{Index, IndexMut};

/// Nodes by slot. All operations are O(1) but the iteration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arena {
    slots: Vec<Option<Node>>,
    free: Vec<u32>,
}

impl Arena {
    pub(crate) fn insert(&mut self, node: Node) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(node);
                slot
            }
            None => {
                self.slots.push(Some(node));
                (self.slots.len() - 1) as u32
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Node {
        let node = self.slots[slot as usize].take().expect("links lead to live slots");
        self.free.push(slot);
        node
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Node> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Live nodes with their slots, in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Node)> {
        self.slots.iter().enumerate().filter_map(|(slot, node)| Some((slot as u32, node.as_ref()?)))
    }
}

impl Index<u32> for Arena {
    type Output = Node;
    fn index(&self, slot: u32) -> &Node {
        self.slots[slot as usize].as_ref().expect("links lead to live slots")
    }
}

impl IndexMut<u32> for Arena {
    fn index_mut(&mut self, slot: u32) -> &mut Node {
        self.slots[slot as usize].as_mut().expect("links lead to live slots")
    }
}
