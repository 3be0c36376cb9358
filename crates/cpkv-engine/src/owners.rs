//! Which lane each page of an extend belongs to.

use crate::{ControlPlane, EngineError};
use cpkv_core::{Owner, Placement, choose_base, rotated_owner, zigzag_owners};
use cpkv_tree::Match;

impl ControlPlane {
    /// Owners of the pages `from..to` of a chain, given what of it is cached, and the base that new nodes get.
    ///
    /// Positions that a host copy holds already keep its owner: a host page has the owner of the device page that it
    /// backs. `explicit` names the owners of all positions, where the caller places.
    pub(crate) fn owners_of_extend(
        &self,
        found: &Match,
        from: u32,
        to: u32,
        explicit: Option<&[Owner]>,
    ) -> (Vec<Owner>, Option<Owner>) {
        let mut owners = Vec::with_capacity(to.saturating_sub(from) as usize);
        self.cached_owners(found, from, to, &mut owners);
        let first_new = from + owners.len() as u32;
        let base = match self.config.placement {
            Placement::Rotated => {
                let base = self.base_of(found);
                owners.extend((first_new..to).map(|page| rotated_owner(base, page.into(), self.config.lanes)));
                Some(base)
            }
            Placement::Zigzag => {
                owners.extend(zigzag_owners((to.saturating_sub(first_new)) as usize, self.config.lanes));
                None
            }
            Placement::Explicit => {
                let named = explicit.unwrap_or_default();
                owners.extend((first_new..to).map(|page| {
                    // Beyond the named ones lie only pages for output, whose owner nobody names.
                    named.get(page as usize).copied().unwrap_or(rotated_owner(Owner(0), page.into(), self.config.lanes))
                }));
                None
            }
        };
        (owners, base)
    }

    /// Owners of the cached positions in `from..to`, as far as the match goes.
    pub(crate) fn cached_owners(&self, found: &Match, from: u32, to: u32, owners: &mut Vec<Owner>) {
        let mut start = 0;
        for step in &found.path {
            if start >= to {
                break;
            }
            let end = (start + step.pages).min(to);
            if end > from {
                let node = self.tree.node(step.node).expect("a match names live nodes");
                let pages = node.device().or(node.host()).expect("a node is on a tier");
                let (first, last) = (from.max(start) - start, end - start);
                owners.extend(pages[first as usize..last as usize].iter().map(|page| self.striping.owner(*page)));
            }
            start += step.pages;
        }
    }

    /// The base of the chain that a key extends, or of a new chain. Chosen before any eviction.
    fn base_of(&self, found: &Match) -> Owner {
        let last = found.path.last().and_then(|step| self.tree.node(step.node));
        last.and_then(|node| node.base()).unwrap_or_else(|| choose_base(self.device.free_pages()))
    }

    /// Owners of all positions of a chain whose caller places: of what is cached in either tier, then the named ones.
    ///
    /// # Errors
    /// [`EngineError::OwnerMismatch`] unless there is exactly one entry, on a lane that exists, for each page that is
    /// in neither tier; and where owners are given though the placement isn't `Explicit`.
    pub(crate) fn explicit_owners(
        &self,
        found: &Match,
        pages: u32,
        named: Option<&[Owner]>,
    ) -> Result<Option<Vec<Owner>>, EngineError> {
        let mismatch = |what: String| Err(EngineError::OwnerMismatch { what });
        if self.config.placement != Placement::Explicit {
            return match named {
                Some(_) => mismatch("owners are named, and the placement isn't explicit".into()),
                None => Ok(None),
            };
        }
        let named = named.unwrap_or_default();
        let missing = pages - found.pages;
        if named.len() != missing as usize {
            return mismatch(format!("{} owners are named for {missing} pages that are in neither tier", named.len()));
        }
        self.check_lanes(named)?;
        let mut owners = Vec::with_capacity(pages as usize);
        self.cached_owners(found, 0, pages, &mut owners);
        owners.extend_from_slice(named);
        Ok(Some(owners))
    }

    /// # Errors
    /// [`EngineError::OwnerMismatch`] for an owner without a lane.
    pub(crate) fn check_lanes(&self, owners: &[Owner]) -> Result<(), EngineError> {
        match owners.iter().find(|owner| owner.index() >= self.config.lanes) {
            Some(owner) => Err(EngineError::OwnerMismatch {
                what: format!("owner {owner} is out of range, 0 to {}", self.config.lanes - 1),
            }),
            None => Ok(()),
        }
    }
}
