//! Text that others wrote, without characters that act on a terminal or hide.

use std::fmt::Write as _;

/// The text with every character written out that would act on a terminal, end a line, reorder what
/// is around it, or not be seen: control and format characters, as in `\u{1b}` and `\u{202e}`.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_plain(letter) {
            shown.push(letter);
        } else {
            shown.extend(letter.escape_default());
        }
    }
    shown
}

/// The same for JSON, where such characters can only be part of strings: a program reads the same.
pub fn printable_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for letter in json.chars() {
        if is_plain(letter) {
            shown.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

/// Whether a terminal shows this character as itself.
fn is_plain(letter: char) -> bool {
    if letter.is_ascii() {
        return !letter.is_ascii_control();
    }
    if letter.is_whitespace() {
        // Spaces of all widths, but not the separators of lines and paragraphs.
        return !letter.is_control() && !matches!(letter, '\u{2028}' | '\u{2029}');
    }
    // The standard library knows what is printable. It writes out a combining mark only at the
    // beginning of a text.
    !format!("a{letter}").escape_debug().any(|part| part == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_cannot_take_over_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc é"), "a\\u{1b}[2Jb\\nc é");
    }

    #[test]
    fn what_acts_or_hides_is_written_out_and_all_else_is_kept() {
        for hidden in [
            '\0',
            '\t',
            '\r',
            '\u{7f}',
            '\u{85}',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200e}',
            '\u{2028}',
            '\u{2029}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            let expected = format!("a{}b", hidden.escape_default());
            assert_eq!(printable(&format!("a{hidden}b")), expected);
        }
        for plain in [
            "it's \"quoted\" \\n",
            "Zürich, u\u{308}",
            "名前\u{3000}鎖",
            "\u{a0}🔒",
            "наймення",
        ] {
            assert_eq!(printable(plain), plain);
        }
    }

    #[test]
    fn json_means_the_same_afterwards() {
        let text = "a\u{9b}31m \u{202e}\u{e0041}é\n";
        let json = serde_json::to_string(text).unwrap();
        let shown = printable_json(&json);
        assert_eq!(shown, r#""a\u009b31m \u202e\udb40\udc41é\n""#);
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }
}
