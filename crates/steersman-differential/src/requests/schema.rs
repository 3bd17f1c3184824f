//! The schemas of the kinds, as OpenAPI v3 documents of the kube-apiserver hold them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::server::Server;

/// All documents of a server, by the prefix of their paths, such as `/apis/apps/v1`.
pub(crate) struct Schemas {
    documents: BTreeMap<String, Value>,
}

/// A schema and the document that its references point into.
#[derive(Clone, Copy)]
pub(crate) struct Schema<'a> {
    document: &'a Value,
    pub(crate) node: &'a Value,
    /// The name of the component that a reference led to; empty for one that is written in place.
    pub(crate) name: &'a str,
}

// === impl Schemas ===

impl Schemas {
    pub(crate) async fn read(server: &Server) -> anyhow::Result<Schemas> {
        let index = server.get("/openapi/v3").await?;
        let mut documents = BTreeMap::new();
        for (prefix, entry) in index["paths"].as_object().into_iter().flatten() {
            let is_group_version =
                prefix == "api/v1" || prefix.starts_with("apis/") && prefix.matches('/').count() == 2;
            if let (true, Some(url)) = (is_group_version, entry["serverRelativeURL"].as_str()) {
                documents.insert(format!("/{prefix}"), server.get(url).await?);
            }
        }
        Ok(Schemas { documents })
    }

    /// The schema of what is posted to a collection.
    pub(crate) fn posted(&self, prefix: &str, collection: &str) -> Option<Schema<'_>> {
        let document = self.documents.get(prefix)?;
        let content = document["paths"][collection]["post"]["requestBody"]["content"].as_object()?;
        let (_, content) = content.iter().next()?;
        Some(Schema { document, node: &content["schema"], name: "" }.resolved())
    }
}

// === impl Schema ===

impl<'a> Schema<'a> {
    /// Follows references; OpenAPI puts one into an `allOf` where the field has a default or a description.
    fn resolved(mut self) -> Schema<'a> {
        loop {
            let reference = self.node["$ref"].as_str().or_else(|| self.node["allOf"][0]["$ref"].as_str());
            let Some(name) = reference.and_then(|reference| reference.rsplit('/').next()) else { return self };
            self = Schema { document: self.document, node: &self.document["components"]["schemas"][name], name };
        }
    }

    pub(crate) fn properties(self) -> impl Iterator<Item = (&'a str, Schema<'a>)> {
        static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        let properties = self.node["properties"].as_object().unwrap_or(&NONE);
        properties.iter().map(move |(name, node)| (name.as_str(), self.at(node)))
    }

    /// The schema of a field of an object, or of a value of a map.
    pub(crate) fn field(self, name: &str) -> Option<Schema<'a>> {
        let found = self.node["properties"].get(name).or_else(|| self.node.get("additionalProperties"));
        found.filter(|node| node.is_object()).map(|node| self.at(node))
    }

    pub(crate) fn items(self) -> Option<Schema<'a>> {
        self.node.get("items").map(|node| self.at(node))
    }

    pub(crate) fn kind(self) -> &'a str {
        self.node["type"].as_str().unwrap_or_default()
    }

    /// The key by which strategic merge patches find an item of this list.
    pub(crate) fn merge_key(self) -> Option<&'a str> {
        self.node["x-kubernetes-patch-merge-key"].as_str()
    }

    fn at(self, node: &'a Value) -> Schema<'a> {
        Schema { document: self.document, node, name: "" }.resolved()
    }
}
