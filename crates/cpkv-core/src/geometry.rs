//! What the bytes of a page look like: layers, rows and host layouts. Dtype-free.

/// One pool of rows that shares the page index: the main KV rows, or the index-key rows beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowPool {
    /// What the rows are, for reports.
    pub name: &'static str,
    /// Bytes of one token's row in one layer.
    pub row_bytes: u32,
}

/// The order of a host pool's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HostLayout {
    /// `[layer][page][token][row]`, the order of the device pools.
    LayerFirst,
    /// `[page][token][layer][row]`: a page is contiguous, each token's rows of all layers together.
    PageFirst,
    /// `[page][layer][token][row]`: a page is contiguous, and so are the rows of one layer in it.
    #[default]
    PageFirstDirect,
}

/// Known row shapes, with their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Grouped-query attention of Llama 3.1 8B in bf16: 32 layers, 2 (K and V) x 8 heads x 128 x 2 B = 4,096 B.
    Mha,
    /// Multi-head latent attention of DeepSeek V3 in bf16: 61 layers, (512 + 64) x 2 B = 1,152 B.
    Mla,
    /// DeepSeek sparse attention in FP8, as GLM-5.2 runs it: 78 layers, rows of 512 + 16 + 128 = 656 B, and index
    /// keys of 128 + 4 = 132 B.
    DsaFp8,
}

/// Why a [`Geometry`] can't be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value} is out of range, {min} to {max}")]
pub struct GeometryError {
    /// The field that is off.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The least allowed.
    pub min: u64,
    /// The most allowed.
    pub max: u64,
}

/// Layers, tokens per page and the row pools: what a page weighs and where its bytes lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    layers: u32,
    page_size: u32,
    pools: Vec<RowPool>,
}

impl Geometry {
    /// A geometry of `layers` layers (1 to 1,024), `page_size` tokens per page (1 to 65,536) and one or two pools
    /// with rows of 1 to 1,048,576 bytes.
    ///
    /// # Errors
    /// [`GeometryError`] names the field that is out of its range.
    pub fn new(layers: u32, page_size: u32, pools: &[RowPool]) -> Result<Self, GeometryError> {
        let check = |field, value: u64, min, max| {
            if (min..=max).contains(&value) { Ok(()) } else { Err(GeometryError { field, value, min, max }) }
        };
        check("layers", layers.into(), 1, 1024)?;
        check("page_size", page_size.into(), 1, 65_536)?;
        check("pools", pools.len() as u64, 1, 2)?;
        for pool in pools {
            check("row_bytes", pool.row_bytes.into(), 1, 1 << 20)?;
        }
        Ok(Self { layers, page_size, pools: pools.to_vec() })
    }

    /// A preset's geometry, with pages of `page_size` tokens (64 on today's GPUs).
    ///
    /// # Errors
    /// [`GeometryError`] for a page size out of range.
    pub fn preset(preset: Preset, page_size: u32) -> Result<Self, GeometryError> {
        let row = |name, row_bytes| RowPool { name, row_bytes };
        match preset {
            Preset::Mha => Self::new(32, page_size, &[row("kv", 4096)]),
            Preset::Mla => Self::new(61, page_size, &[row("kv", 1152)]),
            Preset::DsaFp8 => Self::new(78, page_size, &[row("kv", 656), row("index", 132)]),
        }
    }

    /// Layers.
    #[must_use]
    pub fn layers(&self) -> u32 {
        self.layers
    }

    /// Tokens per page.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// The row pools, the main one first.
    #[must_use]
    pub fn pools(&self) -> &[RowPool] {
        &self.pools
    }

    /// Bytes of one page in one layer of pool `pool`.
    #[must_use]
    pub fn layer_page_bytes(&self, pool: usize) -> u64 {
        u64::from(self.page_size) * u64::from(self.pools[pool].row_bytes)
    }

    /// Bytes of one page in all layers of pool `pool`.
    #[must_use]
    pub fn page_bytes(&self, pool: usize) -> u64 {
        self.layer_page_bytes(pool) * u64::from(self.layers)
    }

    /// Bytes of one page in all layers of all pools: what a page costs in a tier.
    #[must_use]
    pub fn page_bytes_all(&self) -> u64 {
        (0..self.pools.len()).map(|pool| self.page_bytes(pool)).sum()
    }

    /// Where page `page` of `layer` begins in a device pool of `pool_pages` pages: `[layer][page][token][row]`.
    #[must_use]
    pub fn device_offset(&self, pool: usize, pool_pages: u32, layer: u32, page: u32) -> u64 {
        (u64::from(layer) * u64::from(pool_pages) + u64::from(page)) * self.layer_page_bytes(pool)
    }

    /// Where the row of `token` (0 to page size - 1) of page `page` in `layer` begins in a host pool of `pool_pages`
    /// pages with this layout.
    #[must_use]
    pub fn host_offset(
        &self,
        layout: HostLayout,
        pool: usize,
        pool_pages: u32,
        layer: u32,
        page: u32,
        token: u32,
    ) -> u64 {
        let row = u64::from(self.pools[pool].row_bytes);
        let (layers, tokens) = (u64::from(self.layers), u64::from(self.page_size));
        let (layer, page, token) = (u64::from(layer), u64::from(page), u64::from(token));
        row * match layout {
            HostLayout::LayerFirst => (layer * u64::from(pool_pages) + page) * tokens + token,
            HostLayout::PageFirst => (page * tokens + token) * layers + layer,
            HostLayout::PageFirstDirect => (page * layers + layer) * tokens + token,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_weigh_what_their_models_publish() {
        let page = |preset| Geometry::preset(preset, 64).unwrap().page_bytes_all();
        assert_eq!(page(Preset::Mha), 64 * 32 * 4096);
        assert_eq!(page(Preset::Mla), 64 * 61 * 1152);
        assert_eq!(page(Preset::DsaFp8), 64 * 78 * (656 + 132));
        // A published log: 457,920 tokens of DSA FP8 over 78 layers take 26.21 GiB.
        let gib = (457_920 / 64 * page(Preset::DsaFp8)) as f64 / (1u64 << 30) as f64;
        assert!((gib - 26.21).abs() < 0.01, "{gib}");
    }

    #[test]
    fn every_layout_is_a_bijection_onto_the_pool() {
        let geometry = Geometry::new(3, 5, &[RowPool { name: "kv", row_bytes: 7 }]).unwrap();
        let pages = 4;
        for layout in [HostLayout::LayerFirst, HostLayout::PageFirst, HostLayout::PageFirstDirect] {
            let mut seen = std::collections::BTreeSet::new();
            for layer in 0..3 {
                for page in 0..pages {
                    for token in 0..5 {
                        let offset = geometry.host_offset(layout, 0, pages, layer, page, token);
                        assert_eq!(offset % 7, 0);
                        assert!(offset < u64::from(pages) * geometry.page_bytes(0));
                        assert!(seen.insert(offset));
                    }
                }
            }
            assert_eq!(seen.len(), 3 * 4 * 5);
        }
    }

    #[test]
    fn a_value_out_of_range_is_named() {
        let error = Geometry::new(0, 64, &[RowPool { name: "kv", row_bytes: 8 }]).unwrap_err();
        assert_eq!(error.to_string(), "layers: 0 is out of range, 1 to 1024");
    }
}
