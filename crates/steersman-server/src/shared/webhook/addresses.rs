//! The addresses at which Services are called: those of webhooks, and of the servers behind APIServices.
//!
//! Follows kubernetes' `kube-aggregator/pkg/apiserver/resolvers.go`, but for two things. The endpoints of a Service come before its
//! cluster IP, which works only on machines with kube-proxy. They are read from the Endpoints object, which has the name of
//! the Service; upstream reads EndpointSlices. A Service without an Endpoints object is called at its cluster IP.

use crate::shared::webhook::services::{Base, Route, Services};
use rand::seq::IndexedRandom as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use steersman_machinery::{GroupResource, ObjectKey};
use steersman_storage::Store;

/// Finds the addresses at which Services are called.
pub(in crate::shared) struct Addresses {
    store: Store,
    services: Services,
}

/// The fields of a Service that define its address.
#[derive(Deserialize)]
struct Service {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default, rename = "clusterIP")]
    cluster_ip: String,
    #[serde(default)]
    external_name: String,
    #[serde(default)]
    ports: Vec<ServicePort>,
}

#[derive(Deserialize)]
struct ServicePort {
    #[serde(default)]
    name: String,
    port: u16,
}

/// The endpoints of a Service.
#[derive(Deserialize)]
struct Endpoints {
    #[serde(default)]
    subsets: Vec<Subset>,
}

#[derive(Deserialize)]
struct Subset {
    #[serde(default)]
    addresses: Vec<EndpointAddress>,
    #[serde(default)]
    ports: Vec<ServicePort>,
}

#[derive(Deserialize)]
struct EndpointAddress {
    ip: String,
}

impl Addresses {
    pub(super) fn new(store: Store, services: Services) -> Addresses {
        Addresses { store, services }
    }

    /// Whether a Service's port is called at a mapped address.
    pub(in crate::shared) fn is_mapped(&self, namespace: &str, name: &str, port: u16) -> bool {
        self.services.find(namespace, name, port).is_some()
    }

    /// The address at which a Service is called, and a hint for the error if nobody responds there.
    ///
    /// # Errors
    /// When the Service has no such port or no address; the text says so.
    pub(in crate::shared) async fn find(
        &self,
        namespace: &str,
        name: &str,
        port: u16,
    ) -> Result<(Base, String), String> {
        if let Some(base) = self.services.find(namespace, name, port) {
            let hint = format!("; --webhook-service maps the service {namespace}/{name} to {}", base.authority);
            return Ok((base.clone(), hint));
        }
        let way = format!(
            "if nothing here routes to the service {namespace}/{name}, say where it is with --webhook-service {namespace}/{name}=https://HOST:PORT"
        );
        let authority = self.own(namespace, name, port).await.map_err(|why| format!("{why}; {way}"))?;
        Ok((Base { is_tls: true, authority }, format!("; {way}")))
    }

    /// The host and port of a Service, from its objects.
    async fn own(&self, namespace: &str, name: &str, port: u16) -> Result<String, String> {
        let key = ObjectKey::namespaced(namespace, name);
        let Service { spec } =
            self.read("services", &key).await?.ok_or_else(|| format!("service {name:?} not found"))?;
        if spec.kind == "ExternalName" {
            return Ok(format!("{}:{port}", spec.external_name));
        }
        let wanted = spec.ports.iter().find(|one| one.port == port);
        let wanted = wanted.ok_or_else(|| format!("no service port {port} found for service {name:?}"));
        if self.services.route == Route::Endpoints
            && let Some(endpoints) = self.read::<Endpoints>("endpoints", &key).await?
        {
            let port = &wanted?.name;
            let found = endpoints.of_port(port).choose(&mut rand::rng()).map(|(ip, port)| authority(ip, *port));
            return found.ok_or_else(|| format!("no endpoints available for service {name:?}"));
        }
        match spec.cluster_ip.as_str() {
            "" | "None" => Err("cannot route to service with ClusterIP \"None\"".to_owned()),
            ip => wanted.map(|port| authority(ip, port.port)),
        }
    }

