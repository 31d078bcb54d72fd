//! A message on its way to a reader.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};

use axum::body::Bytes;

/// Longer texts are sent in chunks of this size. A chunk is a copy: a connection whose peer does not
/// read keeps some of them, which would otherwise keep the whole text.
const CHUNK: usize = 8_192;

/// A message on its way to a reader. It does not keep long texts: those belong to their feed, which
/// has a limit.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pieces: VecDeque<Piece>,
}

#[derive(Debug)]
enum Piece {
    Own(Bytes),
    /// What is left to send of a text.
    Shared(Weak<Bytes>, Range<usize>),
}

/// The feed has dropped the text in favour of newer ones, before this reader had read it.
#[derive(Debug)]
pub(crate) struct TooSlow;

impl Outgoing {
    /// A short text that belongs to one reader.
    pub(crate) fn own(text: impl Into<Bytes>) -> Self {
        Self {
            pieces: [Piece::Own(text.into())].into(),
        }
    }

    /// A text that readers share.
    pub(super) fn whole(text: &Arc<Bytes>) -> Self {
        if text.len() <= CHUNK {
            return Self::own(Bytes::clone(text));
        }
        let pieces = [Piece::Shared(Arc::downgrade(text), 0..text.len())];
        Self {
            pieces: pieces.into(),
        }
    }

    /// A part of a text that readers share, between what belongs to this reader.
    pub(crate) fn part(head: String, text: &Arc<Bytes>, part: Range<usize>, tail: String) -> Self {
        let part = Piece::Shared(Arc::downgrade(text), part);
        let pieces = [Piece::Own(head.into()), part, Piece::Own(tail.into())];
        Self {
            pieces: pieces.into(),
        }
    }

    /// The next bytes to send; `None` if all are sent.
    pub(crate) fn next_chunk(&mut self) -> Option<Result<Bytes, TooSlow>> {
        loop {
            match self.pieces.pop_front()? {
                Piece::Own(text) => return Some(Ok(text)),
                Piece::Shared(_, left) if left.is_empty() => {}
                Piece::Shared(text, mut left) => {
                    let Some(kept) = text.upgrade() else {
                        return Some(Err(TooSlow));
                    };
                    let chunk = left.start..left.end.min(left.start + CHUNK);
                    left.start = chunk.end;
                    self.pieces.push_front(Piece::Shared(text, left));
                    return Some(Ok(Bytes::copy_from_slice(&kept[chunk])));
                }
            }
        }
    }
}

#[cfg(test)]
impl Outgoing {
    /// All that is left, if it is still kept.
    pub(crate) fn read(mut self) -> Result<String, TooSlow> {
        let mut text = Vec::new();
        while let Some(chunk) = self.next_chunk() {
            text.extend_from_slice(&chunk?);
        }
        Ok(String::from_utf8(text).unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_arrives_whole_and_its_parts_between_their_ends() {
        let long = (0..10_000).map(|number| number.to_string());
        let long = long.collect::<Vec<_>>().join(" ");
        let text = Arc::new(Bytes::from(long.clone()));
        assert_eq!(Outgoing::whole(&text).read().unwrap(), long);
        let part = Outgoing::part("<".to_owned(), &text, 10..40_000, ">".to_owned());
        assert_eq!(part.read().unwrap(), format!("<{}>", &long[10..40_000]));
        let empty = Outgoing::part("<".to_owned(), &text, 0..0, ">".to_owned());
        assert_eq!(empty.read().unwrap(), "<>");
    }

    #[test]
    fn a_long_text_is_not_kept_for_a_slow_reader() {
        let text = Arc::new(Bytes::from(vec![b'x'; CHUNK * 3]));
        let mut slow = Outgoing::whole(&text);
        let chunk = slow.next_chunk().unwrap().unwrap();
        assert_eq!(Arc::strong_count(&text), 1);
        drop(text);
        assert_eq!(chunk.len(), CHUNK, "what is sent already is its own");
        assert!(slow.next_chunk().unwrap().is_err());
    }
}
