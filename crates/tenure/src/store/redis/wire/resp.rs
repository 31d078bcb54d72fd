//! Parses what a server sends: RESP2 and RESP3.

use crate::store::redis::value::Value;

/// The longest string that Redis stores.
const BULK_MAX: usize = 512 * 1024 * 1024;
/// How many elements are reserved at most before they have arrived.
const RESERVED_MAX: usize = 1_024;
/// How deep replies may be nested. Those of our scripts and commands have a few levels.
const DEPTH_MAX: usize = 32;

/// Something complete that the server sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// The reply to a command.
    Reply(Value),
    /// A message that may come at any time.
    Push(Vec<Value>),
}

/// Why nothing was parsed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unparsed {
    /// More bytes are needed: this many in all, as far as is known.
    Incomplete(usize),
    /// It is not the Redis protocol.
    Invalid(String),
}

/// Parses what `bytes` begins with. Also returns how many of the bytes that took.
pub(super) fn parse(bytes: &[u8]) -> Result<(Received, usize), Unparsed> {
    let mut reader = Reader { bytes, at: 0 };
    if bytes.first() == Some(&b'>') {
        let length = reader.header()?.1;
        let length = Reader::length(length)?.unwrap_or(0);
        let data = reader.elements(length, 1)?;
        return Ok((Received::Push(data), reader.at));
    }
    let value = reader.value(0)?;
    Ok((Received::Reply(value), reader.at))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Value, Unparsed> {
        if depth > DEPTH_MAX {
            return Err(invalid("a reply is nested too deeply"));
        }
        let (kind, line) = self.header()?;
        Ok(match kind {
            // Each command of a transaction gets this reply: it is not worth an allocation.
            b'+' if line == b"QUEUED" => Value::Queued,
            b'+' | b',' | b'(' => Value::Bytes(line.to_vec()),
            b'-' => Value::Error(text(line)),
            b':' => Value::Int(integer(line)?),
            b'#' => Value::Int((line == b"t").into()),
            b'_' => Value::Nil,
            b'$' => match Self::length(line)? {
                Some(length) => Value::Bytes(self.bulk(length)?.to_vec()),
                None => Value::Nil,
            },
            // The format and a colon come first.
            b'=' => match Self::length(line)? {
                Some(length) => Value::Bytes(self.bulk(length)?.get(4..).unwrap_or(&[]).to_vec()),
                None => Value::Nil,
            },
            b'!' => match Self::length(line)? {
                Some(length) => Value::Error(text(self.bulk(length)?)),
                None => Value::Nil,
            },
            b'*' | b'~' | b'>' => match Self::length(line)? {
                Some(length) => Value::Array(self.elements(length, depth + 1)?),
                None => Value::Nil,
            },
            b'%' => match Self::length(line)? {
                Some(pairs) => Value::Array(self.elements(pairs.saturating_mul(2), depth + 1)?),
                None => Value::Nil,
            },
            b'|' => {
                let pairs = Self::length(line)?.unwrap_or(0);
                self.elements(pairs.saturating_mul(2), depth + 1)?;
                self.value(depth + 1)?
            }
            _ => return Err(invalid(&format!("unknown type `{}`", kind.escape_ascii()))),
        })
    }

    fn elements(&mut self, count: usize, depth: usize) -> Result<Vec<Value>, Unparsed> {
        let mut values = Vec::with_capacity(count.min(RESERVED_MAX));
        for _ in 0..count {
            values.push(self.value(depth)?);
        }
        Ok(values)
    }

    /// The type and the rest of a line.
    fn header(&mut self) -> Result<(u8, &'a [u8]), Unparsed> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if let Some(kind) = rest.first()
            && !b"+-:$*_#,(!=%~>|".contains(kind)
        {
            return Err(invalid(&format!("unknown type `{}`", kind.escape_ascii())));
        }
        let end = rest.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or(Unparsed::Incomplete(self.bytes.len() + 1))?;
        self.at += end + 1;
        match rest[..end].split_first() {
            Some((kind, line)) => match line.split_last() {
                Some((b'\r', line)) => Ok((*kind, line)),
                _ => Err(invalid("a line does not end with `\\r\\n`")),
            },
            None => Err(invalid("an empty line")),
        }
    }

    /// A length; `None` for -1, which means nil.
    fn length(line: &[u8]) -> Result<Option<usize>, Unparsed> {
        match integer(line)? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) if length <= BULK_MAX => Ok(Some(length)),
                _ => Err(invalid(&format!("impossible length `{length}`"))),
            },
        }
    }

    fn bulk(&mut self, length: usize) -> Result<&'a [u8], Unparsed> {
        let end = self.at + length;
        match self.bytes.get(end..end + 2) {
            Some(b"\r\n") => {
                let bulk = &self.bytes[self.at..end];
                self.at = end + 2;
                Ok(bulk)
            }
            Some(_) => Err(invalid("a string does not end with `\\r\\n`")),
            None => Err(Unparsed::Incomplete(end + 2)),
        }
    }
}

