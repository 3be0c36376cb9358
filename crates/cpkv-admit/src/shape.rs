//! The shape of a candidate: what of its prompt is cached and what a step computes, on whole pages.

/// What admission knows about a request. Numbers are tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Length of the prompt.
    pub input_tokens: u64,
    /// Device hit and host hit together: whole pages, at most [`cached_cap`] of the prompt. For a prompt that was cut
    /// in an earlier step, what has been computed since counts too.
    pub cached_tokens: u64,
    /// Tokens per page, 1 or more; 0 is read as 1.
    pub page_size: u32,
}

/// What one step would do for a candidate. Numbers are tokens.
///
/// The extend starts at `cached_tokens`, on a page border. A cut extend is a positive multiple of the page size, so it
/// ends on a page border too; an uncut one ends with the prompt, which may be inside a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// What the step computes.
    pub extend_tokens: u64,
    /// Whether the chunk budget cut the extend, so that a rest of the prompt stays for later steps.
    pub chunked: bool,
    /// What is read from the cache.
    pub cached_tokens: u64,
}

/// The most tokens of a prompt that count as cached: `floor_p(input_tokens - 1)`, so that at least one token is
/// computed (contract C16). 0 for an empty prompt.
#[must_use]
pub fn cached_cap(input_tokens: u64, page_size: u32) -> u64 {
    floor(input_tokens.saturating_sub(1), page_size)
}

impl Candidate {
    /// The candidate of a prompt of which `hit_tokens` (device and host together, not capped) were found.
    #[must_use]
    pub fn capped(input_tokens: u64, hit_tokens: u64, page_size: u32) -> Self {
        let cached_tokens = floor(hit_tokens, page_size).min(cached_cap(input_tokens, page_size));
        Self { input_tokens, cached_tokens, page_size }
    }

    /// The shape when at most `budget` tokens may be computed (`None`: any number); `None` when not one page of a
    /// longer extend fits in the budget.
    ///
    /// A hit that isn't capped is capped here: an extend has at least one token unless the prompt is empty.
    pub(crate) fn cut(&self, budget: Option<u64>) -> Option<Shape> {
        let Candidate { cached_tokens, .. } = Candidate::capped(self.input_tokens, self.cached_tokens, self.page_size);
        let whole = self.input_tokens - cached_tokens;
        let most = budget.map_or(u64::MAX, |budget| floor(budget, self.page_size));
        match whole {
            whole if whole <= most => Some(Shape { extend_tokens: whole, chunked: false, cached_tokens }),
            _ if most == 0 => None,
            _ => Some(Shape { extend_tokens: most, chunked: true, cached_tokens }),
        }
    }

    /// The tokens that are not cached: the extend if nothing cuts it.
    pub(crate) fn uncut_extend(&self) -> u64 {
        self.input_tokens - Candidate::capped(self.input_tokens, self.cached_tokens, self.page_size).cached_tokens
    }
}

impl Shape {
    /// Pages that the extend needs: it starts on a page border, so only its end is rounded.
    #[must_use]
    pub fn extend_pages(&self, page_size: u32) -> u64 {
        self.extend_tokens.div_ceil(page(page_size))
    }

    /// Pages that the extend and `reserve_tokens` of output behind it need together. The room left in the last page of
    /// the prompt is used first. A cut extend generates nothing and reserves nothing.
    #[must_use]
    pub fn pages_with_output(&self, reserve_tokens: u64, page_size: u32) -> u64 {
        let reserve = if self.chunked { 0 } else { reserve_tokens };
        self.extend_tokens.saturating_add(reserve).div_ceil(page(page_size))
    }

    /// Where the extend ends, in tokens from the start of the prompt.
    #[must_use]
    pub fn end_tokens(&self) -> u64 {
        self.cached_tokens.saturating_add(self.extend_tokens)
    }
}

