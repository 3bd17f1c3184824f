//! How a stream ends, in gRPC.

use crate::server::TooMany;
use crate::session::RequestError;
use crate::source::Refusal;
use http::{HeaderMap, HeaderValue};

/// The status of a stream that has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Status {
    code: Code,
    message: String,
}

/// A code of gRPC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Code {
    Ok = 0,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Unavailable = 14,
    Unauthenticated = 16,
}

// === impl Status ===

impl Status {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into() }
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.code == Code::Ok
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The headers at the end of a stream.
    pub(crate) fn to_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", HeaderValue::from(self.code as u16));
        if let Ok(message) = HeaderValue::from_str(&encoded(&self.message)) {
            headers.insert("grpc-message", message);
        }
        headers
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        let code = match refusal {
            Refusal::NotReady | Refusal::Unknown(_) => Code::Unavailable,
            Refusal::Forbidden(_) => Code::PermissionDenied,
            Refusal::Unauthenticated(_) => Code::Unauthenticated,
        };
        Status::new(code, refusal.to_string())
    }
}

impl From<TooMany> for Status {
    fn from(too_many: TooMany) -> Status {
        Status::new(Code::ResourceExhausted, too_many.to_string())
    }
}

impl From<RequestError> for Status {
    fn from(error: RequestError) -> Status {
        Status::new(Code::ResourceExhausted, error.to_string())
    }
}

/// gRPC's encoding: printable ASCII but `%` as it is, everything else as `%XX`.
fn encoded(message: &str) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_as_grpc_has_it() {
        let headers = Status::new(Code::Unavailable, "50% ä\n").to_headers();
        assert_eq!(headers["grpc-status"], "14");
        assert_eq!(headers["grpc-message"], "50%25 %C3%A4%0A");
    }
}
