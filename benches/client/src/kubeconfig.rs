//! The address of an API server and the user's credentials, read from a kubeconfig.
//!
//! Unsupported parts of a kubeconfig (programs that sign in, proxies) are refused by name: a measurement must not reach
//! another server than its reader thinks.

use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// The content of the current context.
#[derive(Debug, Eq, PartialEq)]
pub struct Access {
    /// The URL of the server.
    pub server: String,
    /// The CA certificates of the server in PEM.
    pub authority: Option<Vec<u8>>,
    /// The name in the server's certificate, if it is not the one in the URL.
    pub server_name: Option<String>,
    /// A certificate and its key in PEM.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    pub token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    users: Vec<NamedUser>,
    #[serde(default)]
    current_context: String,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    context: ContextNames,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Debug, Deserialize)]
struct ContextNames {
    cluster: String,
    user: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    #[serde(default)]
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    exec: Option<serde_json::Value>,
    auth_provider: Option<serde_json::Value>,
}

/// Reads the current context of the file at `path`.
///
/// # Errors
///
/// If it cannot be read, or has an unsupported part.
pub fn read(path: &Path) -> anyhow::Result<Access> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    parse(&text, directory).with_context(|| format!("cannot use {}", path.display()))
}

fn parse(text: &str, directory: &Path) -> anyhow::Result<Access> {
    let file: File = serde_saphyr::from_str(text).context("it is no kubeconfig")?;
    let name = &file.current_context;
    let context = file.contexts.iter().find(|context| context.name == *name);
    let context = &context.with_context(|| format!("there is no context {name:?}, the current one"))?.context;
    let cluster = file.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let cluster = &cluster.with_context(|| format!("there is no cluster {:?}", context.cluster))?.cluster;
    let user = file.users.iter().find(|user| user.name == context.user);
    let user = &user.with_context(|| format!("there is no user {:?}", context.user))?.user;

    let refused = [
        ("exec", user.exec.is_some()),
        ("auth-provider", user.auth_provider.is_some()),
        ("proxy-url", cluster.proxy_url.is_some()),
    ];
    if let Some((field, _)) = refused.iter().find(|(_, is_set)| *is_set) {
        anyhow::bail!("{field} is not supported: use a context with a token or a client certificate");
    }
    let material = |data: &Option<String>, file: &Option<PathBuf>| match (data, file) {
        (Some(data), _) => STANDARD.decode(data.trim()).map(Some).context("embedded data is not base64"),
        (None, Some(file)) => {
            let file = directory.join(file);
            std::fs::read(&file).map(Some).with_context(|| format!("cannot read {}", file.display()))
        }
        (None, None) => Ok(None),
    };
    let certificate = material(&user.client_certificate_data, &user.client_certificate)?;
    let key = material(&user.client_key_data, &user.client_key)?;
    let token = match &user.token {
        Some(token) => Some(token.clone()),
        None => material(&None, &user.token_file)?.map(|token| String::from_utf8_lossy(&token).trim().to_owned()),
    };
    Ok(Access {
        server: cluster.server.clone(),
        authority: material(&cluster.certificate_authority_data, &cluster.certificate_authority)?,
        server_name: cluster.tls_server_name.clone(),
        certificate: certificate.zip(key),
        token,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
apiVersion: v1
kind: Config
clusters:
- name: near
  cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: Y2E=}
contexts:
- name: here
  context: {cluster: near, user: me}
current-context: here
users:
- name: me
  user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}
"#;

    #[test]
    fn current_context_is_followed() {
        let access = parse(FILE, Path::new("/")).unwrap();
        let expected = Access {
            server: "https://127.0.0.1:6443".to_owned(),
            authority: Some(b"ca".to_vec()),
            server_name: None,
            certificate: Some((b"cert".to_vec(), b"key".to_vec())),
            token: None,
        };
        assert_eq!(access, expected);
    }

    #[track_caller]
    fn check_refused(from: &str, to: &str, expected: &str) {
        let error = parse(&FILE.replace(from, to), Path::new("/")).unwrap_err();
        assert_eq!(format!("{error:#}"), expected);
    }

    #[test]
    fn what_is_not_followed_is_named() {
        check_refused("current-context: here", "current-context: x", "there is no context \"x\", the current one");
        check_refused(
            "{client-certificate-data: Y2VydA==, client-key-data: a2V5}",
            "{exec: {command: login}}",
            "exec is not supported: use a context with a token or a client certificate",
        );
    }
}
