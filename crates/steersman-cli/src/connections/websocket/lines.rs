//! The lines of a body, assembled from its chunks without copying them.
//!
//! A watch sends an event as one chunk, several events as one chunk, or a large event as several chunks that it shares
//! with other watches. A line is bounded by the largest event, and its pieces are the memory of the watch.

use bytes::Bytes;
use std::collections::VecDeque;

/// Chunks that have arrived and are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The beginning of an incomplete line.
    begun: Vec<Bytes>,
    /// The bytes after it, still to be searched.
    rest: VecDeque<Bytes>,
}

/// A line without its end.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) pieces: Vec<Bytes>,
}

// === impl Lines ===

impl Lines {
    pub(crate) fn push(&mut self, chunk: Bytes) {
        self.rest.push_back(chunk);
    }

    /// The next complete line.
    pub(crate) fn next(&mut self) -> Option<Line> {
        while let Some(mut chunk) = self.rest.pop_front() {
            let Some(end) = memchr::memchr(b'\n', &chunk) else {
                self.begun.push(chunk);
                continue;
            };
            let last = chunk.split_to(end);
            let rest = chunk.slice(1..);
            if !rest.is_empty() {
                self.rest.push_front(rest);
            }
            let mut pieces = std::mem::take(&mut self.begun);
            pieces.push(last);
            return Some(Line { pieces });
        }
        None
    }
}

// === impl Line ===

impl Line {
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_wherever_their_chunks_are_cut() {
        const TEXT: &[u8] = b"one\n\ntwo and more\nunfinished";
        for size in 1..=TEXT.len() {
            let (mut lines, mut got) = (Lines::default(), Vec::new());
            for chunk in TEXT.chunks(size) {
                lines.push(Bytes::copy_from_slice(chunk));
                while let Some(line) = lines.next() {
                    assert_eq!(line.bytes(), line.pieces.concat().len());
                    got.push(line.pieces.concat());
                }
            }
            assert_eq!(got, [b"one".as_slice(), b"", b"two and more"], "chunks of {size}");
        }
    }

    #[test]
    fn a_line_shares_the_bytes_of_its_chunks() {
        let chunk = Bytes::from(b"one line\nthe next".to_vec());
        let mut lines = Lines::default();
        lines.push(chunk.clone());
        let line = lines.next().unwrap();
        assert_eq!(line.pieces[0].as_ptr(), chunk.as_ptr());
        assert!(lines.next().is_none());
        assert_eq!(lines.begun[0].as_ptr(), chunk[9..].as_ptr());
    }
}
