//! A dump beside the control plane: its objects in memory, and its logs in place of the agents of nodes.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode};
use jiff::Timestamp;
use std::sync::Arc;
use steersman_archive::{Container, LogError, LogOptions, Logs, Run};
use steersman_server::Agents;
use steersman_server::query::Query;
use steersman_storage::kv::Kv;

/// A dump that a server shows, and changes nothing of.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// The objects.
    pub(crate) kv: Arc<dyn Kv>,
    pub(crate) logs: DumpedLogs,
    /// The sentence for whoever tries to write.
    pub(crate) why: Arc<str>,
}

/// Answers for the nodes of a dump.
#[derive(Clone, Debug)]
pub(crate) struct DumpedLogs(pub(crate) Arc<Logs>);

impl Agents for DumpedLogs {
    fn ask(&self, _node: &str, request: Request<()>) -> Option<BoxFuture<'static, Response<Bytes>>> {
        let logs = self.0.clone();
        Some(Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || answer(&logs, &request)).await;
            let (code, body) =
                read.unwrap_or_else(|_| failed(StatusCode::INTERNAL_SERVER_ERROR, "the log cannot be read"));
            let mut response = Response::new(body);
            *response.status_mut() = code;
            response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
            response
        }))
    }
}

fn answer(logs: &Logs, request: &Request<()>) -> (StatusCode, Bytes) {
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let ["containerLogs", namespace, pod, container] = path[..] else {
        return failed(StatusCode::BAD_REQUEST, "nothing runs in a dump: only logs can be asked for");
    };
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let number = |name: &str| query.non_empty(name).and_then(|text| text.parse().ok());
    let run = if query.is_true("previous") { Run::Previous } else { Run::Current };
    let mut options = LogOptions::new();
    options.limit_bytes = number("limitBytes");
    options.tail_lines = number("tailLines");
    options.since = query.non_empty("sinceTime").and_then(|text| text.parse::<Timestamp>().ok());
    options.timestamps = query.is_true("timestamps");
    match logs.read(&Container::new(namespace, pod, container, run), &options) {
        Ok(log) => (StatusCode::OK, log.into()),
        Err(error) => {
            let code = match &error {
                LogError::Missing { .. } => StatusCode::NOT_FOUND,
                LogError::NoTimes | LogError::TooLong { .. } => StatusCode::BAD_REQUEST,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            failed(code, &error.to_string())
        }
    }
}

fn failed(code: StatusCode, why: &str) -> (StatusCode, Bytes) {
    (code, why.to_owned().into())
}
