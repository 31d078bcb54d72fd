//! Records as lines of text: one record per line, fields separated by tabs.
//!
//! Text takes a little more space, but can be read with `less` after a failed run.

use std::fmt::{self, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

/// A record stored as one line of a file.
pub(crate) trait Line: Sized {
    fn encode(&self) -> String;
    fn decode(fields: &mut Fields<'_>) -> Option<Self>;
}

/// An append-only file of records. Each record is one plain `write`, so that `kill -9` loses no
/// written record.
#[derive(Debug)]
pub(crate) struct Log(File);

impl Log {
    /// Panics if the file exists already.
    #[track_caller]
    pub(crate) fn create(path: &Path) -> Self {
        let mut options = OpenOptions::new();
        match options.append(true).create_new(true).open(path) {
            Ok(file) => Self(file),
            Err(error) => panic!("failed to create `{}`: {error}", path.display()),
        }
    }

    pub(crate) fn write(&self, record: &impl Line) {
        (&self.0)
            .write_all(record.encode().as_bytes())
            .expect("failed to write a history");
    }
}

/// Reads all records of a file; panics with the line if one is damaged.
pub(crate) fn load<T: Line>(path: &Path) -> Vec<T> {
    let text = fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("failed to read `{}`: {error}", path.display()));
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().enumerate();
    lines
        .map(|(number, line)| {
            let record = T::decode(&mut Fields(line.split('\t')));
            record.unwrap_or_else(|| panic!("`{}`:{}: `{line}`", path.display(), number + 1))
        })
        .collect()
}

/// A line under construction.
#[derive(Default)]
pub(crate) struct Writer {
    line: String,
    begun: bool,
}

impl Writer {
    pub(crate) fn field(mut self, value: impl fmt::Display) -> Self {
        self.separate();
        let _ = write!(self.line, "{value}");
        self
    }

    pub(crate) fn optional(self, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.field(value),
            None => self.field('-'),
        }
    }

    /// Any text; characters that would break the line are escaped as `%XX`.
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.separate();
        for character in text.chars() {
            if character == '%' || character.is_ascii_control() {
                let _ = write!(self.line, "%{:02x}", u32::from(character));
            } else {
                self.line.push(character);
            }
        }
        self
    }

    pub(crate) fn end(mut self) -> String {
        self.line.push('\n');
        self.line
    }

    fn separate(&mut self) {
        if self.begun {
            self.line.push('\t');
        }
        self.begun = true;
    }
}

/// The fields of a line, read in order.
pub(crate) struct Fields<'a>(std::str::Split<'a, char>);

impl Fields<'_> {
    pub(crate) fn value<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }

    #[expect(
        clippy::option_option,
        reason = "a missing field differs from an empty one"
    )]
    pub(crate) fn optional(&mut self) -> Option<Option<u64>> {
        match self.0.next()? {
            "-" => Some(None),
            number => number.parse().ok().map(Some),
        }
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        let mut parts = self.0.next()?.split('%');
        let mut text = parts.next()?.to_string();
        for part in parts {
            let (code, rest) = part.split_at_checked(2)?;
            text.push(u8::from_str_radix(code, 16).ok()?.into());
            text.push_str(rest);
        }
        Some(text)
    }
}

/// Nanoseconds, shown as milliseconds.
pub(crate) struct Millis(pub(crate) u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0 / 1000;
        write!(f, "{}.{:03}", micros / 1000, micros % 1000)
    }
}

/// An enum that is written and parsed as one word per variant.
macro_rules! words {
    ($(#[$attribute:meta])* pub enum $name:ident {
        $($(#[$note:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$note])* $variant,)*
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $word,)*
                })
            }
        }

        impl std::str::FromStr for $name {
            type Err = ();

            fn from_str(word: &str) -> Result<Self, ()> {
                match word {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(()),
                }
            }
        }
    };
}
pub(crate) use words;
