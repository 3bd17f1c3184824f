//! The cluster that a command connects to as its user.

use crate::Failure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::Path;

/// Finds the server: by the named kubeconfig, else in-cluster, `$KUBECONFIG` or `~/.kube/config`.
pub(crate) async fn find(kubeconfig: Option<&Path>) -> Result<Config, Failure> {
    let refused = |error: &(dyn std::error::Error + 'static)| Failure::Refused(crate::chain(error));
    match kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path).map_err(|error| refused(&error))?;
            let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
            config.map_err(|error| refused(&error))
        }
        None => Config::infer().await.map_err(|error| {
            let why = crate::chain(&error);
            Failure::Refused(format!("no API server is configured: pass --kubeconfig or set KUBECONFIG ({why})"))
        }),
    }
}

/// The CA of the API server, in PEM; empty if the kubeconfig names none.
pub(crate) fn ca(config: &Config) -> String {
    let mut pem = String::new();
    for der in config.root_cert.iter().flatten() {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in STANDARD.encode(der).as_bytes().chunks(64) {
            pem.push_str(&String::from_utf8_lossy(line));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem
}
