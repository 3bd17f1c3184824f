//! HTTP servers that say their name, and a client that counts who has answered.

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Starts a server that answers every request with its name.
pub(crate) async fn start(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service_fn(move |_| async move {
                Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from_static(name.as_bytes()))))
            });
            tokio::spawn(server::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

/// Requests one after another until it is told to stop.
pub(crate) struct Load {
    stop: watch::Sender<bool>,
    counts: watch::Receiver<BTreeMap<String, u64>>,
    task: JoinHandle<()>,
}

impl Load {
    pub(crate) fn start(port: u16) -> Load {
        let (stop, stopped) = watch::channel(false);
        let (counted, counts) = watch::channel(BTreeMap::new());
        let task = tokio::spawn(async move {
            while !*stopped.borrow() {
                let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (mut sender, connection) = client::handshake(TokioIo::new(stream)).await.unwrap();
                let connection = tokio::spawn(connection);
                while !*stopped.borrow() && sender.ready().await.is_ok() {
                    let request = http::Request::get("/").header("host", "web").body(Empty::<Bytes>::new()).unwrap();
                    let answer = match sender.send_request(request).await {
                        Ok(response) if response.status() == 200 => {
                            let body = response.into_body().collect().await.unwrap().to_bytes();
                            String::from_utf8_lossy(&body).into_owned()
                        }
                        Ok(response) => response.status().to_string(),
                        Err(error) => format!("{error:?}"),
                    };
                    counted.send_modify(|counts| *counts.entry(answer).or_default() += 1);
                }
                drop(sender);
                connection.await.unwrap().unwrap();
            }
        });
        Load { stop, counts, task }
    }

    /// The next `n` answers, counted by what they say.
    pub(crate) async fn count(&mut self, n: u64) -> BTreeMap<String, u64> {
        let before = self.counts.borrow_and_update().clone();
        let total = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
        let from = total(&before);
        let mut after = self.counts.wait_for(|counts| total(counts) >= from + n).await.unwrap().clone();
        for (answer, count) in before {
            *after.get_mut(&answer).unwrap() -= count;
        }
        after.retain(|_, count| *count > 0);
        after
    }

    /// Every answer since the beginning.
    pub(crate) async fn stop(self) -> BTreeMap<String, u64> {
        self.stop.send(true).unwrap();
        self.task.await.unwrap();
        self.counts.borrow().clone()
    }
}
