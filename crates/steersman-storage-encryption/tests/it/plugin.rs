//! A key management service behind a unix socket, as a test wants it to be. It "encrypts" by putting its key's id before the bytes.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use prost::Message;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    healthz: String,
    #[prost(string, tag = "3")]
    key_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct Encrypted {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
}

/// The bytes of a request, or of an answer to a decryption.
#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Plugin {
    socket: PathBuf,
    answers: Arc<Answers>,
    tasks: JoinSet<()>,
}

/// The answers of the plugin.
#[derive(Debug)]
struct Answers {
    key_id: Mutex<String>,
    healthz: Mutex<String>,
    n_decrypted: AtomicUsize,
    /// Each decryption waits until so many have been asked for.
    n_awaited: AtomicUsize,
    asked: Notify,
}

impl Plugin {
    pub(crate) fn socket(dir: &Path) -> PathBuf {
        dir.join("kms.sock")
    }

    /// Listens at [`Plugin::socket`].
    pub(crate) fn start(dir: &Path, key_id: &str) -> Plugin {
        let socket = Plugin::socket(dir);
        let listener = UnixListener::bind(&socket).unwrap();
        let answers = Arc::new(Answers {
            key_id: Mutex::new(key_id.to_owned()),
            healthz: Mutex::new("ok".to_owned()),
            n_decrypted: AtomicUsize::new(0),
            n_awaited: AtomicUsize::new(0),
            asked: Notify::new(),
        });
        let mut tasks = JoinSet::new();
        let given = answers.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let answers = given.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(answers.clone(), request));
                    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Plugin { socket, answers, tasks }
    }

    pub(crate) fn say_key(&self, key_id: &str) {
        key_id.clone_into(&mut self.answers.key_id.lock());
    }

    pub(crate) fn say_health(&self, healthz: &str) {
        healthz.clone_into(&mut self.answers.healthz.lock());
    }

    pub(crate) fn n_decrypted(&self) -> usize {
        self.answers.n_decrypted.load(Ordering::Relaxed)
    }

    /// Answers no decryption before `n` have been asked for.
    pub(crate) fn await_decryptions(&self, n: usize) {
        self.answers.n_awaited.store(n, Ordering::Relaxed);
    }

    /// Ends it, and its connections.
    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
        std::fs::remove_file(&self.socket).unwrap();
    }
}

impl Answers {
    async fn decryption_asked(&self) {
        let enough = self.asked.notified();
        let n = self.n_decrypted.fetch_add(1, Ordering::Relaxed) + 1;
        if self.n_awaited.load(Ordering::Relaxed) <= n {
            self.asked.notify_waiters();
        } else {
            enough.await;
        }
    }
}

async fn answer(
    answers: Arc<Answers>,
    request: Request<Incoming>,
) -> Result<Response<StreamBody<impl futures::Stream<Item = Result<Frame<Bytes>, Infallible>>>>, Infallible> {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body().collect().await.unwrap().to_bytes();
    body.advance(5);
    let payload = || Payload::decode(body.clone()).unwrap().bytes;
    let key_id = answers.key_id.lock().clone();
    let message = match &*path {
        "/v2.KeyManagementService/Status" => {
            Status { version: "v2".to_owned(), healthz: answers.healthz.lock().clone(), key_id }.encode_to_vec()
        }
        "/v2.KeyManagementService/Encrypt" => {
            let ciphertext = [key_id.as_bytes(), b"|", &payload()].concat();
            Encrypted { ciphertext, key_id }.encode_to_vec()
        }
        "/v2.KeyManagementService/Decrypt" => {
            answers.decryption_asked().await;
            let ciphertext = payload();
            let bar = ciphertext.iter().position(|byte| *byte == b'|').unwrap();
            Payload { bytes: ciphertext[bar + 1..].to_vec() }.encode_to_vec()
        }
        other => panic!("{other}"),
    };
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap());
    framed.put_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let frames = [Ok(Frame::data(framed.freeze())), Ok(Frame::trailers(trailers))];
    let response = Response::builder().header("content-type", "application/grpc");
    Ok(response.body(StreamBody::new(futures::stream::iter(frames))).unwrap())
}
