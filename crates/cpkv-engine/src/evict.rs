//! Room: what is evicted so that an operation fits, lane by lane, and the execution of such plans.

use crate::digest::Decision;
use crate::view::{DeviceView, HostView, Protected};
use crate::{ControlPlane, EngineError, WritePolicy, counters};
use cpkv_core::{LaneCounts, NodeId, strict_assert};
use cpkv_plan::{EvictOrder, Plan, PlanRequest};

/// What an eviction did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evicted {
    /// Pages of each victim, in the order of eviction. Victims are whole nodes.
    pub victims: Vec<u32>,
    /// Pages freed per lane. Under write-back, what is staged first is freed at the ack and isn't in here.
    pub freed: LaneCounts,
    /// Pages per lane that nothing evictable can give.
    pub remaining: LaneCounts,
}

impl Evicted {
    pub(crate) fn nothing(lanes: usize) -> Self {
        Self { victims: Vec::new(), freed: LaneCounts::zero(lanes), remaining: LaneCounts::zero(lanes) }
    }
}

/// Why room is made: decides the order of eviction where the configuration leaves it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    LoadBack,
    Extend,
}

impl ControlPlane {
    pub(crate) fn evict_order(&self, purpose: Purpose) -> EvictOrder {
        self.config.evict_order.unwrap_or(match purpose {
            Purpose::LoadBack => EvictOrder::Contribution,
            Purpose::Extend => EvictOrder::Retention,
        })
    }

    /// Pages missing per lane even if everything evictable went (contract C9). Pure, O(lanes + protected path).
    pub(crate) fn device_missing(&self, need: &LaneCounts, protected: &Protected) -> LaneCounts {
        let free = self.device.free_pages();
        if free.covers(need) {
            return LaneCounts::zero(self.config.lanes);
        }
        let evictable = self.device_view(protected).evictable_pages();
        cpkv_plan::missing(need, free, &evictable)
    }

    /// The plan that makes room for `need` on the device. Pure.
    ///
    /// # Errors
    /// [`EngineError::LaneFull`] where even everything evictable isn't enough.
    pub(crate) fn plan_device(
        &mut self,
        need: &LaneCounts,
        protected: &Protected,
        purpose: Purpose,
    ) -> Result<Plan, EngineError> {
        let missing = self.device_missing(need, protected);
        if !missing.is_zero() {
            return Err(EngineError::LaneFull { missing });
        }
        let free = self.device.free_pages();
        let deficits = self.deficits(need, free, self.config.device_free_room);
        let order = self.evict_order(purpose);
        self.counters.device_plans += u64::from(!deficits.is_zero());
        let plan = self.run_planner(&self.device_view(protected), &deficits, order);
        strict_assert!(
            free.saturating_add(&plan.planned_freed).covers(need),
            "a plan frees what is evictable: need {need:?}, free {free:?}, planned {:?}",
            plan.planned_freed
        );
        Ok(plan)
    }

    /// The plan that makes room for `need` on the host. Pure.
    ///
    /// # Errors
    /// [`EngineError::HostFull`] where even everything evictable isn't enough.
    pub(crate) fn plan_host(&self, need: &LaneCounts, protected: &Protected) -> Result<Plan, EngineError> {
        let free = self.host.free_pages();
        let view = self.host_view(protected);
        if !free.covers(need) {
            let missing = cpkv_plan::missing(need, &free, &view.evictable_pages());
            if !missing.is_zero() {
                return Err(EngineError::HostFull { missing });
            }
        }
        let deficits = self.deficits(need, &free, self.config.host_free_room);
        Ok(self.run_planner(&view, &deficits, self.evict_order(Purpose::Extend)))
    }

    /// How much an operation evicts: nothing where its pages are free.
    pub(crate) fn deficits(&self, need: &LaneCounts, free: &LaneCounts, room: u32) -> LaneCounts {
        if free.covers(need) {
            return LaneCounts::zero(self.config.lanes);
        }
        let room = LaneCounts::splat(self.config.lanes, room);
        cpkv_plan::deficits(self.config.evict_amount, need, free, &room)
    }

    pub(crate) fn device_view<'a>(&'a self, protected: &'a Protected) -> DeviceView<'a> {
        DeviceView { tree: &self.tree, striping: self.striping, protected }
    }

    pub(crate) fn host_view<'a>(&'a self, protected: &'a Protected) -> HostView<'a> {
        HostView { tree: &self.tree, striping: self.striping, protected }
    }

    pub(crate) fn run_planner(
        &self,
        forest: &impl cpkv_plan::Forest,
        deficits: &LaneCounts,
        order: EvictOrder,
    ) -> Plan {
        cpkv_plan::plan(forest, &PlanRequest::new(deficits, order, self.config.planner))
    }

    /// Whether a plan's victims can all leave the device at once. Under write-back a victim without a host copy can't:
    /// it is staged first, which only [`step`](ControlPlane::step) and [`evict_device`](ControlPlane::evict_device) do.
    pub(crate) fn frees_at_once(&self, plan: &Plan) -> bool {
        !self.stages() || plan.victims.iter().all(|id| self.is_saved(*id))
    }

    fn stages(&self) -> bool {
        self.config.write_policy == WritePolicy::WriteBack && self.config.host_pages > 0
    }

    fn is_saved(&self, id: NodeId) -> bool {
        self.tree.node(id).is_some_and(|node| node.host().is_some())
    }

    /// Plans for `need` and refuses if the room isn't there at once. Pure.
    ///
    /// # Errors
    /// [`EngineError::LaneFull`].
    pub(crate) fn plan_device_at_once(
        &mut self,
        need: &LaneCounts,
        protected: &Protected,
        purpose: Purpose,
    ) -> Result<Plan, EngineError> {
        let plan = self.plan_device(need, protected, purpose)?;
        if self.frees_at_once(&plan) {
            return Ok(plan);
        }
        Err(EngineError::LaneFull { missing: need.saturating_sub(self.device.free_pages()) })
    }

