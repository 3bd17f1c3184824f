//! curl, with the client certificate of the kubeconfig, with a token, or without credentials.

use std::path::PathBuf;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::kubectl::Kubectl;
use crate::support::process::Process;
use crate::support::{missing, on_path};

pub(crate) struct Curl {
    server: String,
    directory: TempDir,
}

/// The credential of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum As<'a> {
    /// The user of the kubeconfig, by client certificate.
    Admin,
    Nobody,
    Token(&'a str),
}

impl Curl {
    /// A curl for the cluster and the user of `kubectl`; `None`, with a message, if this machine has none.
    pub(crate) fn new(kubectl: &Kubectl) -> Option<Curl> {
        if on_path("curl").is_none() {
            missing("curl");
            return None;
        }
        let config = kubectl.json("config view --raw --flatten --minify");
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let directory = tempfile::tempdir().unwrap();
        for (file, pem) in [
            ("ca.pem", &cluster["certificate-authority-data"]),
            ("cert.pem", &user["client-certificate-data"]),
            ("key.pem", &user["client-key-data"]),
        ] {
            let pem = STANDARD.decode(pem.as_str().unwrap_or_else(|| panic!("no {file} in the kubeconfig"))).unwrap();
            std::fs::write(directory.path().join(file), pem).unwrap();
        }
        Some(Curl { server: cluster["server"].as_str().unwrap().to_owned(), directory })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A curl command for a path, to which more arguments may be added.
    pub(crate) fn request(&self, who: As<'_>, path: &str) -> Command {
        let mut command = Command::new("curl");
        command.args(["-sSN", "--max-time", "100", "--cacert"]).arg(self.file("ca.pem"));
        match who {
            As::Admin => {
                command.arg("--cert").arg(self.file("cert.pem")).arg("--key").arg(self.file("key.pem"));
            }
            As::Nobody => {}
            As::Token(token) => {
                command.arg("-H").arg(format!("Authorization: Bearer {token}"));
            }
        }
        command.arg(format!("{}{path}", self.server));
        command
    }

    /// The status code and the body of `GET path`.
    #[track_caller]
    pub(crate) fn get(&self, who: As<'_>, path: &str) -> (u16, String) {
        let ended = Process::start(self.request(who, path).args(["-w", "\n%{http_code}"])).end();
        assert!(ended.status.success(), "GET {path}: {ended:#?}");
        let (body, status) = ended.stdout.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    /// The administrator's answer to `GET path`, parsed.
    #[track_caller]
    pub(crate) fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(As::Admin, path);
        assert_eq!(status, 200, "GET {path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// `GET path` of a stream, whose lines are available as they are sent.
    pub(crate) fn stream(&self, path: &str) -> Process {
        Process::start(&mut self.request(As::Admin, path))
    }
}
