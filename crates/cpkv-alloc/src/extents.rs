//! The index of free extents: best fit, largest, and merging with both neighbours, each in a bounded number of steps.
//!
//! Every maximal run of free pages is one *extent*. Its length stands as a tag at both of its ends, so that a run that
//! comes back finds both neighbours by looking at one page on each side. Extents shorter than 1,024 hang in one list
//! per length, and a bitmap says which lists aren't empty; longer ones, of which a pool of 2^22 pages has 4,096 at
//! most, stand in one ordered set, where a step is at most 12 comparisons. The choice is exact best fit: the smallest
//! extent that is long enough. All state is a function of the calls, so that replicas hand out the same pages.

use crate::lengths::{LENGTHS, LengthSet};
use cpkv_core::{PageRun, strict_assert};
use std::collections::BTreeSet;

/// No page: the end of a list.
const NONE: u32 = u32::MAX;

/// What the index knows per page. It means something at the ends of extents and at the start of parked runs only.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// At the first and last page of a free extent its length, 0 at all other pages.
    tag: u32,
    /// At the first page of an extent the one before it in its list; at the first page of a parked run its length.
    prev: u32,
    /// At the first page of an extent or of a parked run the next one in its list.
    next: u32,
}

const _: () = assert!(size_of::<Slot>() == 12, "12 bytes per page");

/// The free extents of one pool, and a list of parked runs that are free but not merged yet.
#[derive(Debug, Clone)]
pub(crate) struct Extents {
    slots: Vec<Slot>,
    /// The first page of the newest extent of each length below 1,024.
    heads: Vec<u32>,
    /// The lengths whose list isn't empty.
    short: LengthSet,
    /// Extents of 1,024 pages and more, by length and start.
    long: BTreeSet<(u32, u32)>,
    /// Pages in extents.
    ready: u32,
    /// The newest parked run. The list lives in the slots of its pages and costs no memory.
    parked_head: u32,
    /// Pages in parked runs.
    parked: u32,
    /// Parked runs while they are merged. Empty between calls; kept for its memory.
    merging: Vec<PageRun>,
    touched: u64,
}

impl Extents {
    /// All pages of `pool` free, in one extent. O(pages), once.
    pub(crate) fn new(pool: PageRun) -> Self {
        let lists = LENGTHS.min(pool.len + 1) as usize;
        let mut extents = Self {
            slots: vec![Slot { tag: 0, prev: NONE, next: NONE }; pool.end() as usize],
            heads: vec![NONE; lists],
            short: LengthSet::default(),
            long: BTreeSet::new(),
            ready: pool.len,
            parked_head: NONE,
            parked: 0,
            merging: Vec::new(),
            touched: 0,
        };
        if pool.len > 0 {
            extents.link(pool);
        }
        extents.touched = 0;
        extents
    }

    /// Pages in extents: what `take` can give.
    pub(crate) fn ready(&self) -> u32 {
        self.ready
    }

    /// Pages parked.
    pub(crate) fn parked(&self) -> u32 {
        self.parked
    }

    /// Index entries touched so far.
    pub(crate) fn touched(&self) -> u64 {
        self.touched
    }

    /// The length of the longest extent, 0 without one.
    pub(crate) fn largest(&self) -> u32 {
        match self.long.last() {
            Some((len, _)) => *len,
            None => self.short.last().unwrap_or(0),
        }
    }

    /// Takes `pages` pages, at most what is ready, and appends their runs to `out`: one extent's first pages if one is
    /// long enough, else the fewest extents, the largest first and the best fit for the rest. 3 entries per run.
    pub(crate) fn take(&mut self, pages: u32, out: &mut Vec<PageRun>) {
        strict_assert!(pages <= self.ready, "{pages} pages taken of {} ready", self.ready);
        self.ready -= pages;
        let mut left = pages;
        while left > 0 {
            let extent = self.best_fit(left).unwrap_or_else(|| self.largest_extent());
            self.touched += 1;
            self.unlink(extent);
            let run = PageRun { start: extent.start, len: left.min(extent.len) };
            if run.len < extent.len {
                self.link(PageRun { start: run.end(), len: extent.len - run.len });
            }
            out.push(run);
            left -= run.len;
        }
    }

