//! The hash slot of a key.

use std::fmt;

use crate::name::hash_tag;
use crate::store::redis::keys::Key;

/// How many slots every cluster has.
pub(in crate::store::redis) const SLOTS: u16 = 16_384;

/// A hash slot: all its keys are on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::store::redis) struct Slot(u16);

impl Slot {
    pub(in crate::store::redis) fn of(key: &[u8]) -> Self {
        Self(crc16(hash_tag(key).unwrap_or(key)) % SLOTS)
    }

    pub(in crate::store::redis) fn of_key(key: &Key) -> Self {
        Self::of(key.as_ref())
    }

    /// The slot of this number, if there is one.
    pub(super) fn numbered(number: u16) -> Option<Self> {
        (number < SLOTS).then_some(Self(number))
    }

    /// The lowest number whose text, as a key, is in this slot.
    pub(super) fn tag(self) -> u32 {
        let mut tags = 0..u32::MAX;
        let tag = tags.find(|tag| Self::of(tag.to_string().as_bytes()) == self);
        tag.unwrap_or(0)
    }

    pub(in crate::store::redis) fn number(self) -> u16 {
        self.0
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The CRC table.
const STEPS: [u16; 256] = {
    let mut steps = [0; 256];
    let (mut byte, mut shifted) = (0, 0);
    while byte < 256 {
        let (mut crc, mut bit): (u16, _) = (shifted, 0);
        while bit < 8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= 0x1021;
            }
            bit += 1;
        }
        steps[byte] = crc;
        byte += 1;
        shifted = shifted.wrapping_add(1 << 8);
    }
    steps
};

/// CRC16 with the polynomial 0x1021, initial value zero, not reflected: XMODEM's.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let [high, _] = crc.to_be_bytes();
        (crc << 8) ^ STEPS[usize::from(high ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tenure_testkit::RedisServer;

    use super::*;
    use crate::layout::Layout;
    use crate::name::LockName;
    use crate::prefix::Prefix;
    use crate::store::redis::keys::Keys;

    #[test]
    fn the_specifications_own_example_comes_out() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    /// Compared with Redis itself, also for keys that only look as if they had a hash tag.
    #[test]
    fn slots_are_those_of_a_real_server() {
        let server = RedisServer::builder()
            .config("cluster-enabled", "yes")
            .start();
        let mut redis = server.client();
        for key in [
            "n",
            "",
            "a name: é",
            "{x}",
            "{x}y",
            "a{b}c{d}",
            "a{}b",
            "{}{x}",
            "x{y",
            "x}y{z}",
            "{{x}}",
        ] {
            let slot = redis.command(&["CLUSTER", "KEYSLOT", key]).int();
            assert_eq!(i64::from(Slot::of(key.as_bytes()).0), slot, "{key}");
        }
    }

    #[test]
    fn every_slot_has_a_key() {
        for number in [0, 1, 5_460, SLOTS - 1] {
            let slot = Slot::numbered(number).unwrap();
            assert_eq!(Slot::of(slot.tag().to_string().as_bytes()), slot);
        }
    }

    proptest! {
        /// H27: whatever the name, all keys and channels of its lock share a slot, except for names
        /// that the Redisson layout is known to split.
        #[test]
        fn h27_all_keys_and_channels_of_a_lock_share_a_slot(
            name in "[a-c{}: é]{1,12}", prefix in "[a-c:]{0,3}",
        ) {
            let Ok(name) = LockName::new(&name) else { return Ok(()) };
            let prefix = Prefix::parse(&prefix).unwrap();
            for layout in [Layout::Native, Layout::Redisson] {
                let keys = Keys { layout, prefix: prefix.clone() };
                let mut all = vec![keys.fence(&name), keys.counter(&name)];
                all.extend(["queue", "alive", "meta"].map(|role| keys.neighbour(&name, role)));
                let mut all: Vec<_> = all.iter().map(|key| key.as_str().to_owned()).collect();
                all.extend(keys.channels(&name).into_iter().map(|(channel, _)| channel));
                let slot = Slot::of_key(&keys.lock(&name));
                let split = all.iter().any(|key| Slot::of(key.as_bytes()) != slot);
                prop_assert!(!split || layout.splits(&name), "{} {:?}", name, layout);
            }
        }
    }
}
