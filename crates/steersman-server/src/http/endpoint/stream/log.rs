//! The log of a container, which its kubelet sends: passed on as it comes, for as long as the client follows it.

use crate::http::answer::Answer;
use crate::http::endpoint::agent;
use crate::http::endpoint::context::Context;
use crate::http::endpoint::stream::backend;
use crate::http::endpoint::stream::kubelet::Kubelet;
use crate::http::endpoint::stream::pod;
use crate::http::passing::{self, Lasts};
use crate::shared::nodes::connections::Peer;
use crate::shared::request::query;
use crate::shared::request::unread;
use crate::shared::status::Failure;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use jiff::SignedDuration;
use std::time::Duration;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::time as times;
use steersman_machinery::{GroupKind, GroupResource};

/// The most bytes that are read of the text of an error, and the time for it.
const REFUSAL_BYTES_MAX: usize = 50_000;
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(10);

/// Answers with the log of a container.
///
/// # Errors
/// With the answer for the client.
pub(super) async fn answer(cx: &Context<'_>) -> Result<Answer, Failure> {
    let faults = faults(cx)?;
    if !faults.is_empty() {
        return Err(Failure::invalid(&GroupKind::new("", "PodLogOptions"), cx.operation.name(), &faults));
    }
    let found = pod::find(cx, cx.operation.name()).await?;
    let container = pod::container(cx, &found, cx.query.non_empty("container"))?;
    let Some(node) = pod::node(&found) else { return Ok(Answer::empty(204)) };
    let path = pod::path(cx, "containerLogs", Some(container));
    let of_agent = format!("{path}?{}", agent_query(cx));
    if let Some(answer) = agent::ask(cx.state, node, Method::GET, of_agent).await {
        return answer;
    }
    let is_verified = !cx.query.is_true("insecureSkipTLSVerifyBackend");
    let peer = if is_verified { Peer::Kubelet } else { Peer::UnverifiedKubelet };
    let kubelet = Kubelet::find(cx, node).await?.backend(peer);
    let query = kubelet_query(cx);
    let path = if query.is_empty() { path } else { format!("{path}?{query}") };
    // The kubelet gets only the options.
    let mut request = kubelet.request(cx, &path, HeaderMap::new(), unread::empty())?;
    *request.method_mut() = Method::GET;
    let place = passing::place(cx.state, cx.payer)?;
    let (state, name) = (cx.state.clone(), cx.operation.name().to_owned());
    Ok(Answer::later(Box::pin(async move {
        let response = state.connections.send(peer, request).await;
        let response = response.map_err(|error| backend::not_dialed(&error))?;
        if !(StatusCode::OK..=StatusCode::PARTIAL_CONTENT).contains(&response.status()) {
            return Err(refused(response, &name).await);
        }
        Ok(Answer::stream("text/plain", passing::body(&state, response.into_body(), Lasts::Unbounded, Some(place))))
    })))
}

/// The failure of a request that the kubelet has answered with an error.
async fn refused(response: Response<Incoming>, name: &str) -> Failure {
    let (head, mut body) = response.into_parts();
    let mut said = Vec::new();
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(&[][..], |bytes| bytes);
            said.extend_from_slice(&bytes[..bytes.len().min(REFUSAL_BYTES_MAX - said.len())]);
            if REFUSAL_BYTES_MAX <= said.len() {
                break;
            }
        }
    };
    // Whatever has come in time is told.
    let _ = tokio::time::timeout(REFUSAL_TIME_MAX, read).await;
    let said = String::from_utf8_lossy(&said);
    Failure::answered(head.status.as_u16(), &said, &GroupResource::new("", "pods/log"), name)
}

/// The options that select a part of a log, as they are.
fn selecting<'a>(cx: &Context<'a>) -> impl Iterator<Item = (&'static str, &'a str)> {
    let query = cx.query;
    ["limitBytes", "tailLines"].into_iter().filter_map(|name| Some((name, query.non_empty(name)?)))
}

