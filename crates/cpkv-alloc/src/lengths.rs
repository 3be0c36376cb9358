//! A set of lengths below 1,024 with successor and maximum in a few instructions: a bitmap over a bitmap.

/// Lengths from this one on are not in a [`LengthSet`].
pub(crate) const LENGTHS: u32 = 1024;

/// Which lengths below [`LENGTHS`] there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LengthSet {
    words: [u64; LENGTHS as usize / 64],
    /// Which words aren't zero: 1,024 / 64 = 16 bits.
    used: u16,
}

impl LengthSet {
    pub(crate) fn insert(&mut self, len: u32) {
        self.words[len as usize / 64] |= 1 << (len % 64);
        self.used |= 1 << (len / 64);
    }

    pub(crate) fn remove(&mut self, len: u32) {
        let word = &mut self.words[len as usize / 64];
        *word &= !(1 << (len % 64));
        if *word == 0 {
            self.used &= !(1 << (len / 64));
        }
    }

    #[cfg(test)]
    pub(crate) fn contains(&self, len: u32) -> bool {
        self.words[len as usize / 64] >> (len % 64) & 1 == 1
    }

    /// The smallest length of at least `len`, which is below [`LENGTHS`].
    pub(crate) fn at_least(&self, len: u32) -> Option<u32> {
        let word = len / 64;
        let here = self.words[word as usize] & (u64::MAX << (len % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros());
        }
        // Two shifts, as one by 16 would overflow.
        let above = self.used & (u16::MAX << word << 1);
        if above == 0 {
            return None;
        }
        let word = above.trailing_zeros();
        Some(word * 64 + self.words[word as usize].trailing_zeros())
    }

    /// The largest length.
    pub(crate) fn last(&self) -> Option<u32> {
        let word = self.used.checked_ilog2()?;
        Some(word * 64 + self.words[word as usize].ilog2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn equals_an_ordered_set(
            ops in prop::collection::vec((any::<bool>(), 0u32..LENGTHS), 0..200),
            ask in 0u32..LENGTHS,
        ) {
            let (mut set, mut model) = (LengthSet::default(), BTreeSet::new());
            for (insert, len) in ops {
                if insert {
                    set.insert(len);
                    model.insert(len);
                } else {
                    set.remove(len);
                    model.remove(&len);
                }
                prop_assert_eq!(set.at_least(ask), model.range(ask..).next().copied());
                prop_assert_eq!(set.last(), model.last().copied());
                prop_assert_eq!(set.contains(len), insert);
            }
        }
    }

    #[test]
    fn the_last_word_has_no_successor() {
        let mut set = LengthSet::default();
        set.insert(1023);
        assert_eq!(set.at_least(960), Some(1023));
        set.remove(1023);
        assert_eq!(set.at_least(1023), None);
        assert_eq!(set.last(), None);
    }
}
