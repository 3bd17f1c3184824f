//! Manifests: YAML documents, applied to the server like `kubectl apply --server-side` does.

use crate::plane::{ControlPlane, chain};
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use kube::api::DynamicObject;
use serde_json::Value;

/// The field manager of [`ControlPlane::apply`].
const MANAGER: &str = "testkit";

/// Why a manifest was not applied. Earlier documents than the named one were applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// A document has no `apiVersion`, no `kind`, or neither `metadata.name` nor `metadata.generateName`.
    #[error("document {document} of the manifest has no {field}")]
    Incomplete {
        /// The number of the document, from one.
        document: usize,
        /// The field that is missing.
        field: &'static str,
    },
    /// The server refused the object, or its kind could not be looked up.
    #[error("{kind} {name:?} (document {document}) could not be applied")]
    Refused {
        /// The number of the document, from one.
        document: usize,
        /// The kind of the object.
        kind: String,
        /// Its name, or its `generateName`.
        name: String,
        /// The answer of the server.
        #[source]
        source: kube::Error,
    },
    /// The server does not serve the kind.
    #[error(
        "document {document} is a {kind} of {api_version}, which is not served: apply its CustomResourceDefinition first"
    )]
    UnknownKind {
        /// The number of the document, from one.
        document: usize,
        /// The `apiVersion` of the document.
        api_version: String,
        /// The `kind` of the document.
        kind: String,
    },
    /// The text is not YAML.
    #[error("the manifest is not readable as YAML: {message}")]
    Yaml {
        /// The place and the cause.
        message: String,
    },
}

/// A document of a manifest, with the parts that are needed to send it.
struct Document {
    number: usize,
    object: Value,
    api_version: String,
    kind: String,
    name: Option<String>,
    namespace: String,
}

// === impl ControlPlane: manifests ===

impl ControlPlane {
    /// Applies every document of a YAML manifest, in order, and returns the objects in the server's answers. An object
    /// without a namespace goes to `default`; one with only a `generateName` is created.
    ///
    /// When this returns, a definition is in force: its objects may follow in the same manifest.
    pub async fn apply(&self, yaml: &str) -> Vec<DynamicObject> {
        self.try_apply(yaml).await.unwrap_or_else(|error| panic!("{}", chain(&error)))
    }

    /// As [`ControlPlane::apply`], for manifests that the server may refuse.
    ///
    /// # Errors
    /// [`ApplyError`] for the first document that was not applied.
    pub async fn try_apply(&self, yaml: &str) -> Result<Vec<DynamicObject>, ApplyError> {
        let client = self.own_client();
        let mut applied = Vec::new();
        for document in read(yaml)? {
            applied.push(document.send(&client).await?);
        }
        Ok(applied)
    }
}

fn read(yaml: &str) -> Result<Vec<Document>, ApplyError> {
    // Numbers are read as the server reads them: `0644` is a file mode.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(yaml, options)
        .map_err(|error| ApplyError::Yaml { message: error.to_string() })?;
    let documents = documents.into_iter().enumerate().filter(|(_, document)| !document.is_null());
    documents.map(|(index, object)| Document::new(index + 1, object)).collect()
}

impl Document {
    fn new(number: usize, object: Value) -> Result<Document, ApplyError> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let missing = |field| ApplyError::Incomplete { document: number, field };
        let api_version = text("/apiVersion").ok_or_else(|| missing("apiVersion"))?.to_owned();
        let kind = text("/kind").ok_or_else(|| missing("kind"))?.to_owned();
        let name = text("/metadata/name").map(str::to_owned);
        if name.is_none() && text("/metadata/generateName").is_none() {
            return Err(missing("metadata.name"));
        }
        let namespace = text("/metadata/namespace").unwrap_or("default").to_owned();
        Ok(Document { number, object, api_version, kind, name, namespace })
    }

    async fn send(self, client: &Client) -> Result<DynamicObject, ApplyError> {
        let collection = self.collection(client).await?;
        let request = match &self.name {
            Some(name) => Request::patch(format!("{collection}/{name}?fieldManager={MANAGER}&force=true"))
                .header("content-type", "application/apply-patch+yaml"),
            None => {
                Request::post(format!("{collection}?fieldManager={MANAGER}")).header("content-type", "application/json")
            }
        };
        let request = request.body(self.object.to_string().into_bytes());
        let request = request.map_err(|error| self.refused(kube::Error::HttpError(error)))?;
        client.request(request).await.map_err(|error| self.refused(error))
    }

    /// The path of the objects of the document's kind.
    async fn collection(&self, client: &Client) -> Result<String, ApplyError> {
        let served = match self.api_version.contains('/') {
            true => client.list_api_group_resources(&self.api_version).await,
            false => client.list_core_api_resources(&self.api_version).await,
        };
        let unknown = || ApplyError::UnknownKind {
            document: self.number,
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
        };
        let APIResourceList { resources, .. } = match served {
            Ok(served) => served,
            Err(kube::Error::Api(status)) if status.code == 404 => return Err(unknown()),
            Err(error) => return Err(self.refused(error)),
        };
        let is_own = |name: &str, kind: &str| kind == self.kind && !name.contains('/');
        let resource = resources.iter().find(|resource| is_own(&resource.name, &resource.kind)).ok_or_else(unknown)?;
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        Ok(match resource.namespaced {
            true => format!("/{root}/{}/namespaces/{}/{}", self.api_version, self.namespace, resource.name),
            false => format!("/{root}/{}/{}", self.api_version, resource.name),
        })
    }

    fn refused(&self, source: kube::Error) -> ApplyError {
        let given = self.object.pointer("/metadata/generateName").and_then(Value::as_str);
        let name = self.name.as_deref().or(given).unwrap_or_default().to_owned();
        ApplyError::Refused { document: self.number, kind: self.kind.clone(), name, source }
    }
}
