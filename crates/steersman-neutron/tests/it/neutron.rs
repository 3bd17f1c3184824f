//! The real servers: started once per test process, stopped when it ends, however it ends.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use steersman_neutron::config::{Config, Identity, Limits};
use steersman_neutron::{Client, RequestId};

/// A running Neutron, and maybe its Keystone.
pub(crate) struct Server {
    pub(crate) url: String,
    /// The URL of Keystone, which ends in `/v3`; empty without Keystone.
    pub(crate) keystone_url: String,
    /// Closed by the system when this process ends, which makes the watchdog stop the servers.
    _lifeline: ChildStdin,
}

/// A Neutron that takes the identity from headers; `None`, with a message, where none is available.
pub(crate) fn headers() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(|| start("headers")).as_ref()
}

/// A Neutron behind a real Keystone; `None`, with a message, where none is available.
pub(crate) fn keystone() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(|| start("keystone")).as_ref()
}

/// A project that no other test uses.
pub(crate) fn fresh_project() -> String {
    RequestId::random().to_string().replace("req-", "p")
}

pub(crate) fn identity(project_id: &str, roles: &[&str]) -> Identity {
    Identity {
        user_id: Some("tester".to_owned()),
        project_id: project_id.to_owned(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
    }
}

impl Server {
    /// A member of a project of its own.
    pub(crate) fn client(&self) -> Client {
        self.client_with(identity(&fresh_project(), &["member", "reader"]), Limits::default())
    }

    pub(crate) fn client_with(&self, identity: Identity, limits: Limits) -> Client {
        Client::new(Config::headers(&self.url, identity).unwrap().with_limits(limits)).unwrap()
    }
}

/// Starts a Neutron for this process.
pub(crate) fn start(mode: &str) -> Option<Server> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/neutron/neutron-up.sh");
    let dir = tempfile::Builder::new().prefix("steersman-neutron-").tempdir().unwrap().keep();
    let lifeline = watch(&script, &dir);
    let mut command = Command::new("bash");
    // Routers, which no test uses, cost each request a tenth of its time.
    command.arg(&script).arg(&dir).arg(mode).env("NEUTRON_SERVICE_PLUGINS", "").stdin(Stdio::null());
    let started = command.output().unwrap();
    if !started.status.success() {
        let reason = String::from_utf8_lossy(&started.stderr);
        let message = format!("NO REAL NEUTRON ({mode}), its tests prove nothing:\n{reason}\n");
        assert!(std::env::var_os("CI").is_none(), "{message}");
        // Written to stderr directly: the capture of test output hides what passing tests print.
        std::io::stderr().write_all(message.as_bytes()).unwrap();
        return None;
    }
    let printed = String::from_utf8(started.stdout).unwrap();
    let value = |name: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_default().to_owned()
    };
    Some(Server { url: value("NEUTRON_URL"), keystone_url: value("KEYSTONE_URL"), _lifeline: lifeline })
}

/// A process that waits for this one to end and then stops the servers in a directory and removes it.
#[expect(clippy::zombie_processes, reason = "it outlives this process, which therefore cannot wait for it")]
fn watch(script: &Path, dir: &Path) -> ChildStdin {
    let mut watchdog = Command::new("sh")
        .args(["-c", r#"cat; bash "$0" stop "$1"; rm -rf "$1""#])
        .args([script, dir])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    watchdog.stdin.take().unwrap()
}
