//! The body of a request: received as a whole, or discarded before the connection's next request.

use crate::shared::request::memory::Reservation;
use crate::shared::status::Failure;
use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http::{Method, Version};
use http_body_util::BodyExt as _;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

/// The most bytes of a request's body.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The most bytes that are discarded, and the time limit, before the connection is closed instead.
const DISCARDED_BYTES_MAX: usize = BODY_BYTES_MAX;
const DISCARD_TIMEOUT: Duration = Duration::from_millis(500);
/// A body with this announced length is refused before any of it is received. A slightly longer body than allowed is
/// received first, so that a client that reads only after it has written gets its answer.
const MUCH_TOO_LONG_BYTES: u64 = (BODY_BYTES_MAX + DISCARDED_BYTES_MAX) as u64;

/// The body of a request that is being answered.
pub(super) struct RequestBody<'a, B> {
    /// `None` if it was passed on unread.
    body: Option<Pin<&'a mut B>>,
    phase: Phase,
}

/// The progress of the body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// It has not been read.
    New,
    /// It is being read. If this is the final state, the request took too long or the client disconnected.
    Receiving,
    /// It is too long, or there is no memory for it.
    Refused,
    Whole,
}

impl<'a, B> RequestBody<'a, B>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    pub(super) fn new(body: Option<Pin<&'a mut B>>) -> RequestBody<'a, B> {
        let is_whole = body.as_ref().is_none_or(|body| body.is_end_stream());
        let phase = if is_whole { Phase::Whole } else { Phase::New };
        RequestBody { body, phase }
    }

    /// Reads the whole body. Memory is reserved for it as its bytes arrive.
    pub(super) async fn read(&mut self, memory: &mut Reservation) -> Result<Bytes, Failure> {
        let Some(body) = &mut self.body else { return Ok(Bytes::new()) };
        if MUCH_TOO_LONG_BYTES <= body.size_hint().lower() {
            self.phase = Phase::Refused;
            return Err(too_large());
        }
        self.phase = Phase::Receiving;
        let mut first = Bytes::new();
        let mut rest = Vec::new();
        while let Some(frame) = body.frame().await {
            let unreadable =
                |error| Failure::bad_request(format!("the body of the request could not be read: {error}"));
            let Ok(data) = frame.map_err(unreadable)?.into_data() else { continue };
            let bytes = first.len() + rest.len() + data.len();
            if BODY_BYTES_MAX < bytes {
                self.phase = Phase::Refused;
                return Err(too_large());
            }
            if let Err(failure) = memory.grow_to(bytes) {
                self.phase = Phase::Refused;
                return Err(failure);
            }
            if first.is_empty() && rest.is_empty() {
                first = data;
                continue;
            }
            if rest.is_empty() {
                let expected = usize::try_from(body.size_hint().lower()).unwrap_or(0);
                rest.reserve(expected.clamp(bytes, BODY_BYTES_MAX));
                rest.extend_from_slice(&first);
                first.clear();
            }
            rest.extend_from_slice(&data);
        }
        self.phase = Phase::Whole;
        Ok(if rest.is_empty() { first } else { rest.into() })
    }

    /// Discards the unread part. False if the connection cannot take another request afterwards.
    ///
    /// Over HTTP/1 the next request follows this body. If the connection is closed while its peer sends, the peer may
    /// lose the answer; if the peer does not learn of the close, it sends its next request in vain. Over HTTP/2 the
    /// connection takes another request in any case, but some clients (curl 7) lose the answer of a stream that is
    /// reset before its body has arrived.
    pub(super) async fn discard(&mut self, parts: &Parts) -> bool {
        let Some(body) = &mut self.body else { return true };
        if self.phase == Phase::Whole {
            return true;
        }
        let has_streams = Version::HTTP_11 < parts.version;
        let is_waited_for = match self.phase {
            // A client that expects 100 Continue has not sent the body.
            Phase::New => !parts.headers.contains_key(EXPECT),
            Phase::Refused => true,
            Phase::Receiving | Phase::Whole => false,
        };
        let is_too_long = DISCARDED_BYTES_MAX as u64 <= body.size_hint().lower();
        // The body of a read has no meaning, and is not waited for.
        let is_read = matches!(parts.method, Method::GET | Method::HEAD);
        if !is_waited_for || is_too_long || is_read {
            return has_streams;
        }
        let rest = async {
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return false };
                bytes += frame.data_ref().map_or(0, Bytes::len);
                if DISCARDED_BYTES_MAX <= bytes {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(DISCARD_TIMEOUT, rest).await.unwrap_or(false) || has_streams
    }
}

fn too_large() -> Failure {
    Failure::too_large(format!("Request entity too large: limit is {BODY_BYTES_MAX}"))
}
