//! `steersman run-as NAMESPACE/SERVICEACCOUNT -- COMMAND`: a process with the files of the account's pods, so that
//! in-cluster configuration works without a cluster.
//!
//! The token, the CA and the namespace are files in a separate directory (`run_as/files`), and the token is renewed.
//! Where the system lets a user make a mount namespace, the directory is also mounted where pods have it
//! (`run_as/mount`). Otherwise clients use the variable KUBECONFIG, which names a kubeconfig with the same files.

mod files;
pub(crate) mod mount;

use crate::Failure;
use crate::args::RunAsOptions;
use crate::commands::cluster;
use crate::commands::development::run_as::files::Files;
use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::IsTerminal as _;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The part of its lifetime after which a token is renewed.
const RENEW_AT: f64 = 0.8;
/// The pause after a failed renewal.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// The least time between two renewals, however short the token's lifetime is.
const RENEWAL_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// A token of the account.
struct Token {
    text: String,
    /// The lifetime from now on: the server may issue a shorter one than requested.
    life: Duration,
}

/// The account of the command.
struct Account {
    api: Api<ServiceAccount>,
    namespace: String,
    name: String,
    audiences: Vec<String>,
    seconds: i64,
}

/// Runs the command to its end, and exits with its code.
pub(crate) async fn run(options: RunAsOptions) -> Result<ExitCode, Failure> {
    let (namespace, name) = options.account;
    let config = cluster::find(options.kubeconfig.as_deref()).await?;
    let server = files::Server::of(&config)?;
    let client = Client::try_from(config).context("no client can be made for the server")?;
    let account = Account {
        api: Api::namespaced(client, &namespace),
        namespace,
        name,
        audiences: options.audience,
        seconds: i64::try_from(options.duration.as_secs()).unwrap_or(i64::MAX),
    };
    let token = account.token().await.map_err(|error| Failure::Refused(crate::chain(&*error)))?;
    let files =
        Files::write(&server, &account.namespace, &token.text).context("the files of the account cannot be written")?;
    // Listening begins before the command exists, so that no signal is missed.
    let signals = Forwarded::listen()?;
    let mut command = mount::command(files.dir(), &options.command);
    files.set_variables(&server, &mut command);
    let program = options.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let child = command.spawn();
    let child = child.map_err(|error| Failure::Refused(format!("cannot run {program:?}: {error}")))?;
    let ended = attend(child, signals, account.renew(&files, token.life)).await?;
    Ok(exit_code(ended))
}

/// Waits for the end of the command; passes on signals to it, and renews its token.
async fn attend(
    mut child: Child,
    mut signals: Forwarded,
    renewal: impl Future<Output = ()>,
) -> anyhow::Result<ExitStatus> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("the command has no process id")?;
    let handle: OwnedFd = pidfd_open(pid, PidfdFlags::empty()).context("the command cannot be watched")?;
    let mut ended = tokio::task::spawn_blocking(move || child.wait());
    let mut renewal = std::pin::pin!(renewal);
    loop {
        // All arms are cancel-safe: a signal that was not taken comes again, and the others are polled in place.
        tokio::select! {
            status = &mut ended => {
                return status.context("the command cannot be waited for")?.context("the command cannot be waited for");
            }
            signal = signals.next() => {
                // The command may have ended in the meantime.
                let _ = pidfd_send_signal(&handle, signal);
            }
            () = &mut renewal => {}
        }
    }
}

/// The exit code that a shell would return.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

