//! The connections to one member of etcd.
//!
//! Three, each made when it is first used and made again when it breaks: for requests, for what is long, and for watches,
//! because etcd lets a watch starve beside long answers on one connection.

use crate::options::Options;
use std::time::Duration;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// How often a connection is probed, used or not. etcd closes connections that are probed more often than every 5 s.
const PROBE_EVERY: Duration = Duration::from_secs(6);
/// How long the answer to a probe may take before the connection counts as broken.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The most bytes that a stream, and that a connection, receives ahead of its reader.
const WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lane {
    /// Lists.
    Bulk,
    Requests,
    Watches,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) endpoint: String,
    bulk: Channel,
    requests: Channel,
    watches: Channel,
}

impl Member {
    /// Connects when it is used.
    pub(crate) fn new(url: &str, options: &Options) -> Result<Member, tonic::transport::Error> {
        let mut endpoint = Endpoint::from_shared(url.to_owned())?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PROBE_EVERY)
            .keep_alive_timeout(PROBE_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .tcp_nodelay(true);
        if endpoint.uri().scheme_str() == Some("https") {
            let authorities = Certificate::from_pem(&options.certificates.authorities);
            let mut tls = ClientTlsConfig::new().ca_certificate(authorities);
            if let Some((certificate, key)) = &options.certificates.client {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            endpoint = endpoint.tls_config(tls)?;
        }
        Ok(Member {
            endpoint: url.to_owned(),
            bulk: endpoint.connect_lazy(),
            requests: endpoint.connect_lazy(),
            watches: endpoint.connect_lazy(),
        })
    }

    pub(crate) fn channel(&self, lane: Lane) -> Channel {
        match lane {
            Lane::Bulk => self.bulk.clone(),
            Lane::Requests => self.requests.clone(),
            Lane::Watches => self.watches.clone(),
        }
    }
}
