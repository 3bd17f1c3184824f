//! Looks up kinds in the server's discovery, for loops that get kinds by name.

use crate::shared::refusal;
use hashbrown::HashMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResource, APIResourceList};
use kube::Client;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// How long a kind is cached.
const KNOWN_FOR: Duration = Duration::from_secs(30);
const KINDS_MAX: usize = 256;

/// A served resource.
#[derive(Clone, Debug)]
pub(crate) struct ServedResource {
    /// Group and version, or the version alone in the core group.
    pub(crate) api_version: String,
    pub(crate) version: String,
    pub(crate) resource: APIResource,
    /// Whether the resource has the subresource `scale`.
    pub(crate) has_scale: bool,
}

/// The group or group version in which a kind is looked up.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Within {
    /// A group, in any version that has the kind.
    Group(String),
    /// A group version, such as `apps/v1` or `v1`.
    Version(String),
}

/// A cache of kinds.
pub(crate) struct Kinds {
    client: Client,
    known: Mutex<HashMap<(Within, String), (ServedResource, Instant)>>,
}

impl ServedResource {
    /// The first resource of a list that is `wanted`.
    fn of(listed: APIResourceList, version: String, wanted: impl Fn(&APIResource) -> bool) -> Option<ServedResource> {
        let resource = listed.resources.iter().find(|one| wanted(one))?.clone();
        let scale = format!("{}/scale", resource.name);
        let has_scale = listed.resources.iter().any(|one| one.name == scale && one.kind == "Scale");
        Some(ServedResource { api_version: listed.group_version, version, resource, has_scale })
    }

    /// The path of the resource's objects in a namespace.
    pub(crate) fn path(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "/apis" } else { "/api" };
        format!("{root}/{}/namespaces/{namespace}/{}", self.api_version, self.resource.name)
    }
}

/// The first resource of a group that is `wanted`, preferably in the group's preferred version. Subresources have a
/// slash in their names.
///
/// # Errors
/// When the server does not answer. A group that is not served yields `None`.
pub(crate) async fn find(
    client: &Client,
    group: &str,
    wanted: impl Fn(&APIResource) -> bool,
) -> Result<Option<ServedResource>, kube::Error> {
    if group.is_empty() {
        return find_in(client, "v1", wanted).await;
    }
    let groups = client.list_api_groups().await?;
    let Some(group) = groups.groups.into_iter().find(|found| found.name == group) else { return Ok(None) };
    let preferred = group.preferred_version.clone();
    let others = group.versions.into_iter().filter(|version| Some(version) != preferred.as_ref());
    for version in preferred.clone().into_iter().chain(others) {
        let listed = client.list_api_group_resources(&version.group_version).await?;
        if let Some(found) = ServedResource::of(listed, version.version, &wanted) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The first resource of a group version that is `wanted`.
///
/// # Errors
/// When the server does not answer. A group version that is not served yields `None`.
async fn find_in(
    client: &Client,
    api_version: &str,
    wanted: impl Fn(&APIResource) -> bool,
) -> Result<Option<ServedResource>, kube::Error> {
    let version = api_version.split_once('/').map(|(_, version)| version);
    let listed = match version {
        None => client.list_core_api_resources(api_version).await,
        Some(_) => client.list_api_group_resources(api_version).await,
    };
    match listed {
        Ok(listed) => Ok(ServedResource::of(listed, version.unwrap_or(api_version).to_owned(), wanted)),
        Err(error) if refusal::is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

// === impl Kinds ===

impl Kinds {
    pub(crate) fn new(client: Client) -> Kinds {
        Kinds { client, known: Mutex::default() }
    }

    /// The resource of a kind, if it is served. The answer may be half a minute old.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(crate) async fn find(&self, within: Within, kind: &str) -> Result<Option<ServedResource>, kube::Error> {
        let key = (within, kind.to_owned());
        let known = self.known.lock().get(&key).filter(|(_, at)| at.elapsed() < KNOWN_FOR).cloned();
        if let Some((found, _)) = known {
            return Ok(Some(found));
        }
        let is_it = |one: &APIResource| one.kind == kind && !one.name.contains('/');
        let found = match &key.0 {
            Within::Group(group) => find(&self.client, group, is_it).await?,
            Within::Version(api_version) => find_in(&self.client, api_version, is_it).await?,
        };
        if let Some(found) = &found {
            let mut known = self.known.lock();
            if known.len() >= KINDS_MAX {
                known.clear();
            }
            known.insert(key, (found.clone(), Instant::now()));
        }
        Ok(found)
    }
}
