//! A real OpenStack Neutron on loopback, without authentication, and direct reads of its state.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};

use serde_json::Value;

use crate::support::process::Process;
use crate::support::{missing, on_path, root};

/// One Neutron for concurrent tests; it ends with the last of them.
static SHARED: Mutex<Weak<Neutron>> = Mutex::new(Weak::new());

pub(crate) struct Neutron {
    pub(crate) url: String,
    _watchdog: Watchdog,
}

/// Waits for the end of its standard input, which comes however the tests end, and then stops the server.
struct Watchdog {
    process: Child,
}

impl Neutron {
    /// A Neutron that other tests use too, so that reads must select by id or by cidr; `None`, with a message, if this
    /// machine has none.
    pub(crate) fn shared() -> Option<Arc<Neutron>> {
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(running) = shared.upgrade() {
            return Some(running);
        }
        let started = Arc::new(Neutron::start()?);
        *shared = Arc::downgrade(&started);
        Some(started)
    }

    /// A Neutron for this test alone; `None`, with a message, if this machine has none.
    pub(crate) fn start() -> Option<Neutron> {
        Neutron::start_with(&[])
    }

    /// Like [`Neutron::start`], with variables for the script that starts it.
    pub(crate) fn start_with(variables: &[(&str, &str)]) -> Option<Neutron> {
        let installed =
            std::env::var_os("NEUTRON_VENV").is_some_and(|venv| PathBuf::from(venv).join(".ready").is_file());
        if !installed || on_path("curl").is_none() {
            missing("a real Neutron, installed in $NEUTRON_VENV, or a curl to look into it with,");
            return None;
        }
        let directory = tempfile::Builder::new().prefix("steersman-neutron-").tempdir().unwrap().keep();
        let watchdog = Watchdog::start(&directory);
        let mut command = Command::new("bash");
        // Routers, which no test uses, would take a tenth of each request's time.
        command.env("NEUTRON_SERVICE_PLUGINS", "");
        command.arg(script()).arg(&directory).arg("noauth").envs(variables.iter().copied());
        let ended = Process::start(&mut command).end();
        assert!(ended.status.success(), "cannot start Neutron: {ended:#?}");
        let url = ended.stdout.lines().find_map(|line| line.strip_prefix("NEUTRON_URL=")).unwrap().to_owned();
        Some(Neutron { url, _watchdog: watchdog })
    }

    /// The answer to `GET path`; `None` if it is 404.
    #[track_caller]
    fn get(&self, path: &str) -> Option<Value> {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "60", "-w", "\n%{http_code}"]).arg(format!("{}{path}", self.url));
        let ended = Process::start(&mut command).end();
        let (body, status) = ended.stdout.rsplit_once('\n').unwrap_or_else(|| panic!("GET {path}: {ended:#?}"));
        match status {
            "200" => Some(serde_json::from_str(body).unwrap()),
            "404" => None,
            _ => panic!("GET {path} answered {status}: {body}"),
        }
    }

    /// `PUT path` with a body; the object may be gone.
    #[track_caller]
    pub(crate) fn put(&self, path: &str, body: &Value) {
        self.send("PUT", path, Some(body));
    }

    /// `DELETE path`; the object may be gone.
    #[track_caller]
    pub(crate) fn delete(&self, path: &str) {
        self.send("DELETE", path, None);
    }

    #[track_caller]
    fn send(&self, method: &str, path: &str, body: Option<&Value>) {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}", "-X", method]);
        if let Some(body) = body {
            command.args(["-H", "Content-Type: application/json", "-d", &body.to_string()]);
        }
        let ended = Process::start(command.arg(format!("{}{path}", self.url))).end();
        assert!(["200", "204", "404"].contains(&ended.stdout.as_str()), "{method} {path}: {ended:#?}");
    }

    pub(crate) fn network(&self, id: &str) -> Option<Value> {
        Some(self.get(&format!("/v2.0/networks/{id}"))?["network"].take())
    }

    pub(crate) fn subnet(&self, id: &str) -> Option<Value> {
        Some(self.get(&format!("/v2.0/subnets/{id}"))?["subnet"].take())
    }

    /// All networks.
    pub(crate) fn networks(&self) -> Vec<Value> {
        self.list("networks")
    }

    /// All subnets.
    pub(crate) fn subnets(&self) -> Vec<Value> {
        self.list("subnets")
    }

    fn list(&self, kind: &str) -> Vec<Value> {
        let mut answer = self.get(&format!("/v2.0/{kind}")).unwrap();
        serde_json::from_value(answer[kind].take()).unwrap()
    }

    /// The flags with which `steersman` uses it.
    pub(crate) fn flags(&self) -> [&str; 4] {
        ["--neutron-url", &self.url, "--neutron-auth", "none"]
    }
}

fn script() -> PathBuf {
    root().join("tests/neutron/neutron-up.sh")
}

impl Watchdog {
    fn start(directory: &Path) -> Watchdog {
        let process = Command::new("sh")
            .args(["-c", r#"cat; bash "$0" stop "$1"; rm -rf "$1""#])
            .arg(script())
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // In a separate process group, so that an interrupt at the terminal does not reach it.
            .process_group(0)
            .spawn()
            .unwrap();
        Watchdog { process }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
