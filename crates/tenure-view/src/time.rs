//! Durations as people write and read them, and timestamps.

use std::time::{Duration, SystemTime};

/// Parses a duration: `1.5` and `.007` are seconds as for `flock`; `500ms`, `2m` and `1h30m` have
/// units.
pub fn parse(text: &str) -> Result<Duration, String> {
    let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    if !text.is_empty() && text.bytes().all(is_number) {
        let seconds: Option<f64> = text.parse().ok();
        let length = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        return length
            .ok_or_else(|| format!("invalid duration `{text}`: expected a number of seconds"));
    }
    humantime::parse_duration(text).map_err(|_| {
        format!("invalid duration `{text}`: write `1.5` (seconds), `500ms`, `2m` or `1h30m`")
    })
}

/// How long something took or lasts, in the two units that matter: `0.3s`, `12.4s`, `3m05s`,
/// `2h10m`, `4d03h`.
pub fn show(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..=59 => format!("{seconds}.{}s", length.subsec_millis() / 100),
        60..=3_599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// As whole milliseconds, for programs.
pub fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// The last second of the year 9999: RFC 3339 has no later one.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

/// A timestamp for programs: RFC 3339 in UTC, with milliseconds. What a server or a client record
/// says can be any time at all: one before 1970 is shown as the first moment of 1970, and one after
/// the year 9999 as its last second.
pub fn moment(at: SystemTime) -> String {
    let first = SystemTime::UNIX_EPOCH;
    humantime::format_rfc3339_millis(at.clamp(first, first + LAST_SECOND)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_people_write_them() {
        for (text, millis) in [
            ("0", 0),
            ("2", 2_000),
            ("1.5", 1_500),
            (".007", 7),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            ".",
            "1.2.3",
            "-1",
            "soon",
            "5 apples",
            "99999999999999999999999",
        ] {
            let told = parse(text).unwrap_err();
            assert!(told.contains(&format!("`{text}`")), "{told}");
        }
    }

    #[test]
    fn a_moment_that_has_no_text_is_the_nearest_that_has_one() {
        let (day, epoch) = (Duration::from_hours(24), SystemTime::UNIX_EPOCH);
        assert_eq!(moment(epoch + day), "1970-01-02T00:00:00.000Z");
        for late in [day * 4_000_000, day * 1_000_000_000] {
            assert_eq!(moment(epoch + late), "9999-12-31T23:59:59.000Z");
        }
        assert_eq!(moment(epoch - day), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn lengths_are_shown_in_two_units() {
        for (millis, text) in [
            (0, "0.0s"),
            (340, "0.3s"),
            (59_900, "59.9s"),
            (185_000, "3m05s"),
            (7_800_000, "2h10m"),
            (356_400_000, "4d03h"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
    }
}
