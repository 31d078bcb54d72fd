//! Which slot a key belongs to: our own reckoning, so that a library's can be compared with it.

pub(super) const SLOTS: u16 = 16384;

/// The slot by the specification of Redis Cluster.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    crc16(hashed_part(key)) % SLOTS
}

/// What stands between the first `{` and the next `}`, if that is anything.
fn hashed_part(key: &[u8]) -> &[u8] {
    let position = |bytes: &[u8], byte| bytes.iter().position(|&other| other == byte);
    let Some(open) = position(key, b'{') else {
        return key;
    };
    let behind = &key[open + 1..];
    match position(behind, b'}') {
        Some(length @ 1..) => &behind[..length],
        _ => key,
    }
}

/// CRC16 as XMODEM has it: polynomial 1021, nothing reflected, from zero.
fn crc16(bytes: &[u8]) -> u16 {
    let step = |crc: u16| {
        if crc & 0x8000 == 0 {
            crc << 1
        } else {
            (crc << 1) ^ 0x1021
        }
    };
    bytes.iter().fold(0, |crc, &byte| {
        let crc = crc ^ (u16::from(byte) << 8);
        (0..8).fold(crc, |crc, _| step(crc))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_specification_comes_out() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn only_the_first_tag_counts_and_only_if_it_holds_something() {
        assert_eq!(hashed_part(b"{user}:a"), b"user");
        assert_eq!(hashed_part(b"a{b}{c}"), b"b");
        assert_eq!(hashed_part(b"a{{b}}c"), b"{b");
        assert_eq!(hashed_part(b"a{}{b}"), b"a{}{b}");
        assert_eq!(hashed_part(b"a}b{c"), b"a}b{c");
    }
}
