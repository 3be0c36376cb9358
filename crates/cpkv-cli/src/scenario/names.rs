//! The names that a scenario's lines give to what the engine hands out.

use cpkv_core::{HoldId, LockId, OpId, RequestId};
use cpkv_engine::{EngineError, OpOrigin, StartedCopy};
use std::collections::BTreeMap;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ticket {
    Lock(LockId),
    Hold(HoldId),
    Copy(OpId),
}

/// Tickets and requests by name. Requests have names of their own.
#[derive(Debug, Default)]
pub(super) struct Names {
    tickets: BTreeMap<String, Ticket>,
    requests: BTreeMap<String, RequestId>,
    of_requests: BTreeMap<RequestId, String>,
}

impl Names {
    pub(super) fn is_free(&self, name: &str) -> bool {
        !self.tickets.contains_key(name)
    }

    pub(super) fn is_free_request(&self, name: &str) -> bool {
        !self.requests.contains_key(name)
    }

    pub(super) fn give(&mut self, name: &str, ticket: Ticket) {
        self.tickets.insert(name.to_owned(), ticket);
    }

    pub(super) fn give_request(&mut self, name: &str, request: RequestId) {
        self.requests.insert(name.to_owned(), request);
        self.of_requests.insert(request, name.to_owned());
    }

    pub(super) fn lock(&self, name: &str) -> Result<LockId, EngineError> {
        match self.tickets.get(name) {
            Some(Ticket::Lock(lock)) => Ok(*lock),
            _ => Err(EngineError::UnknownName { what: "lock" }),
        }
    }

    pub(super) fn hold(&self, name: &str) -> Result<HoldId, EngineError> {
        match self.tickets.get(name) {
            Some(Ticket::Hold(hold)) => Ok(*hold),
            _ => Err(EngineError::UnknownName { what: "hold" }),
        }
    }

    pub(super) fn copy(&self, name: &str) -> Result<OpId, EngineError> {
        match self.tickets.get(name) {
            Some(Ticket::Copy(op)) => Ok(*op),
            _ => Err(EngineError::UnknownName { what: "copy" }),
        }
    }

    pub(super) fn request(&self, name: &str) -> Result<RequestId, EngineError> {
        self.requests.get(name).copied().ok_or(EngineError::UnknownName { what: "request" })
    }

    /// The name of a request.
    pub(super) fn name_of(&self, request: RequestId) -> String {
        self.of_requests.get(&request).cloned().unwrap_or_else(|| format!("#{request}"))
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.tickets.remove(name);
    }

    /// Forgets a copy that has ended, and says what it was called.
    pub(super) fn forget_copy(&mut self, op: OpId) -> Option<String> {
        let name = self.tickets.iter().find(|(_, ticket)| **ticket == Ticket::Copy(op))?.0.clone();
        self.tickets.remove(&name);
        Some(name)
    }

    pub(super) fn forget_request(&mut self, name: &str) {
        if let Some(request) = self.requests.remove(name) {
            self.of_requests.remove(&request);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Names a copy that the engine started itself. Copies that a line started are named by the line.
    ///
    /// A request that is loaded for again while the load-back of an earlier life is in flight: `load:REQUEST#2`.
    pub(super) fn started(&mut self, copy: StartedCopy) -> Option<String> {
        let name = match copy.origin {
            OpOrigin::Caller => return None,
            OpOrigin::Request(request) => format!("load:{}", self.name_of(request)),
            OpOrigin::Policy(k) => format!("backup:{k}"),
        };
        let name = (1..)
            .map(|n| if n == 1 { name.clone() } else { format!("{name}#{n}") })
            .find(|name| self.is_free(name))
            .expect("there are enough numbers");
        self.give(&name, Ticket::Copy(copy.op));
        Some(name)
    }
}
