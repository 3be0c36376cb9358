//! Descriptors: which bytes of a device pool lie where in a host pool. Pure address arithmetic.

use cpkv_core::{CopyDescriptor, Geometry, HostLayout};

/// A page to copy: its physical places on both sides, in one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PagePair {
    /// The physical page of the device pool.
    pub device: u32,
    /// The physical page of the host pool.
    pub host: u32,
}

/// Sizes of a lane's pools, in physical pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolPages {
    /// The device pool, its padding page included.
    pub device: u32,
    /// The host pool.
    pub host: u32,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Backup.
    DeviceToHost,
    /// Load-back.
    HostToDevice,
}

/// Appends the descriptors that copy `pairs` in one layer of one row pool, in the order of the pairs. The geometry must
/// have the pool and the layer, and the pools the pages: offsets are linear and nothing is checked here.
///
/// A page is one piece where the host layout keeps a layer's rows of a page together, and one piece per token where
/// it doesn't (`page_first`). Pieces that follow each other on both sides become one. O(pieces).
#[expect(clippy::too_many_arguments, reason = "each argument is another dimension of the address")]
pub fn one_layer(
    direction: Direction,
    geometry: &Geometry,
    layout: HostLayout,
    pages: PoolPages,
    pool: usize,
    layer: u32,
    pairs: &[PagePair],
    into: &mut Vec<CopyDescriptor>,
) {
    let row = u64::from(geometry.pools()[pool].row_bytes);
    let (pieces, piece_bytes) = match layout {
        HostLayout::PageFirst => (geometry.page_size(), row),
        HostLayout::LayerFirst | HostLayout::PageFirstDirect => (1, geometry.layer_page_bytes(pool)),
    };
    let first = into.len();
    for pair in pairs {
        let device = geometry.device_offset(pool, pages.device, layer, pair.device);
        for piece in 0..pieces {
            let device = device + u64::from(piece) * piece_bytes;
            let host = geometry.host_offset(layout, pool, pages.host, layer, pair.host, piece);
            let (src, dst) = match direction {
                Direction::DeviceToHost => (device, host),
                Direction::HostToDevice => (host, device),
            };
            push(into, first, CopyDescriptor { src, dst, len: piece_bytes });
        }
    }
}

/// Appends the descriptors that copy `pairs` in all layers of one row pool, first layers first, each as [`one_layer`]
/// makes them.
pub fn all_layers(
    direction: Direction,
    geometry: &Geometry,
    layout: HostLayout,
    pages: PoolPages,
    pool: usize,
    pairs: &[PagePair],
    into: &mut Vec<CopyDescriptor>,
) {
    for layer in 0..geometry.layers() {
        one_layer(direction, geometry, layout, pages, pool, layer, pairs, into);
    }
}

/// Appends a piece, joined with the one before where both sides go on.
fn push(into: &mut Vec<CopyDescriptor>, first: usize, next: CopyDescriptor) {
    if let Some(last) = into[first..].last_mut()
        && last.src + last.len == next.src
        && last.dst + last.len == next.dst
    {
        last.len += next.len;
        return;
    }
    into.push(next);
}

