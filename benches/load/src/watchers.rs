//! Many concurrent watches: over HTTP/1.1 a connection each, over HTTP/2 as streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::errors::Errors;
use bench_client::target::Target;

/// The most concurrent handshakes.
const OPENING_MAX: usize = 64;
/// The time limit for the answer to a watch.
const OPEN_MAX: Duration = Duration::from_secs(30);
/// The pause between checks whether events have arrived.
const LOOK: Duration = Duration::from_millis(1);

/// Watches over HTTP/1.1, which count events and discard them. Dropping them ends them.
pub(crate) struct Watchers {
    tasks: JoinSet<()>,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Counters {
    delivered: AtomicU64,
    is_closing: AtomicBool,
}

impl Watchers {
    /// Opens `n` watches and waits until all are answered.
    ///
    /// # Errors
    ///
    /// If one is refused.
    pub(crate) async fn open(
        target: &Arc<Target>,
        errors: &Arc<Errors>,
        n: usize,
        request: impl Fn(usize) -> Vec<u8>,
    ) -> anyhow::Result<Watchers> {
        let counters = Arc::<Counters>::default();
        let (mut opening, mut tasks) = (JoinSet::new(), JoinSet::new());
        for number in 0..n {
            if opening.len() == OPENING_MAX {
                Watchers::add(opening.join_next().await, &mut tasks, &counters, errors)?;
            }
            let (target, request) = (Arc::clone(target), request(number));
            opening.spawn(async move {
                let opened = timeout(OPEN_MAX, async {
                    let mut connection = target.connect().await?;
                    let status = connection.begin(&request).await.context("a watch was not answered")?;
                    anyhow::ensure!(status == 200, "a watch was answered {status}");
                    Ok(connection)
                });
                opened.await.context("a watch was not answered")?
            });
        }
        while let opened @ Some(_) = opening.join_next().await {
            Watchers::add(opened, &mut tasks, &counters, errors)?;
        }
        Ok(Watchers { tasks, counters })
    }

    fn add(
        opened: Option<Result<anyhow::Result<bench_client::wire::Connection>, tokio::task::JoinError>>,
        tasks: &mut JoinSet<()>,
        counters: &Arc<Counters>,
        errors: &Arc<Errors>,
    ) -> anyhow::Result<()> {
        let mut connection = opened.context("no watch is being opened")?.context("opening a watch panicked")??;
        let (counters, errors) = (Arc::clone(counters), Arc::clone(errors));
        tasks.spawn(async move {
            // An event in JSON ends with a line break and contains none.
            let count = &mut |piece: &[u8]| {
                let n = memchr::memchr_iter(b'\n', piece).count();
                counters.delivered.fetch_add(n as u64, Ordering::Relaxed);
            };
            let ended = connection.follow(count).await;
            if !counters.is_closing.load(Ordering::Relaxed) {
                errors.note(match ended {
                    Ok(()) => "a watch was ended by the server".to_owned(),
                    Err(error) => format!("a watch broke off: {error}"),
                });
            }
        });
        Ok(())
    }

    /// The events that have arrived at all watches together.
    pub(crate) fn delivered(&self) -> u64 {
        self.counters.delivered.load(Ordering::Relaxed)
    }

    /// Waits until this many events have arrived. False if they have not by the deadline.
    pub(crate) async fn wait_for(&self, n: u64, deadline: Instant) -> bool {
        while self.delivered() < n {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(LOOK).await;
        }
        true
    }

    pub(crate) async fn close(mut self) {
        self.counters.is_closing.store(true, Ordering::Relaxed);
        self.tasks.shutdown().await;
    }
}

/// Watches as streams of a few HTTP/2 connections, which are never read. Dropping them ends them.
pub(crate) struct Streams {
    /// Kept so that the streams stay open.
    bodies: Vec<h2::RecvStream>,
    /// Kept so that the connections stay open.
    senders: Vec<h2::client::SendRequest<Bytes>>,
    connections: Vec<tokio::task::JoinHandle<Result<(), h2::Error>>>,
}

impl Streams {
    /// Opens `n` watches of `path`, on as few connections as the server allows.
    ///
    /// # Errors
    ///
    /// If one is refused, or the server does not speak HTTP/2.
    pub(crate) async fn open(target: &Target, n: usize, path: &str) -> anyhow::Result<Streams> {
        let mut streams = Streams { bodies: Vec::new(), senders: Vec::new(), connections: Vec::new() };
        while streams.bodies.len() < n {
            let (sender, connection) = target.connect_http2().await?;
            streams.connections.push(connection);
            // After its answer, the settings with the number of allowed streams have arrived.
            streams.bodies.push(open_stream(&sender, target, path).await?);
            let n_more = sender.current_max_send_streams().saturating_sub(1).min(n - streams.bodies.len());
            for _ in 0..n_more {
                streams.bodies.push(open_stream(&sender, target, path).await?);
            }
            streams.senders.push(sender);
        }
        Ok(streams)
    }

    pub(crate) fn n_connections(&self) -> usize {
        self.senders.len()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for connection in &self.connections {
            connection.abort();
        }
    }
}

async fn open_stream(
    sender: &h2::client::SendRequest<Bytes>,
    target: &Target,
    path: &str,
) -> anyhow::Result<h2::RecvStream> {
    let opened = timeout(OPEN_MAX, async {
        let mut sender = sender.clone().ready().await.context("the connection takes no more streams")?;
        let (answer, _) = sender.send_request(target.http2_get(path)?, true).context("a watch was not sent")?;
        let answer = answer.await.context("a watch was not answered")?;
        anyhow::ensure!(answer.status() == 200, "a watch was answered {}", answer.status());
        Ok(answer.into_body())
    });
    opened.await.context("a watch was not answered")?
}