impl Account {
    async fn token(&self) -> anyhow::Result<Token> {
        let spec = TokenRequestSpec {
            audiences: Some(self.audiences.clone()),
            expiration_seconds: Some(self.seconds),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = self.api.create_token_request(&self.name, &kube::api::PostParams::default(), &request).await;
        let (namespace, name) = (&self.namespace, &self.name);
        let answer = match answer {
            // Its text is the server's sentence; the error itself prints the whole Status.
            Err(kube::Error::Api(status)) => {
                let is_account = status.details.as_ref().is_some_and(|details| details.kind == "serviceaccounts");
                let way_out = match status.is_not_found() && is_account {
                    true => format!("; make it with: kubectl create serviceaccount {name} --namespace {namespace}"),
                    false => String::new(),
                };
                let why = status.message;
                anyhow::bail!("there is no token for the account {namespace}/{name}: {why}{way_out}");
            }
            answer => answer.with_context(|| format!("there is no token for the account {namespace}/{name}"))?,
        };
        let status = answer.status.unwrap_or_default();
        let text = status.token.with_context(|| format!("the server gave no token for {namespace}/{name}"))?;
        let said = status.expiration_timestamp.map(|end| end.0.duration_since(Timestamp::now()));
        let life = said.and_then(|life| Duration::try_from(life).ok());
        Ok(Token { text, life: life.unwrap_or_else(|| Duration::from_secs(self.seconds.unsigned_abs())) })
    }

    /// Renews the token for ever. The first one has this lifetime.
    async fn renew(&self, files: &Files, life: Duration) {
        let after = |life: Duration| life.mul_f64(RENEW_AT).max(RENEWAL_INTERVAL_MIN);
        let mut pause = after(life);
        loop {
            tokio::time::sleep(pause).await;
            let renewed = match self.token().await {
                Ok(token) => files.put_token(&token.text).context("the token cannot be written").map(|()| token.life),
                Err(error) => Err(error),
            };
            pause = match renewed {
                Ok(life) => after(life),
                Err(error) => {
                    tracing::warn!(error = crate::chain(&*error), "the token could not be renewed; it is tried again");
                    RETRY_INTERVAL
                }
            };
        }
    }
}

/// The signals that are passed on.
struct Forwarded(Vec<(Signal, tokio::signal::unix::Signal)>);

impl Forwarded {
    fn listen() -> anyhow::Result<Forwarded> {
        let kinds = [
            (Signal::HUP, SignalKind::hangup()),
            (Signal::TERM, SignalKind::terminate()),
            (Signal::USR1, SignalKind::user_defined1()),
            (Signal::USR2, SignalKind::user_defined2()),
            (Signal::INT, SignalKind::interrupt()),
            (Signal::QUIT, SignalKind::quit()),
        ];
        // A terminal sends the signals of its keys to both processes, so they are not passed on: this process only must
        // not end before the command.
        let is_terminal = std::io::stdin().is_terminal();
        let mut listening = Vec::new();
        for (sent, kind) in kinds {
            let stream = signal(kind).context("signals cannot be listened for")?;
            if !(is_terminal && matches!(sent, Signal::INT | Signal::QUIT)) {
                listening.push((sent, stream));
            }
        }
        Ok(Forwarded(listening))
    }

    /// The next signal.
    async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| {
            for (sent, signal) in &mut self.0 {
                if signal.poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(*sent);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// The command line in a list of words.
pub(crate) fn command_of(words: &[std::ffi::OsString]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map(std::ffi::OsString::as_os_str).unwrap_or_default());
    command.args(words);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::time::Instant;

    /// A server whose tokens last 100 seconds, whatever is requested; the second request fails.
    fn server(n_asked: &Arc<AtomicU32>) -> Client {
        let n_asked = n_asked.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            let number = n_asked.fetch_add(1, Ordering::SeqCst) + 1;
            let end = Timestamp::now() + Duration::from_secs(100);
            let answer = json!({
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "metadata": {},
                "spec": {"audiences": []},
                "status": {"token": format!("token-{number}"), "expirationTimestamp": end.to_string()},
            });
            let status = if number == 2 { 500 } else { 201 };
            let answer = Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
            async { Ok::<_, Infallible>(answer.unwrap()) }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_renewed_by_the_time_that_the_server_gave_it() {
        let n_asked = Arc::new(AtomicU32::new(0));
        let account = Account {
            api: Api::namespaced(server(&n_asked), "default"),
            namespace: "default".to_owned(),
            name: "robot".to_owned(),
            audiences: Vec::new(),
            seconds: 86_400,
        };
        let mut config = kube::Config::new("https://127.0.0.1:6443".parse().unwrap());
        config.root_cert = Some(vec![b"certificate".to_vec()]);
        let server = files::Server::of(&config).ok().unwrap();
        let token = account.token().await.unwrap();
        let files = Files::write(&server, "default", &token.text).unwrap();
        let begun = Instant::now();
        let path = files.dir().join("token");
        let written = || std::fs::read_to_string(&path).unwrap();
        let changed = async {
            while written() == "token-1" {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        // Both arms are polled in place.
        tokio::select! {
            () = account.renew(&files, token.life) => unreachable!("it goes on for ever"),
            () = changed => {}
        }
        let after = begun.elapsed().as_secs();
        assert_eq!(written(), "token-3");
        // Four fifths of its lifetime, plus the pause after the failed request.
        assert!((88..=92).contains(&after), "{after}");
        assert_eq!(n_asked.load(Ordering::SeqCst), 3);
    }
}