    /// Adds a free run and joins it with the extents on both sides. 4 entries.
    pub(crate) fn insert(&mut self, run: PageRun) {
        self.ready += run.len;
        self.touched += 1;
        let mut whole = run;
        let below = self.tag(run.start.wrapping_sub(1));
        if below > 0 {
            whole = PageRun { start: run.start - below, len: run.len + below };
            self.unlink(PageRun { start: whole.start, len: below });
        }
        let above = self.tag(run.end());
        if above > 0 {
            whole.len += above;
            self.unlink(PageRun { start: run.end(), len: above });
        }
        self.link(whole);
    }

    /// Puts a free run aside, to be merged later. 1 entry.
    pub(crate) fn park(&mut self, run: PageRun) {
        self.slots[run.start as usize] = Slot { tag: 0, prev: run.len, next: self.parked_head };
        self.parked_head = run.start;
        self.parked += run.len;
        self.touched += 1;
    }

    /// Inserts all parked runs, the last pages first, so that the lowest of equal extents is found first. Which one it
    /// is then depends on what came back, not on the order in which it did: copies may end in any order (contract C7).
    /// 4 entries per run, and a sort.
    pub(crate) fn merge(&mut self) {
        let mut runs = std::mem::take(&mut self.merging);
        let mut start = self.parked_head;
        while start != NONE {
            let Slot { prev: len, next, .. } = self.slots[start as usize];
            runs.push(PageRun { start, len });
            start = next;
        }
        runs.sort_unstable();
        let mut left = runs.drain(..).rev().peekable();
        while let Some(mut run) = left.next() {
            // Neighbours that came back apart are one run.
            while let Some(below) = left.next_if(|below| below.end() == run.start) {
                run = PageRun { start: below.start, len: below.len + run.len };
            }
            self.insert(run);
        }
        drop(left);
        self.merging = runs;
        self.parked_head = NONE;
        self.parked = 0;
    }

    /// The tag of `page`; 0 outside the pool.
    fn tag(&self, page: u32) -> u32 {
        self.slots.get(page as usize).map_or(0, |slot| slot.tag)
    }

    fn best_fit(&self, pages: u32) -> Option<PageRun> {
        if pages < LENGTHS
            && let Some(len) = self.short.at_least(pages)
        {
            return Some(PageRun { start: self.heads[len as usize], len });
        }
        self.long.range((pages, 0)..).next().map(|(len, start)| PageRun { start: *start, len: *len })
    }

    fn largest_extent(&self) -> PageRun {
        if let Some((len, start)) = self.long.last() {
            return PageRun { start: *start, len: *len };
        }
        let len = self.short.last().expect("pages are ready, so there is an extent");
        PageRun { start: self.heads[len as usize], len }
    }

    /// Enters an extent, both of whose neighbours are not free.
    fn link(&mut self, extent: PageRun) {
        let PageRun { start, len } = extent;
        self.touched += 1;
        self.slots[extent.end() as usize - 1].tag = len;
        if len >= LENGTHS {
            self.slots[start as usize].tag = len;
            self.long.insert((len, start));
            return;
        }
        let next = std::mem::replace(&mut self.heads[len as usize], start);
        self.slots[start as usize] = Slot { tag: len, prev: NONE, next };
        if next == NONE {
            self.short.insert(len);
        } else {
            self.slots[next as usize].prev = start;
        }
    }

    /// Takes an extent out.
    fn unlink(&mut self, extent: PageRun) {
        let PageRun { start, len } = extent;
        self.touched += 1;
        self.slots[extent.end() as usize - 1].tag = 0;
        let slot = &mut self.slots[start as usize];
        slot.tag = 0;
        if len >= LENGTHS {
            self.long.remove(&(len, start));
            return;
        }
        let Slot { prev, next, .. } = *slot;
        if next != NONE {
            self.slots[next as usize].prev = prev;
        }
        if prev != NONE {
            self.slots[prev as usize].next = next;
        } else {
            self.heads[len as usize] = next;
            if next == NONE {
                self.short.remove(len);
            }
        }
    }

