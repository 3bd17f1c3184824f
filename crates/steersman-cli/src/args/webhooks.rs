//! The addresses of Services to which this machine has no route: those of admission and conversion webhooks, and of
//! APIServices.

use crate::Failure;
use clap::{ArgAction, Args as ClapArgs};
use steersman_server::webhook::{Mapping, Route, Services};

#[derive(ClapArgs, Clone, Debug)]
pub(crate) struct WebhookOptions {
    /// Call the admission and conversion webhooks behind a Service, or the server of an APIService, at this URL. May be
    /// given more than once. Without it one of the endpoints of the Service is called. The URL is
    /// https://HOST:PORT, or http:// with a loopback address; the certificate must be valid for NAME.NAMESPACE.svc.
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]=URL")]
    pub(crate) webhook_service: Vec<Mapping>,
    /// Call webhooks and the servers of APIServices at the endpoints of their Services. With false, at the cluster IPs, to
    /// which something on this machine, such as kube-proxy, must route.
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub(crate) enable_aggregator_routing: bool,
}

impl WebhookOptions {
    pub(crate) fn services(&self) -> Result<Services, Failure> {
        let services = Services::new(self.webhook_service.iter().cloned());
        let services = services.map_err(|error| Failure::Refused(format!("--webhook-service: {error}")))?;
        let route = if self.enable_aggregator_routing { Route::Endpoints } else { Route::ClusterIp };
        Ok(services.with_route(route))
    }
}