fn integer(line: &[u8]) -> Result<i64, Unparsed> {
    let number = std::str::from_utf8(line).ok();
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| invalid(&format!("invalid number `{}`", text(line))))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn invalid(what: &str) -> Unparsed {
    Unparsed::Invalid(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(bytes: &str) -> Value {
        match parse(bytes.as_bytes()) {
            Ok((Received::Reply(value), used)) => {
                assert_eq!(used, bytes.len());
                value
            }
            other => panic!("{bytes:?}: {other:?}"),
        }
    }

    fn bytes(text: &str) -> Value {
        Value::Bytes(text.into())
    }

    #[test]
    fn every_type_has_its_value() {
        for (sent, value) in [
            ("+OK\r\n", bytes("OK")),
            ("+QUEUED\r\n", Value::Queued),
            ("$6\r\nQUEUED\r\n", bytes("QUEUED")),
            ("-ERR no\r\n", Value::Error("ERR no".into())),
            (":-42\r\n", Value::Int(-42)),
            ("$5\r\na\r\nbc\r\n", bytes("a\r\nbc")),
            ("$0\r\n\r\n", bytes("")),
            ("$-1\r\n", Value::Nil),
            ("*-1\r\n", Value::Nil),
            ("_\r\n", Value::Nil),
            ("#t\r\n", Value::Int(1)),
            ("#f\r\n", Value::Int(0)),
            (",1.5\r\n", bytes("1.5")),
            ("(12345678901234567890\r\n", bytes("12345678901234567890")),
            ("=7\r\ntxt:abc\r\n", bytes("abc")),
            ("!6\r\nERR no\r\n", Value::Error("ERR no".into())),
            ("*0\r\n", Value::Array(vec![])),
            (
                "*2\r\n:1\r\n*1\r\n$-1\r\n",
                Value::Array(vec![Value::Int(1), Value::Array(vec![Value::Nil])]),
            ),
            ("~1\r\n+a\r\n", Value::Array(vec![bytes("a")])),
            (
                "%1\r\n+a\r\n:1\r\n",
                Value::Array(vec![bytes("a"), Value::Int(1)]),
            ),
            ("|1\r\n+ttl\r\n:1\r\n:7\r\n", Value::Int(7)),
        ] {
            assert_eq!(reply(sent), value, "{sent:?}");
        }
    }

    #[test]
    fn a_push_is_not_a_reply() {
        let sent = b">2\r\n+message\r\n+x\r\n:1\r\n";
        let push = Received::Push(vec![bytes("message"), bytes("x")]);
        assert_eq!(parse(sent), Ok((push, sent.len() - 4)));
    }

    #[test]
    fn whatever_is_cut_off_is_incomplete() {
        let whole = "*3\r\n$3\r\nabc\r\n:12\r\n%1\r\n+k\r\n=5\r\ntxt:v\r\n";
        for end in 0..whole.len() {
            let cut = parse(&whole.as_bytes()[..end]);
            match cut {
                Err(Unparsed::Incomplete(needed)) => assert!(needed > end && needed <= whole.len()),
                other => panic!("{end}: {other:?}"),
            }
        }
        reply(whole);
    }

    #[test]
    fn what_is_not_the_protocol_is_refused() {
        for sent in [
            "HTTP/1.1 400 Bad Request\r\n",
            "\r\n",
            ":x\r\n",
            "$-2\r\n",
            "$99999999999\r\n",
            "$1\r\nabc\r\n",
            "+a\n",
        ] {
            let parsed = parse(sent.as_bytes());
            assert!(
                matches!(parsed, Err(Unparsed::Invalid(_))),
                "{sent:?}: {parsed:?}"
            );
        }
        let deep = "*1\r\n".repeat(100_000);
        assert!(matches!(parse(deep.as_bytes()), Err(Unparsed::Invalid(_))));
        // A length is not believed before its elements have come.
        assert!(matches!(
            parse(b"*536870912\r\n"),
            Err(Unparsed::Incomplete(_))
        ));
    }
}
