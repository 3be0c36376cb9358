//! Residency, locks and copies in flight of the model.

use super::Model;
use super::state::PageKey;
use crate::TreeError;
use cpkv_core::{NodeId, OpId, PageId};

impl Model {
    /// As [`Tree::attach_device`](crate::Tree::attach_device).
    ///
    /// # Errors
    /// As there.
    pub fn attach_device(&mut self, id: NodeId, pages: Vec<PageId>) -> Result<(), TreeError> {
        self.known(id)?;
        if self.first(id).device.is_some() {
            return Err(TreeError::AlreadyResident { node: id });
        }
        if let Some(parent) = self.parent(id).filter(|parent| self.first(*parent).device.is_none()) {
            return Err(TreeError::ParentNotResident { node: id, parent });
        }
        self.fits(id, &pages)?;
        for (key, page) in self.span(id).iter().zip(pages) {
            self.page(key).device = Some(page);
        }
        Ok(())
    }

    /// As [`Tree::attach_host`](crate::Tree::attach_host).
    ///
    /// # Errors
    /// As there.
    pub fn attach_host(&mut self, id: NodeId, pages: Vec<PageId>) -> Result<(), TreeError> {
        self.known(id)?;
        if self.first(id).host.is_some() {
            return Err(TreeError::AlreadySaved { node: id });
        }
        if let Some(parent) = self.parent(id).filter(|parent| self.first(*parent).host.is_none()) {
            return Err(TreeError::ParentNotSaved { node: id, parent });
        }
        self.fits(id, &pages)?;
        for (key, page) in self.span(id).iter().zip(pages) {
            self.page(key).host = Some(page);
        }
        Ok(())
    }

    /// As [`Tree::demote`](crate::Tree::demote).
    ///
    /// # Errors
    /// As there.
    pub fn demote(&mut self, id: NodeId) -> Result<Vec<PageId>, TreeError> {
        self.may_leave_device(id)?;
        if self.first(id).host.is_none() {
            return Err(TreeError::NotSaved { node: id });
        }
        Ok(self.span(id).iter().filter_map(|key| self.page(key).device.take()).collect())
    }

    /// As [`Tree::drop_device`](crate::Tree::drop_device).
    ///
    /// # Errors
    /// As there.
    pub fn drop_device(&mut self, id: NodeId) -> Result<Vec<PageId>, TreeError> {
        self.may_leave_device(id)?;
        if self.first(id).host.is_some() {
            return Err(TreeError::AlreadySaved { node: id });
        }
        match self.locks_on(id, &self.host_locks) {
            0 => {}
            locks => return Err(TreeError::HostLocked { node: id, locks }),
        }
        let pages = self.span(id).iter().filter_map(|key| self.page(key).device.take()).collect();
        self.forget_empty();
        Ok(pages)
    }

    /// As [`Tree::drop_host`](crate::Tree::drop_host).
    ///
    /// # Errors
    /// As there.
    pub fn drop_host(&mut self, id: NodeId) -> Result<Vec<PageId>, TreeError> {
        self.known(id)?;
        if self.first(id).host.is_none() {
            return Err(TreeError::NotSaved { node: id });
        }
        match self.children(id).into_iter().filter(|child| self.first(*child).host.is_some()).count() as u32 {
            0 => {}
            children => return Err(TreeError::HasChildren { node: id, children }),
        }
        match self.locks_on(id, &self.host_locks) {
            0 => {}
            locks => return Err(TreeError::HostLocked { node: id, locks }),
        }
        self.may_lose_host(id)?;
        let pages = self.span(id).iter().filter_map(|key| self.page(key).host.take()).collect();
        self.forget_empty();
        Ok(pages)
    }

    /// As [`Tree::drop_host_subtree`](crate::Tree::drop_host_subtree), the pages in any order.
    ///
    /// # Errors
    /// As there; which of several nodes the error names isn't fixed.
    pub fn drop_host_subtree(&mut self, id: NodeId) -> Result<Vec<PageId>, TreeError> {
        self.known(id)?;
        if self.first(id).host.is_none() {
            return Err(TreeError::NotSaved { node: id });
        }
        let below = |other: &NodeId| self.path_up(*other).contains(&id);
        let saved: Vec<NodeId> =
            self.ids().into_iter().filter(below).filter(|other| self.first(*other).host.is_some()).collect();
        for node in &saved {
            self.may_lose_host(*node)?;
        }
        let keys: Vec<PageKey> = saved.into_iter().flat_map(|node| self.span(node)).collect();
        let pages = keys.iter().filter_map(|key| self.page(key).host.take()).collect();
        self.forget_empty();
        Ok(pages)
    }