    /// Checks the index and the parked list against the free runs of the ground truth, ascending. O(pool).
    pub(crate) fn self_check(&self, free: &[PageRun]) -> Result<(), String> {
        let mut pages = self.parked_runs()?;
        let parked: u32 = pages.iter().map(|run| run.len).sum();
        if parked != self.parked {
            return Err(format!("{} pages parked by the counter, {parked} by the list", self.parked));
        }
        let extents = self.listed_extents()?;
        let ready: u32 = extents.iter().map(|run| run.len).sum();
        if ready != self.ready {
            return Err(format!("{} pages ready by the counter, {ready} by the lists", self.ready));
        }
        if let Some(pair) = extents.windows(2).find(|pair| pair[0].end() >= pair[1].start) {
            return Err(format!("extents overlap or are not joined: {pair:?}"));
        }
        let tags: u32 = self.slots.iter().filter(|slot| slot.tag != 0).count() as u32;
        let ends: u32 = extents.iter().map(|run| run.len.min(2)).sum();
        if tags != ends {
            return Err(format!("{tags} tags where the extents have {ends} ends"));
        }
        pages.extend(extents);
        pages.sort_unstable();
        let joined = cpkv_core::coalesce(pages.iter().flat_map(|run| run.pages()));
        if joined != free {
            return Err(format!("free by the index {joined:?}, by the ground truth {free:?}"));
        }
        Ok(())
    }

    fn parked_runs(&self) -> Result<Vec<PageRun>, String> {
        let (mut runs, mut start) = (Vec::new(), self.parked_head);
        while start != NONE {
            let slot = self.slots.get(start as usize).ok_or_else(|| format!("parked run at {start}: no such page"))?;
            runs.push(PageRun { start, len: slot.prev });
            if runs.len() > self.slots.len() {
                return Err("the list of parked runs is a ring".into());
            }
            start = slot.next;
        }
        Ok(runs)
    }

    /// All extents by the lists and the set, ascending, with their tags and links checked.
    fn listed_extents(&self) -> Result<Vec<PageRun>, String> {
        let mut extents: Vec<PageRun> = self.long.iter().map(|&(len, start)| PageRun { start, len }).collect();
        let mut listed = LengthSet::default();
        for (len, head) in self.heads.iter().enumerate() {
            let (mut prev, mut start) = (NONE, *head);
            while start != NONE {
                let slot = self.slots.get(start as usize).ok_or_else(|| format!("extent at {start}: no such page"))?;
                if slot.prev != prev || extents.len() > self.slots.len() {
                    return Err(format!("extent at {start}: {} before it in its list, not {prev}", slot.prev));
                }
                listed.insert(len as u32);
                extents.push(PageRun { start, len: len as u32 });
                (prev, start) = (start, slot.next);
            }
        }
        if listed != self.short {
            return Err(format!("lists in use {listed:?}, by the bitmap {:?}", self.short));
        }
        for run in &extents {
            let tags = [self.tag(run.start), self.tag(run.end().wrapping_sub(1))];
            if run.len == 0 || tags != [run.len, run.len] {
                return Err(format!("extent {run:?} has tags {tags:?}"));
            }
        }
        extents.sort_unstable();
        Ok(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn self_check_names_what_differs() {
        let mut extents = Extents::new(PageRun { start: 0, len: 10 });
        extents.take(4, &mut Vec::new());
        let free = [PageRun { start: 4, len: 6 }];
        assert_eq!(extents.self_check(&free), Ok(()));
        assert!(extents.self_check(&[PageRun { start: 3, len: 7 }]).unwrap_err().contains("ground truth"));
        let broken = |change: fn(&mut Extents)| {
            let mut extents = extents.clone();
            change(&mut extents);
            extents.self_check(&free).unwrap_err()
        };
        assert_eq!(broken(|extents| extents.ready = 7), "7 pages ready by the counter, 6 by the lists");
        assert_eq!(broken(|extents| extents.slots[6].tag = 1), "3 tags where the extents have 2 ends");
        assert!(broken(|extents| extents.slots[4].tag = 5).contains("has tags [5, 6]"));
        assert!(broken(|extents| extents.short.remove(6)).contains("by the bitmap"));
        assert_eq!(broken(|extents| extents.parked = 1), "1 pages parked by the counter, 0 by the list");
    }
}
