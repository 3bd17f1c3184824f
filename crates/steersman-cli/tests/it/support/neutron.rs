//! A real OpenStack Neutron on loopback, without authentication, and what a look into it shows.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::process::{Ended, Process};
use crate::support::{missing, on_path, root};

/// One Neutron for the tests that run at the same time; it goes with the last of them.
static SHARED: Mutex<Weak<Neutron>> = Mutex::new(Weak::new());

pub(crate) struct Neutron {
    directory: TempDir,
    pub(crate) url: String,
}

impl Neutron {
    /// A Neutron that other tests use too, or a word that there is none: look at it by id or by cidr.
    pub(crate) fn shared() -> Option<Arc<Neutron>> {
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(running) = shared.upgrade() {
            return Some(running);
        }
        let started = Arc::new(Neutron::start()?);
        *shared = Arc::downgrade(&started);
        Some(started)
    }

    /// A Neutron of the test's own, or a word that there is none.
    pub(crate) fn start() -> Option<Neutron> {
        let installed =
            std::env::var_os("NEUTRON_VENV").is_some_and(|venv| PathBuf::from(venv).join(".ready").is_file());
        if !installed || on_path("curl").is_none() {
            missing("a real Neutron, installed in $NEUTRON_VENV, or a curl to look into it with,");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let ended = script(&[directory.path().as_os_str(), "noauth".as_ref()]);
        assert!(ended.status.success(), "cannot start Neutron: {ended:#?}");
        let url = ended.stdout.lines().find_map(|line| line.strip_prefix("NEUTRON_URL=")).unwrap().to_owned();
        Some(Neutron { directory, url })
    }

    /// What `GET path` answers, or nothing if that is 404.
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

    pub(crate) fn network(&self, id: &str) -> Option<Value> {
        Some(self.get(&format!("/v2.0/networks/{id}"))?["network"].take())
    }

    pub(crate) fn subnet(&self, id: &str) -> Option<Value> {
        Some(self.get(&format!("/v2.0/subnets/{id}"))?["subnet"].take())
    }

    /// Every network there is.
    pub(crate) fn networks(&self) -> Vec<Value> {
        self.list("networks")
    }

    /// Every subnet there is.
    pub(crate) fn subnets(&self) -> Vec<Value> {
        self.list("subnets")
    }

    fn list(&self, kind: &str) -> Vec<Value> {
        let mut answer = self.get(&format!("/v2.0/{kind}")).unwrap();
        serde_json::from_value(answer[kind].take()).unwrap()
    }

    /// The flags that make `steersman` use it.
    pub(crate) fn flags(&self) -> [&str; 4] {
        ["--neutron-url", &self.url, "--neutron-auth", "none"]
    }
}

impl Drop for Neutron {
    fn drop(&mut self) {
        let ended = script(&["stop".as_ref(), self.directory.path().as_os_str()]);
        if !ended.status.success() && !std::thread::panicking() {
            panic!("cannot stop Neutron: {ended:#?}");
        }
    }
}

fn script(arguments: &[&std::ffi::OsStr]) -> Ended {
    Process::start(Command::new("bash").arg(root().join("tests/neutron/neutron-up.sh")).args(arguments)).end()
}