/// The checked options as a query for a kubelet, in the order in which kube-apiserver sends them.
fn kubelet_query(cx: &Context<'_>) -> String {
    let mut pairs: Vec<(&str, String)> = selecting(cx).map(|(name, value)| (name, value.to_owned())).collect();
    for name in ["follow", "previous", "timestamps"] {
        pairs.extend(cx.query.is_true(name).then(|| (name, "true".to_owned())));
    }
    pairs.extend(cx.query.non_empty("sinceSeconds").map(|value| ("sinceSeconds", value.to_owned())));
    let since = cx.query.non_empty("sinceTime").and_then(times::parse);
    pairs.extend(since.map(|since| ("sinceTime", since.to_string())));
    // Kubelets know no streams before they have the feature, and all streams are what they send anyway.
    let stream = cx.query.non_empty("stream").filter(|stream| *stream != "All");
    pairs.extend(stream.map(|stream| ("stream", stream.to_owned())));
    pairs.sort();
    let pairs: Vec<String> =
        pairs.into_iter().map(|(name, value)| format!("{name}={}", query::encode_value(&value))).collect();
    pairs.join("&")
}

/// The checked options as a query for the agent of a node in this process, which ends at once and knows no stream that goes
/// on.
fn agent_query(cx: &Context<'_>) -> String {
    let mut pairs: Vec<String> = selecting(cx).map(|(name, value)| format!("{name}={value}")).collect();
    for name in ["previous", "timestamps"] {
        if cx.query.is_true(name) {
            pairs.push(format!("{name}=true"));
        }
    }
    pairs.extend(cx.query.non_empty("stream").map(|value| format!("stream={value}")));
    let since_seconds = cx.query.non_empty("sinceSeconds").and_then(|text| text.parse::<i64>().ok());
    let since = match since_seconds {
        Some(seconds) => cx.state.now().checked_sub(SignedDuration::from_secs(seconds)).ok(),
        None => cx.query.non_empty("sinceTime").and_then(times::parse),
    };
    pairs.extend(since.map(|since| format!("sinceTime={since}")));
    pairs.join("&")
}

/// The validation errors of a log's options.
fn faults(cx: &Context<'_>) -> Result<Vec<Error>, Failure> {
    let number = |name: &str| match cx.query.non_empty(name) {
        None => Ok(None),
        Some(text) => text
            .parse::<i64>()
            .map(Some)
            .map_err(|_| Failure::bad_request(format!("{name} must be a whole number, not {text:?}"))),
    };
    let (lines, bytes, seconds) = (number("tailLines")?, number("limitBytes")?, number("sinceSeconds")?);
    if let Some(text) = cx.query.non_empty("sinceTime").filter(|text| times::parse(text).is_none()) {
        return Err(Failure::bad_request(format!(
            "sinceTime must be a time such as 2026-01-02T03:04:05Z, not {text:?}"
        )));
    }
    let mut faults = Vec::new();
    if let Some(lines) = lines.filter(|lines| *lines < 0) {
        faults.push(Error::invalid(&Path::new("tailLines"), lines, "must be greater than or equal to 0"));
    }
    if let Some(bytes) = bytes.filter(|bytes| *bytes < 1) {
        faults.push(Error::invalid(&Path::new("limitBytes"), bytes, "must be greater than 0"));
    }
    if seconds.is_some() && cx.query.non_empty("sinceTime").is_some() {
        let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        faults.push(Error::forbidden(&Path::root(), why));
    } else if let Some(seconds) = seconds.filter(|seconds| *seconds < 1) {
        faults.push(Error::invalid(&Path::new("sinceSeconds"), seconds, "must be greater than 0"));
    }
    let stream = cx.query.non_empty("stream").unwrap_or("All");
    if !["All", "Stderr", "Stdout"].contains(&stream) {
        faults.push(Error::not_supported(&Path::new("stream"), stream, &["All", "Stderr", "Stdout"]));
    }
    if stream != "All" && lines.is_some() {
        // The message is kube-apiserver's.
        let why = "`tailLines` and specific `stream` are mutually exclusive for now";
        faults.push(Error::forbidden(&Path::root(), why));
    }
    Ok(faults)
}
