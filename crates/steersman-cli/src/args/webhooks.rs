//! The addresses of Services to which this machine has no route: those of admission and conversion webhooks, and of
//! APIServices.

use crate::Failure;
use clap::Args as ClapArgs;
use steersman_server::webhook::{Mapping, Services};

#[derive(ClapArgs, Clone, Debug, Default)]
pub(crate) struct WebhookOptions {
    /// Call the admission and conversion webhooks behind a Service, or the server of an APIService, at this URL. May be
    /// given more than once. Without it the cluster IP of the Service is called, to which something on this machine must
    /// route. The URL is
    /// https://HOST:PORT, or http:// with a loopback address; the certificate must be valid for NAME.NAMESPACE.svc.
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]=URL")]
    pub(crate) webhook_service: Vec<Mapping>,
}

impl WebhookOptions {
    pub(crate) fn services(&self) -> Result<Services, Failure> {
        let services = Services::new(self.webhook_service.iter().cloned());
        services.map_err(|error| Failure::Refused(format!("--webhook-service: {error}")))
    }
}