/// `floor_p`: the whole pages of `tokens`, in tokens.
pub(crate) fn floor(tokens: u64, page_size: u32) -> u64 {
    tokens - tokens % page(page_size)
}

/// `ceil_p`: `tokens` rounded up to whole pages, in tokens, held below overflow.
pub(crate) fn ceil(tokens: u64, page_size: u32) -> u64 {
    tokens.div_ceil(page(page_size)).saturating_mul(page(page_size))
}

fn page(page_size: u32) -> u64 {
    u64::from(page_size.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_prompt_cached_still_computes_its_last_page() {
        // FAULTS G7: a prompt of exactly 4 cached pages.
        let candidate = Candidate::capped(64, 64, 16);
        assert_eq!(candidate.cached_tokens, 48);
        assert_eq!(candidate.cut(None), Some(Shape { extend_tokens: 16, chunked: false, cached_tokens: 48 }));
        assert_eq!(cached_cap(65, 16), 64);
        assert_eq!([cached_cap(0, 16), cached_cap(1, 16), cached_cap(16, 16), cached_cap(17, 16)], [0, 0, 0, 16]);
    }

    #[test]
    fn an_uncapped_hit_is_capped_by_the_shape() {
        let candidate = Candidate { input_tokens: 64, cached_tokens: 70, page_size: 16 };
        assert_eq!(candidate.cut(None), Some(Shape { extend_tokens: 16, chunked: false, cached_tokens: 48 }));
    }

    #[test]
    fn a_cut_floors_to_pages_and_a_tail_does_not() {
        let candidate = Candidate { input_tokens: 43, cached_tokens: 0, page_size: 8 };
        assert_eq!(candidate.cut(Some(47)), Some(Shape { extend_tokens: 40, chunked: true, cached_tokens: 0 }));
        assert_eq!(candidate.cut(Some(48)), Some(Shape { extend_tokens: 43, chunked: false, cached_tokens: 0 }));
        assert_eq!(candidate.cut(Some(7)), None);
    }

    #[test]
    fn output_uses_the_room_in_the_last_page_first() {
        // FAULTS E9: 63 tokens of 64 leave room for one more.
        let shape = Shape { extend_tokens: 63, chunked: false, cached_tokens: 0 };
        assert_eq!(shape.extend_pages(64), 1);
        assert_eq!(shape.pages_with_output(1, 64), 1);
        assert_eq!(shape.pages_with_output(2, 64), 2);
        assert_eq!(Shape { chunked: true, extend_tokens: 64, ..shape }.pages_with_output(500, 64), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_shape_is_a_piece_of_the_prompt(
            input_tokens in any_tokens(), hit in any_tokens(), page_size in 0u32..300, budget in proptest::option::of(any_tokens()),
        ) {
            let candidate = Candidate { input_tokens, cached_tokens: hit, page_size };
            let p = u64::from(page_size.max(1));
            match candidate.cut(budget) {
                None => {
                    prop_assert!(budget.expect("only a budget cuts") < p);
                    prop_assert!(candidate.uncut_extend() > 0);
                }
                Some(shape) => {
                    prop_assert_eq!(shape.cached_tokens % p, 0);
                    prop_assert!(shape.cached_tokens <= cached_cap(input_tokens, page_size));
                    prop_assert!(shape.cached_tokens <= hit);
                    prop_assert_eq!(shape.extend_tokens == 0, input_tokens == 0);
                    if let Some(budget) = budget {
                        prop_assert!(shape.extend_tokens <= budget);
                    }
                    if shape.chunked {
                        prop_assert!(shape.end_tokens() < input_tokens);
                        prop_assert_eq!(shape.end_tokens() % p, 0, "a cut ends on a page border");
                    } else {
                        prop_assert_eq!(shape.end_tokens(), input_tokens);
                    }
                }
            }
        }
    }

    fn any_tokens() -> impl Strategy<Value = u64> {
        prop_oneof![8 => 0u64..2000, 1 => u64::MAX - 2000..=u64::MAX]
    }
}
