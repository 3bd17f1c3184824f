//! One call over HTTP: found by its path, bounded in time, size and number, answered whatever the function does.
//!
//! A failure that is not a verdict is answered with a status other than 200, and a text that the API server shows to
//! its client.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use tokio::time::Instant;

use crate::shared::chain::Chain;
use crate::shared::clock;
use crate::webhook::admission::Function;
use crate::webhook::conversion::{Convert, TypeOf, convert};
use crate::webhook::denial::Named;
use crate::webhook::review::{self, Outcome, ReviewError};
use crate::webhook::{Route, Webhooks};

/// The number of objects converted before other tasks run and the deadline is checked.
const CONVERSIONS_AT_A_TIME: usize = 64;

/// A call that was not answered with a review.
struct Failure {
    outcome: &'static str,
    status: StatusCode,
    message: String,
}

// === impl Webhooks ===

impl Webhooks {
    /// Answers one call, as the server does: for custom servers, and for tests of functions without a server.
    ///
    /// ```
    /// # use serde_json::{Value, json};
    /// # use steersman::webhook::{Denial, Webhooks, Write};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// use http_body_util::{BodyExt, Full};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let webhooks = Webhooks::new().validator(|_: Write<'_, ConfigMap>| Err(Denial::forbidden("no more")));
    /// let gvk = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    /// let gvr = json!({"group": "", "version": "v1", "resource": "configmaps"});
    /// let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
    ///     "uid": "1", "kind": gvk, "resource": gvr, "operation": "CREATE",
    ///     "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}}});
    /// let request = http::Request::post("/validate--v1-configmap")
    ///     .header("content-type", "application/json")
    ///     .body(Full::from(review.to_string()))?;
    /// let answer = webhooks.answer(request).await.into_body().collect().await?.to_bytes();
    /// assert_eq!(serde_json::from_slice::<Value>(&answer)?["response"]["status"]["message"], "no more");
    /// # Ok(()) }
    /// ```
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let started = Instant::now();
        let path = request.uri().path().to_owned();
        let Some(route) = self.routes.get(&path) else {
            let paths: Vec<&str> = self.routes.keys().map(String::as_str).collect();
            let message = format!("no webhook at {path}: there are {}", paths.join(", "));
            return text(StatusCode::NOT_FOUND, message);
        };
        let under_way = self.stats.begin(&path);
        let timeout = match timeout(request.uri().query().unwrap_or_default()) {
            Ok(timeout) => timeout.unwrap_or(self.limits.timeout_max).min(self.limits.timeout_max),
            Err(value) => {
                let message = format!("the timeout {value:?} is no duration: want for instance 10s");
                let response = text(StatusCode::BAD_REQUEST, message);
                under_way.end("malformed", response.status(), started.elapsed());
                return response;
            }
        };
        // A panic of a function can leave only its own context inconsistent, never state of other calls: the same holds
        // for a task that panics.
        let call = AssertUnwindSafe(self.call(route, request)).catch_unwind();
        let answer = match tokio::time::timeout_at(clock::after(started, timeout), call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => {
                let said = panic
                    .downcast_ref::<&str>()
                    .copied()
                    .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                tracing::error!(path, panic = said.unwrap_or("no message"), "a webhook's function panicked");
                let message = "the webhook's function panicked".to_owned();
                Err(Failure { outcome: "panicked", status: StatusCode::INTERNAL_SERVER_ERROR, message })
            }
            Err(_) => {
                tracing::warn!(path, ?timeout, "a webhook's function took too long");
                let message = format!("the webhook's function did not answer within {timeout:?}");
                Err(Failure { outcome: "timed_out", status: StatusCode::GATEWAY_TIMEOUT, message })
            }
        };
        let (outcome, response) = match answer {
            Ok((outcome, body)) => (outcome, json(body)),
            Err(Failure { outcome, status, message }) => {
                tracing::warn!(path, outcome, message, "a webhook was called in vain");
                (outcome, text(status, message))
            }
        };
        under_way.end(outcome, response.status(), started.elapsed());
        response
    }

    async fn call<B>(&self, route: &Route, request: Request<B>) -> Result<(&'static str, Bytes), Failure>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if request.method() != Method::POST {
            let message = format!("want POST, got {}", request.method());
            return Err(Failure::malformed(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        let content_type =
            request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if content_type.split(';').next().map(str::trim) != Some("application/json") {
            let message = format!("want content type application/json, got {content_type:?}");
            return Err(Failure::malformed(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        // Acquired before the body is read, so that the number of calls bounds their memory. The semaphore is never
        // closed.
        let _permit = self.calls.acquire().await.ok();
        let limit = match route {
            Route::Admission(_) => self.limits.admission_body_max,
            Route::Conversion(_) => self.limits.conversion_body_max,
        };
        let body = Limited::new(request.into_body(), limit).collect().await.map_err(|error| {
            if error.downcast_ref::<LengthLimitError>().is_some() {
                let message = format!("the question is longer than {limit} bytes");
                return Failure::malformed(StatusCode::PAYLOAD_TOO_LARGE, message);
            }
            let message = format!("the question could not be received: {}", Chain(&*error));
            Failure::malformed(StatusCode::BAD_REQUEST, message)
        })?;
        let body = body.to_bytes();
        match route {
            Route::Admission(function) => admit(&**function, &body).await,
            Route::Conversion(kinds) => convert_all(kinds, &body).await,
        }
    }
}

async fn admit(function: &dyn Function, body: &[u8]) -> Result<(&'static str, Bytes), Failure> {
    let (version, request) = review::read_admission(body)?;
    let (uid, kind, name) = (request.uid.clone(), request.kind.clone(), request.name.clone());
    let verdict = function.call(request).await;
    let named = Named { group: &kind.group, kind: &kind.kind, name: &name };
    let (outcome, answer) = review::write_admission(version, &uid, &named, verdict).map_err(Failure::failed)?;
    let outcome = match outcome {
        Outcome::Allowed => "allowed",
        Outcome::Denied => "denied",
        Outcome::Mutated => "mutated",
    };
    Ok((outcome, answer))
}

async fn convert_all(
    kinds: &BTreeMap<(String, String), Box<dyn Convert>>,
    body: &[u8],
) -> Result<(&'static str, Bytes), Failure> {
    let (version, request) = review::read_conversion(body)?;
    let mut converted = Vec::with_capacity(request.objects.len());
    let mut failed = None;
    for (index, object) in request.objects.iter().enumerate() {
        if index % CONVERSIONS_AT_A_TIME == CONVERSIONS_AT_A_TIME - 1 {
            tokio::task::yield_now().await;
        }
        match convert_one(kinds, object, &request.desired) {
            Ok(object) => converted.push(object),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    let outcome = if failed.is_none() { "converted" } else { "failed" };
    let result = failed.map_or(Ok(converted), Err);
    let answer = review::write_conversion(version, &request.uid, &result).map_err(Failure::failed)?;
    Ok((outcome, answer))
}

fn convert_one(
    kinds: &BTreeMap<(String, String), Box<dyn Convert>>,
    object: &RawValue,
    desired: &str,
) -> Result<Box<RawValue>, String> {
    let from: TypeOf = serde_json::from_str(object.get()).map_err(|error| error.to_string())?;
    let group = |version: &str| version.split_once('/').map_or("", |(group, _)| group).to_owned();
    let key = (group(&from.api_version), from.kind.clone());
    let Some(conversion) = kinds.get(&key).filter(|_| group(desired) == key.0) else {
        let known: Vec<String> = kinds.keys().map(|(group, kind)| format!("{kind}.{group}")).collect();
        return Err(format!(
            "no conversion for {} of {} into {desired}: there is one for {}",
            from.kind,
            from.api_version,
            known.join(", ")
        ));
    };
    convert(&**conversion, object, &from, desired)
}

// === impl Failure ===

impl Failure {
    fn failed(message: String) -> Self {
        Self { outcome: "failed", status: StatusCode::INTERNAL_SERVER_ERROR, message }
    }

    fn malformed(status: StatusCode, message: String) -> Self {
        Self { outcome: "malformed", status, message }
    }
}

impl From<ReviewError> for Failure {
    fn from(error: ReviewError) -> Self {
        Self::malformed(StatusCode::BAD_REQUEST, Chain(&error).to_string())
    }
}

fn json(body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn text(status: StatusCode, message: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(message + "\n"));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

/// The time that the API server waits, if the query names one; the text, if it is not a duration.
fn timeout(query: &str) -> Result<Option<Duration>, &str> {
    let parameter = query.split('&').find_map(|pair| pair.strip_prefix("timeout="));
    parameter.map(|value| go_duration(value).ok_or(value)).transpose()
}

/// Parses a duration as Go writes it: numbers with units, `1m30s` or `1.5s`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|character: char| character.is_ascii_digit() || character == '.').unwrap_or(rest.len());
        total += number
            * match &rest[..unit] {
                "h" => 3_600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" | "μs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(total).ok()).flatten()
}

#[cfg(test)]
mod tests;
