//! What the server says it serves, for loops that meet kinds by name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Client;

/// A resource that is served.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Group and version, or the version alone in the core group.
    pub(crate) api_version: String,
    pub(crate) version: String,
    pub(crate) resource: APIResource,
}

impl Found {
    /// Where objects of a namespace are.
    pub(crate) fn path(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "/apis" } else { "/api" };
        format!("{root}/{}/namespaces/{namespace}/{}", self.api_version, self.resource.name)
    }
}

/// The first resource of a group that is `wanted`, in the preferred version if it is there. Subresources have a slash in their names.
///
/// # Errors
/// When the server does not answer. That it does not serve the group is `None`.
pub(crate) async fn find(
    client: &Client,
    group: &str,
    wanted: impl Fn(&APIResource) -> bool,
) -> Result<Option<Found>, kube::Error> {
    if group.is_empty() {
        let listed = client.list_core_api_resources("v1").await?;
        let found = listed.resources.into_iter().find(|one| wanted(one));
        let version = || "v1".to_owned();
        return Ok(found.map(|resource| Found { api_version: version(), version: version(), resource }));
    }
    let groups = client.list_api_groups().await?;
    let Some(group) = groups.groups.into_iter().find(|found| found.name == group) else { return Ok(None) };
    let preferred = group.preferred_version.clone();
    let others = group.versions.into_iter().filter(|version| Some(version) != preferred.as_ref());
    for version in preferred.clone().into_iter().chain(others) {
        let listed = client.list_api_group_resources(&version.group_version).await?;
        if let Some(resource) = listed.resources.into_iter().find(|one| wanted(one)) {
            return Ok(Some(Found { api_version: version.group_version, version: version.version, resource }));
        }
    }
    Ok(None)
}
