//! What a page must hold: bytes as a pure function of what the page is.

use crate::fault::mix;
use cpkv_core::Owner;

/// The bytes of one page in one layer of one pool.
///
/// Two pages that differ in any of the four fields differ in their bytes, for certain where they have at least 16
/// bytes: the first 16 are a bijection of the fields. Every word of 8 bytes depends on all fields and on its place, so
/// swapped layers, pools, owners or rows show too, save with a chance of 2^-56 per word. The top bit of every byte is
/// clear: no byte equals [`POISON`](crate::POISON), so each byte that was never written shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PagePattern {
    /// The hash of the page's tokens, chained with those of the pages before it.
    pub page_hash: u64,
    /// The page's owner.
    pub owner: Owner,
    /// The layer.
    pub layer: u32,
    /// The row pool, by its place in the geometry.
    pub pool: u8,
}

const MASK_56: u64 = (1 << 56) - 1;
const SEVEN_BITS: u64 = 0x7F7F_7F7F_7F7F_7F7F;

impl PagePattern {
    /// Writes the page's bytes, `into.len()` of them. Two multiplications per 8 bytes.
    pub fn fill(&self, into: &mut [u8]) {
        let words = self.words();
        let (whole, rest) = into.as_chunks_mut::<8>();
        let mut index = 0;
        for chunk in whole {
            *chunk = words.at(index).to_le_bytes();
            index += 1;
        }
        let last = words.at(index).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// Whether `bytes` are the page's.
    #[must_use]
    pub fn check(&self, bytes: &[u8]) -> bool {
        self.first_wrong(bytes).is_none()
    }

    /// The place of the first byte that isn't the page's.
    #[must_use]
    pub fn first_wrong(&self, bytes: &[u8]) -> Option<usize> {
        let words = self.words();
        let (whole, rest) = bytes.as_chunks::<8>();
        for (index, chunk) in whole.iter().enumerate() {
            let difference = u64::from_le_bytes(*chunk) ^ words.at(index as u64);
            if difference != 0 {
                return Some(index * 8 + difference.trailing_zeros() as usize / 8);
            }
        }
        let last = words.at(whole.len() as u64).to_le_bytes();
        rest.iter().zip(last).position(|(byte, expected)| *byte != expected).map(|place| whole.len() * 8 + place)
    }

    /// The fields are 64 + 8 + 32 + 8 = 112 bits, two halves of 56. Rounds of a Feistel network mix them and lose
    /// nothing: each round is undone by the same round.
    fn words(&self) -> Words {
        let mut left = self.page_hash >> 8;
        let mut right = (self.page_hash & 0xFF) << 48
            | u64::from(self.owner.0) << 40
            | u64::from(self.layer) << 8
            | u64::from(self.pool);
        for round in 0..2 {
            right ^= mix(left ^ (round << 56)) & MASK_56;
            left ^= mix(right ^ ((round + 2) << 56)) & MASK_56;
        }
        Words { left, right }
    }
}

struct Words {
    left: u64,
    right: u64,
}

impl Words {
    fn at(&self, index: u64) -> u64 {
        match index {
            0 => spread(self.left),
            1 => spread(self.right),
            _ => {
                mix(self.left ^ (self.right << 8).wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15))) & SEVEN_BITS
            }
        }
    }
}

/// Spreads 56 bits over 8 bytes of 7: halves, quarters, eighths.
fn spread(bits: u64) -> u64 {
    let bits = (bits & 0x00FF_FFFF_F000_0000) << 4 | (bits & 0x0FFF_FFFF);
    let bits = (bits & 0x0FFF_C000_0FFF_C000) << 2 | (bits & 0x0000_3FFF_0000_3FFF);
    (bits & 0x3F80_3F80_3F80_3F80) << 1 | (bits & 0x007F_007F_007F_007F)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::POISON;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn bytes(pattern: PagePattern, len: usize) -> Vec<u8> {
        let mut bytes = vec![POISON; len];
        pattern.fill(&mut bytes);
        bytes
    }

    fn pattern() -> impl Strategy<Value = PagePattern> {
        (any::<u64>(), any::<u8>(), any::<u32>(), any::<u8>()).prop_map(|(page_hash, owner, layer, pool)| PagePattern {
            page_hash,
            owner: Owner(owner),
            layer,
            pool,
        })
    }

    #[test]
    fn spreading_keeps_every_bit() {
        assert_eq!(spread(MASK_56), SEVEN_BITS);
        for bit in 0..56 {
            assert_eq!(spread(1 << bit), 1 << (bit + bit / 7), "bit {bit} goes to byte {}", bit / 7);
        }
    }

    #[test]
    fn small_fields_give_different_bytes_in_every_word() {
        // 8 hashes x 8 owners x 16 layers x 2 pools: all 2,048 pages differ in each of their eight words.
        let mut seen = vec![BTreeSet::new(); 8];
        for page_hash in 0..8 {
            for owner in Owner::all(8) {
                for layer in 0..16 {
                    for pool in 0..2 {
                        let page = bytes(PagePattern { page_hash, owner, layer, pool }, 64);
                        for (word, seen) in page.chunks(8).zip(&mut seen) {
                            assert!(seen.insert(word.to_vec()), "{page_hash} {owner} {layer} {pool}: {word:?}");
                        }
                    }
                }
            }
        }
    }

    proptest! {
        // 2,000 pairs of pages, the second often equal to the first in three of its four fields.
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn pages_that_differ_in_a_field_differ_in_bytes(
            a in pattern(),
            other in pattern(),
            field in 0..5,
            len in 16usize..80,
        ) {
            let mut b = a;
            match field {
                0 => b.page_hash = other.page_hash,
                1 => b.owner = other.owner,
                2 => b.layer = other.layer,
                3 => b.pool = other.pool,
                _ => b = other,
            }
            prop_assert_eq!(bytes(a, len) == bytes(b, len), a == b);
            prop_assert_eq!(a.check(&bytes(b, len)), a == b);
        }

        #[test]
        fn every_wrong_byte_is_found(
            a in pattern(),
            len in 1usize..80,
            place in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let mut page = bytes(a, len);
            prop_assert!(a.check(&page) && !page.contains(&POISON));
            prop_assert_eq!(&bytes(a, len + 9)[..len], &page[..], "a shorter page is the beginning of a longer one");
            let place = place.index(len);
            page[place] ^= flip;
            prop_assert_eq!(a.first_wrong(&page), Some(place));
        }
    }
}
