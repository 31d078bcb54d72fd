//! Patterns for lock names: `*` for anything, `?` for one character.

/// A pattern, matched by this process: the server does not search.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// `None` matches everything.
    pattern: Option<Vec<char>>,
}

impl Pattern {
    pub fn new(pattern: Option<&str>) -> Self {
        Self {
            pattern: pattern.map(|pattern| pattern.chars().collect()),
        }
    }

    /// Whether the whole name matches.
    pub fn matches(&self, name: &str) -> bool {
        let Some(pattern) = &self.pattern else {
            return true;
        };
        let name: Vec<char> = name.chars().collect();
        let (mut at, mut in_name) = (0, 0);
        // The last `*` and how far it has matched: extended when the rest does not fit.
        let mut star: Option<(usize, usize)> = None;
        while in_name < name.len() {
            match pattern.get(at) {
                Some('*') => {
                    star = Some((at, in_name));
                    at += 1;
                }
                Some(wanted) if *wanted == '?' || *wanted == name[in_name] => {
                    at += 1;
                    in_name += 1;
                }
                _ => {
                    let Some((star_at, matched)) = star else {
                        return false;
                    };
                    star = Some((star_at, matched + 1));
                    at = star_at + 1;
                    in_name = matched + 1;
                }
            }
        }
        pattern[at..].iter().all(|rest| *rest == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything_and_question_marks_for_one_character() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("order:*", "order:1", true),
            ("order:*", "orders", false),
            ("*:1", "order:1:1", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?", "é", true),
            ("?", "", false),
            ("?", "ab", false),
            ("job-??", "job-17", true),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("", "", true),
            ("", "a", false),
            ("**", "abc", true),
            // Not a character class: names may contain brackets.
            ("[a]", "a", false),
            ("[a]", "[a]", true),
        ] {
            let matches = Pattern::new(Some(pattern)).matches(name);
            assert_eq!(matches, fits, "`{pattern}` on `{name}`");
        }
        assert!(Pattern::new(None).matches("anything"));
    }
}
