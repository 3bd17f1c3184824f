//! Answers: status code, headers and a body that is bytes, a list written item by item, or a watch.

use crate::access::authz::Denied;
use crate::http::representation::{ListHead, Reload, Representation, encoding, list};
use crate::shared::compute::AnswerCompute;
use crate::shared::request::body::Body;
use crate::shared::request::negotiate::{Encoding, Layout};
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use steersman_machinery::Object;

/// An answer on its way out. The chain adds the headers of every answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<Body>,
    /// A future of the real answer, if it is not known yet; then the response is empty. It is awaited without the
    /// permit of the request.
    pub(crate) later: Option<Later>,
    /// Whether the body is in memory anyway, whoever reads it.
    pub(crate) is_shared: bool,
}

/// An answer that is not known yet.
pub(crate) struct Later(pub(crate) BoxFuture<'static, Result<Answer, Failure>>);

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Later")
    }
}

impl Answer {
    /// An answer of bytes.
    pub(crate) fn bytes(code: u16, content_type: &str, bytes: impl Into<Bytes>) -> Answer {
        Answer::new(code, Some(content_type), Body::full(bytes))
    }

    /// An answer that is made while it is sent.
    pub(crate) fn stream(content_type: &str, body: Body) -> Answer {
        Answer::new(200, Some(content_type), body)
    }

    /// An answer with a document that the server keeps.
    pub(crate) fn document(content_type: &str, bytes: &Bytes) -> Answer {
        Answer { is_shared: true, ..Answer::bytes(200, content_type, bytes.clone()) }
    }

    /// An answer in plain text.
    pub(crate) fn text(code: u16, text: impl Into<String>) -> Answer {
        let mut answer = Answer::bytes(code, "text/plain; charset=utf-8", text.into());
        answer.set("x-content-type-options", "nosniff");
        answer
    }

    /// 404 in plain text, for a path that belongs to no API.
    pub(crate) fn no_such_page() -> Answer {
        Answer::text(404, "404 page not found\n")
    }

    /// An answer that is not known yet.
    pub(crate) fn later(answer: BoxFuture<'static, Result<Answer, Failure>>) -> Answer {
        Answer { later: Some(Later(answer)), ..Answer::empty(202) }
    }

    /// An answer without a body.
    pub(crate) fn empty(code: u16) -> Answer {
        Answer::new(code, None, Body::empty())
    }

    /// An answer with any serialisable value.
    pub(crate) fn value(code: u16, value: &impl Serialize, encoding: Encoding, layout: Layout) -> Answer {
        let (bytes, encoding) = encoding::encode(value, encoding, layout);
        Answer::bytes(code, encoding.content_type(), bytes)
    }

    /// An answer with a `Status`.
    pub(crate) fn status(code: u16, status: &impl Serialize, encoding: Encoding) -> Answer {
        Answer::value(code, status, encoding, Layout::Compact)
    }

    /// The answer to a request that failed.
    pub(crate) fn failure(failure: &Failure, encoding: Encoding, layout: Layout) -> Answer {
        let mut answer = Answer::value(failure.code(), &*failure.status, encoding, layout);
        if let Some(after) = failure.retry_after() {
            answer.set(RETRY_AFTER.as_str(), &after.as_secs().max(1).to_string());
        }
        if failure.is_denial {
            answer.response.extensions_mut().insert(Denied(failure.status.message.clone()));
        }
        answer
    }

    /// An answer with one object.
    ///
    /// # Errors
    /// When it cannot be converted to the requested version.
    pub(crate) async fn object(
        code: u16,
        payload: Payload,
        representation: &Representation,
    ) -> Result<Answer, Failure> {
        let bytes = representation.one(payload).await?;
        Ok(Answer::bytes(code, representation.encoding().content_type(), bytes))
    }

    /// An answer with a list. `rest` carries out what is left of it when its first bytes are sent. With `reload` the rest can be read again,
    /// so that a slow client does not keep its objects in memory.
    ///
    /// # Errors
    /// When one of the first objects cannot be converted to the requested version.
    pub(crate) async fn list(
        objects: Vec<Arc<Object>>,
        head: &ListHead,
        reload: Option<Reload>,
        rest: AnswerCompute,
        representation: Representation,
    ) -> Result<Answer, Failure> {
        let content_type = representation.encoding().content_type();
        let body = list(representation, objects, head, reload, rest).await?;
        Ok(Answer::new(200, Some(content_type), body))
    }

    /// An answer with a list of objects that were made for it, which is in memory as a whole.
    ///
    /// # Errors
    /// When the serialisation fails.
    pub(crate) fn list_of_made(made: &[Payload], representation: &Representation) -> Result<Answer, Failure> {
        let bytes = representation.list_of_made(made)?;
        Ok(Answer::bytes(200, representation.encoding().content_type(), bytes))
    }

    /// A watch.
    pub(crate) fn watch(body: Body, encoding: Encoding) -> Answer {
        Answer::new(200, Some(encoding.stream_content_type()), body)
    }

    fn new(code: u16, content_type: Option<&str>, body: Body) -> Answer {
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = Answer { response, later: None, is_shared: false };
        if let Some(content_type) = content_type {
            answer.set(CONTENT_TYPE.as_str(), content_type);
        }
        answer
    }

    /// Sets a header. A value that is not allowed in a header is left out.
    pub(crate) fn set(&mut self, name: &'static str, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.response.headers_mut().insert(name, value);
        }
    }
}

/// The layout of JSON: indented for people if the query asks for it, or the client is a browser or a tool such as curl.
pub(crate) fn layout_for(query: &crate::shared::request::query::Query, headers: &HeaderMap) -> Layout {
    if query.first("pretty").is_some() {
        return if query.is_true("pretty") { Layout::Indented } else { Layout::Compact };
    }
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let is_for_people = ["curl", "Wget", "Mozilla/5.0"].iter().any(|people| agent.starts_with(people));
    if is_for_people { Layout::Indented } else { Layout::Compact }
}
