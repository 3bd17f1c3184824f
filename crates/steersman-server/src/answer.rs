//! Answers: status code, headers and a body that is bytes, a list written piece by piece, or a watch.

use crate::body::Body;
use crate::codec;
use crate::endpoint::context::Context;
use crate::negotiate::{Encoding, Form, Negotiated};
use crate::payload::Payload;
use crate::render;
use crate::status::Failure;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::Serialize;
use std::collections::VecDeque;
use steersman_machinery::{Revision, Value};

pub(crate) use crate::endpoint::WatchAnswer;

/// An answer on its way out. The chain adds what every answer carries.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<Body>,
}

/// What a list says of itself.
#[derive(Debug)]
pub(crate) struct ListHead {
    pub(crate) revision: Revision,
    pub(crate) token: Option<String>,
    pub(crate) remaining: Option<usize>,
}

impl Answer {
    /// An answer of bytes.
    pub(crate) fn bytes(code: u16, content_type: &str, bytes: impl Into<Bytes>) -> Answer {
        Answer::new(code, Some(content_type), Body::full(bytes.into()))
    }

    /// An answer in plain text.
    pub(crate) fn text(code: u16, text: impl Into<String>) -> Answer {
        let mut answer = Answer::bytes(code, "text/plain; charset=utf-8", text.into());
        answer.set("x-content-type-options", "nosniff");
        answer
    }

    /// The answer outside of all APIs.
    pub(crate) fn no_such_page() -> Answer {
        Answer::text(404, "404 page not found\n")
    }

    /// An answer without a body.
    pub(crate) fn empty(code: u16) -> Answer {
        Answer::new(code, None, Body::empty())
    }

    /// Any value.
    pub(crate) fn value(code: u16, value: &impl Serialize, encoding: Encoding, is_pretty: bool) -> Answer {
        Answer::bytes(code, encoding.content_type(), codec::encode(value, encoding, is_pretty))
    }

    /// A `Status`.
    pub(crate) fn status(code: u16, status: &impl Serialize, encoding: Encoding) -> Answer {
        Answer::value(code, status, encoding, false)
    }

    /// What a request that was not done is answered with.
    pub(crate) fn failure(failure: &Failure, encoding: Encoding, is_pretty: bool) -> Answer {
        let mut answer = Answer::value(failure.code(), &*failure.status, encoding, is_pretty);
        if let Some(after) = failure.retry_after() {
            answer.set(RETRY_AFTER.as_str(), &after.as_secs().max(1).to_string());
        }
        answer
    }

    /// One object in the form that was negotiated.
    pub(crate) fn object(
        cx: &Context<'_>,
        code: u16,
        payload: Payload,
        negotiated: Negotiated,
    ) -> Result<Answer, Failure> {
        let is_pretty = is_pretty(cx);
        let Negotiated { encoding, form } = negotiated;
        if let (Form::Object, Encoding::Json, false, Payload::Stored(object)) = (form, encoding, is_pretty, &payload)
            && cx.operation.strategy().is_stored_form(cx.operation.resource(), cx.operation.version())
        {
            return Ok(Answer::bytes(code, encoding.content_type(), object.json_bytes()));
        }
        let tree = match form {
            Form::Object => render::tree(cx, &payload)?,
            Form::PartialMetadata => render::partial_metadata(&render::tree(cx, &payload)?),
            Form::Table => {
                let tree = render::tree(cx, &payload)?;
                let head = render::table_head(&tree);
                render::table(cx, &[tree], head)?
            }
        };
        Ok(Answer::value(code, &tree, encoding, is_pretty))
    }

    /// A list in the form that was negotiated.
    pub(crate) fn list(
        cx: &Context<'_>,
        objects: Vec<Payload>,
        head: &ListHead,
        negotiated: Negotiated,
    ) -> Result<Answer, Failure> {
        let Negotiated { encoding, form } = negotiated;
        if form == Form::Table {
            let trees = objects.iter().map(|payload| render::tree(cx, payload)).collect::<Result<Vec<_>, _>>()?;
            let table = render::table(cx, &trees, render::list_metadata(head))?;
            return Ok(Answer::value(200, &table, encoding, is_pretty(cx)));
        }
        let (kind, api_version) = match form {
            Form::PartialMetadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            Form::Object | Form::Table => {
                (cx.operation.resource().list_kind.to_string(), cx.operation.served.api_version())
            }
        };
        let items =
            objects.iter().map(|payload| render::list_item(cx, payload, form)).collect::<Result<VecDeque<_>, _>>()?;
        let opening = format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
            Value::from(kind),
            Value::from(api_version),
            render::list_metadata(head)
        );
        let body = Body::list(opening.into(), items, "]}".into());
        if encoding == Encoding::Json && !is_pretty(cx) {
            return Ok(Answer::new(200, Some(encoding.content_type()), body));
        }
        let tree: Value = serde_json::from_slice(&body.into_bytes()).map_err(|error| {
            tracing::error!(%error, "a list is not readable");
            Failure::internal("the list is not readable")
        })?;
        Ok(Answer::value(200, &tree, encoding, is_pretty(cx)))
    }

    /// A watch.
    pub(crate) fn stream(watch: WatchAnswer, negotiated: Negotiated) -> Answer {
        let body = match watch {
            WatchAnswer::Error(failure) => Body::full(crate::endpoint::error_frame(&failure)),
            WatchAnswer::Events(stream) => Body::watch(*stream),
        };
        Answer::new(200, Some(negotiated.encoding.content_type()), body)
    }

    fn new(code: u16, content_type: Option<&str>, body: Body) -> Answer {
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = Answer { response };
        if let Some(content_type) = content_type {
            answer.set(CONTENT_TYPE.as_str(), content_type);
        }
        answer
    }

    /// Sets a header; a value that cannot be one is left out.
    pub(crate) fn set(&mut self, name: &'static str, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.response.headers_mut().insert(name, value);
        }
    }
}

/// Whether the answer is for people: they ask for it, or come with a program that people use.
pub(crate) fn is_pretty_for(query: &crate::query::Query, headers: &HeaderMap) -> bool {
    if query.first("pretty").is_some() {
        return query.is_true("pretty");
    }
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|people| agent.starts_with(people))
}

fn is_pretty(cx: &Context<'_>) -> bool {
    is_pretty_for(cx.query, cx.headers)
}
