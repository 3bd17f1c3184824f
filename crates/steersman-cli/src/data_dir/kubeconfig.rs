//! The kubeconfig of the administrator.

use crate::data_dir::pki::Pki;
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

/// The name of the cluster and the context.
const NAME: &str = "steersman";
const USER: &str = "admin";

/// The fields are in the usual order of kubeconfigs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Config<'a> {
    api_version: &'a str,
    kind: &'a str,
    clusters: [NamedCluster<'a>; 1],
    contexts: [NamedContext<'a>; 1],
    #[serde(rename = "current-context")]
    current_context: &'a str,
    users: [NamedUser<'a>; 1],
}

#[derive(Serialize)]
struct NamedCluster<'a> {
    name: &'a str,
    cluster: Cluster,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    certificate_authority_data: String,
    server: String,
}

#[derive(Serialize)]
struct NamedContext<'a> {
    name: &'a str,
    context: Context<'a>,
}

#[derive(Serialize)]
struct Context<'a> {
    cluster: &'a str,
    namespace: &'a str,
    user: &'a str,
}

#[derive(Serialize)]
struct NamedUser<'a> {
    name: &'a str,
    user: User,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate_data: String,
    client_key_data: String,
}

/// A self-contained kubeconfig for a server at `address`, as YAML.
pub(crate) fn render(address: &str, pki: &Pki) -> anyhow::Result<String> {
    let data = |pem: &str| STANDARD.encode(pem);
    let cluster = Cluster { certificate_authority_data: data(&pki.ca), server: format!("https://{address}") };
    let user = User { client_certificate_data: data(&pki.admin.certificate), client_key_data: data(&pki.admin.key) };
    let config = Config {
        api_version: "v1",
        kind: "Config",
        clusters: [NamedCluster { name: NAME, cluster }],
        contexts: [NamedContext { name: NAME, context: Context { cluster: NAME, namespace: "default", user: USER } }],
        current_context: NAME,
        users: [NamedUser { name: USER, user }],
    };
    yaml(&config).context("the kubeconfig cannot be written as YAML")
}

/// A document in which the data of a certificate stays on one line, however long it is.
pub(crate) fn yaml(document: &impl Serialize) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string_with_options(document, serde_saphyr::ser_options! { prefer_block_scalars: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::pki::Pair;

    #[test]
    fn it_reads_as_people_and_merging_tools_expect() {
        let long = "certificate ".repeat(20);
        let pki = Pki {
            ca: "ca".to_owned(),
            server: Pair { certificate: String::new(), key: String::new() },
            admin: Pair { certificate: long.clone(), key: "key".to_owned() },
        };
        let expected = format!(
            "\
apiVersion: v1
kind: Config
clusters:
- name: steersman
  cluster:
    certificate-authority-data: Y2E=
    server: https://[::1]:6443
contexts:
- name: steersman
  context:
    cluster: steersman
    namespace: default
    user: admin
current-context: steersman
users:
- name: admin
  user:
    client-certificate-data: {}
    client-key-data: a2V5
",
            STANDARD.encode(long)
        );
        assert_eq!(render("[::1]:6443", &pki).unwrap(), expected);
    }
}
