//! How the API is served: how long things take and last, TLS, browsers. The flags are those of kube-apiserver.

use crate::args::duration;
use clap::Args as ClapArgs;
use std::time::Duration;
use steersman_server::authz::WatchAuthorization;
use steersman_server::{Timeouts, Web};

/// How the API is served.
#[derive(ClapArgs, Clone, Debug)]
pub(crate) struct ServingOptions {
    /// How long a request that is not a watch may take.
    #[arg(long, default_value = "1m", value_parser = duration::more_than_none, value_name = "DURATION")]
    pub(crate) request_timeout: Duration,
    /// A watch that does not say how long it is to last ends after so many seconds, or up to twice as many; 0 lets it go on.
    #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
    pub(crate) min_request_timeout: u32,
    /// A watch ends with a 403 when its user has lost the permission for it. Without the flag it goes on until its time is over, as in
    /// kube-apiserver. Roles, bindings and what belongs to nodes count at once, other authorizers within a minute.
    #[arg(long)]
    pub(crate) end_watches_on_lost_permission: bool,
    /// How long Events are kept after they happened last; 0 keeps them for ever.
    #[arg(long, default_value = "1h", value_parser = duration::any, value_name = "DURATION")]
    pub(crate) event_ttl: Duration,
    /// How long requests are still answered after the signal to end, while /readyz fails already: what balances load among several
    /// servers needs some time to notice.
    #[arg(long, default_value = "0", value_parser = duration::any, value_name = "DURATION")]
    pub(crate) shutdown_delay_duration: Duration,
    /// Which web pages may use the API in a browser: regular expressions for their origins, with the bounds of the host, such as
    /// `//ui\.example\.com(:|$)`.
    #[arg(long, value_delimiter = ',', value_name = "REGEX")]
    pub(crate) cors_allowed_origins: Vec<String>,
    /// What Strict-Transport-Security says in every answer: `max-age=SECONDS`, `includeSubDomains`, `preload`.
    #[arg(long, value_delimiter = ',', value_name = "DIRECTIVE")]
    pub(crate) strict_transport_security_directives: Vec<String>,
    /// The lowest version of TLS that is spoken: VersionTLS12 or VersionTLS13. Older ones are never spoken.
    #[arg(long, value_name = "VERSION")]
    pub(crate) tls_min_version: Option<String>,
    /// The cipher suites of TLS 1.2, by their names at IANA; all that are safe without it. Those of TLS 1.3 cannot be chosen.
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
    /// When it names what cannot be sent.
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
