//! The schemas that a server serves, and the bodies that cost it most: every list of every kind, filled with the cheapest item.

use serde_json::{Map, Value, json};

use crate::client::{Connection, Request};

/// How deep lists are looked for. Deeper ones are lists of the same types in templates.
const DEPTH_MAX: usize = 6;

/// A list somewhere in a kind that users may create in a namespace.
#[derive(Clone, Debug)]
pub struct List {
    pub api_version: String,
    pub kind: String,
    /// The collection, with `{namespace}` in it.
    pub path: String,
    /// The fields that lead to the list. A `*` is the one item of a list on the way.
    fields: Vec<String>,
    /// The cheapest item that has the type of an item.
    item: &'static str,
}

// === impl List ===

impl List {
    /// An object whose list has so many items. Written as text: as a tree it would cost the client as much as the server.
    pub fn object(&self, name: &str, n_items: usize) -> String {
        let mut items = String::with_capacity(n_items * (self.item.len() + 1) + 2);
        items.push('[');
        for index in 0..n_items {
            items.push_str(if index == 0 { "" } else { "," });
            items.push_str(self.item);
        }
        items.push(']');
        let mut text = items;
        for field in self.fields.iter().rev() {
            text =
                if field == "*" { format!("[{text}]") } else { format!("{{{}:{text}}}", Value::from(field.as_str())) };
        }
        let head = json!({"apiVersion": self.api_version, "kind": self.kind}).to_string();
        let (head, rest) = (&head[..head.len() - 1], &text[1..]);
        // A list in the metadata shares that object with the name.
        match rest.strip_prefix("\"metadata\":{") {
            Some(rest) => format!("{head},\"metadata\":{{\"name\":\"{name}\",{rest}"),
            None => format!("{head},\"metadata\":{{\"name\":\"{name}\"}},{rest}"),
        }
    }
}

/// The lists of all kinds that are created in namespaces.
///
/// # Errors
/// When the server does not serve its schemas.
pub async fn lists(admin: &mut Connection) -> anyhow::Result<Vec<List>> {
    let index: Value = serde_json::from_slice(&admin.ok(&Request::get("/openapi/v3")).await?)?;
    let mut lists = Vec::new();
    for path in index["paths"].as_object().into_iter().flatten() {
        let (name, at) = (path.0, path.1["serverRelativeURL"].as_str().unwrap_or_default());
        let is_group_version = name.starts_with("apis/") && name.matches('/').count() == 2 || name == "api/v1";
        if is_group_version {
            let document: Value = serde_json::from_slice(&admin.ok(&Request::get(at)).await?)?;
            of_document(&document, &mut lists);
        }
    }
    Ok(lists)
}

fn of_document(document: &Value, lists: &mut Vec<List>) {
    for (path, operations) in document["paths"].as_object().into_iter().flatten() {
        let kind = &operations["post"]["x-kubernetes-group-version-kind"];
        let is_collection =
            path.contains("/namespaces/{namespace}/") && !path.ends_with('}') && !path.contains("{name}");
        let (Some(version), Some(kind), true) = (kind["version"].as_str(), kind["kind"].as_str(), is_collection) else {
            continue;
        };
        let group = operations["post"]["x-kubernetes-group-version-kind"]["group"].as_str().unwrap_or_default();
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let content = operations["post"]["requestBody"]["content"].as_object().into_iter().flatten().next();
        let Some((_, content)) = content else { continue };
        let mut found = Vec::new();
        walk(document, &content["schema"], &mut Vec::new(), &mut found);
        lists.extend(found.into_iter().map(|(fields, item)| List {
            api_version: api_version.clone(),
            kind: kind.to_owned(),
            path: path.clone(),
            fields,
            item,
        }));
    }
}

fn walk(document: &Value, schema: &Value, fields: &mut Vec<String>, found: &mut Vec<(Vec<String>, &'static str)>) {
    if fields.len() > DEPTH_MAX {
        return;
    }
    let schema = resolve(document, schema);
    if schema["type"] == "array" {
        let items = resolve(document, &schema["items"]);
        let item = match items["type"].as_str() {
            Some("string") => "\"\"",
            Some("integer" | "number") => "0",
            Some("boolean") => "false",
            Some("array") => "[]",
            _ => "{}",
        };
        found.push((fields.clone(), item));
        fields.push("*".to_owned());
        walk(document, items, fields, found);
        fields.pop();
        return;
    }
    for (name, property) in schema["properties"].as_object().unwrap_or(&Map::new()) {
        // The status is dropped from what a user creates, after it was decoded.
        fields.push(name.clone());
        walk(document, property, fields, found);
        fields.pop();
    }
}

/// Follows a reference to its schema; OpenAPI puts one into an `allOf` where it has a default.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    loop {
        let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
        let Some(name) = reference.and_then(|reference| reference.rsplit('/').next()) else { return schema };
        schema = &document["components"]["schemas"][name];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_holds_its_list_where_the_schema_has_it() {
        let list = |fields: &[&str]| List {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            path: String::new(),
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
            item: "{}",
        };
        let object = |fields: &[&str]| serde_json::from_str::<Value>(&list(fields).object("a", 2)).unwrap();
        let want =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"a": [{"b": [{}, {}]}]}});
        assert_eq!(object(&["spec", "a", "*", "b"]), want);
        assert_eq!(
            object(&["metadata", "ownerReferences"])["metadata"],
            json!({"name": "a", "ownerReferences": [{}, {}]})
        );
    }

    #[test]
    fn lists_are_found_behind_references() {
        let post = json!({
            "x-kubernetes-group-version-kind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestBody": {"content": {"*/*": {"schema": {"$ref": "#/components/schemas/Pod"}}}},
        });
        let document = json!({
            "paths": {"/api/v1/namespaces/{namespace}/pods": {"post": post}},
            "components": {"schemas": {
                "Pod": {"properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/Spec"}], "default": {}}}},
                "Spec": {"properties": {"names": {"type": "array", "items": {"type": "string"}}}},
            }},
        });
        let mut lists = Vec::new();
        of_document(&document, &mut lists);
        assert_eq!(lists.len(), 1);
        let object: Value = serde_json::from_str(&lists[0].object("a", 1)).unwrap();
        assert_eq!(object["spec"], json!({"names": [""]}));
    }
}
