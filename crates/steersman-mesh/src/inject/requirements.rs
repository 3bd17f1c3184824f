//! The injector's requirements of a cluster: permissions, and a server with initializers. The log names those that are missing
//! until none is.

use std::convert::Infallible;
use std::time::Duration;

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::inject::metrics::Counts;
use crate::inject::{Certificate, NAME, Options};
use crate::permissions::{Rule, missing};

/// How often what is missing is looked for again.
const AGAIN: Duration = Duration::from_secs(60);
/// The version that a server with initializers serves their configurations in.
const INITIALIZERS: &str = "admissionregistration.k8s.io/v1alpha1";
const WITHOUT_INITIALIZERS: &str = "the server has no initializers, so that no Pod waits for the injector: start it with --enable-initializers if it is a Steersman, or run the injector as a webhook";

/// The rules that the injector needs with these options. `manifests/mesh/injector` grants those that it needs there.
pub fn rules(options: &Options) -> Vec<Rule> {
    let cluster = |group, resource, verbs| Rule { group, resource, namespace: None, name: None, verbs };
    let one = |group, resource, namespace: Option<&str>, name: &str, verbs| Rule {
        group,
        resource,
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        verbs,
    };
    let config_map = &options.config_map;
    let mut rules = vec![
        cluster("", "namespaces", &["get", "list", "watch"]),
        cluster("", "events", &["create", "patch"]),
        one("", "configmaps", config_map.namespace(), config_map.name(), &["list", "watch"]),
    ];
    if options.initializer {
        rules.push(cluster("", "pods", &["list", "watch", "patch", "initialize"]));
    }
    let certificate = options.webhook.as_ref().map(|webhook| &webhook.certificate);
    if let Some(Certificate::SelfSigned { secret, configuration, .. }) = certificate {
        let verbs = &["get", "list", "watch", "update"];
        rules.push(one("admissionregistration.k8s.io", "mutatingwebhookconfigurations", None, configuration, verbs));
        // The authorizer does not know the name of an object that is to be created.
        let namespace = secret.namespace().map(str::to_owned);
        rules.push(Rule { group: "", resource: "secrets", namespace, name: None, verbs: &["create"] });
        rules.push(one("", "secrets", secret.namespace(), secret.name(), verbs));
    }
    if let Some(namespace) = &options.lease_namespace {
        let group = "coordination.k8s.io";
        let place = Some(namespace.clone());
        rules.push(Rule { group, resource: "leases", namespace: place, name: None, verbs: &["create"] });
        rules.push(one(group, "leases", Some(namespace), NAME, &["get", "update"]));
    }
    rules
}

/// The rules and the initializers that are looked for.
pub(crate) struct Requirements {
    pub(crate) client: Client,
    pub(crate) rules: Vec<Rule>,
    pub(crate) needs_initializers: bool,
}

impl Requirements {
    /// Logs what is missing until nothing is; each change of it is logged too.
    pub(crate) async fn watch(self, counts: Counts, stop: CancellationToken) -> Result<(), Infallible> {
        let check = async {
            let mut known: Option<Vec<String>> = None;
            loop {
                match self.look().await {
                    Ok(faults) => {
                        if known.as_ref() != Some(&faults) {
                            for fault in &faults {
                                tracing::error!("{fault}");
                            }
                            if known.is_some() && faults.is_empty() {
                                tracing::info!("the injector has everything that it needs now");
                            }
                        }
                        counts.lacks(faults.len());
                        if faults.is_empty() {
                            return;
                        }
                        known = Some(faults);
                    }
                    Err(error) => tracing::debug!(%error, "the server cannot be asked what the injector may do"),
                }
                tokio::time::sleep(AGAIN).await;
            }
        };
        stop.run_until_cancelled(check).await;
        // A task that ends ends the manager.
        stop.cancelled().await;
        Ok(())
    }

    async fn look(&self) -> Result<Vec<String>, kube::Error> {
        let missing = missing(&self.client, &self.rules).await?;
        let mut faults: Vec<String> = missing.iter().map(|one| format!("the injector {one}")).collect();
        if self.needs_initializers && !self.has_initializers().await? {
            faults.push(WITHOUT_INITIALIZERS.to_owned());
        }
        Ok(faults)
    }

    async fn has_initializers(&self) -> Result<bool, kube::Error> {
        match self.client.list_api_group_resources(INITIALIZERS).await {
            Ok(served) => Ok(served.resources.iter().any(|resource| resource.name == "initializerconfigurations")),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }
}