    /// Frees the victims of a plan that [`frees_at_once`](Self::frees_at_once). Returns their page counts.
    pub(crate) fn evict_planned(&mut self, plan: &Plan) -> Vec<u32> {
        plan.victims.iter().map(|id| self.evict_node(*id)).collect()
    }

    /// Executes a device plan; under write-back what isn't saved is staged and goes at the ack, or is dropped where
    /// the host has no room for it. Returns page counts of all victims and the pages freed at once.
    pub(crate) fn evict_or_stage(&mut self, plan: &Plan) -> (Vec<u32>, LaneCounts) {
        let mut victims = Vec::with_capacity(plan.victims.len());
        let mut freed = LaneCounts::zero(self.config.lanes);
        for id in &plan.victims {
            let node = self.tree.node(*id).expect("a plan names live nodes");
            if node.device_children() > 0 {
                // Its child is staged and leaves later: so does this node, by a later plan.
                continue;
            }
            let (pages, counts) = (node.len(), node.device_counts().cloned().unwrap_or_default());
            if self.stages() && node.host().is_none() {
                match self.stage(*id) {
                    Staged::Started => victims.push(pages),
                    Staged::Blocked => {}
                    Staged::NoRoom => {
                        freed += &counts;
                        victims.push(self.evict_node(*id));
                    }
                }
                continue;
            }
            freed += &counts;
            victims.push(self.evict_node(*id));
        }
        (victims, freed)
    }

    /// Starts the copy after which the node leaves the device.
    fn stage(&mut self, id: NodeId) -> Staged {
        if self.tree.path_up(id).any(|node| node.pending_backup().is_some()) {
            return Staged::Blocked;
        }
        match self.start_policy_backup(id, true) {
            Ok(()) => {
                self.digest.record(Decision::Stage, [id.0]);
                Staged::Started
            }
            Err(_) => Staged::NoRoom,
        }
    }

    /// Takes one node off the device: demoted if it has a host copy, else dropped. Returns its page count.
    fn evict_node(&mut self, id: NodeId) -> u32 {
        let node = self.tree.node(id).expect("a plan names live nodes");
        let counts = node.device_counts().cloned().expect("a victim is on the device");
        let saved = node.host().is_some();
        let pages = if saved { self.tree.demote(id) } else { self.tree.drop_device(id) }
            .expect("a planned victim is an unlocked leaf");
        if !saved {
            counters::add(&mut self.counters.dropped_pages, &counts);
            self.wanted.remove(&id);
        }
        counters::add(&mut self.counters.evicted_pages, &counts);
        self.counters.device_victims += 1;
        self.device.free(&pages).expect("a node's pages are allocated");
        self.digest.record(Decision::EvictDevice, [id.0, u64::from(saved)]);
        pages.len() as u32
    }

    /// Frees the host copies of a plan's victims. Returns their page counts.
    pub(crate) fn evict_host_planned(&mut self, plan: &Plan) -> Vec<u32> {
        plan.victims
            .iter()
            .map(|id| {
                let pages = self.tree.drop_host(*id).expect("a planned victim is an unpinned leaf");
                self.release_host(&pages);
                let owners = pages.iter().map(|page| self.striping.owner(*page));
                let counts = LaneCounts::of_owners(self.config.lanes, owners);
                counters::add(&mut self.counters.host_evicted_pages, &counts);
                self.digest.record(Decision::EvictHost, [id.0]);
                pages.len() as u32
            })
            .collect()
    }

    pub(crate) fn release_host(&mut self, pages: &[cpkv_core::PageId]) {
        if !pages.is_empty() {
            self.host.release(pages).expect("a node's host pages are committed");
        }
    }

    /// Evicts from the device by plan, as far as it goes.
    pub fn evict_device(&mut self, deficits: &LaneCounts) -> Evicted {
        if deficits.is_zero() {
            return Evicted::nothing(self.config.lanes);
        }
        self.counters.device_plans += 1;
        let order = self.evict_order(Purpose::Extend);
        let plan = self.run_planner(&self.device_view(&Protected::default()), deficits, order);
        let (victims, freed) = self.evict_or_stage(&plan);
        Evicted { victims, freed, remaining: plan.remaining }
    }

    /// Evicts host copies by plan, as far as it goes.
    pub fn evict_host(&mut self, deficits: &LaneCounts) -> Evicted {
        if deficits.is_zero() {
            return Evicted::nothing(self.config.lanes);
        }
        let order = self.evict_order(Purpose::Extend);
        let plan = self.run_planner(&self.host_view(&Protected::default()), deficits, order);
        let victims = self.evict_host_planned(&plan);
        Evicted { victims, freed: plan.planned_freed, remaining: plan.remaining }
    }

    /// Pages per lane that will leave the device when the staging copies in flight are acknowledged. O(operations).
    pub(crate) fn staged_pages(&self) -> LaneCounts {
        let mut staged = LaneCounts::zero(self.config.lanes);
        if self.stages() {
            for op in self.ops.values().filter(|op| op.demote) {
                if let Some(counts) = self.tree.node(op.tail).and_then(|node| node.device_counts().cloned()) {
                    staged += &counts;
                }
            }
        }
        staged
    }
}

/// What became of a node that has to be staged before it leaves.
#[derive(Debug, PartialEq, Eq)]
enum Staged {
    Started,
    /// A copy on its path is in flight: a later plan takes it.
    Blocked,
    /// The host has no room.
    NoRoom,
}
