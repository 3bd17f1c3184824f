//! The options of serving the API: time limits, TLS, browsers. The flags are those of kube-apiserver.

use crate::args::duration;
use clap::Args as ClapArgs;
use std::time::Duration;
use steersman_server::authz::WatchAuthorization;
use steersman_server::{Timeouts, Web};

/// The options of serving the API.
#[derive(ClapArgs, Clone, Debug)]
pub(crate) struct ServingOptions {
    /// The time limit of requests other than watches.
    #[arg(long, default_value = "1m", value_parser = duration::more_than_none, value_name = "DURATION")]
    pub(crate) request_timeout: Duration,
    /// A watch without a timeout of its own ends after this many seconds, or up to twice as many; 0 means no limit.
    #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
    pub(crate) min_request_timeout: u32,
    /// A watch ends with a 403 when its user has lost the permission for it. Without the flag it goes on until its time is over, as in
    /// kube-apiserver. Roles, bindings and what belongs to nodes count at once, other authorizers within a minute.
    #[arg(long)]
    pub(crate) end_watches_on_lost_permission: bool,
    /// How long Events are kept after they happened last; 0 keeps them for ever.
    #[arg(long, default_value = "1h", value_parser = duration::any, value_name = "DURATION")]
    pub(crate) event_ttl: Duration,
    /// The time for which requests are still answered after the signal to end, while /readyz already fails: load
    /// balancers need some time to notice.
    #[arg(long, default_value = "0", value_parser = duration::any, value_name = "DURATION")]
    pub(crate) shutdown_delay_duration: Duration,
    /// The web origins that may use the API in a browser: regular expressions for the origins, with the bounds of the
    /// host, such as `//ui\.example\.com(:|$)`.
    #[arg(long, value_delimiter = ',', value_name = "REGEX")]
    pub(crate) cors_allowed_origins: Vec<String>,
    /// The directives of the header Strict-Transport-Security in every answer: `max-age=SECONDS`, `includeSubDomains`,
    /// `preload`.
    #[arg(long, value_delimiter = ',', value_name = "DIRECTIVE")]
    pub(crate) strict_transport_security_directives: Vec<String>,
    /// The lowest TLS version that is accepted: VersionTLS12 or VersionTLS13. Older ones are never accepted.
    #[arg(long, value_name = "VERSION")]
    pub(crate) tls_min_version: Option<String>,
    /// The cipher suites of TLS 1.2 by their IANA names; without it, all that are secure. Those of TLS 1.3 cannot be
    /// chosen.
    #[arg(long, value_delimiter = ',', value_name = "SUITE")]
    pub(crate) tls_cipher_suites: Vec<String>,
}

impl ServingOptions {
    pub(crate) fn timeouts(&self) -> Timeouts {
        Timeouts { request: self.request_timeout, watch_min: Duration::from_secs(self.min_request_timeout.into()) }
    }

    pub(crate) fn watch_authorization(&self) -> WatchAuthorization {
        match self.end_watches_on_lost_permission {
            true => WatchAuthorization::WhileOpen,
            false => WatchAuthorization::AtStart,
        }
    }

    /// # Errors
    /// When a directive cannot be sent; the message names it.
    pub(crate) fn web(&self) -> Result<Web, crate::Failure> {
        use steersman_server::WebError;
        Web::new(&self.cors_allowed_origins, &self.strict_transport_security_directives).map_err(|error| {
            let flag = match &error {
                WebError::Directive { .. } => "--strict-transport-security-directives",
                WebError::Pattern { .. } | WebError::Unbounded { .. } => "--cors-allowed-origins",
            };
            crate::Failure::Refused(format!("cannot use {flag}: {}", crate::chain(&error)))
        })
    }
}
