//! Faults by script and by seed: what goes wrong is a function of the seed and of the number of the call.

/// One fault at a given place. Calls are counted from 1 for the life of the device: copy calls that were enqueued
/// with at least one descriptor; allocations of device and host memory together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Copy call `nth` takes its time, moves no bytes and fails the first fence recorded behind it.
    FailCopy {
        /// Which copy call.
        nth: u64,
    },
    /// Copy call `nth` takes `by_ns` longer, and so may end behind later copies of other streams.
    DelayCopy {
        /// Which copy call.
        nth: u64,
        /// How much longer, nanoseconds.
        by_ns: u64,
    },
    /// Allocation `nth` finds no memory, whatever is free.
    OutOfMemory {
        /// Which allocation.
        nth: u64,
    },
    /// The device is lost at copy call `nth`, which fails with it.
    LoseAtCopy {
        /// Which copy call.
        nth: u64,
    },
    /// The device is lost when the clock reaches `at_ns`.
    LoseAt {
        /// When, nanoseconds of the virtual clock.
        at_ns: u64,
    },
}

/// Faults by chance, per million calls. All zero: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultRates {
    /// Copy calls that fail.
    pub fail_copy_per_million: u32,
    /// Copy calls that end late.
    pub delay_copy_per_million: u32,
    /// How much later these end at most, nanoseconds; at least 1.
    pub delay_max_ns: u64,
    /// Allocations that find no memory.
    pub out_of_memory_per_million: u32,
    /// Copy calls at which the device is lost.
    pub lose_at_copy_per_million: u32,
}

/// What goes wrong on one device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FaultPlan {
    /// Faults at given places; several may hit one call.
    pub script: Vec<Fault>,
    /// Faults by chance, drawn from the seed.
    pub rates: FaultRates,
}

/// What becomes of one copy call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyFate {
    pub(crate) number: u64,
    pub(crate) fails: bool,
    pub(crate) late_ns: u64,
    pub(crate) loses_device: bool,
}

/// Counts calls and says which of them go wrong.
#[derive(Debug)]
pub(crate) struct Faults {
    plan: FaultPlan,
    seed: u64,
    copies: u64,
    allocations: u64,
}

/// The draws of one call, each with a stream of numbers of its own: a rate that is changed doesn't shift the others.
#[derive(Clone, Copy)]
enum Draw {
    Fail = 1,
    Delay = 2,
    DelayBy = 3,
    Memory = 4,
    Lose = 5,
}

impl Faults {
    pub(crate) fn new(plan: FaultPlan, seed: u64) -> Self {
        Self { plan, seed, copies: 0, allocations: 0 }
    }

    pub(crate) fn inject(&mut self, fault: Fault) {
        self.plan.script.push(fault);
    }

    /// Copy calls so far.
    pub(crate) fn copies(&self) -> u64 {
        self.copies
    }

    /// Allocations so far.
    pub(crate) fn allocations(&self) -> u64 {
        self.allocations
    }

    /// When the script loses the device, nanoseconds.
    pub(crate) fn lost_at_ns(&self) -> Option<u64> {
        self.plan
            .script
            .iter()
            .filter_map(|fault| if let Fault::LoseAt { at_ns } = fault { Some(*at_ns) } else { None })
            .min()
    }

    /// Counts a copy call and says what becomes of it.
    pub(crate) fn next_copy(&mut self) -> CopyFate {
        self.copies += 1;
        let number = self.copies;
        let rates = self.plan.rates;
        let mut fate = CopyFate {
            number,
            fails: self.hits(Draw::Fail, number, rates.fail_copy_per_million),
            late_ns: 0,
            loses_device: self.hits(Draw::Lose, number, rates.lose_at_copy_per_million),
        };
        if self.hits(Draw::Delay, number, rates.delay_copy_per_million) {
            fate.late_ns = 1 + self.draw(Draw::DelayBy, number) % rates.delay_max_ns.max(1);
        }
        for fault in &self.plan.script {
            match *fault {
                Fault::FailCopy { nth } if nth == number => fate.fails = true,
                Fault::DelayCopy { nth, by_ns } if nth == number => fate.late_ns = fate.late_ns.saturating_add(by_ns),
                Fault::LoseAtCopy { nth } if nth == number => fate.loses_device = true,
                _ => {}
            }
        }
        fate
    }

