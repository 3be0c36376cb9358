//! A byte arena of fixed size: checked reads and writes at 64-bit offsets.

use std::ops::Range;

/// Why an arena refused; nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    /// A range that doesn't lie in the arena: a fault of the caller.
    #[error("{len} bytes at {offset} don't lie in an arena of {size} bytes")]
    OutOfRange {
        /// Where the range begins, bytes.
        offset: u64,
        /// How long it is, bytes.
        len: u64,
        /// The arena's size, bytes.
        size: u64,
    },
    /// The host has no such amount of memory: ask for less.
    #[error("the host can't give {asked} bytes")]
    OutOfMemory {
        /// Bytes asked for.
        asked: u64,
    },
}

/// Bytes of a fixed size on the heap.
#[derive(Default)]
pub struct Arena {
    bytes: Vec<u8>,
}

impl Arena {
    /// An arena of `bytes` zeros. The system gives zeroed pages as they are touched, so a large arena costs nothing
    /// until it is used.
    ///
    /// # Errors
    /// [`ArenaError::OutOfMemory`].
    pub fn zeroed(bytes: u64) -> Result<Self, ArenaError> {
        let len = reservable(bytes)?;
        Ok(Self { bytes: vec![0; len] })
    }

    /// An arena with every byte `fill`: poison that shows what was never written. Touches every byte.
    ///
    /// # Errors
    /// [`ArenaError::OutOfMemory`].
    pub fn filled(bytes: u64, fill: u8) -> Result<Self, ArenaError> {
        let len = reservable(bytes)?;
        Ok(Self { bytes: vec![fill; len] })
    }

    /// The arena's size, bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether the arena has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Checks that `len` bytes at `offset` lie in the arena.
    ///
    /// # Errors
    /// [`ArenaError::OutOfRange`].
    pub fn check(&self, offset: u64, len: u64) -> Result<(), ArenaError> {
        self.range(offset, len).map(drop)
    }

    /// The `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`ArenaError::OutOfRange`].
    pub fn slice(&self, offset: u64, len: u64) -> Result<&[u8], ArenaError> {
        self.range(offset, len).map(|range| &self.bytes[range])
    }

    /// Copies `into.len()` bytes at `offset` out of the arena.
    ///
    /// # Errors
    /// [`ArenaError::OutOfRange`]: `into` is as it was.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ArenaError> {
        into.copy_from_slice(self.slice(offset, into.len() as u64)?);
        Ok(())
    }

    /// Copies `from` into the arena at `offset`.
    ///
    /// # Errors
    /// [`ArenaError::OutOfRange`]: the arena is as it was.
    pub fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), ArenaError> {
        let range = self.range(offset, from.len() as u64)?;
        self.bytes[range].copy_from_slice(from);
        Ok(())
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(crate) fn range(&self, offset: u64, len: u64) -> Result<Range<usize>, ArenaError> {
        match offset.checked_add(len) {
            // Both ends are at most the length of a slice, so they fit `usize`.
            Some(end) if end <= self.len() => Ok(offset as usize..end as usize),
            _ => Err(ArenaError::OutOfRange { offset, len, size: self.len() }),
        }
    }
}

/// Size without contents: an arena may be gigabytes.
impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("len", &self.len()).finish()
    }
}

/// Asks the allocator for `bytes` and gives them back untouched: `vec!` would end the process where this is an error.
fn reservable(bytes: u64) -> Result<usize, ArenaError> {
    let out = ArenaError::OutOfMemory { asked: bytes };
    let len = usize::try_from(bytes).map_err(|_| out)?;
    Vec::<u8>::new().try_reserve_exact(len).map_err(|_| out)?;
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut arena = Arena::filled(10, 0xA5).unwrap();
        arena.write(3, &[1, 2, 3]).unwrap();
        let mut bytes = [0; 5];
        arena.read(2, &mut bytes).unwrap();
        assert_eq!(bytes, [0xA5, 1, 2, 3, 0xA5]);
        assert_eq!(Arena::zeroed(4).unwrap().slice(0, 4).unwrap(), [0; 4]);
        assert!(Arena::zeroed(0).unwrap().is_empty());
        assert_eq!(format!("{arena:?}"), "Arena { len: 10 }");
    }

    #[test]
    fn a_range_outside_is_refused_and_changes_nothing() {
        let mut arena = Arena::zeroed(8).unwrap();
        assert_eq!(arena.write(6, &[1, 2, 3]), Err(ArenaError::OutOfRange { offset: 6, len: 3, size: 8 }));
        assert_eq!(arena.check(u64::MAX, 2), Err(ArenaError::OutOfRange { offset: u64::MAX, len: 2, size: 8 }));
        assert_eq!(arena.check(8, 0), Ok(()), "an empty range at the end lies inside");
        assert_eq!(
            arena.check(9, 0).unwrap_err().to_string(),
            "0 bytes at 9 don't lie in an arena of 8 bytes",
            "an empty range behind the end doesn't"
        );
        assert_eq!(arena.slice(0, 8).unwrap(), [0; 8]);
    }

    #[test]
    fn too_much_memory_is_an_error_and_no_abort() {
        assert_eq!(Arena::filled(u64::MAX, 0).unwrap_err(), ArenaError::OutOfMemory { asked: u64::MAX });
        assert_eq!(Arena::zeroed(1 << 62).unwrap_err(), ArenaError::OutOfMemory { asked: 1 << 62 });
    }
}
