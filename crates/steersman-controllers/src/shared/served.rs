//! The resources in the API server's discovery documents, with their verbs.
//!
//! The garbage collector watches them, and the namespace loop deletes their objects.

use kube::Client;
use kube::core::discovery::v2::{APIGroupDiscoveryList, APIResourceDiscovery};
use kube::core::{ApiResource, GroupVersion};
use kube::discovery::Scope;
use std::collections::{BTreeMap, BTreeSet};

/// A resource in one version of its group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Served {
    pub(crate) resource: ApiResource,
    pub(crate) scope: Scope,
    /// Whether this is the preferred version of the resource. Each resource has one.
    pub(crate) is_preferred: bool,
    verbs: BTreeSet<String>,
}

/// All resources, in the order of the documents.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Catalog {
    pub(crate) resources: Vec<Served>,
    /// Group versions whose server did not answer: their resources are unknown or outdated.
    pub(crate) stale: BTreeSet<(String, String)>,
}

impl Served {
    pub(crate) fn can(&self, verb: &str) -> bool {
        self.verbs.contains(verb)
    }

    pub(crate) fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }
}

impl Catalog {
    /// Discovers the served resources, with two requests.
    ///
    /// # Errors
    /// When the server does not answer them.
    pub(crate) async fn discover(client: &Client) -> kube::Result<Catalog> {
        let core = client.list_core_api_versions_aggregated().await?;
        let groups = client.list_api_groups_aggregated().await?;
        Ok(Catalog::of([core, groups]))
    }

    pub(crate) fn of(documents: impl IntoIterator<Item = APIGroupDiscoveryList>) -> Catalog {
        let mut catalog = Catalog::default();
        for group in documents.into_iter().flat_map(|document| document.items) {
            let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
            // Versions are listed by preference: a resource is preferred in the first version that has it.
            let mut seen = BTreeMap::new();
            for version in group.versions {
                let gv = GroupVersion { group: name.clone(), version: version.version.unwrap_or_default() };
                if version.freshness.as_deref() == Some("Stale") {
                    catalog.stale.insert((gv.group.clone(), gv.version.clone()));
                }
                for resource in version.resources {
                    let Some(plural) = resource.resource.clone().filter(|plural| !plural.is_empty()) else { continue };
                    let first = seen.entry(plural).or_insert_with(|| gv.version.clone());
                    let is_preferred = *first == gv.version;
                    catalog.resources.push(served(resource, &gv, is_preferred));
                }
            }
        }
        catalog
    }
}

fn served(resource: APIResourceDiscovery, gv: &GroupVersion, is_preferred: bool) -> Served {
    Served {
        resource: ApiResource {
            group: gv.group.clone(),
            version: gv.version.clone(),
            api_version: gv.api_version(),
            kind: resource.response_kind.and_then(|kind| kind.kind).unwrap_or_default(),
            plural: resource.resource.unwrap_or_default(),
        },
        scope: match resource.scope.as_deref() {
            Some("Namespaced") => Scope::Namespaced,
            _ => Scope::Cluster,
        },
        is_preferred,
        verbs: resource.verbs.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_resource_is_preferred_in_the_first_version_that_has_it() {
        let resource = |plural: &str| json!({"resource": plural, "scope": "Namespaced", "verbs": ["list"], "responseKind": {"kind": plural}});
        let document = json!({"items": [{"metadata": {"name": "shop"}, "versions": [
            {"version": "v2", "freshness": "Current", "resources": [resource("carts")]},
            {"version": "v1", "freshness": "Stale", "resources": [resource("carts"), resource("tills")]},
        ]}]});
        let catalog = Catalog::of([serde_json::from_value(document).unwrap()]);
        let found: Vec<_> = catalog
            .resources
            .iter()
            .map(|one| (one.resource.plural.as_str(), one.resource.api_version.as_str(), one.is_preferred))
            .collect();
        assert_eq!(found, [("carts", "shop/v2", true), ("carts", "shop/v1", false), ("tills", "shop/v1", true)]);
        assert!(catalog.resources[0].can("list") && !catalog.resources[0].can("delete"));
        assert_eq!(catalog.stale, [("shop".to_owned(), "v1".to_owned())].into());
    }
}
