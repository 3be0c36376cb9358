//! The built-in workload: conversations of several turns behind one system prompt, some of which go back and branch.
//!
//! A stand-in where no trace is at hand. It is a function of its parameters and the seed alone, whole numbers
//! throughout, and knows nothing of pages: turns end in the middle of them.

use crate::error::CliError;
use serde::Serialize;
use std::fmt::{self, Display};
use std::ops::RangeInclusive;

/// Token ids are below this, the size of today's vocabularies.
const VOCABULARY: u64 = 128_000;
/// The most tokens of all prompts together, as 4 bytes each in memory: 8 GiB.
const TOKENS_MAX: u64 = 1 << 31;

/// The parameters. Counts with a mean are uniform from 1 to twice the mean less 1; times from 0 to twice the mean.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkloadConfig {
    /// Conversations, 1 to 1,000,000.
    pub conversations: u32,
    /// The most turns of a conversation, 1 to 1,000: uniform from 1.
    pub turns: u32,
    /// Tokens of the system prompt that all conversations share, 0 to 1,000,000.
    pub system_tokens: u32,
    /// Mean tokens that a user adds per turn, 1 to 1,000,000.
    pub user_tokens: u32,
    /// Mean tokens of an answer, 0 to 1,000,000; 0 is no answer.
    pub output_tokens: u32,
    /// Mean time from one turn's arrival to the next one's, milliseconds, 0 to 100,000,000.
    pub think_ms: u32,
    /// Conversations that start per second, in the mean, 0.001 to 1,000,000.
    pub arrival_per_s: f64,
    /// The share of later turns that go back to an earlier turn and branch from there, percent, 0 to 100.
    pub branch_percent: u32,
    /// The seed.
    pub seed: u64,
}

impl Default for WorkloadConfig {
    /// About 2,000 requests of 2K to 7K tokens over ten minutes.
    fn default() -> Self {
        Self {
            conversations: 500,
            turns: 7,
            system_tokens: 2_000,
            user_tokens: 400,
            output_tokens: 300,
            think_ms: 20_000,
            arrival_per_s: 1.0,
            branch_percent: 10,
            seed: 1,
        }
    }
}

/// All parameters, so that a report can be repeated.
impl Display for WorkloadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            conversations,
            turns,
            system_tokens,
            user_tokens,
            output_tokens,
            think_ms,
            arrival_per_s,
            branch_percent,
            seed,
        } = self;
        write!(
            f,
            "conversations={conversations} turns={turns} system_tokens={system_tokens} user_tokens={user_tokens} \
             output_tokens={output_tokens} think_ms={think_ms} arrival_per_s={arrival_per_s} \
             branch_percent={branch_percent} seed={seed}"
        )
    }
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkRequest {
    /// When it arrives, nanoseconds from the start of the workload.
    pub time_ns: u64,
    /// The prompt: the system prompt, the turns before with their answers, and what the user adds.
    pub tokens: Vec<u32>,
    /// The answer, which the next turn's prompt repeats.
    pub output: Vec<u32>,
    /// The conversation, from 0.
    pub conversation: u32,
    /// The turn in it, from 0.
    pub turn: u32,
}

/// Makes the requests, by time; ties stand in the order of conversation and turn.
///
/// # Errors
/// [`CliError::BadInput`] names the parameter that is out of its range.
pub fn generate(config: &WorkloadConfig) -> Result<Vec<WorkRequest>, CliError> {
    check(config)?;
    let mut root = SplitMix64(config.seed);
    let system = SplitMix64(root.next()).tokens(config.system_tokens.into());
    let mut arrivals = SplitMix64(root.next());
    let gap_ns = (1e9 / config.arrival_per_s) as u64;
    let mut start_ns = 0;
    let mut requests = Vec::new();
    for conversation in 0..config.conversations {
        // A stream of its own for each: what one draws doesn't shift the others.
        converse(config, conversation, start_ns, &system, SplitMix64(root.next()), &mut requests);
        start_ns += arrivals.around(gap_ns);
    }
    requests.sort_by_key(|request| request.time_ns);
    Ok(requests)
}

