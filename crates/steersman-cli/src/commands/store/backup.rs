//! `steersman backup`: all objects at one revision, in one file.
//!
//! A running server is asked for it, since nobody else can read its file. etcd is read directly. The store of a server that does not run is
//! read as `store check` reads it, and not changed.

use crate::Failure;
use crate::args::SourceOptions;
use crate::commands::cluster;
use crate::commands::store::destination::{Destination, Read};
use crate::commands::store::{name, unreadable};
use crate::data_dir::DataDir;
use anyhow::Context as _;
use http::Request;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use steersman_server::BACKUP_PATH;
use steersman_storage::backup::{Backup, Encoder, Header, Totals};
use steersman_storage::disk;
use steersman_storage::kv::{self, Damaged, Entry, Kv as _};
use steersman_storage_etcd::Etcd;
use tokio::time::timeout;

/// The most of a server's error that is printed.
const ERROR_BYTES_MAX: usize = 16 * 1024;
/// How long a server may say nothing. One that begins a backup reads from its engine first.
const SILENCE: Duration = Duration::from_secs(60);
/// How often a state of etcd that others compact meanwhile is read anew.
const ATTEMPTS: usize = 3;

pub(crate) async fn run(source: &SourceOptions, file: &Path) -> Result<ExitCode, Failure> {
    let read = match source.etcd.read()? {
        Some(options) => {
            let etcd = Etcd::connect_to_read(options).await;
            let etcd = etcd.map_err(|error| Failure::Refused(crate::chain(&error)))?;
            let read = of_etcd(&etcd, file).await;
            if let Err(error) = etcd.close().await {
                tracing::debug!("the connection to etcd was not closed: {error}");
            }
            read?
        }
        None => match &source.kubeconfig {
            Some(kubeconfig) => of_server(kubeconfig, file).await?,
            None => of_data_dir(&source.data_dir, file).await?,
        },
    };
    // A closed standard output is no reason to fail.
    let _ = io::stdout().lock().write_all(report(&read, file).as_bytes());
    Ok(if read.lost.is_empty() && read.n_unknown == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(read: &Read, file: &Path) -> String {
    let Totals { entries, .. } = read.totals.unwrap_or_default();
    let mut text = String::new();
    for lost in &read.lost {
        text += &format!("not in the backup, because the store has lost it: {}\n", name(&lost.key));
    }
    if 0 < read.n_unknown {
        text += &format!("not in the backup, because the store has lost even their keys: {} objects\n", read.n_unknown);
    }
    text + &format!("{}: {entries} objects at revision {}\n", file.display(), read.revision())
}

async fn of_data_dir(data_dir: &Path, file: &Path) -> Result<Read, Failure> {
    if DataDir::is_held(data_dir) {
        let kubeconfig = data_dir.join(DataDir::KUBECONFIG);
        return of_server(&kubeconfig, file).await;
    }
    let dir = data_dir.join(DataDir::STORE);
    let destination = Destination::create(file)?;
    let begin = |revision| {
        let mut out = Vec::new();
        let encoder = Encoder::begin(&Header::new("embedded", revision, now()), &mut out);
        Writing { destination, encoder, out, outcome: Ok(()) }
    };
    let (report, mut writing) = disk::read(&dir, begin, Writing::entry).map_err(unreadable)?;
    if let Some(acknowledged) = report.acknowledged {
        return Err(Failure::Refused(format!(
            "the store in {} ends at revision {}, but revision {acknowledged} was acknowledged: restore a newer copy, or see \
             `steersman store check`",
            dir.display(),
            report.revision
        )));
    }
    for lost in &report.damaged {
        writing.lost(lost);
    }
    let Writing { mut destination, encoder, mut out, outcome } = writing;
    outcome?;
    encoder.end(&mut out);
    destination.write(&out)?;
    let n_unknown = report.n_unknown;
    Ok(Read { n_unknown, ..destination.finish()? })
}

/// A backup of a store that no process has open.
struct Writing {
    destination: Destination,
    encoder: Encoder,
    out: Vec<u8>,
    /// The first error, after which nothing more is written.
    outcome: anyhow::Result<()>,
}

impl Writing {
    fn entry(&mut self, entry: Entry) {
        self.encoder.entry(&entry, &mut self.out);
        self.flush();
    }

    fn lost(&mut self, lost: &Damaged) {
        self.encoder.lost(lost, &mut self.out);
        self.flush();
    }

    fn flush(&mut self) {
        if self.outcome.is_ok() {
            self.outcome = self.destination.write(&self.out);
        }
        self.out.clear();
    }
}

async fn of_etcd(etcd: &Etcd, file: &Path) -> Result<Read, Failure> {
    let mut n_attempts = 0;
    loop {
        n_attempts += 1;
        match written(etcd, file).await {
            Err(Broken::Kv(kv::Error::Compacted { .. })) if n_attempts < ATTEMPTS => {
                tracing::info!("etcd was compacted while it was read: it is read anew");
            }
            Err(Broken::Kv(error)) => {
                return Err(Failure::Failed(anyhow::Error::new(error).context("the objects cannot be read from etcd")));
            }
            Err(Broken::Write(failure)) => return Err(failure),
            Ok(read) => return Ok(read),
        }
    }
}

/// Why a backup is not complete.
enum Broken {
    Kv(kv::Error),
    Write(Failure),
}

async fn written(kv: &dyn kv::Kv, file: &Path) -> Result<Read, Broken> {
    let failed = |error: anyhow::Error| Broken::Write(Failure::Failed(error));
    let mut backup = Backup::begin(kv, now()).await.map_err(Broken::Kv)?;
    let mut destination = Destination::create(file).map_err(Broken::Write)?;
    while let Some(bytes) = backup.next().await.map_err(Broken::Kv)? {
        destination.write(&bytes).map_err(failed)?;
    }
    destination.finish().map_err(failed)
}

/// Asks a server.
async fn of_server(kubeconfig: &Path, file: &Path) -> Result<Read, Failure> {
    let config = cluster::find(Some(kubeconfig)).await?;
    let url = config.cluster_url.to_string();
    let client = Client::try_from(config).context("no client can be made for the server")?;
    let request = Request::get(BACKUP_PATH).body(Body::empty()).context("the request cannot be made")?;
    let silent =
        || Failure::Failed(anyhow::anyhow!("the server at {url} says nothing for {} s: try again", SILENCE.as_secs()));
    let answer = timeout(SILENCE, client.send(request)).await.map_err(|_| silent())?;
    let answer = answer
        .map_err(|error| Failure::Refused(format!("the server at {url} does not answer: {}", crate::chain(&error))))?;
    let (code, mut body) = (answer.status(), answer.into_body());
    if !code.is_success() {
        let mut bytes = Vec::new();
        while bytes.len() < ERROR_BYTES_MAX
            && let Ok(Some(Ok(frame))) = timeout(SILENCE, body.frame()).await
        {
            bytes.extend_from_slice(frame.data_ref().map(|bytes| &**bytes).unwrap_or_default());
        }
        let status: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
        let text = String::from_utf8_lossy(&bytes);
        let message = status.as_ref().and_then(|status| status["message"].as_str()).unwrap_or(text.trim());
        return Err(Failure::Refused(format!("the server at {url} gives no backup ({code}): {message}")));
    }
    let mut destination = Destination::create(file)?;
    while let Some(frame) = timeout(SILENCE, body.frame()).await.map_err(|_| silent())? {
        let frame = frame.with_context(|| format!("the server at {url} has broken the backup off: try again"))?;
        if let Ok(bytes) = frame.into_data() {
            destination.write(&bytes)?;
        }
    }
    Ok(destination.finish()?)
}

/// The time in seconds since 1970.
pub(super) fn now() -> Option<u64> {
    u64::try_from(Timestamp::now().as_second()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "a", "cluster": {"server": format!("http://{}", listener.local_addr().unwrap())}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
            "users": [{"name": "a", "user": {}}],
        });
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let Err(Failure::Failed(error)) = of_server(&kubeconfig, &dir.path().join("backup")).await else {
            panic!("it was not given up");
        };
        assert!(error.to_string().contains("says nothing for 60 s"), "{error}");
    }
}
