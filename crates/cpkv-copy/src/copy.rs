//! Batches of copies between arenas: checked whole, then moved.

use crate::{Arena, ArenaError};
use cpkv_core::CopyDescriptor;

/// Copies a batch from `src` to `dst` and returns the bytes moved. One `memcpy` per descriptor.
///
/// # Errors
/// [`ArenaError::OutOfRange`] for the first descriptor that leaves its arena: nothing was copied.
pub fn copy_between(src: &Arena, dst: &mut Arena, descriptors: &[CopyDescriptor]) -> Result<u64, ArenaError> {
    for copy in descriptors {
        src.check(copy.src, copy.len)?;
        dst.check(copy.dst, copy.len)?;
    }
    let mut bytes = 0;
    for copy in descriptors {
        dst.write(copy.dst, src.slice(copy.src, copy.len)?)?;
        bytes += copy.len;
    }
    Ok(bytes)
}

/// Copies a batch within one arena, in the order given, and returns the bytes moved. Source and destination of one
/// descriptor may overlap: the destination gets what the source held before that descriptor. One `memmove` per
/// descriptor.
///
/// # Errors
/// [`ArenaError::OutOfRange`] for the first descriptor that leaves the arena: nothing was copied.
pub fn copy_within(arena: &mut Arena, descriptors: &[CopyDescriptor]) -> Result<u64, ArenaError> {
    for copy in descriptors {
        arena.check(copy.src, copy.len)?;
        arena.check(copy.dst, copy.len)?;
    }
    let mut bytes = 0;
    for copy in descriptors {
        let from = arena.range(copy.src, copy.len)?;
        let to = arena.range(copy.dst, copy.len)?.start;
        arena.bytes_mut().copy_within(from, to);
        bytes += copy.len;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arena(bytes: impl IntoIterator<Item = u8>) -> Arena {
        let bytes: Vec<u8> = bytes.into_iter().collect();
        let mut arena = Arena::zeroed(bytes.len() as u64).unwrap();
        arena.write(0, &bytes).unwrap();
        arena
    }

    fn contents(arena: &Arena) -> Vec<u8> {
        arena.slice(0, arena.len()).unwrap().to_vec()
    }

    #[test]
    fn a_bad_descriptor_refuses_the_whole_batch() {
        let src = arena(0..16);
        let mut dst = Arena::filled(8, 0xA5).unwrap();
        let batch = [CopyDescriptor { src: 0, dst: 0, len: 4 }, CopyDescriptor { src: 8, dst: 6, len: 3 }];
        assert_eq!(
            copy_between(&src, &mut dst, &batch),
            Err(ArenaError::OutOfRange { offset: 6, len: 3, size: 8 }),
            "the destination is too short"
        );
        assert_eq!(contents(&dst), [0xA5; 8]);
        assert!(copy_within(&mut dst, &batch).is_err());
        assert_eq!(contents(&dst), [0xA5; 8]);
        assert_eq!(copy_between(&src, &mut dst, &batch[..1]), Ok(4));
        assert_eq!(copy_between(&src, &mut dst, &[]), Ok(0));
    }

    fn batch() -> impl Strategy<Value = Vec<CopyDescriptor>> {
        // Up to 70 against arenas of 64 bytes: some ranges leave them.
        let copy = (0u64..70, 0u64..70, 0u64..20).prop_map(|(src, dst, len)| CopyDescriptor { src, dst, len });
        prop::collection::vec(copy, 0..8)
    }

    proptest! {
        // 2,000 batches, byte for byte against a loop over single bytes.
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn copies_equal_a_byte_loop(batch in batch()) {
            let legal = batch.iter().all(|copy| copy.src + copy.len <= 64 && copy.dst + copy.len <= 64);
            let (src, mut dst) = (arena(0..64), arena(100..164));
            let mut expected = contents(&dst);
            if legal {
                for copy in &batch {
                    for i in 0..copy.len as usize {
                        expected[copy.dst as usize + i] = copy.src as u8 + i as u8;
                    }
                }
            }
            prop_assert_eq!(copy_between(&src, &mut dst, &batch).is_ok(), legal);
            prop_assert_eq!(contents(&dst), expected);

            let mut within = arena(0..64);
            let mut expected = contents(&within);
            if legal {
                for copy in &batch {
                    let before = expected.clone();
                    for i in 0..copy.len as usize {
                        expected[copy.dst as usize + i] = before[copy.src as usize + i];
                    }
                }
            }
            prop_assert_eq!(copy_within(&mut within, &batch).is_ok(), legal);
            prop_assert_eq!(contents(&within), expected);
        }
    }
}
