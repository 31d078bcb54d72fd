//! Finds the commands and replies in a stream of bytes: the part of RESP that a proxy needs to move a
//! connection from one server to another.

/// Splits a stream into complete values.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// An incomplete value.
    incomplete: Vec<u8>,
}

impl Frames {
    /// Adds more of the stream and calls `whole` for each complete value.
    pub(super) fn feed(&mut self, bytes: &[u8], mut whole: impl FnMut(&[u8])) {
        self.incomplete.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(end) = end_of_value(&self.incomplete, start) {
            whole(&self.incomplete[start..end]);
            start = end;
        }
        self.incomplete.drain(..start);
    }

    /// Whether the stream is between two values.
    pub(super) fn is_between(&self) -> bool {
        self.incomplete.is_empty()
    }
}

/// The words of a command that identify it, in upper case.
pub(super) fn words(command: &[u8]) -> Vec<String> {
    let mut lines = command.split(|byte| *byte == b'\n');
    if command.first() != Some(&b'*') {
        let line = String::from_utf8_lossy(command).to_uppercase();
        return line.split_whitespace().map(str::to_owned).collect();
    }
    let mut words = Vec::new();
    let _count = lines.next();
    while let (Some(_length), Some(word)) = (lines.next(), lines.next()) {
        let word = String::from_utf8_lossy(word);
        words.push(word.trim_end().to_uppercase());
        if words.len() == 2 {
            break;
        }
    }
    words
}

/// Whether a value from the server is a reply, not a push.
pub(super) fn is_reply(value: &[u8]) -> bool {
    value.first() != Some(&b'>')
}

/// The end of the value that begins at `start`; `None` if it is incomplete.
fn end_of_value(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = bytes.get(start..)?;
    let line = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let after_line = start + line + 2;
    let kind = *rest.first()?;
    let count = || -> Option<usize> {
        let digits = std::str::from_utf8(&rest[1..line]).ok()?;
        // A length of -1 is null.
        Some(usize::try_from(digits.parse::<i64>().ok()?).unwrap_or(0))
    };
    match kind {
        b'$' | b'=' | b'!' if rest[1..line] == *b"-1" => Some(after_line),
        b'$' | b'=' | b'!' => {
            let end = after_line + count()? + 2;
            (end <= bytes.len()).then_some(end)
        }
        b'*' | b'~' | b'>' => end_of_values(bytes, after_line, count()?),
        b'%' => end_of_values(bytes, after_line, count()? * 2),
        // Attributes precede their value.
        b'|' => end_of_values(bytes, after_line, count()? * 2 + 1),
        _ => Some(after_line),
    }
}

fn end_of_values(bytes: &[u8], start: usize, count: usize) -> Option<usize> {
    (0..count).try_fold(start, |at, _| end_of_value(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(stream: &[u8], step: usize) -> (Vec<String>, bool) {
        let mut frames = Frames::default();
        let mut values = Vec::new();
        for chunk in stream.chunks(step) {
            frames.feed(chunk, |value| {
                values.push(String::from_utf8_lossy(value).into_owned());
            });
        }
        (values, frames.is_between())
    }

    #[test]
    fn values_are_found_however_the_stream_is_split() {
        let values = [
            "+OK\r\n",
            "$-1\r\n",
            "$3\r\na\r\n\r\n",
            "*2\r\n$1\r\na\r\n*1\r\n:5\r\n",
            "%1\r\n+k\r\n_\r\n",
            ">2\r\n+message\r\n$0\r\n\r\n",
            "*-1\r\n",
            "|1\r\n+ttl\r\n:3\r\n#t\r\n",
        ];
        let stream = values.concat();
        for step in [1, 2, 3, 7, stream.len()] {
            let (found, is_between) = cut(stream.as_bytes(), step);
            assert_eq!(found, values);
            assert!(is_between);
        }
        assert_eq!(
            cut(b"+OK\r\n*2\r\n:1\r\n", 4),
            (vec!["+OK\r\n".into()], false)
        );
    }

    #[test]
    fn commands_are_identified_by_their_words() {
        assert_eq!(words(b"*2\r\n$5\r\nhello\r\n$1\r\n3\r\n"), ["HELLO", "3"]);
        assert_eq!(words(b"ping\r\n"), ["PING"]);
        assert!(is_reply(b"+OK\r\n") && !is_reply(b">1\r\n+x\r\n"));
    }
}
