//! A real Neutron, started once per test process and stopped when it ends, however it ends.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, OnceLock};
use steersman_neutron::config::{Config, Identity};
use steersman_neutron::{Client, Cloud, RequestId};

struct Server {
    url: String,
    /// Closed by the system when this process ends, which makes the watchdog stop the server.
    _lifeline: ChildStdin,
}

/// What the credentials may do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// Everything, in all projects.
    Admin,
    Member,
}

/// The cloud of a project that no other test uses; none, said loudly, where there is no Neutron.
pub(crate) fn cloud(role: Role) -> Option<Arc<dyn Cloud>> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let server = SERVER.get_or_init(start).as_ref()?;
    let identity = Identity {
        user_id: Some("tester".to_owned()),
        project_id: RequestId::random().to_string().replace("req-", "p"),
        roles: match role {
            Role::Admin => ["admin", "member", "reader"].map(str::to_owned).to_vec(),
            Role::Member => ["member", "reader"].map(str::to_owned).to_vec(),
        },
    };
    Some(Arc::new(Client::new(Config::headers(&server.url, identity).unwrap()).unwrap()))
}

fn start() -> Option<Server> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/neutron/neutron-up.sh");
    let dir = tempfile::Builder::new().prefix("steersman-neutron-").tempdir().unwrap().keep();
    let lifeline = watch(&script, &dir);
    let started = Command::new("bash").arg(&script).arg(&dir).arg("headers").stdin(Stdio::null()).output().unwrap();
    if !started.status.success() {
        let reason = String::from_utf8_lossy(&started.stderr);
        let message = format!("NO REAL NEUTRON, its tests prove nothing:\n{reason}\n");
        assert!(std::env::var_os("CI").is_none(), "{message}");
        // Past the capture of test output, which hides what passing tests print.
        std::io::stderr().write_all(message.as_bytes()).unwrap();
        return None;
    }
    let printed = String::from_utf8(started.stdout).unwrap();
    let url = printed.lines().find_map(|line| line.strip_prefix("NEUTRON_URL=")).unwrap().to_owned();
    Some(Server { url, _lifeline: lifeline })
}

/// A process that waits for this one to end and then stops the server in a directory and removes it.
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
