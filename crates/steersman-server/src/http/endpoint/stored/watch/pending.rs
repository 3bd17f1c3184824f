//! Frames of a watch that are not sent yet. Small ones are joined, so that a burst of events costs few writes; a large
//! piece is sent unchanged, because its bytes are shared with the object.

use crate::shared::request::body::CHUNK_BYTES;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::VecDeque;

/// Pieces of at least this many bytes are never copied.
const LARGE_BYTES: usize = 16 * 1024;

/// Frames in the order in which they are sent.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pieces: VecDeque<Piece>,
    /// The number of bytes of all pieces.
    pub(crate) bytes: usize,
}

#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    ends_frame: bool,
}

/// A part of the stream that is sent as one piece.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) bytes: Bytes,
    /// The number of frames that end in it.
    pub(crate) frames: usize,
}

impl Pending {
    /// Adds a frame, given as pieces.
    pub(crate) fn push(&mut self, pieces: Vec<Bytes>) {
        let last = pieces.len().saturating_sub(1);
        for (index, bytes) in pieces.into_iter().enumerate() {
            self.bytes += bytes.len();
            self.pieces.push_back(Piece { bytes, ends_frame: index == last });
        }
    }

    /// The next chunk: one large piece, or the small ones before the next large one.
    pub(crate) fn take(&mut self) -> Option<Chunk> {
        let first = self.pieces.front()?;
        let (mut n_pieces, mut n_bytes) = (1, first.bytes.len());
        if n_bytes < LARGE_BYTES {
            for piece in self.pieces.iter().skip(1) {
                if LARGE_BYTES <= piece.bytes.len() || CHUNK_BYTES <= n_bytes {
                    break;
                }
                (n_pieces, n_bytes) = (n_pieces + 1, n_bytes + piece.bytes.len());
            }
        }
        self.bytes -= n_bytes;
        let mut taken = self.pieces.drain(..n_pieces);
        if n_pieces == 1 {
            return taken.next().map(|piece| Chunk { frames: usize::from(piece.ends_frame), bytes: piece.bytes });
        }
        let (mut joined, mut frames) = (BytesMut::with_capacity(n_bytes), 0);
        for piece in taken {
            joined.put_slice(&piece.bytes);
            frames += usize::from(piece.ends_frame);
        }
        Some(Chunk { bytes: joined.freeze(), frames })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Bytes {
        Bytes::from(vec![b'x'; length])
    }

    #[test]
    fn large_pieces_are_not_copied_and_small_ones_are_joined() {
        let large = bytes(LARGE_BYTES);
        let mut pending = Pending::default();
        pending.push(vec![bytes(10)]);
        pending.push(vec![bytes(20), large.clone(), bytes(2)]);
        pending.push(vec![bytes(30)]);
        assert_eq!(pending.bytes, 10 + 20 + LARGE_BYTES + 2 + 30);
        let chunks: Vec<Chunk> = std::iter::from_fn(|| pending.take()).collect();
        let got: Vec<_> = chunks.iter().map(|chunk| (chunk.bytes.len(), chunk.frames)).collect();
        assert_eq!(got, [(30, 1), (LARGE_BYTES, 0), (32, 2)]);
        assert_eq!(chunks[1].bytes.as_ptr(), large.as_ptr());
        assert_eq!(pending.bytes, 0);
    }

    #[test]
    fn a_chunk_of_small_frames_is_bounded() {
        let mut pending = Pending::default();
        for _ in 0..100 {
            pending.push(vec![bytes(LARGE_BYTES - 1)]);
        }
        while let Some(chunk) = pending.take() {
            assert!(chunk.bytes.len() < CHUNK_BYTES + LARGE_BYTES, "{}", chunk.bytes.len());
        }
    }
}
