//! Sends requests many at a time while a bystander's reads are timed and the memory of the server is looked at.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::client::{Outcome, Protocol, Request, Target};
use crate::process::Process;
use crate::stage::{BYSTANDER, USERS};

/// The path that the bystander reads.
const READ: &str = "/api/v1/namespaces/default";
/// Between two reads of the bystander.
const PAUSE: Duration = Duration::from_millis(10);
/// Hostile requests at a time, of all users.
pub const AT_A_TIME: usize = 8;

/// The outcome of an attack.
#[derive(Debug, Default)]
pub struct Results {
    pub hostile: Vec<(Request, Outcome)>,
    /// How long each read of the bystander took.
    pub reads: Vec<Duration>,
    /// Reads that were not answered with 200.
    pub failed_reads: Vec<String>,
    pub peak_mb: f64,
    pub idle_mb: f64,
}

/// Sends each user's requests, and reads beside it until they are answered.
///
/// # Errors
/// When the process of the server has ended.
pub async fn run(target: &Target, server: Process, requests: Vec<(usize, Request)>) -> anyhow::Result<Results> {
    let idle_mb = server.resident_mb()?;
    server.reset_peak()?;
    let mut queues: Vec<VecDeque<Request>> = USERS.iter().map(|_| VecDeque::new()).collect();
    for (user, request) in requests {
        queues[user % USERS.len()].push_back(request);
    }
    let mut workers = JoinSet::new();
    for ((_, token), queue) in USERS.iter().zip(queues) {
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..AT_A_TIME / USERS.len() {
            let (queue, mut connection) = (queue.clone(), target.user(token, Protocol::Http1));
            workers.spawn(async move {
                let mut sent = Vec::new();
                while let Some(request) = next(&queue) {
                    let outcome = connection.send(&request).await;
                    // Only what it was is told, not the megabytes that were sent.
                    let request = Request { body: request.body.slice(..request.body.len().min(200)), ..request };
                    sent.push((request, outcome));
                }
                sent
            });
        }
    }
    let mut results = Results { idle_mb, ..Results::default() };
    let mut bystander = target.user(BYSTANDER, Protocol::Http1);
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Each arm is cancel-safe; a read that has begun is waited for.
        tokio::select! {
            joined = workers.join_next() => match joined {
                Some(sent) => results.hostile.extend(sent?),
                None => break,
            },
            _ = ticks.tick() => results.read(bystander.send(&Request::get(READ)).await),
        }
    }
    results.peak_mb = server.peak_mb()?;
    Ok(results)
}

/// Reads for a while, for what they take when nothing else happens.
///
/// # Errors
/// When the process of the server has ended.
pub async fn rest(target: &Target, server: Process, lasting: Duration) -> anyhow::Result<Results> {
    let mut results = Results { idle_mb: server.resident_mb()?, ..Results::default() };
    let mut bystander = target.user(BYSTANDER, Protocol::Http1);
    let (began, mut ticks) = (Instant::now(), interval(PAUSE));
    while began.elapsed() < lasting {
        ticks.tick().await;
        results.read(bystander.send(&Request::get(READ)).await);
    }
    results.peak_mb = server.peak_mb()?;
    Ok(results)
}

fn next(queue: &Mutex<VecDeque<Request>>) -> Option<Request> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

impl Results {
    fn read(&mut self, outcome: Outcome) {
        self.reads.push(outcome.took);
        match outcome.answer {
            Ok(answer) if answer.status == 200 => {}
            Ok(answer) => self.failed_reads.push(answer.said()),
            Err(error) => self.failed_reads.push(error),
        }
    }

    /// The memory that the attack took beyond that of the idle server.
    pub fn grown_mb(&self) -> f64 {
        self.peak_mb - self.idle_mb
    }

    /// The faults of the answers, a line each.
    pub fn faults(&self) -> Vec<String> {
        let hostile = self.hostile.iter().filter_map(|(request, outcome)| {
            let fault = outcome.fault()?;
            let path: String = request.path.chars().take(150).collect();
            Some(format!("{}: {} {path}: {fault} after {:.1?}", request.family, request.method, outcome.took))
        });
        let reads = self.failed_reads.iter().map(|read| format!("a read of the bystander: {read}"));
        hostile.chain(reads).collect()
    }
}
