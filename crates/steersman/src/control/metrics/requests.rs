//! Counts the requests of a client: a tower layer that fits on any `kube` client.
//!
//! The families are those of client-go's `tools/metrics`. A request is counted when its answer begins, and its time and
//! size are known when the body ends. A watch has neither, because it may end at any time. A retry by an outer layer is
//! a request of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use prometheus_client::encoding::DescriptorEncoder;
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::control::metrics::families::{counters, histograms};
use crate::shared::histogram::{Histogram, REQUEST_BUCKETS, SIZE_BUCKETS};

/// The status of a request without an answer, as client-go writes it.
const NO_ANSWER: &str = "<error>";

/// Puts [`RequestMetrics`] around a service; see [`crate::control::metrics::Metrics::request_layer`].
#[derive(Clone, Debug)]
pub struct RequestMetricsLayer {
    requests: Arc<Requests>,
    host: Arc<str>,
}

/// A service whose requests are counted.
#[derive(Clone, Debug)]
pub struct RequestMetrics<S> {
    inner: S,
    requests: Arc<Requests>,
    host: Arc<str>,
}

/// The counts. Bounded by the numbers of hosts, methods and status codes.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of answers by code, method and host.
    answers: BTreeMap<(String, String, String), u64>,
    /// Times and sizes by method and host.
    measured: BTreeMap<(String, String), Sizes>,
}

#[derive(Debug)]
struct Sizes {
    seconds: Histogram,
    sent: Histogram,
    received: Histogram,
}

/// The body of an answer, measured to its end.
#[derive(Debug)]
pub struct MeasuredBody<B> {
    inner: B,
    /// `None` for watches, and after the end.
    measured: Option<Measured>,
}

#[derive(Debug)]
struct Measured {
    requests: Arc<Requests>,
    place: (String, String),
    started: Instant,
    received: u64,
}

// === impl RequestMetrics ===

impl RequestMetricsLayer {
    pub(crate) fn new(requests: Arc<Requests>) -> Self {
        Self { requests, host: "".into() }
    }

    /// The `host` of requests whose URI has none yet. A `kube` client adds the server's address only below its layers.
    pub fn host(mut self, host: &str) -> Self {
        self.host = host.into();
        self
    }
}

impl<S> Layer<S> for RequestMetricsLayer {
    type Service = RequestMetrics<S>;

    fn layer(&self, inner: S) -> RequestMetrics<S> {
        RequestMetrics { inner, requests: Arc::clone(&self.requests), host: Arc::clone(&self.host) }
    }
}

impl<S, A, B> Service<Request<A>> for RequestMetrics<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    A: Body,
    B: Body + Unpin + Send + 'static,
{
    type Response = Response<MeasuredBody<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let requests = Arc::clone(&self.requests);
        let host = request.uri().authority().map_or(&*self.host, |authority| authority.as_str()).to_owned();
        let place = (method(request.method()), host);
        let is_watch = request.uri().query().unwrap_or_default().split('&').any(|pair| pair == "watch=true");
        let sent = request.body().size_hint().exact();
        let started = Instant::now();
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            let code =
                answer.as_ref().map_or_else(|_| NO_ANSWER.to_owned(), |answer| answer.status().as_str().to_owned());
            requests.answered(code, &place, sent);
            let answer = answer?;
            let measured = (!is_watch).then(|| Measured { requests, place, started, received: 0 });
            Ok(answer.map(|inner| MeasuredBody { inner, measured }))
        }
        .boxed()
    }
}

/// The method as a label; unknown methods share one value, which bounds the number of labels.
fn method(method: &Method) -> String {
    let known = [Method::DELETE, Method::GET, Method::HEAD, Method::OPTIONS, Method::PATCH, Method::POST, Method::PUT];
    if known.contains(method) { method.as_str().to_owned() } else { "<other>".to_owned() }
}

// === impl MeasuredBody ===

impl<B: Body + Unpin> Body for MeasuredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        match (&frame, &mut self.measured) {
            (Some(Ok(frame)), Some(measured)) => {
                let length = frame.data_ref().map_or(0, Buf::remaining);
                measured.received += length as u64;
            }
            (None | Some(Err(_)), _) => drop(self.measured.take()),
            (Some(Ok(_)), None) => {}
        }
        // A body of known length need not be polled once more for its end.
        if self.inner.is_end_stream() {
            self.measured = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body is measured however it ends, also when it is dropped before.
impl Drop for Measured {
    fn drop(&mut self) {
        let mut state = self.requests.state.lock();
        let sizes = state.sizes(&self.place);
        sizes.seconds.observe(self.started.elapsed().as_secs_f64());
        sizes.received.observe(self.received as f64);
    }
}

// === impl Requests ===

impl Requests {
    fn answered(&self, code: String, place: &(String, String), sent: Option<u64>) {
        let mut state = self.state.lock();
        *state.answers.entry((code, place.0.clone(), place.1.clone())).or_default() += 1;
        if let Some(sent) = sent {
            state.sizes(place).sent.observe(sent as f64);
        }
    }

    pub(crate) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let state = self.state.lock();
        let answers = state.answers.iter().map(|((code, method, host), count)| {
            (vec![("code", code.clone()), ("method", method.clone()), ("host", host.clone())], *count)
        });
        counters(encoder, "rest_client_requests", "Requests by status code, method and host", answers.collect())?;
        type Of = fn(&Sizes) -> &Histogram;
        let families: [(&str, &str, Of); 3] = [
            ("rest_client_request_duration_seconds", "How long requests take", |sizes| &sizes.seconds),
            ("rest_client_request_size_bytes", "The size of request bodies", |sizes| &sizes.sent),
            ("rest_client_response_size_bytes", "The size of response bodies", |sizes| &sizes.received),
        ];
        for (name, help, of) in families {
            let samples = state
                .measured
                .iter()
                .map(|((verb, host), sizes)| (vec![("verb", verb.clone()), ("host", host.clone())], of(sizes)));
            histograms(encoder, name, help, samples.collect())?;
        }
        Ok(())
    }
}

impl State {
    fn sizes(&mut self, place: &(String, String)) -> &mut Sizes {
        self.measured.entry(place.clone()).or_insert_with(|| Sizes {
            seconds: Histogram::new(REQUEST_BUCKETS),
            sent: Histogram::new(SIZE_BUCKETS),
            received: Histogram::new(SIZE_BUCKETS),
        })
    }
}