    /// As [`Tree::lock`](crate::Tree::lock), on the device or the host tier.
    ///
    /// # Errors
    /// As there.
    pub fn lock(&mut self, id: NodeId, host: bool) -> Result<(), TreeError> {
        self.known(id)?;
        let end = self.span(id).pop().expect("a node has pages");
        if host { &mut self.host_locks } else { &mut self.locks }.push(end);
        Ok(())
    }

    /// As [`Tree::unlock`](crate::Tree::unlock), on the device or the host tier.
    ///
    /// # Errors
    /// As there.
    pub fn unlock(&mut self, id: NodeId, host: bool) -> Result<(), TreeError> {
        self.known(id)?;
        let end = self.span(id).pop().expect("a node has pages");
        let locks = if host { &mut self.host_locks } else { &mut self.locks };
        let place = locks.iter().position(|lock| *lock == end).ok_or(TreeError::NotLocked { node: id })?;
        locks.swap_remove(place);
        Ok(())
    }

    /// As [`Tree::set_backup`](crate::Tree::set_backup), or with `load` as [`Tree::set_load`](crate::Tree::set_load).
    ///
    /// # Errors
    /// As there.
    pub fn set_pending(&mut self, tail: NodeId, from: u32, op: Option<OpId>, load: bool) -> Result<(), TreeError> {
        self.known(tail)?;
        let pieces = self.pieces(tail, from);
        for node in pieces.iter().rev().copied() {
            let Some(op) = op else { break };
            let page = self.first(node);
            if let Some(other) = if load { page.load } else { page.backup }.filter(|other| *other != op) {
                return Err(TreeError::InFlight { node, op: other });
            }
            if load && page.host.is_none() {
                return Err(TreeError::NotSaved { node });
            }
            if !load && page.device.is_none() {
                return Err(TreeError::NotResident { node });
            }
        }
        let keys: Vec<PageKey> = pieces.into_iter().flat_map(|node| self.span(node)).collect();
        for key in keys {
            let page = self.page(&key);
            *(if load { &mut page.load } else { &mut page.backup }) = op;
        }
        Ok(())
    }

    fn may_leave_device(&self, id: NodeId) -> Result<(), TreeError> {
        self.known(id)?;
        if self.first(id).device.is_none() {
            return Err(TreeError::NotResident { node: id });
        }
        match self.children(id).into_iter().filter(|child| self.first(*child).device.is_some()).count() as u32 {
            0 => {}
            children => return Err(TreeError::HasChildren { node: id, children }),
        }
        match self.locks_on(id, &self.locks) {
            0 => {}
            locks => return Err(TreeError::Locked { node: id, locks }),
        }
        self.first(id).backup.map_or(Ok(()), |op| Err(TreeError::InFlight { node: id, op }))
    }

    fn may_lose_host(&self, id: NodeId) -> Result<(), TreeError> {
        if let Some(op) = self.first(id).load {
            return Err(TreeError::InFlight { node: id, op });
        }
        match self.locks_on(id, &self.locks) {
            locks if locks > 0 && self.first(id).device.is_none() => Err(TreeError::Locked { node: id, locks }),
            _ => Ok(()),
        }
    }

    fn fits(&self, id: NodeId, pages: &[PageId]) -> Result<(), TreeError> {
        let span = self.span(id);
        if pages.len() != span.len() {
            return Err(TreeError::PageCount { positions: span.len() as u32, given: pages.len() });
        }
        for ((position, page), key) in (self.start(id)..).zip(pages).zip(&span) {
            let known = &self.pages[key];
            let other = known.device.or(known.host).expect("a page is on a tier");
            let (owner, expected) = (self.striping.owner(*page), self.striping.owner(other));
            if owner != expected {
                return Err(TreeError::OwnerMismatch { position, page: *page, owner, other, expected });
            }
        }
        Ok(())
    }

    /// Forgets pages on no tier, nodes without pages, and host locks on what is gone.
    fn forget_empty(&mut self) {
        self.pages.retain(|_, page| page.device.is_some() || page.host.is_some());
        self.nodes.retain(|id, _| self.pages.values().any(|page| page.node == *id));
        self.host_locks.retain(|lock| self.pages.contains_key(lock));
    }
}
