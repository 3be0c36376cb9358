//! How the pages of an extend get their owners.

use crate::{LaneCounts, Owner};

/// The rule that gives the pages of an extend their owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Placement {
    /// Page `P` of a chain belongs to `(base + P) mod N`: cyclic, so the lanes of one chain differ by at most one page.
    /// The base of a new chain is the lane with most room, see [`choose_base`].
    #[default]
    Rotated,
    /// The extend is cut in 2N blocks of whole pages and rank r takes blocks r and 2N-1-r, which balances causal
    /// attention. Short extends feed low lanes only.
    Zigzag,
    /// The caller names the owner of each page.
    Explicit,
}

/// The owner of page `position` of a chain with this base (rotated placement).
#[must_use]
pub fn rotated_owner(base: Owner, position: u64, lanes: usize) -> Owner {
    Owner(((u64::from(base.0) + position) % lanes as u64) as u8)
}

/// The base of a new chain: the lane with most free pages, the lowest of equals.
#[must_use]
pub fn choose_base(free: &LaneCounts) -> Owner {
    let mut best = (Owner(0), 0);
    for (owner, pages) in free.iter() {
        if pages > best.1 {
            best = (owner, pages);
        }
    }
    best.0
}

/// The owners of an extend of `pages` whole pages under the zigzag cut over `lanes` ranks, in page order.
///
/// The `2N` blocks have `pages div 2N` pages each, and the first `pages mod 2N` blocks one more.
pub fn zigzag_owners(pages: usize, lanes: usize) -> impl Iterator<Item = Owner> {
    let blocks = 2 * lanes;
    let (base, longer) = (pages / blocks, pages % blocks);
    (0..blocks).flat_map(move |block| {
        let owner = if block < lanes { block } else { blocks - 1 - block };
        let len = base + usize::from(block < longer);
        std::iter::repeat_n(Owner(owner as u8), len)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zigzag_gives_low_and_high_blocks_to_one_rank() {
        let owners: Vec<u8> = zigzag_owners(10, 2).map(|o| o.0).collect();
        // Blocks of 3, 3, 2, 2 pages for ranks 0, 1, 1, 0.
        assert_eq!(owners, [0, 0, 0, 1, 1, 1, 1, 1, 0, 0]);
        let short: Vec<u8> = zigzag_owners(3, 4).map(|o| o.0).collect();
        assert_eq!(short, [0, 1, 2], "an extend shorter than the lanes feeds the low lanes only");
    }

    #[test]
    fn a_new_chain_starts_on_the_emptiest_lane() {
        assert_eq!(choose_base(&LaneCounts::from([3, 7, 7, 1])), Owner(1));
        assert_eq!(choose_base(&LaneCounts::zero(4)), Owner(0));
    }

    proptest! {
        #[test]
        fn zigzag_covers_every_page(pages in 0usize..500, lanes in 1usize..=64) {
            prop_assert_eq!(zigzag_owners(pages, lanes).count(), pages);
        }

        /// Class counts of the public rotated placement: new div N, and one more for the first new mod N classes
        /// from the start class.
        #[test]
        fn rotated_counts_differ_by_at_most_one(
            base in 0u8..64, start in 0u64..10_000, new in 0u64..500, lanes in 1usize..=64,
        ) {
            let base = Owner(base % lanes as u8);
            let counts = LaneCounts::of_owners(lanes, (start..start + new).map(|p| rotated_owner(base, p, lanes)));
            let n = lanes as u64;
            let first = (u64::from(base.0) + start) % n;
            for (owner, count) in counts.iter() {
                let distance = (u64::from(owner.0) + n - first) % n;
                prop_assert_eq!(u64::from(count), new / n + u64::from(distance < new % n));
            }
        }
    }
}
