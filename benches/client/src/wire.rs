//! One HTTP/1.1 connection, as cheap as possible: it sends prepared bytes, and passes an answer's body to a sink.
//!
//! Written by hand because the client shares its processors with the server that it measures: no header maps, no
//! allocation per request. It reads the sized and chunked bodies that API servers send, and refuses the rest.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The size of a read: that of a TLS record.
const READ_BYTES: usize = 16 * 1024;
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 64;

pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub struct Connection {
    stream: Box<dyn Stream>,
    /// Bytes that were read and not yet consumed.
    buffer: BytesMut,
}

/// The framing of an answer's body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Framing {
    Chunked,
    Sized(usize),
}

/// Removes the framing of a chunked body.
#[derive(Debug, Default)]
struct Chunks {
    state: State,
    /// The bytes left of the current chunk.
    n_left: usize,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum State {
    #[default]
    Size,
    /// After the size, up to the end of the line.
    Extension,
    Data,
    DataEnd,
    /// Lines after the last chunk; the flag says whether the current line is empty so far.
    Trailer {
        is_empty: bool,
    },
    Done,
}

impl Connection {
    pub fn new(stream: Box<dyn Stream>) -> Connection {
        Connection { stream, buffer: BytesMut::new() }
    }

    /// Sends a request and passes the answer's body to `sink`, piece by piece. Returns the status.
    ///
    /// # Errors
    ///
    /// If the peer disconnects or does not speak HTTP; the connection is unusable then.
    pub async fn exchange(&mut self, request: &[u8], sink: &mut (dyn FnMut(&[u8]) + Send)) -> io::Result<u16> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        let (status, framing) = self.head().await?;
        match framing {
            Framing::Sized(size) => self.sized(size, sink).await?,
            Framing::Chunked => self.chunked(sink).await?,
        }
        Ok(status)
    }

    /// Like [`Connection::exchange`], with the body collected.
    pub async fn ask(&mut self, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        let mut body = Vec::new();
        let status = self.exchange(request, &mut |piece| body.extend_from_slice(piece)).await?;
        Ok((status, body))
    }

    /// Sends a request whose answer is a stream, and returns the status when its head has arrived.
    pub async fn begin(&mut self, request: &[u8]) -> io::Result<u16> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        let (status, framing) = self.head().await?;
        match (status, framing) {
            (200, Framing::Sized(_)) => Err(invalid("a watch is answered with a length")),
            _ => Ok(status),
        }
    }

    /// Reads the rest of the answer to [`Connection::begin`], until it ends.
    pub async fn follow(&mut self, sink: &mut (dyn FnMut(&[u8]) + Send)) -> io::Result<()> {
        self.chunked(sink).await
    }

    async fn fill(&mut self) -> io::Result<()> {
        self.buffer.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn head(&mut self) -> io::Result<(u16, Framing)> {
        loop {
            if let Some((length, status, framing)) = parse_head(&self.buffer)? {
                self.buffer.advance(length);
                // 100 Continue and other informational answers come before the real one.
                if status >= 200 {
                    return Ok((status, framing));
                }
                continue;
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(invalid("the head of an answer is too long"));
            }
            self.fill().await?;
        }
    }

    async fn sized(&mut self, mut n_left: usize, sink: &mut (dyn FnMut(&[u8]) + Send)) -> io::Result<()> {
        loop {
            let n = n_left.min(self.buffer.len());
            sink(&self.buffer[..n]);
            self.buffer.advance(n);
            n_left -= n;
            if n_left == 0 {
                return Ok(());
            }
            self.fill().await?;
        }
    }

    async fn chunked(&mut self, sink: &mut (dyn FnMut(&[u8]) + Send)) -> io::Result<()> {
        let mut chunks = Chunks::default();
        loop {
            let n = chunks.take(&self.buffer, sink)?;
            self.buffer.advance(n);
            if chunks.state == State::Done {
                return Ok(());
            }
            self.fill().await?;
        }
    }
}

/// The length of the head at the beginning of `bytes`, its status and its framing; `None` if it is incomplete.
fn parse_head(bytes: &[u8]) -> io::Result<Option<(usize, u16, Framing)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes).map_err(io::Error::other)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let mut framing = Framing::Sized(0);
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let size = std::str::from_utf8(header.value).ok().and_then(|value| value.trim().parse().ok());
            framing = Framing::Sized(size.ok_or_else(|| invalid("a content-length is no number"))?);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            framing = Framing::Chunked;
        }
    }
    Ok(Some((length, response.code.unwrap_or_default(), framing)))
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

// === impl Chunks ===

impl Chunks {
    /// Consumes as much of `input` as it can and returns how much that was: all of it, unless the body ends before.
    fn take(&mut self, input: &[u8], sink: &mut (dyn FnMut(&[u8]) + Send)) -> io::Result<usize> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let n = self.n_left.min(input.len() - at);
                sink(&input[at..at + n]);
                at += n;
                self.n_left -= n;
                if self.n_left == 0 {
                    self.state = State::DataEnd;
                }
                continue;
            }
            let byte = input[at];
            at += 1;
            self.state = match (self.state, byte) {
                (State::Size | State::Extension, b'\n') if self.n_left == 0 => State::Trailer { is_empty: true },
                (State::Size | State::Extension, b'\n') => State::Data,
                (State::Size, b'\r' | b';' | b' ') | (State::Extension, _) => State::Extension,
                (State::Size, digit) => {
                    let digit = char::from(digit).to_digit(16).ok_or_else(|| invalid("a chunk has no size"))?;
                    let digit = usize::try_from(digit).map_err(io::Error::other)?;
                    let grown = self.n_left.checked_mul(16).and_then(|size| size.checked_add(digit));
                    self.n_left = grown.ok_or_else(|| invalid("a chunk is too large"))?;
                    State::Size
                }
                (State::DataEnd, b'\n') => State::Size,
                (State::DataEnd, _) => State::DataEnd,
                (State::Trailer { is_empty: true }, b'\n') => State::Done,
                (State::Trailer { .. }, b'\n') => State::Trailer { is_empty: true },
                (State::Trailer { is_empty }, b'\r') => State::Trailer { is_empty },
                (State::Trailer { .. }, _) => State::Trailer { is_empty: false },
                (state @ (State::Data | State::Done), _) => state,
            };
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], expected: &str, n_rest: usize) {
        // The result is the same however the input is cut into reads.
        for size in 1..=input.len() {
            let (mut chunks, mut body, mut n) = (Chunks::default(), Vec::new(), 0);
            for piece in input.chunks(size) {
                n += chunks.take(piece, &mut |bytes| body.extend_from_slice(bytes)).unwrap();
            }
            assert_eq!((String::from_utf8(body).unwrap().as_str(), input.len() - n), (expected, n_rest), "{size}");
            assert_eq!(chunks.state, State::Done);
        }
    }

    #[test]
    fn chunks_are_put_together() {
        check(b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", "abc0123456789", 0);
        check(b"1\r\n\n\r\n0\r\nName: value\r\n\r\nrest", "\n", 4);
        assert!(Chunks::default().take(b"zz\r\n", &mut |_| {}).is_err());
    }

    #[test]
    fn head_says_how_the_body_ends() {
        let sized = b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n";
        assert_eq!(parse_head(sized).unwrap(), Some((sized.len(), 200, Framing::Sized(12))));
        let chunked = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n12";
        assert_eq!(parse_head(chunked).unwrap(), Some((chunked.len() - 2, 201, Framing::Chunked)));
        assert_eq!(parse_head(&sized[..20]).unwrap(), None);
        assert!(parse_head(b"nonsense\r\n\r\n").is_err());
    }
}
