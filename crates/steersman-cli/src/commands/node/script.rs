//! The shell script that makes a kubelet's configuration.

use crate::commands::node::ClusterFacts;
use crate::commands::node::prepared::kubelet_configuration;
use crate::commands::node::token::Token;
use crate::data_dir::kubeconfig::yaml;
use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use x509_parser::pem::Pem;

/// The parts of the script.
pub(super) struct Script<'a> {
    pub(super) facts: &'a ClusterFacts,
    pub(super) token: &'a Token,
    pub(super) expires: Option<Timestamp>,
    /// The directory of the files on the node.
    pub(super) dir: &'a str,
}

impl Script<'_> {
    pub(super) fn render(&self) -> anyhow::Result<String> {
        let Script { facts, token, expires, dir } = self;
        let expires = match expires {
            Some(expires) => format!("is valid until {expires:.0}"),
            None => "does not expire".to_owned(),
        };
        let (ca, client_ca, kubeconfig) = (&facts.ca, &facts.client_ca, yaml(&self.kubeconfig())?);
        let kubelet = yaml(&kubelet_configuration(facts, &format!("{dir}/client-ca.crt")))?;
        Ok(format!(
            "\
#!/bin/sh
# Makes the configuration of a kubelet in {dir}. Its token {expires}.
# With kubeadm:
#   kubeadm join {host} --token {token} --discovery-token-ca-cert-hash sha256:{hash}
set -eu
umask 077
mkdir -p {dir}
if [ -e {dir}/kubelet.conf ]; then
    echo '{dir}/kubelet.conf is there: this node has joined a cluster, and its kubelet would not use the token. Remove the file first.' >&2
    exit 1
fi
# Files that are there may be readable by others.
rm -f {dir}/client-ca.crt {dir}/bootstrap-kubelet.conf {dir}/kubelet.yaml
cat > {dir}/client-ca.crt <<'END'
{client_ca}END
cat > {dir}/bootstrap-kubelet.conf <<'END'
{kubeconfig}END
cat > {dir}/kubelet.yaml <<'END'
{kubelet}END
echo 'kubelet --config {dir}/kubelet.yaml --bootstrap-kubeconfig {dir}/bootstrap-kubelet.conf --kubeconfig {dir}/kubelet.conf'
",
            host = facts.host(),
            hash = ca_hash(ca)?,
        ))
    }

    /// The kubeconfig with the token, by which the kubelet gets its certificate.
    fn kubeconfig(&self) -> Value {
        let Script { facts, token, .. } = self;
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bootstrap",
            "clusters": [{"name": "kubernetes", "cluster": facts.cluster()}],
            "contexts": [{"name": "bootstrap", "context": {"cluster": "kubernetes", "user": "bootstrap"}}],
            "users": [{"name": "bootstrap", "user": {"token": token.to_string()}}],
        })
    }
}

/// The SHA-256 of the CA's public key, by which kubeadm recognizes the cluster.
fn ca_hash(ca: &str) -> anyhow::Result<String> {
    let block = Pem::iter_from_buffer(ca.as_bytes()).next().context("the CA is empty")??;
    let certificate = block.parse_x509().context("the CA is no certificate")?;
    let digest = Sha256::digest(certificate.tbs_certificate.subject_pki.raw);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}
