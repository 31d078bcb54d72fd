//! What belongs to which shelf of a spread item. These rules are as permanent as the keys: every
//! process of a sale, of any version, must compute the same shelf.

/// One shelf of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// Its index, starting at zero.
    pub(super) nth: u64,
    /// Of how many.
    pub(super) of: u64,
}

impl Place {
    /// The only shelf.
    pub(super) const ONLY: Self = Self { nth: 0, of: 1 };

    /// Whether a buyer's limit, requests and orders are here.
    pub(super) fn is_home_of(self, buyer: &str) -> bool {
        home(buyer, self.of) == self.nth
    }

    /// The part of a stock that belongs here.
    pub(super) fn part(self, units: u64) -> u64 {
        self.part_from(units, 0)
    }

    /// The part of the units of a change that belongs here. The remainder goes to a different shelf
    /// with every change.
    pub(super) fn part_of_change(self, units: u64, change: u64) -> u64 {
        self.part_from(units, change % self.of)
    }

    /// `first` is the first shelf that gets one more.
    fn part_from(self, units: u64, first: u64) -> u64 {
        let turn = (self.nth + self.of - first) % self.of;
        units / self.of + u64::from(turn < units % self.of)
    }
}

/// The shelf of a buyer: the 64-bit FNV-1a hash of the name, with its halves folded.
pub(super) fn home(buyer: &str, of: u64) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = buyer.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    // The lower bits of this hash are the least mixed.
    (hash ^ (hash >> 32)) % of.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_differ_by_one_at_most() {
        for of in 1..=9 {
            for units in 0..40 {
                for change in 0..5 {
                    let places = (0..of).map(|nth| Place { nth, of });
                    let parts: Vec<u64> = places
                        .map(|place| place.part_of_change(units, change))
                        .collect();
                    assert_eq!(parts.iter().sum::<u64>(), units);
                    let (least, most) = (parts.iter().min(), parts.iter().max());
                    assert!(most.unwrap() - least.unwrap() <= 1, "{parts:?}");
                }
            }
        }
    }

    /// Processes of different versions must agree: these values must never change.
    #[test]
    fn homes_are_what_they_always_were() {
        let homes = |of| ["ann", "bob", "cat", "user-1", "user-2"].map(|buyer| home(buyer, of));
        assert_eq!(homes(1), [0; 5]);
        assert_eq!(homes(3), [2, 0, 2, 1, 0]);
        assert_eq!(homes(4), [1, 1, 2, 2, 3]);
    }

    #[test]
    fn buyers_with_similar_names_are_spread_evenly() {
        for of in [2, 3, 4, 7, 64] {
            let mut counts = vec![0; usize::try_from(of).unwrap()];
            for n in 0..6400 {
                let buyer = format!("user-{n:06}");
                counts[usize::try_from(home(&buyer, of)).unwrap()] += 1;
            }
            let fair = 6400 / of;
            for count in counts {
                assert!(count * 2 > fair && count < fair * 2, "{count} of {fair}");
            }
        }
    }
}
