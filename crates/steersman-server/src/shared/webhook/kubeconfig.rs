//! Reads the endpoint of a webhook from a file in the kubeconfig format: the current context's cluster is the webhook,
//! its user is the server. Paths in the file are relative to it.

use crate::shared::config_file;
use crate::shared::webhook::{Credentials, Endpoint, EndpointError, Identity};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Config {
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    users: Vec<NamedUser>,
    #[serde(default)]
    current_context: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    proxy_url: Option<String>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    #[serde(default)]
    user: String,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    username: Option<String>,
    password: Option<String>,
    exec: Option<serde::de::IgnoredAny>,
    auth_provider: Option<serde::de::IgnoredAny>,
}

/// Reads a file. Blocks: it is read before the server starts.
///
/// # Errors
/// When it or a file that it names cannot be read, or it has unsupported settings.
pub fn read(path: &Path) -> Result<Endpoint, EndpointError> {
    let text = contents(path)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let text = String::from_utf8(text).map_err(|_| EndpointError::Malformed("it is no UTF-8".to_owned()))?;
    parse(&text, dir)
}

/// Parses the text of a file. Paths in it are relative to `dir`.
pub(crate) fn parse(text: &str, dir: &Path) -> Result<Endpoint, EndpointError> {
    let config: Config =
        config_file::parse(text).map_err(|error| malformed(format!("it is no kubeconfig: {error}")))?;
    endpoint(config, dir)
}

fn endpoint(config: Config, dir: &Path) -> Result<Endpoint, EndpointError> {
    let Config { clusters, contexts, users, current_context } = config;
    if current_context.is_empty() {
        return Err(malformed("it has no current-context"));
    }
    let missing = |what: &str, name: &str| malformed(format!("it has no {what} {name:?}"));
    let context = contexts.into_iter().find(|context| context.name == current_context);
    let Context { cluster, user } = context.ok_or_else(|| missing("context", &current_context))?.context;
    let found = clusters.into_iter().find(|one| one.name == cluster);
    let Cluster {
        server,
        certificate_authority,
        certificate_authority_data,
        tls_server_name,
        insecure_skip_tls_verify,
        proxy_url,
    } = found.ok_or_else(|| missing("cluster", &cluster))?.cluster;
    let found = users.into_iter().find(|one| one.name == user).map(|one| one.user);
    let user = match found {
        Some(found) => found,
        None if user.is_empty() => User::default(),
        None => return Err(missing("user", &user)),
    };
    let unsupported = [
        (insecure_skip_tls_verify, "insecure-skip-tls-verify: give the certificate-authority"),
        (proxy_url.is_some(), "proxy-url"),
        (user.exec.is_some(), "exec: give a client certificate, a token or a tokenFile"),
        (user.auth_provider.is_some(), "auth-provider: give a client certificate, a token or a tokenFile"),
    ];
    if let Some((_, what)) = unsupported.into_iter().find(|(is_set, _)| *is_set) {
        return Err(malformed(format!("it asks for what is not supported, {what}")));
    }
    let file = |path: Option<PathBuf>| path.map(|path| dir.join(path));
    let ca = pem(certificate_authority_data, file(certificate_authority), "certificate-authority-data")?;
    let certificate = pem(user.client_certificate_data, file(user.client_certificate), "client-certificate-data")?;
    let key = pem(user.client_key_data, file(user.client_key), "client-key-data")?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
        (None, None) => None,
        (Some(_), None) => return Err(malformed("it has a client-certificate but no client-key")),
        (None, Some(_)) => return Err(malformed("it has a client-key but no client-certificate")),
    };
    // As in clients, a token file takes precedence over a token.
    let credentials = match (file(user.token_file), user.token, user.username) {
        (Some(path), _, _) => Credentials::TokenFile(path),
        (None, Some(token), _) => Credentials::Token(token),
        (None, None, Some(user_name)) => {
            Credentials::Basic { user: user_name, password: user.password.unwrap_or_default() }
        }
        (None, None, None) => Credentials::None,
    };
    let server_name = tls_server_name.filter(|name| !name.is_empty());
    Ok(Endpoint { url: server, ca: ca.unwrap_or_default(), server_name, identity, credentials })
}

/// The inline data, or else the content of the file.
fn pem(data: Option<String>, file: Option<PathBuf>, what: &str) -> Result<Option<Vec<u8>>, EndpointError> {
    match (data.filter(|data| !data.is_empty()), file) {
        (Some(data), _) => {
            let decoded = STANDARD.decode(data.trim());
            decoded.map(Some).map_err(|error| malformed(format!("its {what} is no base64: {error}")))
        }
        (None, Some(path)) => contents(&path).map(Some),
        (None, None) => Ok(None),
    }
}

fn contents(path: &Path) -> Result<Vec<u8>, EndpointError> {
    fs::read(path).map_err(|source| EndpointError::File { path: path.to_owned(), source })
}

fn malformed(why: impl Into<String>) -> EndpointError {
    EndpointError::Malformed(why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Endpoint, String> {
        let config: Config = config_file::parse(text)?;
        endpoint(config, Path::new("/nowhere")).map_err(|error| error.to_string())
    }

    const HEAD: &str =
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: w, user: u}}]\n";

    #[track_caller]
    fn check_refused(cluster: &str, user: &str, want: &str) {
        let text =
            format!("{HEAD}clusters: [{{name: w, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n");
        let error = parse(&text).map(|_| ()).unwrap_err();
        assert!(error.contains(want), "{error}");
    }

    #[test]
    fn the_current_context_says_which_cluster_and_which_user() {
        let text = format!(
            "{HEAD}clusters: [{{name: w, cluster: {{server: 'https://h/p', certificate-authority-data: YQ==, tls-server-name: n}}}}]\nusers: [{{name: u, user: {{token: t}}}}, {{name: v}}]\n"
        );
        let endpoint = parse(&text).unwrap();
        assert_eq!((endpoint.url.as_str(), endpoint.ca.as_slice()), ("https://h/p", b"a".as_slice()));
        assert_eq!(endpoint.server_name.as_deref(), Some("n"));
        assert!(matches!(endpoint.credentials, Credentials::Token(token) if token == "t"));
        assert!(parse("clusters: []").unwrap_err().contains("no current-context"));
        assert!(parse(HEAD).unwrap_err().contains("no cluster \"w\""));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        check_refused("server: 'https://h', insecure-skip-tls-verify: true", "", "insecure-skip-tls-verify");
        check_refused("server: 'https://h', proxy-url: 'http://p'", "", "proxy-url");
        check_refused("server: 'https://h'", "exec: {command: x}", "exec");
        check_refused("server: 'https://h'", "client-certificate-data: YQ==", "no client-key");
        check_refused("server: 'https://h', certificate-authority-data: '*'", "", "no base64");
        check_refused("server: 'https://h', certificate-authority: ca.pem", "", "/nowhere/ca.pem");
    }
}