fn converse(
    config: &WorkloadConfig,
    conversation: u32,
    start_ns: u64,
    system: &[u32],
    mut random: SplitMix64,
    requests: &mut Vec<WorkRequest>,
) {
    let first = requests.len();
    let turns = 1 + random.below(config.turns.into()) as u32;
    let mut time_ns = start_ns;
    for turn in 0..turns {
        let mut tokens = if turn == 0 {
            system.to_vec()
        } else {
            // The turn whose context goes on: the last, or for a branch one before it, if there is one.
            let last = u64::from(turn) - 1;
            let branches = random.below(100) < config.branch_percent.into();
            let from = if branches && last > 0 { random.below(last) } else { last };
            let from = &requests[first + from as usize];
            [from.tokens.as_slice(), from.output.as_slice()].concat()
        };
        let added = random.about(config.user_tokens);
        tokens.extend(random.tokens(added));
        let answered = random.about(config.output_tokens);
        let output = random.tokens(answered);
        requests.push(WorkRequest { time_ns, tokens, output, conversation, turn });
        time_ns += random.around(u64::from(config.think_ms) * 1_000_000);
    }
}

fn check(config: &WorkloadConfig) -> Result<(), CliError> {
    let refused = |field: &str, what: String| Err(CliError::bad("workload", None, field, what));
    let ranges: [(&str, u32, RangeInclusive<u32>); 7] = [
        ("conversations", config.conversations, 1..=1_000_000),
        ("turns", config.turns, 1..=1_000),
        ("system_tokens", config.system_tokens, 0..=1_000_000),
        ("user_tokens", config.user_tokens, 1..=1_000_000),
        ("output_tokens", config.output_tokens, 0..=1_000_000),
        ("think_ms", config.think_ms, 0..=100_000_000),
        ("branch_percent", config.branch_percent, 0..=100),
    ];
    for (field, value, range) in ranges {
        if !range.contains(&value) {
            return refused(field, format!("{value} is out of range, {} to {}", range.start(), range.end()));
        }
    }
    // Written so that NaN is refused too.
    if !(0.001..=1e6).contains(&config.arrival_per_s) {
        return refused("arrival_per_s", format!("{} is out of range, 0.001 to 1000000", config.arrival_per_s));
    }
    let turns = u64::from(config.turns);
    let turn = u64::from(config.user_tokens) + u64::from(config.output_tokens);
    // In the mean a conversation has (turns + 1) / 2 turns, and its last prompt all of their tokens.
    let longest = u64::from(config.system_tokens) + turns * turn;
    let all = (u64::from(config.conversations) * turns).saturating_mul(longest);
    if all > TOKENS_MAX {
        let what = format!("with these turns and tokens up to {all} tokens, the most are {TOKENS_MAX}");
        return refused("conversations", what);
    }
    Ok(())
}

