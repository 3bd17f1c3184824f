//! Newline framing over chunks. A line that lies within one chunk is a slice of it, not a copy.

use bytes::{Buf, Bytes, BytesMut};

use crate::list_watch::wire::{OBJECT_BYTES_MAX, TooLarge};

/// Splits a stream of chunks into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The rest of the newest chunk.
    chunk: Bytes,
    /// The beginning of a line whose end has not arrived.
    pending: BytesMut,
}

impl Lines {
    /// Adds a chunk. Call [`Lines::next_line`] until it has no more before adding another.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if !self.chunk.is_empty() {
            self.pending.extend_from_slice(&self.chunk);
        }
        self.chunk = chunk;
    }

    /// The next complete line without its newline, or `None` when another chunk is needed.
    pub(crate) fn next_line(&mut self) -> Result<Option<Bytes>, TooLarge> {
        let Some(end) = memchr::memchr(b'\n', &self.chunk) else {
            self.pending.extend_from_slice(&self.chunk);
            self.chunk = Bytes::new();
            return if self.pending.len() > OBJECT_BYTES_MAX { Err(TooLarge) } else { Ok(None) };
        };
        let head = self.chunk.split_to(end);
        self.chunk.advance(1);
        if self.pending.is_empty() {
            return Ok(Some(head));
        }
        self.pending.extend_from_slice(&head);
        if self.pending.len() > OBJECT_BYTES_MAX { Err(TooLarge) } else { Ok(Some(self.pending.split().freeze())) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    fn split(chunks: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for chunk in chunks {
            lines.push(Bytes::copy_from_slice(chunk));
            while let Some(line) = lines.next_line().unwrap() {
                found.push(line.to_vec());
            }
        }
        (found, lines.pending.to_vec())
    }

    #[test]
    fn lines_cross_chunks_and_an_unfinished_one_is_held_back() {
        let (lines, rest) = split(&[b"ab", b"c\n\nde\nf", b"g"]);
        assert_eq!(lines, [b"abc".to_vec(), vec![], b"de".to_vec()]);
        assert_eq!(rest, b"fg");
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(text in any::<Vec<u8>>(), step in 1_usize..9) {
            let whole = split(&[&text]);
            let cut = split(&text.chunks(step).collect::<Vec<_>>());
            assert_eq!(whole, cut);
        }
    }
}
