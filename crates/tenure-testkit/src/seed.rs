//! Replayable randomness.

use std::fmt;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The seed of all randomness of a run, printed so that a failure can be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// A given seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The number in the environment variable `name`, or a random one; prints how to replay it.
    #[track_caller]
    #[expect(
        clippy::print_stderr,
        reason = "shown with the output of a failed test"
    )]
    pub fn from_env_or_random(name: &str) -> Self {
        let seed = match std::env::var(name) {
            Ok(text) => text
                .parse()
                .unwrap_or_else(|_| panic!("`{name}` is not a seed: `{text}`")),
            Err(_) => rand::rng().next_u64(),
        };
        eprintln!("replay with {name}={seed}");
        Self(seed)
    }

    /// A generator that gives the same numbers for the same seed.
    pub fn rng(self) -> StdRng {
        StdRng::seed_from_u64(self.0)
    }

    /// Derives another seed, deterministic for `part`: one for each client, so that clients differ from
    /// each other but not from run to run.
    #[must_use]
    pub fn part(self, part: u64) -> Self {
        // The golden ratio spreads neighbouring parts; the generator mixes the rest.
        Self(
            self.0
                .wrapping_add(part.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        )
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let numbers = |seed: Seed| [(); 4].map(|()| seed.rng().next_u64());
        assert_eq!(numbers(Seed::new(7)), numbers(Seed::new(7)));
        assert_ne!(numbers(Seed::new(7)), numbers(Seed::new(8)));
        assert_ne!(numbers(Seed::new(7).part(0)), numbers(Seed::new(7).part(1)));
        assert_eq!(Seed::new(7).part(1), Seed::new(7).part(1));
    }

    #[test]
    fn a_seed_is_random_if_none_is_given() {
        let name = "TENURE_TESTKIT_NO_SUCH_SEED";
        assert_ne!(
            Seed::from_env_or_random(name),
            Seed::from_env_or_random(name)
        );
    }
}