/// Cuts descriptors that are longer than `max_bytes`.
#[must_use]
pub fn split(descriptors: Vec<CopyDescriptor>, max_bytes: Option<u64>) -> Vec<CopyDescriptor> {
    let Some(max) = max_bytes.filter(|max| *max > 0) else { return descriptors };
    if descriptors.iter().all(|descriptor| descriptor.len <= max) {
        return descriptors;
    }
    let pieces = |descriptor: CopyDescriptor| {
        (0..descriptor.len.div_ceil(max)).map(move |piece| CopyDescriptor {
            src: descriptor.src + piece * max,
            dst: descriptor.dst + piece * max,
            len: max.min(descriptor.len - piece * max),
        })
    };
    descriptors.into_iter().flat_map(pieces).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpkv_core::RowPool;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const LAYOUTS: [HostLayout; 3] = [HostLayout::LayerFirst, HostLayout::PageFirst, HostLayout::PageFirstDirect];

    fn geometry() -> Geometry {
        // All dimensions different.
        Geometry::new(3, 5, &[RowPool { name: "kv", row_bytes: 7 }, RowPool { name: "index", row_bytes: 2 }]).unwrap()
    }

    const PAGES: PoolPages = PoolPages { device: 11, host: 13 };

    /// Where every byte of the pairs must go, one by one.
    fn bytes(direction: Direction, layout: HostLayout, pool: usize, pairs: &[PagePair]) -> BTreeMap<u64, u64> {
        let geometry = geometry();
        let row = u64::from(geometry.pools()[pool].row_bytes);
        let mut map = BTreeMap::new();
        for pair in pairs {
            for layer in 0..geometry.layers() {
                for token in 0..geometry.page_size() {
                    for byte in 0..row {
                        let device = geometry.device_offset(pool, PAGES.device, layer, pair.device)
                            + u64::from(token) * row
                            + byte;
                        let host = geometry.host_offset(layout, pool, PAGES.host, layer, pair.host, token) + byte;
                        match direction {
                            Direction::DeviceToHost => map.insert(device, host),
                            Direction::HostToDevice => map.insert(host, device),
                        };
                    }
                }
            }
        }
        map
    }

    /// How many runs the rows make, taken in order, each compared with the one before it. No fewer descriptors can
    /// copy them in that order, layer by layer.
    fn runs(direction: Direction, layout: HostLayout, pool: usize, pairs: &[PagePair]) -> usize {
        let geometry = geometry();
        let row = u64::from(geometry.pools()[pool].row_bytes);
        let mut runs = 0;
        for layer in 0..geometry.layers() {
            let mut before = None;
            for pair in pairs {
                for token in 0..geometry.page_size() {
                    let device =
                        geometry.device_offset(pool, PAGES.device, layer, pair.device) + u64::from(token) * row;
                    let host = geometry.host_offset(layout, pool, PAGES.host, layer, pair.host, token);
                    let (src, dst) = if direction == Direction::DeviceToHost { (device, host) } else { (host, device) };
                    runs += usize::from(before != Some((src, dst)));
                    before = Some((src + row, dst + row));
                }
            }
        }
        runs
    }

    fn pairs() -> impl Strategy<Value = Vec<PagePair>> {
        let device = Just((0..11u32).collect::<Vec<_>>()).prop_shuffle();
        let host = Just((0..13u32).collect::<Vec<_>>()).prop_shuffle();
        // Sorted ends make runs likely.
        (device, host, 0usize..=11, any::<bool>()).prop_map(|(mut device, mut host, len, sorted)| {
            device.truncate(len);
            host.truncate(len);
            if sorted {
                device.sort_unstable();
                host.sort_unstable();
            }
            device.into_iter().zip(host).map(|(device, host)| PagePair { device, host }).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// Every byte goes to its place, once, in no more descriptors than there are runs or than `max` makes of them.
        #[test]
        fn descriptors_cover_exactly_the_pages(
            pairs in pairs(), layout in 0usize..3, pool in 0usize..2, to_host in any::<bool>(), max in 0u64..40,
        ) {
            let (layout, geometry) = (LAYOUTS[layout], geometry());
            let direction = if to_host { Direction::DeviceToHost } else { Direction::HostToDevice };
            let mut whole = Vec::new();
            all_layers(direction, &geometry, layout, PAGES, pool, &pairs, &mut whole);
            prop_assert_eq!(whole.len(), runs(direction, layout, pool, &pairs));
            let cut = split(whole, Some(max));
            prop_assert!(max == 0 || cut.iter().all(|descriptor| descriptor.len <= max));
            let mut came = BTreeMap::new();
            for descriptor in cut {
                for byte in 0..descriptor.len {
                    prop_assert!(came.insert(descriptor.src + byte, descriptor.dst + byte).is_none());
                }
            }
            prop_assert_eq!(came, bytes(direction, layout, pool, &pairs));
        }
    }

    #[test]
    fn a_run_on_both_sides_is_one_descriptor_per_layer() {
        let run: Vec<PagePair> = (0..4).map(|page| PagePair { device: 3 + page, host: 5 + page }).collect();
        let count = |layout, pairs: &[PagePair]| {
            let mut descriptors = Vec::new();
            all_layers(Direction::DeviceToHost, &geometry(), layout, PAGES, 0, pairs, &mut descriptors);
            descriptors.len()
        };
        assert_eq!(count(HostLayout::LayerFirst, &run), 3, "one per layer");
        assert_eq!(count(HostLayout::PageFirstDirect, &run), 3 * 4, "one per layer and page");
        assert_eq!(count(HostLayout::PageFirst, &run), 3 * 4 * 5, "one per layer, page and token");
        let mut gap = run.clone();
        gap[2].device += 3;
        gap[3].device += 3;
        assert_eq!(count(HostLayout::LayerFirst, &gap), 3 * 2, "a gap on one side is enough");
        assert_eq!(count(HostLayout::LayerFirst, &[]), 0);
    }
}
