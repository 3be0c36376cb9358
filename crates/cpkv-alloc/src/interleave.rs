//! From runs per lane to pages in the order of their owners.

use cpkv_core::{Owner, PageId, PageRun, Striping};

/// How far the runs of one lane are given out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    /// The next logical page of the current run.
    page: u32,
    /// Pages left in the current run.
    left: u32,
    /// The run after the current one.
    run: u32,
}

/// One logical page for each entry of `owners`, from the runs of physical pages of its lane in their order.
/// `run(lane, i)` is run i of a lane; each lane has as many pages as it has entries. `cursors` has one entry per lane,
/// and is kept by the caller for its memory alone. O(owners).
pub(crate) fn interleave(
    striping: Striping,
    owners: &[Owner],
    cursors: &mut [Cursor],
    run: impl Fn(usize, usize) -> PageRun,
) -> Vec<PageId> {
    cursors.fill(Cursor::default());
    let step = striping.lanes() as u32;
    let page = |owner: &Owner| {
        let cursor = &mut cursors[owner.index()];
        if cursor.left == 0 {
            let run = run(owner.index(), cursor.run as usize);
            *cursor = Cursor { page: striping.logical(*owner, run.start).0, left: run.len, run: cursor.run + 1 };
        }
        let page = PageId(cursor.page);
        cursor.page += step;
        cursor.left -= 1;
        page
    };
    owners.iter().map(page).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_in_the_order_of_their_owners() {
        let striping = Striping::new(2).unwrap();
        let runs =
            [vec![PageRun { start: 7, len: 1 }, PageRun { start: 2, len: 2 }], vec![PageRun { start: 0, len: 1 }]];
        let owners = [Owner(0), Owner(0), Owner(1), Owner(0)];
        let pages = interleave(striping, &owners, &mut [Cursor::default(); 2], |lane, i| runs[lane][i]);
        assert_eq!(pages, [PageId(14), PageId(4), PageId(1), PageId(6)]);
    }
}
