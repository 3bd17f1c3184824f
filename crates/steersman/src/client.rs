//! Makes a `kube::Client` from the options with which controllers are started: a kubeconfig path, a master URL, or
//! neither.
//!
//! Credentials, bearer tokens, exec plugins and TLS are kube's; this module only decides where they come from.

use std::path::{Path, PathBuf};

use http::{HeaderValue, header::USER_AGENT};
use kube::Client;
use kube::client::ClientBuilder;
use kube::config::{Config, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

#[cfg(feature = "metrics")]
use crate::control::metrics::Metrics;

/// Where the API server and the credentials are. Empty options search for them.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Path of a kubeconfig file. Wins over everything found by searching.
    pub kubeconfig: Option<PathBuf>,
    /// URL of the API server. Replaces the one of the kubeconfig; alone, it is used without credentials.
    pub master: Option<String>,
    /// Context of the kubeconfig to use instead of its current one.
    pub context: Option<String>,
    /// Sent as `User-Agent`, so that the server's audit log identifies the client.
    pub user_agent: Option<String>,
    /// The metrics that count requests; `None`: they are not counted.
    #[cfg(feature = "metrics")]
    pub metrics: Option<Metrics>,
}

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The kubeconfig is unreadable, incomplete or names a context that it does not have.
    #[error("kubeconfig {} cannot be used", path.display())]
    Kubeconfig {
        /// The file that was tried.
        path: PathBuf,
        /// The fault of the file.
        #[source]
        source: KubeconfigError,
    },
    /// The master is not a URL.
    #[error("master {master:?} is not a URL such as https://127.0.0.1:6443")]
    Master {
        /// The value given.
        master: String,
    },
    /// No kubeconfig, no master and not inside a cluster.
    #[error("no API server is configured: pass a kubeconfig or a master URL, set KUBECONFIG, or run inside a cluster")]
    NotFound {
        /// Why the in-cluster configuration was not used.
        #[source]
        in_cluster: InClusterError,
    },
    /// The user agent contains characters that a header cannot carry.
    #[error("user agent {user_agent:?} cannot be sent in a header: use printable ASCII")]
    UserAgent {
        /// The value given.
        user_agent: String,
    },
    /// The configuration was found, but no connection can be built from it (certificates, keys, proxy).
    #[error("the credentials or certificates for {url} cannot be used")]
    Build {
        /// The URL of the API server.
        url: String,
        /// The fault of the configuration.
        #[source]
        source: kube::Error,
    },
}

impl ClientOptions {
    /// Sets [`ClientOptions::kubeconfig`].
    pub fn kubeconfig(mut self, kubeconfig: impl Into<Option<PathBuf>>) -> Self {
        self.kubeconfig = kubeconfig.into();
        self
    }

    /// Sets [`ClientOptions::master`].
    pub fn master(mut self, master: impl Into<Option<String>>) -> Self {
        self.master = master.into();
        self
    }

    /// Sets [`ClientOptions::context`].
    pub fn context(mut self, context: impl Into<Option<String>>) -> Self {
        self.context = context.into();
        self
    }

    /// Sets [`ClientOptions::user_agent`].
    pub fn user_agent(mut self, user_agent: impl Into<Option<String>>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    /// Sets [`ClientOptions::metrics`].
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self, metrics: impl Into<Option<Metrics>>) -> Self {
        self.metrics = metrics.into();
        self
    }
}

/// Makes a client from `options`.
///
/// With a kubeconfig path, that file. With only a master URL, that URL without credentials. With neither: the service
/// account of the pod when inside a cluster, else the files of `KUBECONFIG`, else `~/.kube/config`. A master URL
/// replaces the server of a kubeconfig that was named.
///
/// The client does not retry by itself: work queues, informers and recorders do, each in its own way.
///
/// No rustls provider is installed as the default of the process here. A program that links several providers chooses
/// one before it makes a client, with `CryptoProvider::install_default` in its `main`: otherwise rustls panics.
///
/// # Errors
/// [`ClientError`]; nothing is sent to the server yet, so an unreachable server is not an error here.
pub async fn client(options: &ClientOptions) -> Result<Client, ClientError> {
    let mut config = config(options).await?;
    if let Some(user_agent) = &options.user_agent {
        let value =
            HeaderValue::from_str(user_agent).map_err(|_| ClientError::UserAgent { user_agent: user_agent.clone() })?;
        config.headers.push((USER_AGENT, value));
    }
    // Only work queues retry. Retries underneath would hide an unreachable server from an election, and from an
    // informer that reports its staleness.
    config.default_retry = false;
    let url = config.cluster_url.to_string();
    #[cfg(feature = "metrics")]
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let builder = ClientBuilder::try_from(config).map_err(|source| ClientError::Build { url, source })?;
    #[cfg(feature = "metrics")]
    if let Some(metrics) = &options.metrics {
        return Ok(builder.with_layer(&metrics.request_layer().host(&host)).build());
    }
    Ok(builder.build())
}

async fn config(options: &ClientOptions) -> Result<Config, ClientError> {
    let master = options.master.as_deref().filter(|master| !master.is_empty()).map(parse_master).transpose()?;
    if let Some(path) = &options.kubeconfig {
        let mut config = read(path, options).await?;
        if let Some(url) = master {
            config.cluster_url = url;
        }
        return Ok(config);
    }
    if let Some(url) = master {
        return Ok(Config::new(url));
    }
    let in_cluster = match Config::incluster() {
        Ok(config) => return Ok(config),
        Err(error) => error,
    };
    let path = match std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
        // Several files are merged, which kube does.
        Some(paths) => {
            return Config::from_kubeconfig(&kube_options(options))
                .await
                .map_err(|source| ClientError::Kubeconfig { path: PathBuf::from(paths), source });
        }
        None => std::env::home_dir().map(|home| home.join(".kube").join("config")).filter(|path| path.exists()),
    };
    match path {
        None => Err(ClientError::NotFound { in_cluster }),
        Some(path) => read(&path, options).await,
    }
}

async fn read(path: &Path, options: &ClientOptions) -> Result<Config, ClientError> {
    let unusable = |source| ClientError::Kubeconfig { path: path.to_owned(), source };
    let kubeconfig = Kubeconfig::read_from(path).map_err(unusable)?;
    Config::from_custom_kubeconfig(kubeconfig, &kube_options(options)).await.map_err(unusable)
}

fn kube_options(options: &ClientOptions) -> KubeConfigOptions {
    KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() }
}

fn parse_master(master: &str) -> Result<http::Uri, ClientError> {
    let invalid = || ClientError::Master { master: master.to_owned() };
    let url: http::Uri = master.parse().map_err(|_| invalid())?;
    match url.scheme_str() {
        Some("http" | "https") => Ok(url),
        _ => Err(invalid()),
    }
}
