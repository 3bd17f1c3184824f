//! The commands for the nodes of a cluster.

use crate::args::duration;
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Prints a shell script that makes the configuration of a kubelet, with a new token with which it joins the cluster.
    ///
    /// Run the script as root on the new machine: `steersman node token | ssh root@node sh`. It writes the CA of the
    /// cluster, a kubeconfig with the token and a KubeletConfiguration, and prints how to start the kubelet. The token is a
    /// bootstrap token of Kubernetes: `kubeadm join` takes it too, as the first lines of the script say. The server must
    /// run with --enable-bootstrap-token-auth. The roles and ConfigMaps that kubeadm expects are made unless they exist.
    Token(TokenOptions),
}

/// The options of `node token`.
#[derive(ClapArgs, Debug)]
pub(crate) struct TokenOptions {
    /// The kubeconfig of the cluster; without it: in-cluster, then $KUBECONFIG, then ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The URL at which nodes reach the API server; without it that of the kubeconfig, or if that leads to this machine
    /// only, the address of the Service `kubernetes`.
    #[arg(long, value_parser = server, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The time for which the token is valid; 0s makes one that never expires.
    #[arg(long, default_value = "24h", value_parser = duration::any, value_name = "DURATION")]
    pub(crate) ttl: Duration,
    /// The directory on the node for the three files.
    #[arg(long, default_value = "/etc/kubernetes", value_parser = directory, value_name = "DIR")]
    pub(crate) dir: String,
}

/// A directory that a shell takes as it is written.
fn directory(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let path = text.trim_end_matches('/');
    match path.starts_with('/') && path.bytes().all(is_plain) {
        true => Ok(path.to_owned()),
        false => Err("want an absolute path of letters, digits, dots, dashes and underscores, and not /".to_owned()),
    }
}

/// The URL of an API server in the form `https://HOST:PORT`.
pub(super) fn server(text: &str) -> Result<String, String> {
    let url: http::Uri = text.parse().map_err(|error| format!("it is no URL: {error}"))?;
    let is_plain = url.path().trim_end_matches('/').is_empty() && url.query().is_none();
    match (url.scheme_str(), url.authority()) {
        (Some("https"), Some(host)) if is_plain && !host.as_str().contains('@') => {
            Ok(format!("https://{}:{}", host.host(), host.port_u16().unwrap_or(443)))
        }
        _ => Err("want https://HOST:PORT".to_owned()),
    }
}
