//! `steersman node token`: a new token with which a kubelet joins the cluster, and the configuration for it.

mod options;
mod prepared;
mod script;
mod token;

pub(crate) use crate::commands::node::options::NodeCommand;

use crate::Failure;
use crate::commands::cluster;
use crate::commands::node::options::TokenOptions;
use crate::commands::node::script::Script;
use crate::commands::node::token::Token;
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::ListParams;
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};

/// The place of the DNS server's address among those of Services, as kubeadm gives it.
const DNS_OFFSET: u32 = 10;

/// The facts about a cluster that its nodes need.
#[derive(Debug)]
pub(crate) struct ClusterFacts {
    /// The URL of the API server.
    server: String,
    /// The CA of the API server, in PEM.
    ca: String,
    /// The CA of the API server's clients, of which the server is one towards kubelets, in PEM.
    client_ca: String,
    /// The addresses of Services, such as `10.96.0.0/16`.
    services: ipnet::IpNet,
    /// The version of the API server, such as `v1.36.3`.
    version: String,
}

/// Makes a token and prints the script.
pub(crate) async fn token(options: &TokenOptions) -> Result<(), Failure> {
    let config = cluster::find(options.kubeconfig.as_deref()).await?;
    let client = Client::try_from(config.clone()).context("no client can be made for the server")?;
    let facts = facts(&client, &config, options.server.clone()).await?;
    let expires = match options.ttl.is_zero() {
        true => None,
        false => Some(Timestamp::now().checked_add(options.ttl).context("--ttl is too long")?),
    };
    prepared::apply(&client, &facts).await?;
    let token = Token::random();
    token.create(&client, expires).await?;
    let script = Script { facts: &facts, token: &token, expires, dir: &options.dir };
    print!("{}", script.render()?);
    Ok(())
}

async fn facts(client: &Client, config: &Config, server: Option<String>) -> Result<ClusterFacts, Failure> {
    let refused = |what: &'static str| {
        move |error: kube::Error| Failure::Refused(format!("{what} cannot be read: {}", crate::chain(&error)))
    };
    let ca = cluster::ca(config);
    if ca.is_empty() {
        return Err(Failure::Refused(
            "the kubeconfig names no CA of the API server, which nodes need to trust it".to_owned(),
        ));
    }
    let server = match server {
        Some(server) => server,
        None => reachable(client, &config.cluster_url).await?,
    };
    let ranges = Api::<ServiceCIDR>::all(client.clone()).get("kubernetes").await;
    let ranges = ranges.map_err(refused("the ServiceCIDR kubernetes"))?;
    let services = ranges.spec.and_then(|spec| spec.cidrs?.first()?.parse().ok());
    let services = services.context("the ServiceCIDR kubernetes has no range")?;
    let version = client.apiserver_version().await.map_err(refused("the version of the API server"))?.git_version;
    let trust = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    let trust = trust.get("extension-apiserver-authentication").await;
    let trust = trust.map_err(refused("the ConfigMap extension-apiserver-authentication"))?;
    let client_ca = trust.data.and_then(|mut data| data.remove("client-ca-file"));
    let client_ca = client_ca.context("the server has published no CA of its clients (client-ca-file)")?;
    Ok(ClusterFacts { server, ca, client_ca, services, version })
}

/// The URL of the server for other machines.
async fn reachable(client: &Client, url: &http::Uri) -> Result<String, Failure> {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if !is_local {
        return options::server(&url.to_string())
            .map_err(|why| Failure::Refused(format!("the kubeconfig leads to {url}, which nodes cannot use: {why}")));
    }
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), "default");
    let own = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    let slices = slices.list(&own).await.map(|list| list.items).unwrap_or_default();
    let found = slices.iter().find_map(|slice| {
        let address: IpAddr = slice.endpoints.as_ref()?.first()?.addresses.first()?.parse().ok()?;
        let port = u16::try_from(slice.ports.as_ref()?.first()?.port?).ok()?;
        Some(SocketAddr::new(address, port))
    });
    found.map(|address| format!("https://{address}")).ok_or_else(|| {
        Failure::Refused(format!(
            "the kubeconfig leads to {host}, which other machines do not reach, and the Service kubernetes has no address: name the server's with --server https://HOST:PORT"
        ))
    })
}

impl ClusterFacts {
    /// The cluster, as kubeconfigs have it.
    fn cluster(&self) -> Value {
        json!({"server": self.server, "certificate-authority-data": STANDARD.encode(&self.ca)})
    }

    /// The host and port of the server.
    fn host(&self) -> &str {
        self.server.strip_prefix("https://").unwrap_or(&self.server)
    }

    /// The address that the cluster's DNS server is expected to have.
    fn dns(&self) -> IpAddr {
        match self.services.network() {
            IpAddr::V4(first) => IpAddr::V4(std::net::Ipv4Addr::from_bits(first.to_bits().saturating_add(DNS_OFFSET))),
            IpAddr::V6(first) => {
                IpAddr::V6(std::net::Ipv6Addr::from_bits(first.to_bits().saturating_add(u128::from(DNS_OFFSET))))
            }
        }
    }
}
