//! Commands, encoded as they are sent.

use std::io::Write;

use super::arguments::Arguments;

/// A command with its arguments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cmd {
    /// The words, each as a bulk string.
    words: Vec<u8>,
    count: usize,
}

/// Several commands that are sent together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipeline {
    commands: Vec<Cmd>,
}

/// A command without arguments yet.
pub(crate) fn cmd(name: &str) -> Cmd {
    let mut command = Cmd::default();
    command.arg(name);
    command
}

/// What can be an argument: text, bytes and numbers.
pub(crate) trait Argument {
    fn append_to(&self, command: &mut Cmd);
}

impl Cmd {
    /// Adds an argument.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "numbers and texts are passed alike"
    )]
    pub(crate) fn arg(&mut self, argument: impl Argument) -> &mut Self {
        argument.append_to(self);
        self
    }

    /// Adds several arguments, which are encoded already.
    pub(super) fn append(&mut self, arguments: &Arguments) -> &mut Self {
        self.words.extend_from_slice(arguments.words());
        self.count += arguments.len();
        self
    }

    /// A command without arguments yet, with space for this many bytes of them.
    pub(super) fn with_capacity(name: &str, bytes: usize) -> Self {
        let mut command = Self {
            words: Vec::with_capacity(bytes),
            count: 0,
        };
        command.arg(name);
        command
    }

    /// Appends the command to `out`, as it is sent.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        append_header(out, b'*', self.count);
        out.extend_from_slice(&self.words);
    }

    /// The words: the name and the arguments.
    pub(crate) fn words(&self) -> impl Iterator<Item = &[u8]> {
        let mut left = &self.words[..];
        std::iter::from_fn(move || {
            let end = left.iter().position(|byte| *byte == b'\r')?;
            let length: usize = std::str::from_utf8(&left[1..end]).ok()?.parse().ok()?;
            let word = left.get(end + 2..end + 2 + length)?;
            left = left.get(end + 2 + length + 2..)?;
            Some(word)
        })
    }

    fn push(&mut self, word: &[u8]) {
        append_bulk(&mut self.words, word);
        self.count += 1;
    }
}

impl Pipeline {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with_capacity(commands: usize) -> Self {
        Self {
            commands: Vec::with_capacity(commands),
        }
    }

    /// Adds a command, and returns it for its arguments.
    pub(crate) fn cmd(&mut self, name: &str) -> &mut Cmd {
        self.add_command(cmd(name))
    }

    pub(crate) fn add_command(&mut self, command: Cmd) -> &mut Cmd {
        self.commands.push(command);
        let last = self.commands.len() - 1;
        &mut self.commands[last]
    }

    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(crate) fn commands(&self) -> &[Cmd] {
        &self.commands
    }

    /// Appends all commands to `out`, as they are sent.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for command in &self.commands {
            command.encode(out);
        }
    }
}

/// Appends a whole command.
pub(super) fn append_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    append_header(out, b'*', words.len());
    for word in words {
        append_bulk(out, word);
    }
}

/// Appends a bulk string.
pub(super) fn append_bulk(out: &mut Vec<u8>, word: &[u8]) {
    append_header(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// Appends several parts as one bulk string.
pub(super) fn append_bulk_of(out: &mut Vec<u8>, parts: &[&str]) {
    let length = parts.iter().map(|part| part.len()).sum();
    append_header(out, b'$', length);
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a number as a bulk string.
pub(super) fn append_bulk_number(out: &mut Vec<u8>, number: u64) {
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    append_header(out, b'$', digits);
    append_number(out, number);
    out.extend_from_slice(b"\r\n");
}

/// Appends the type and the length of what follows.
pub(super) fn append_header(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    append_number(out, length as u64);
    out.extend_from_slice(b"\r\n");
}

/// By hand: each request has many lengths, and formatting them took longer than copying the rest.
fn append_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

impl Argument for &str {
    fn append_to(&self, command: &mut Cmd) {
        command.push(self.as_bytes());
    }
}

impl Argument for String {
    fn append_to(&self, command: &mut Cmd) {
        command.push(self.as_bytes());
    }
}

impl Argument for &String {
    fn append_to(&self, command: &mut Cmd) {
        command.push(self.as_bytes());
    }
}

impl Argument for &[u8] {
    fn append_to(&self, command: &mut Cmd) {
        command.push(self);
    }
}

impl Argument for Vec<u8> {
    fn append_to(&self, command: &mut Cmd) {
        command.push(self);
    }
}

/// Several arguments.
impl<const N: usize> Argument for [&str; N] {
    fn append_to(&self, command: &mut Cmd) {
        for word in self {
            command.push(word.as_bytes());
        }
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Argument for $number {
            fn append_to(&self, command: &mut Cmd) {
                let mut digits = [0; 40];
                let mut rest = &mut digits[..];
                // 128 bits have 39 digits at most.
                let _ = write!(rest, "{self}");
                let left = rest.len();
                command.push(&digits[..40 - left]);
            }
        }
    )*};
}
numbers!(u16, u32, u64, u128, usize, i32, i64);

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(command: &Cmd) -> String {
        let mut out = Vec::new();
        command.encode(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut command = cmd("SET");
        command.arg("a key").arg(String::new()).arg(12_345_u64);
        let expected = "*4\r\n$3\r\nSET\r\n$5\r\na key\r\n$0\r\n\r\n$5\r\n12345\r\n";
        assert_eq!(encoded(&command), expected);
        command = cmd("X");
        command.arg(["a", "b"]).arg(i64::MIN).arg(u128::MAX);
        let words: Vec<_> = command.words().map(<[u8]>::to_vec).collect();
        let numbers = [i64::MIN.to_string(), u128::MAX.to_string()];
        let expected = ["X", "a", "b", &numbers[0], &numbers[1]];
        assert_eq!(words, expected.map(|word| word.as_bytes().to_vec()));
    }

    #[test]
    fn words_may_contain_anything() {
        let mut command = cmd("SET");
        let word = b"\r\n$3\r\n\0\xff".to_vec();
        command.arg(word.clone());
        assert_eq!(command.words().nth(1), Some(&word[..]));
        assert_eq!(command.words().count(), 2);
    }
}