/// The generator of Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0 to `end` - 1; the bias is below `end / 2^64`.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Uniform in 0 to twice the mean.
    fn around(&mut self, mean: u64) -> u64 {
        self.below(2 * mean + 1)
    }

    /// Uniform in 1 to twice the mean less 1; 0 for a mean of 0.
    fn about(&mut self, mean: u32) -> u64 {
        if mean == 0 { 0 } else { 1 + self.below(2 * u64::from(mean) - 1) }
    }

    fn tokens(&mut self, count: u64) -> Vec<u32> {
        (0..count).map(|_| self.below(VOCABULARY) as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_generator_is_the_published_one() {
        let mut random = SplitMix64(1_234_567);
        assert_eq!(
            [random.next(), random.next(), random.next()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn the_default_is_as_large_as_it_says() {
        let requests = generate(&WorkloadConfig::default()).unwrap();
        let tokens: usize = requests.iter().map(|request| request.tokens.len()).sum();
        let longest = requests.iter().map(|request| request.tokens.len()).max().unwrap();
        let mean = tokens / requests.len();
        assert!((1_900..=2_100).contains(&requests.len()), "{} requests", requests.len());
        assert!((3_000..=5_000).contains(&mean), "{mean} tokens in the mean");
        assert!(longest < 10_000, "{longest} tokens");
        let seconds = requests.last().unwrap().time_ns / 1_000_000_000;
        assert!((450..=750).contains(&seconds), "{seconds} s");
    }

    #[test]
    fn branches_are_as_many_as_asked_for() {
        for branch_percent in [0u32, 30, 100] {
            let config = WorkloadConfig { branch_percent, ..Default::default() };
            let mut requests = generate(&config).unwrap();
            requests.sort_by_key(|request| (request.conversation, request.turn));
            // From its third turn on a conversation has an earlier turn to go back to.
            let later = || requests.windows(2).filter(|pair| pair[1].turn >= 2);
            let goes_back = |pair: &&[WorkRequest]| !pair[1].tokens.starts_with(&pair[0].tokens);
            let share = later().filter(goes_back).count() * 100 / later().count();
            assert!(share.abs_diff(branch_percent as usize) <= 4, "{share} % of {branch_percent} %");
        }
    }

    #[test]
    fn all_parameters_are_shown() {
        assert_eq!(
            WorkloadConfig::default().to_string(),
            "conversations=500 turns=7 system_tokens=2000 user_tokens=400 output_tokens=300 think_ms=20000 \
             arrival_per_s=1 branch_percent=10 seed=1"
        );
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let good = WorkloadConfig::default();
        let says = |config: WorkloadConfig, what: &str| {
            assert_eq!(generate(&config).unwrap_err().to_string(), format!("workload: {what}"));
        };
        says(WorkloadConfig { turns: 0, ..good.clone() }, "turns: 0 is out of range, 1 to 1000");
        says(WorkloadConfig { branch_percent: 101, ..good.clone() }, "branch_percent: 101 is out of range, 0 to 100");
        says(
            WorkloadConfig { arrival_per_s: f64::NAN, ..good.clone() },
            "arrival_per_s: NaN is out of range, 0.001 to 1000000",
        );
        says(
            WorkloadConfig { conversations: 1_000_000, ..good },
            "conversations: with these turns and tokens up to 48300000000 tokens, the most are 2147483648",
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn turns_go_on_from_turns(
            conversations in 1u32..12, turns in 1u32..8, branch_percent in 0u32..=100, system_tokens in 0u32..50,
            output_tokens in 0u32..20, think_ms in 0u32..100, seed: u64,
        ) {
            let config = WorkloadConfig {
                conversations, turns, system_tokens, user_tokens: 10, output_tokens, think_ms, arrival_per_s: 10.0,
                branch_percent, seed,
            };
            let requests = generate(&config).unwrap();
            prop_assert_eq!(&requests, &generate(&config).unwrap(), "the same seed, the same requests");
            prop_assert!(requests.is_sorted_by_key(|request| request.time_ns));
            let system = &requests[0].tokens[..system_tokens as usize];
            for conversation in 0..conversations {
                let all: Vec<_> = requests.iter().filter(|request| request.conversation == conversation).collect();
                prop_assert!(!all.is_empty() && all.len() <= turns as usize);
                for (at, request) in all.iter().enumerate() {
                    prop_assert_eq!(request.turn as usize, at, "turns come in order");
                    prop_assert!(request.tokens.starts_with(system));
                    let goes_on = |from: &&WorkRequest| {
                        let context = [from.tokens.as_slice(), from.output.as_slice()].concat();
                        request.tokens.len() > context.len() && request.tokens.starts_with(&context)
                    };
                    let mut before = all[..at].iter().copied().rev();
                    let from = if branch_percent == 0 { before.next().filter(goes_on) } else { before.find(goes_on) };
                    prop_assert!(at == 0 || from.is_some(), "turn {} of conversation {} goes on from none", at, conversation);
                }
            }
        }
    }
}