    /// An object of the core group.
    async fn read<T: DeserializeOwned>(&self, resource: &str, key: &ObjectKey) -> Result<Option<T>, String> {
        let group_resource = GroupResource::new("", resource);
        let found = match self.store.get_cached(&group_resource, key) {
            Some(found) => Some(found),
            // The cache may lag.
            None => self.store.get(&group_resource, key).await.map_err(|error| error.to_string())?,
        };
        let Some(found) = found else { return Ok(None) };
        let read = serde_json::from_slice(found.json());
        read.map(Some).map_err(|error| format!("{resource} {:?} is not readable: {error}", key.name.as_ref()))
    }
}

impl Endpoints {
    /// The ready addresses that have a port of this name, each with its number.
    fn of_port(&self, name: &str) -> Vec<(&str, u16)> {
        let subsets = self.subsets.iter().filter_map(|subset| {
            let port = subset.ports.iter().find(|port| port.name == name)?.port;
            Some(subset.addresses.iter().map(move |address| (address.ip.as_str(), port)))
        });
        subsets.flatten().collect()
    }
}

fn authority(ip: &str, port: u16) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Addresses").field("services", &self.services).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::webhook::Mapping;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use steersman_storage::{Memory, Options};

    async fn find(objects: &[(&str, &Value)], route: Route, name: &str, port: u16) -> Result<String, String> {
        let store = Store::open(Arc::new(Memory::new()), Options::default()).await.unwrap();
        for (resource, object) in objects {
            let key = ObjectKey::namespaced("a", object["metadata"]["name"].as_str().unwrap());
            store.create(&GroupResource::new("", *resource), &key, object.to_string().into()).await.unwrap();
        }
        let mapping: Mapping = "a/mapped=https://elsewhere:1".parse().unwrap();
        let addresses = Addresses::new(store, Services::new([mapping]).unwrap().with_route(route));
        addresses.find("a", name, port).await.map(|(base, _)| base.authority)
    }

    #[tokio::test]
    async fn a_service_is_called_at_its_endpoints_before_its_cluster_ip() {
        let metadata = json!({"name": "s", "namespace": "a", "uid": "u"});
        let ports = json!([{"name": "other", "port": 1}, {"name": "web", "port": 443}]);
        let spec = json!({"type": "ClusterIP", "clusterIP": "10.96.0.7", "ports": ports});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        let endpoints =
            |subsets: Value| json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets});
        let ready = endpoints(json!([
            {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "other", "port": 8080}]},
            {"notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [{"name": "web", "port": 8443}]},
            {"addresses": [{"ip": "fd00::3"}], "ports": [{"name": "web", "port": 8443}]},
        ]));
        let none = endpoints(json!([]));
        let alone = [("services", &service)];
        let with = |endpoints| [("services", &service), ("endpoints", endpoints)];
        let address = |text: &str| Ok(text.to_owned());
        assert_eq!(find(&with(&ready), Route::Endpoints, "s", 443).await, address("[fd00::3]:8443"));
        assert_eq!(find(&with(&ready), Route::ClusterIp, "s", 443).await, address("10.96.0.7:443"));
        assert_eq!(find(&alone, Route::Endpoints, "s", 443).await, address("10.96.0.7:443"));
        assert_eq!(find(&alone, Route::Endpoints, "mapped", 443).await, address("elsewhere:1"));
        let error = find(&with(&none), Route::Endpoints, "s", 443).await.unwrap_err();
        assert!(error.starts_with("no endpoints available for service \"s\"; if nothing here routes to"), "{error}");
        let error = find(&with(&ready), Route::Endpoints, "s", 80).await.unwrap_err();
        assert!(error.starts_with("no service port 80 found for service \"s\""), "{error}");
        let error = find(&[], Route::Endpoints, "s", 80).await.unwrap_err();
        assert!(error.starts_with("service \"s\" not found"), "{error}");
    }
}