    /// Counts an allocation and says whether it finds no memory.
    pub(crate) fn next_allocation_fails(&mut self) -> bool {
        self.allocations += 1;
        let number = self.allocations;
        self.hits(Draw::Memory, number, self.plan.rates.out_of_memory_per_million)
            || self.plan.script.contains(&Fault::OutOfMemory { nth: number })
    }

    fn hits(&self, draw: Draw, number: u64, per_million: u32) -> bool {
        self.draw(draw, number) % 1_000_000 < u64::from(per_million)
    }

    fn draw(&self, draw: Draw, number: u64) -> u64 {
        mix(mix(self.seed.wrapping_add(draw as u64)).wrapping_add(number))
    }
}

/// One step of SplitMix64 (Steele, Lea and Flood, 2014) from state `x`: a bijection on 64 bits that spreads them.
pub(crate) fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_gives_its_published_numbers() {
        // The reference generator with seed 1234567: its first outputs are mix(seed), mix(seed + gamma).
        assert_eq!(mix(1_234_567), 6_457_827_717_110_365_317);
        assert_eq!(mix(1_234_567u64.wrapping_add(0x9E37_79B9_7F4A_7C15)), 3_203_168_211_198_807_973);
    }

    #[test]
    fn the_script_hits_the_calls_that_it_names() {
        let script = vec![
            Fault::FailCopy { nth: 2 },
            Fault::DelayCopy { nth: 2, by_ns: 9 },
            Fault::LoseAtCopy { nth: 3 },
            Fault::OutOfMemory { nth: 2 },
            Fault::LoseAt { at_ns: 70 },
            Fault::LoseAt { at_ns: 60 },
        ];
        let mut faults = Faults::new(FaultPlan { script, ..FaultPlan::default() }, 1);
        let fate = |number, fails, late_ns, loses_device| CopyFate { number, fails, late_ns, loses_device };
        assert_eq!(faults.next_copy(), fate(1, false, 0, false));
        assert_eq!(faults.next_copy(), fate(2, true, 9, false));
        assert_eq!(faults.next_copy(), fate(3, false, 0, true));
        assert!(!faults.next_allocation_fails());
        assert!(faults.next_allocation_fails());
        assert!(!faults.next_allocation_fails());
        assert_eq!(faults.lost_at_ns(), Some(60));
        assert_eq!((faults.copies(), faults.allocations()), (3, 3));
    }

    #[test]
    fn rates_are_met_and_depend_on_the_seed_alone() {
        let rates = FaultRates {
            fail_copy_per_million: 100_000,
            delay_copy_per_million: 500_000,
            delay_max_ns: 1000,
            ..FaultRates::default()
        };
        let run = |seed, rates| {
            let mut faults = Faults::new(FaultPlan { script: Vec::new(), rates }, seed);
            (0..10_000).map(|_| faults.next_copy()).collect::<Vec<_>>()
        };
        let fates = run(7, rates);
        assert_eq!(fates, run(7, rates));
        assert_ne!(fates, run(8, rates));
        let failed = fates.iter().filter(|fate| fate.fails).count();
        let late = fates.iter().filter(|fate| fate.late_ns > 0).count();
        assert!((850..1150).contains(&failed), "one in ten of 10,000 fails, got {failed}");
        assert!((4800..5200).contains(&late), "one in two of 10,000 is late, got {late}");
        assert!(fates.iter().all(|fate| fate.late_ns <= 1000 && !fate.loses_device));
        let fewer = run(7, FaultRates { delay_copy_per_million: 0, ..rates });
        assert!(fates.iter().zip(&fewer).all(|(a, b)| a.fails == b.fails), "rates don't shift one another");
    }
}
