//! Copies in flight: which nodes an operation reads or fills, however often they split meanwhile (contract C5).

use crate::node::Node;
use crate::{Tree, TreeError};
use cpkv_core::{NodeId, OpId};

impl Tree {
    /// The nodes of the path down to `tail` that start at `from` pages or later, top first. Nothing for an unknown id.
    ///
    /// An operation over a part of a path is told by its last node and its first position: splits add nodes, and the
    /// last keeps its id, so the pieces are always right.
    #[must_use]
    pub fn pieces(&self, tail: NodeId, from: u32) -> Vec<NodeId> {
        let Ok(slot) = self.slot(tail) else { return Vec::new() };
        let mut pieces: Vec<NodeId> =
            self.piece_slots(slot, from).into_iter().map(|slot| self.arena[slot].id).collect();
        pieces.reverse();
        pieces
    }

    /// Marks the pieces of the path from `first_position` to `tail` as read by a backup; `None` takes the mark off.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`]; [`TreeError::NotResident`] where there is nothing to read, and
    /// [`TreeError::InFlight`] where another backup reads it.
    pub fn set_backup(&mut self, tail: NodeId, first_position: u32, op: Option<OpId>) -> Result<(), TreeError> {
        self.mark(
            tail,
            first_position,
            op,
            |node| &mut node.backup,
            |node| node.device.is_none().then_some(TreeError::NotResident { node: node.id }),
        )
    }

    /// Marks the pieces of the path from `first_position` to `tail` as read by a load-back; `None` takes the mark off.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`]; [`TreeError::NotSaved`] where there is nothing to read, and
    /// [`TreeError::InFlight`] where another load-back reads it.
    pub fn set_load(&mut self, tail: NodeId, first_position: u32, op: Option<OpId>) -> Result<(), TreeError> {
        self.mark(
            tail,
            first_position,
            op,
            |node| &mut node.load,
            |node| node.host.is_none().then_some(TreeError::NotSaved { node: node.id }),
        )
    }

    fn mark(
        &mut self,
        tail: NodeId,
        from: u32,
        op: Option<OpId>,
        pending: impl Fn(&mut Node) -> &mut Option<OpId>,
        unreadable: impl Fn(&Node) -> Option<TreeError>,
    ) -> Result<(), TreeError> {
        let pieces = self.piece_slots(self.slot(tail)?, from);
        if let Some(op) = op {
            for slot in &pieces {
                let node = &mut self.arena[*slot];
                match *pending(node) {
                    Some(other) if other != op => return Err(TreeError::InFlight { node: node.id, op: other }),
                    _ => {}
                }
                if let Some(error) = unreadable(node) {
                    return Err(error);
                }
            }
        }
        for slot in pieces {
            self.edit(slot, |node| *pending(node) = op);
        }
        Ok(())
    }

    /// Slots of the pieces, bottom first.
    fn piece_slots(&self, tail: u32, from: u32) -> Vec<u32> {
        self.slots_up(Some(tail)).take_while(|slot| self.arena[*slot].start >= from).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::TreeError;
    use crate::fixture::Fixture;
    use cpkv_core::{NodeId, OpId};

    #[test]
    fn an_operation_covers_its_part_of_the_path() {
        let mut f = Fixture::new(1);
        let (top, middle, leaf) = (f.insert(&[1, 2]), f.insert(&[1, 2, 3]), f.insert(&[1, 2, 3, 4, 5]));
        f.tree.set_backup(leaf, 2, Some(OpId(1))).unwrap();
        assert_eq!((f.tree.pieces(leaf, 2), f.tree.pins()), (vec![middle, leaf], 2));
        assert_eq!(f.tree.node(top).unwrap().pending_backup(), None);
        f.tree.set_backup(leaf, 2, Some(OpId(1))).unwrap();
        let taken = TreeError::InFlight { node: middle, op: OpId(1) };
        assert_eq!(f.tree.set_backup(middle, 0, Some(OpId(2))), Err(taken));
        assert_eq!(f.tree.set_load(top, 0, Some(OpId(3))), Err(TreeError::NotSaved { node: top }));
        assert_eq!((f.tree.pins(), f.tree.node(top).unwrap().pending_load()), (2, None));
        f.tree.set_backup(leaf, 2, None).unwrap();
        assert_eq!((f.tree.pins(), f.tree.self_check()), (0, Ok(())));
        assert_eq!(f.tree.pieces(NodeId(50), 0), []);
        assert_eq!(f.tree.set_backup(NodeId(50), 0, None), Err(TreeError::UnknownNode { node: NodeId(50) }));
    }

    #[test]
    fn a_node_with_both_copies_in_flight_is_pinned_once() {
        let mut f = Fixture::new(1);
        let id = f.insert(&[1]);
        f.save(id);
        f.tree.set_load(id, 0, Some(OpId(1))).unwrap();
        f.tree.set_backup(id, 0, Some(OpId(2))).unwrap();
        assert_eq!(f.tree.pins(), 1);
        f.tree.set_load(id, 0, None).unwrap();
        assert_eq!(f.tree.pins(), 1);
    }
}
