//! The scripts that the library ships, read from its sources: what is measured is what runs.

use std::fs;
use std::path::Path;

/// Where all scripts are, from this crate's directory.
const ROOT: &str = "../crates/tenure/src/store/redis/scripts";
/// Where those of a layout are, from there. The first place that has a script wins.
pub const NATIVE: &[&str] = &["native", ""];
pub const REDISSON: &[&str] = &["redisson"];

/// A script of the library with its shared parts put in, if there is one.
pub fn read(dirs: &[&str], file: &str) -> Option<String> {
    let code = find(dirs, file)?;
    let mut whole = String::with_capacity(code.len());
    for line in code.lines() {
        match line.trim().strip_prefix("--@include ") {
            Some(part) => whole += &included(part),
            None => whole += line,
        }
        whole.push('\n');
    }
    Some(whole)
}

fn included(part: &str) -> String {
    // Its own parts as well.
    read(&[""], part).unwrap_or_else(|| panic!("a script includes `{part}`, which is not there"))
}

fn find(dirs: &[&str], file: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(ROOT);
    let candidates = dirs.iter().map(|dir| root.join(dir).join(file));
    let mut texts = candidates.filter_map(|path| fs::read_to_string(path).ok());
    texts.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_parts_are_put_in() {
        let renew = read(NATIVE, "renew.lua").expect("the library can renew");
        assert!(renew.starts_with("#!lua"));
        assert!(renew.contains("local function whole") && !renew.contains("--@include"));
    }

    #[test]
    fn what_is_not_there_is_not_made_up() {
        assert!(read(NATIVE, "missing.lua").is_none());
    }
}
