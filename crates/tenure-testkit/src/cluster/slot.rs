//! The slot of a key: an independent implementation, to compare a library's with.

pub(super) const SLOTS: u16 = 16384;

/// The slot according to the Redis Cluster specification.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    crc16(hashed_part(key)) % SLOTS
}

/// The text between the first `{` and the next `}` if that is not empty, else the whole key.
fn hashed_part(key: &[u8]) -> &[u8] {
    let position = |bytes: &[u8], byte| bytes.iter().position(|&other| other == byte);
    let Some(open) = position(key, b'{') else {
        return key;
    };
    let rest = &key[open + 1..];
    match position(rest, b'}') {
        Some(length @ 1..) => &rest[..length],
        _ => key,
    }
}

/// CRC16/XMODEM: polynomial 0x1021, not reflected, initial value zero.
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
    fn crc16_matches_the_check_value_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn only_the_first_tag_counts_unless_it_is_empty() {
        assert_eq!(hashed_part(b"{user}:a"), b"user");
        assert_eq!(hashed_part(b"a{b}{c}"), b"b");
        assert_eq!(hashed_part(b"a{{b}}c"), b"{b");
        assert_eq!(hashed_part(b"a{}{b}"), b"a{}{b}");
        assert_eq!(hashed_part(b"a}b{c"), b"a}b{c");
    }
}
