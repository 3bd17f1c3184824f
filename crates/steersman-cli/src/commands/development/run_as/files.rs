//! The files that a pod has of its account: token, CA and namespace, and the variables with the server's address.

use crate::Failure;
use crate::commands::cluster;
use crate::data_dir::files::{self, Rights};
use anyhow::Context as _;
use kube::Config;
use serde_json::json;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The server in the form that pods get.
#[derive(Debug)]
pub(crate) struct Server {
    url: String,
    host: String,
    port: u16,
    /// The CA certificate in PEM.
    ca: String,
}

/// A directory that is removed at the end.
#[derive(Debug)]
pub(crate) struct Files(PathBuf);

impl Server {
    /// The server of a kubeconfig.
    pub(super) fn of(config: &Config) -> Result<Server, Failure> {
        let url = config.cluster_url.to_string();
        let refused = |why: &str| {
            Failure::Refused(format!("the server {url} cannot be given to a program as its cluster: {why}"))
        };
        if config.cluster_url.scheme_str() != Some("https") {
            return Err(refused("in-cluster configuration knows https only"));
        }
        if !matches!(config.cluster_url.path(), "" | "/") {
            return Err(refused("in-cluster configuration knows no path"));
        }
        let host = config.cluster_url.host().ok_or_else(|| refused("it has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = config.cluster_url.port_u16().unwrap_or(443);
        let ca = cluster::ca(config);
        if ca.is_empty() {
            return Err(refused("the kubeconfig has no certificate-authority"));
        }
        Ok(Server { url, host, port, ca })
    }
}

impl Files {
    /// Writes the files into a directory that no other user may read.
    pub(super) fn write(server: &Server, namespace: &str, token: &str) -> anyhow::Result<Files> {
        let parent = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
        let parent = parent.unwrap_or_else(std::env::temp_dir);
        let parent = parent.canonicalize().with_context(|| format!("{} cannot be found", parent.display()))?;
        let dir = parent.join(format!(
            "steersman-run-as-{}-{:08x}",
            std::process::id(),
            jiff::Timestamp::now().subsec_nanosecond()
        ));
        fs::DirBuilder::new().mode(0o700).create(&dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        let files = Files(dir);
        files.put_token(token)?;
        files.put("ca.crt", server.ca.as_bytes())?;
        files.put("namespace", namespace.as_bytes())?;
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": files.0.join("ca.crt")}}],
            "users": [{"name": "u", "user": {"tokenFile": files.0.join("token")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
            "current-context": "c",
        });
        files.put("kubeconfig", kubeconfig.to_string().as_bytes())?;
        Ok(files)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.0
    }

    /// Replaces the token: a reader sees the old one or the new one.
    pub(super) fn put_token(&self, token: &str) -> io::Result<()> {
        self.put("token", token.as_bytes())
    }

    /// Sets the variables with the server's address for a command.
    pub(super) fn set_variables(&self, server: &Server, command: &mut Command) {
        let port = server.port.to_string();
        command.env("KUBERNETES_SERVICE_HOST", &server.host);
        command.env("KUBERNETES_SERVICE_PORT", &port).env("KUBERNETES_SERVICE_PORT_HTTPS", &port);
        command.env("KUBECONFIG", self.0.join("kubeconfig"));
    }

    fn put(&self, name: &str, contents: &[u8]) -> io::Result<()> {
        files::write(&self.0.join(name), contents, Rights::Secret)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // On a failure an expiring token stays in a private directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}
