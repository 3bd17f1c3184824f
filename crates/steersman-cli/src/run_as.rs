//! `steersman run-as NAMESPACE/SERVICEACCOUNT -- COMMAND`: a process with what a pod of the account would find, so that
//! in-cluster configuration works without a cluster.
//!
//! The token, the CA and the namespace are files of a directory of its own (`run_as/files`), and the token is renewed. Where the
//! system lets a user make a mount namespace, the directory is also where pods have it (`run_as/mount`). Where not, the
//! variable KUBECONFIG is what clients find, for it names a kubeconfig with the same files.

mod files;
pub(crate) mod mount;

use crate::Failure;
use crate::args::RunAsOptions;
use crate::run_as::files::Files;
use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::IsTerminal as _;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// After which part of its life a token is renewed.
const RENEW_AT: f64 = 0.8;
/// How long after a failure to renew it is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The account that a command runs as.
struct Account {
    api: Api<ServiceAccount>,
    namespace: String,
    name: String,
    audiences: Vec<String>,
    seconds: i64,
}

/// Runs the command to its end, and ends as it did.
pub(crate) async fn run(options: RunAsOptions) -> Result<ExitCode, Failure> {
    let (namespace, name) = options.account;
    let config = config(options.kubeconfig.as_deref()).await?;
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
        Files::write(&server, &account.namespace, &token).context("the files of the account cannot be written")?;
    // Before the command is there to be sent any.
    let signals = Forwarded::listen()?;
    let mut command = mount::command(files.dir(), &options.command);
    files.set_variables(&server, &mut command);
    let program = options.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let child = command.spawn();
    let child = child.map_err(|error| Failure::Refused(format!("cannot run {program:?}: {error}")))?;
    let ended = attend(child, signals, account.renew(&files)).await?;
    Ok(exit_code(ended))
}

/// How the server is reached: by the kubeconfig named, else in-cluster, `$KUBECONFIG` or `~/.kube/config`.
async fn config(kubeconfig: Option<&std::path::Path>) -> Result<Config, Failure> {
    let refused = |error: &(dyn std::error::Error + 'static)| Failure::Refused(crate::chain(error));
    match kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path).map_err(|error| refused(&error))?;
            let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
            config.map_err(|error| refused(&error))
        }
        None => Config::infer().await.map_err(|error| refused(&error)),
    }
}

/// Waits for the end of the command; sends it the signals that come, and keeps its token good.
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
                // A command that has ended in the meantime takes no signal.
                let _ = pidfd_send_signal(&handle, signal);
            }
            () = &mut renewal => {}
        }
    }
}

/// The code that a shell would give.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

impl Account {
    async fn token(&self) -> anyhow::Result<String> {
        let spec = TokenRequestSpec {
            audiences: Some(self.audiences.clone()),
            expiration_seconds: Some(self.seconds),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = self.api.create_token_request(&self.name, &kube::api::PostParams::default(), &request).await;
        let (namespace, name) = (&self.namespace, &self.name);
        let answer = answer.with_context(|| format!("there is no token for the account {namespace}/{name}"))?;
        let token = answer.status.and_then(|status| status.token);
        token.with_context(|| format!("the server gave no token for {namespace}/{name}"))
    }

    /// Renews the token, again and again.
    async fn renew(&self, files: &Files) {
        let life = Duration::from_secs(self.seconds.unsigned_abs());
        let mut pause = life.mul_f64(RENEW_AT);
        loop {
            tokio::time::sleep(pause).await;
            let renewed = match self.token().await {
                Ok(token) => files.put_token(&token).context("the token cannot be written"),
                Err(error) => Err(error),
            };
            pause = match renewed {
                Ok(()) => life.mul_f64(RENEW_AT),
                Err(error) => {
                    tracing::warn!(error = crate::chain(&*error), "the token could not be renewed; it is tried again");
                    RETRY_INTERVAL
                }
            };
        }
    }
}

/// The signals that are sent on.
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
        // A terminal sends what its keys mean to both processes, so they are only listened for: this process is not to end before
        // the command.
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

    /// The next of them.
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

/// The command line of a word list.
pub(crate) fn command_of(words: &[std::ffi::OsString]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map(std::ffi::OsString::as_os_str).unwrap_or_default());
    command.args(words);
    command
}
