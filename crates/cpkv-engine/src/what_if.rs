//! What would happen to a request if it were the next one: an answer without a change.

use crate::control::Key;
use crate::evict::Purpose;
use crate::request::{Request, SubmitOptions};
use crate::view::Protected;
use crate::{ControlPlane, EngineError};
use cpkv_core::{LaneCounts, Owner};

/// The answer to "what if this request came next, alone, whatever the batch limits".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhatIf {
    /// Pages of the prompt found on the device.
    pub device_pages: u32,
    /// Pages beyond them that would be loaded from the host.
    pub host_pages: u32,
    /// Device pages that it would take per lane: load-back, extend and the reserve for output.
    pub needs_per_lane: LaneCounts,
    /// Pages per lane that are free now.
    pub free: LaneCounts,
    /// Pages per lane that could be evicted for it: what it stands on itself doesn't count.
    pub evictable: LaneCounts,
    /// Pages missing per lane even then. All zero: it fits.
    pub missing: LaneCounts,
    /// The first lane that is short.
    pub limiting_lane: Option<Owner>,
    /// Page counts of the nodes that would be evicted, in order. Empty where it doesn't fit.
    pub victims_pages: Vec<u32>,
}

impl ControlPlane {
    /// Answers what would happen to a request, and changes nothing. Costs a lookup and, where room is short, a plan.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn what_if(&self, key: Key<'_>, options: SubmitOptions<'_>) -> Result<WhatIf, EngineError> {
        let request = self.new_request(key, options)?;
        let zero = LaneCounts::zero(self.config.lanes);
        if request.tokens.is_empty() {
            return Ok(WhatIf {
                device_pages: 0,
                host_pages: 0,
                needs_per_lane: zero.clone(),
                free: self.device.free_pages().clone(),
                evictable: self.tree.device_evictable().clone(),
                missing: zero,
                limiting_lane: None,
                victims_pages: Vec::new(),
            });
        }
        let found = self.capped_match(&request);
        let needs = self.need_of_all(&request, &found);
        self.check_size(&request, &found, &needs)?;
        let protected = Protected::path(&found, found.pages);
        let view = self.device_view(&protected);
        let (free, evictable) = (self.device.free_pages().clone(), view.evictable_pages());
        let missing = cpkv_plan::missing(&needs, &free, &evictable);
        let mut victims_pages = Vec::new();
        if missing.is_zero() && !free.covers(&needs) {
            let deficits = self.deficits(&needs, &free, self.config.device_free_room);
            let purpose = if found.host_pages > 0 { Purpose::LoadBack } else { Purpose::Extend };
            let plan = self.run_planner(&view, &deficits, self.evict_order(purpose));
            victims_pages =
                plan.victims.iter().map(|id| cpkv_plan::Forest::counts(&view, *id).total() as u32).collect();
        }
        Ok(WhatIf {
            device_pages: found.device_pages,
            host_pages: found.host_pages,
            limiting_lane: missing.first_nonzero(),
            needs_per_lane: needs,
            free,
            evictable,
            missing,
            victims_pages,
        })
    }

    /// Device pages per lane that the whole of a request needs beyond what is resident.
    pub(crate) fn need_of_all(&self, request: &Request, found: &cpkv_tree::Match) -> LaneCounts {
        let pages = self.pages_with_output(request);
        let (owners, _) = self.owners_of_extend(found, found.device_pages, pages, request.explicit.as_deref());
        LaneCounts::of_owners(self.config.lanes, owners)
    }
}
