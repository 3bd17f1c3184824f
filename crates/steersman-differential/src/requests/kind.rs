//! The kinds that are compared: where they are served, their schema, and a valid object.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::requests::schema::{Schema, Schemas};
use crate::server::{Request, Server};

/// Where everything in a namespace is.
pub(crate) const NAMESPACE: &str = "diff";

/// A seed, with what is known of its kind.
pub(crate) struct Kind<'a> {
    pub(crate) plural: String,
    /// The collection, such as `/apis/apps/v1/namespaces/diff/deployments`.
    pub(crate) path: String,
    pub(crate) subresources: Vec<String>,
    pub(crate) schema: Schema<'a>,
    /// A valid object, named like the one that exists on both servers.
    pub(crate) seed: Value,
    /// The number of the seed among those of its kind.
    pub(crate) index: usize,
}

/// A resource as discovery names it.
struct Resource {
    plural: String,
    is_namespaced: bool,
    subresources: Vec<String>,
}

/// A kind for each seed that the server serves and `only` lets through.
pub(crate) async fn kinds<'a>(
    server: &Server,
    schemas: &'a Schemas,
    seeds: Vec<Value>,
    only: &str,
) -> anyhow::Result<Vec<Kind<'a>>> {
    let mut served: BTreeMap<String, BTreeMap<String, Resource>> = BTreeMap::new();
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    let mut kinds = Vec::new();
    for mut seed in seeds {
        let version = seed["apiVersion"].as_str().unwrap_or_default().to_owned();
        let kind = seed["kind"].as_str().unwrap_or_default().to_owned();
        let prefix = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        if !served.contains_key(&prefix) {
            served.insert(prefix.clone(), resources(&server.get(&prefix).await?));
        }
        let resource = served[&prefix].get(&kind).with_context(|| format!("{kind} of {version} is not served"))?;
        if !resource.plural.contains(only) {
            continue;
        }
        let plural = &resource.plural;
        let (path, documented) = if resource.is_namespaced {
            let collection = |namespace| format!("{prefix}/namespaces/{namespace}/{plural}");
            (collection(NAMESPACE), collection("{namespace}"))
        } else {
            let collection = format!("{prefix}/{plural}");
            (collection.clone(), collection)
        };
        let schema = schemas.posted(&prefix, &documented).with_context(|| format!("no schema for {documented}"))?;
        let index = counted.entry(path.clone()).or_default();
        *index += 1;
        if seed["metadata"]["name"].is_null() {
            seed["metadata"]["name"] = json!(format!("base-{index}"));
        }
        if resource.is_namespaced {
            seed["metadata"]["namespace"] = json!(NAMESPACE);
        }
        kinds.push(Kind {
            plural: plural.clone(),
            path,
            subresources: resource.subresources.clone(),
            schema,
            seed,
            index: *index,
        });
    }
    anyhow::ensure!(!kinds.is_empty(), "no kind has a plural that contains {only:?}");
    Ok(kinds)
}

fn resources(list: &Value) -> BTreeMap<String, Resource> {
    let entries = list["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut found = BTreeMap::new();
    for entry in entries {
        let (Some(plural), Some(kind)) = (entry["name"].as_str(), entry["kind"].as_str()) else { continue };
        if !plural.contains('/') {
            let prefix = format!("{plural}/");
            let subresources = entries.iter().filter_map(|entry| entry["name"].as_str()?.strip_prefix(&prefix));
            let resource = Resource {
                plural: plural.to_owned(),
                is_namespaced: entry["namespaced"] == true,
                subresources: subresources.map(str::to_owned).collect(),
            };
            found.insert(kind.to_owned(), resource);
        }
    }
    found
}

// === impl Kind ===

impl Kind<'_> {
    pub(crate) fn name(&self) -> &str {
        self.seed["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The requests that make the object: by a client, and by an apply of another manager.
    pub(crate) fn seeding(&self) -> [Request; 2] {
        let create = Request::write("POST", format!("{}?fieldManager=creator", self.path), &self.seed);
        let apply = Request::write("PATCH", format!("{}?fieldManager=one", self.object_path()), &self.seed);
        [create, Request { content_type: "application/apply-patch+yaml".into(), ..apply }]
    }

    /// The object that exists on both servers.
    pub(crate) fn object_path(&self) -> String {
        format!("{}/{}", self.path, self.name())
    }
}
