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

// === impl Lines ===

impl Lines {
    pub(crate) fn push(&mut self, chunk: Bytes) {
        self.rest.push_back(chunk);
    }

    /// The pieces of the next complete line, without its end.
    pub(crate) fn next(&mut self) -> Option<Vec<Bytes>> {
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
            return Some(pieces);
        }
        None
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
                while let Some(pieces) = lines.next() {
                    got.push(pieces.concat());
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
        let pieces = lines.next().unwrap();
        assert_eq!(pieces[0].as_ptr(), chunk.as_ptr());
        assert!(lines.next().is_none());
        assert_eq!(lines.begun[0].as_ptr(), chunk[9..].as_ptr());
    }
}
