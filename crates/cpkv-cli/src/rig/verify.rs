//! Checks bytes: each page carries a pattern made of its tokens, its prefix, its owner and its layer.

use cpkv_core::{Geometry, Owner};
use cpkv_engine::Key;
use cpkv_sim::{PagePattern, SimDevice};
use cpkv_transfer::LaneMemory;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How many pages carry a pattern that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Verify {
    /// Every page.
    Full,
    /// One page in 16, chosen by its content.
    Sample,
    /// None: bytes move unchecked.
    Off,
}

/// What was checked so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Pages whose bytes were compared, in all layers.
    pub pages: u64,
    /// Pages that held other bytes than they should.
    pub wrong: u64,
    first_wrong: Option<String>,
}

impl Verified {
    /// Where the first wrong page was found.
    #[must_use]
    pub fn first_wrong(&self) -> Option<&str> {
        self.first_wrong.as_deref()
    }
}

/// The hashes of a key's pages, each chained with what comes before it: what a page holds depends on its prefix.
pub(super) struct Chain {
    hashes: Vec<u64>,
}

impl Chain {
    /// Hashes of all pages of a key, a partial last one included. O(tokens).
    pub(super) fn of(key: Key<'_>, page_size: u32) -> Self {
        let mut hash = key.namespace.map_or(0, |namespace| xxh3_64_with_seed(namespace.as_bytes(), 1));
        let hashes = key
            .tokens
            .chunks(page_size as usize)
            .map(|page| {
                hash = xxh3_64_with_seed(bytemuck::cast_slice(page), hash);
                hash
            })
            .collect();
        Self { hashes }
    }

    pub(super) fn hash(&self, position: u32) -> u64 {
        self.hashes[position as usize]
    }

    pub(super) fn pages(&self) -> u32 {
        self.hashes.len() as u32
    }
}

/// Writes and compares patterns.
#[derive(Debug)]
pub(super) struct PageCheck {
    geometry: Geometry,
    mode: Verify,
    verified: Verified,
    buffer: Vec<u8>,
}

impl PageCheck {
    pub(super) fn new(geometry: Geometry, mode: Verify) -> Self {
        Self { geometry, mode, verified: Verified::default(), buffer: Vec::new() }
    }

    pub(super) fn page_size(&self) -> u32 {
        self.geometry.page_size()
    }

    pub(super) fn verified(&self) -> &Verified {
        &self.verified
    }

    pub(super) fn is_off(&self) -> bool {
        self.mode == Verify::Off
    }

    fn skips(&self, hash: u64) -> bool {
        match self.mode {
            Verify::Full => false,
            Verify::Sample => !hash.is_multiple_of(16),
            Verify::Off => true,
        }
    }

    /// Writes a device page, on the compute stream.
    pub(super) fn write(&self, memory: &mut LaneMemory<SimDevice>, owner: Owner, place: u32, hash: u64) {
        if self.skips(hash) {
            return;
        }
        for (pool, layer) in self.parts() {
            let mut bytes = vec![0; self.geometry.layer_page_bytes(pool) as usize];
            PagePattern { page_hash: hash, owner, layer, pool: pool as u8 }.fill(&mut bytes);
            memory.upload_page(pool, layer, place, bytes).expect("a page of the pool");
        }
    }

    pub(super) fn check_device(&mut self, memory: &mut LaneMemory<SimDevice>, owner: Owner, place: u32, hash: u64) {
        self.check("device", owner, place, hash, |pool, layer, into| {
            memory.read_device_page(pool, layer, place, into).expect("a page of the pool");
        });
    }

    pub(super) fn check_host(&mut self, memory: &mut LaneMemory<SimDevice>, owner: Owner, place: u32, hash: u64) {
        self.check("host", owner, place, hash, |pool, layer, into| {
            memory.read_host_page(pool, layer, place, into).expect("a page of the pool");
        });
    }

    fn check(&mut self, tier: &str, owner: Owner, place: u32, hash: u64, mut read: impl FnMut(usize, u32, &mut [u8])) {
        if self.skips(hash) {
            return;
        }
        self.verified.pages += 1;
        let mut buffer = std::mem::take(&mut self.buffer);
        for (pool, layer) in self.parts() {
            buffer.resize(self.geometry.layer_page_bytes(pool) as usize, 0);
            read(pool, layer, &mut buffer);
            let pattern = PagePattern { page_hash: hash, owner, layer, pool: pool as u8 };
            if let Some(byte) = pattern.first_wrong(&buffer) {
                self.verified.wrong += 1;
                self.verified.first_wrong.get_or_insert_with(|| {
                    format!("{tier} page {place} of lane {owner}, pool {pool}, layer {layer}, byte {byte}")
                });
                break;
            }
        }
        self.buffer = buffer;
    }

    fn parts(&self) -> impl Iterator<Item = (usize, u32)> + use<> {
        let (pools, layers) = (self.geometry.pools().len(), self.geometry.layers());
        (0..pools).flat_map(move |pool| (0..layers).map(move |layer| (pool, layer)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_knows_its_prefix_and_its_namespace() {
        let hash = |namespace, tokens: &[u32]| Chain::of(Key { namespace, tokens }, 2).hash(1);
        assert_ne!(hash(None, &[1, 2, 3, 4]), hash(None, &[9, 2, 3, 4]));
        assert_ne!(hash(None, &[1, 2, 3, 4]), hash(Some("a"), &[1, 2, 3, 4]));
        assert_eq!(Chain::of(Key { namespace: None, tokens: &[1, 2, 3] }, 2).pages(), 2);
    }
}
