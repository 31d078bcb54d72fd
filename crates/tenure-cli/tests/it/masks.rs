//! What differs from run to run, cut out of what was said.

use std::fs;

/// The JSON with the values of these fields cut out, wherever they stand. They must be numbers, or
/// strings without commas and braces.
pub fn without(json: &str, fields: &[&str]) -> String {
    let mut json = json.to_owned();
    for field in fields {
        let label = format!("\"{field}\":");
        let mut from = 0;
        while let Some(found) = json[from..].find(&label) {
            let begin = from + found + label.len();
            let end = json[begin..].find([',', '}', ']']).unwrap() + begin;
            if &json[begin..end] != "null" {
                json.replace_range(begin..end, "#");
            }
            from = begin;
        }
    }
    json
}

/// The text with `#` for each digit, and columns two spaces apart.
pub fn without_digits(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let cells = line.split("  ").filter(|cell| !cell.is_empty());
        let indent = if line.starts_with("  ") { "  " } else { "" };
        let cells: Vec<&str> = cells.map(str::trim).collect();
        format!("{indent}{}", cells.join("  "))
    });
    let text: Vec<String> = lines.collect();
    text.join("\n")
        .replace(|letter: char| letter.is_ascii_digit(), "#")
}

/// This machine, as clients name it.
pub fn host() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    host.trim().to_owned()
}
