//! Sends requests as fast as they are answered, from workers that each have a connection of their own and one request
//! in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::errors::Errors;
use bench_client::target::Target;
use bench_client::wire::Connection;

/// The time limit of the last answers after the end.
const GRACE: Duration = Duration::from_secs(60);
/// The unsuccessful answers after which a worker gives up.
const REFUSED_MAX: u32 = 1000;

/// The requests to send, and when to stop.
pub(crate) struct Load {
    pub(crate) method: &'static str,
    pub(crate) workers: usize,
    /// No request begins after this time.
    pub(crate) duration: Duration,
    /// The most requests.
    pub(crate) count_max: u64,
}

/// The result of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// The number of successful requests.
    pub(crate) n: u64,
    pub(crate) elapsed: Duration,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// The results of one worker.
struct Share {
    latencies_us: Vec<u32>,
}

/// Runs a load. `write` writes the request of a number, counted from zero over all workers, into a buffer.
///
/// # Errors
///
/// If no connection can be made, or the answers do not come. Single failures are counted in `errors`.
pub(crate) async fn run(
    target: &Arc<Target>,
    errors: &Arc<Errors>,
    load: Load,
    write: impl Fn(u64, &mut Vec<u8>) + Send + Sync + 'static,
) -> anyhow::Result<Outcome> {
    let mut connections = Vec::new();
    for _ in 0..load.workers {
        connections.push(target.connect().await?);
    }
    let Load { method, duration, count_max, .. } = load;
    let (next, write) = (Arc::new(AtomicU64::new(0)), Arc::new(write));
    let start = Instant::now();
    let mut workers = JoinSet::new();
    for connection in connections {
        let (next, write, target, errors) =
            (Arc::clone(&next), Arc::clone(&write), Arc::clone(target), Arc::clone(errors));
        workers.spawn(async move {
            let numbers = || {
                let is_over = start.elapsed() >= duration;
                Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| !is_over && *n < count_max)
            };
            work(connection, &target, &errors, method, numbers, &*write).await
        });
    }
    let shares = timeout(duration + GRACE, workers.join_all()).await;
    let shares = shares.with_context(|| format!("some {method} were not answered {} s", GRACE.as_secs()))?;
    let elapsed = start.elapsed();
    let mut latencies_us: Vec<u32> = shares.into_iter().flat_map(|share| share.latencies_us).collect();
    latencies_us.sort_unstable();
    let at = |share: f64| {
        // A position in a list, rounded down.
        let index = (latencies_us.len() as f64 * share) as usize;
        latencies_us.get(index).map_or(f64::NAN, |us| f64::from(*us))
    };
    Ok(Outcome { n: latencies_us.len() as u64, elapsed, p50_us: at(0.5), p99_us: at(0.99) })
}

async fn work(
    mut connection: Connection,
    target: &Target,
    errors: &Errors,
    method: &str,
    mut numbers: impl FnMut() -> Option<u64>,
    write: &(dyn Fn(u64, &mut Vec<u8>) + Send + Sync),
) -> Share {
    /// The bytes kept of an answer, in case it is an error.
    const KEPT_BYTES: usize = 512;
    let mut share = Share { latencies_us: Vec::new() };
    let (mut request, mut body, mut n_refused) = (Vec::new(), Vec::new(), 0);
    while let Some(number) = numbers() {
        request.clear();
        body.clear();
        write(number, &mut request);
        let start = Instant::now();
        let keep = &mut |piece: &[u8]| {
            let n = piece.len().min(KEPT_BYTES - body.len());
            body.extend_from_slice(&piece[..n]);
        };
        match connection.exchange(&request, keep).await {
            Ok(status) if status < 300 => {
                share.latencies_us.push(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX));
                continue;
            }
            Ok(status) => errors.note_answer(method, status, &body),
            Err(error) => {
                errors.note(format!("{method} was not answered: {error}"));
                match target.connect().await {
                    Ok(fresh) => connection = fresh,
                    Err(_) => break,
                }
            }
        }
        n_refused += 1;
        if n_refused == REFUSED_MAX {
            break;
        }
    }
    share
}
