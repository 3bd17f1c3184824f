//! The kind itself: its struct, and the impls that make it an object of the API.
//!
//! The impls are written out and not derived. The traits of k8s-openapi consist of few constants, `kube::Resource`
//! follows from them, and a kind needs neither a `spec` nor a schema for it.

use std::fmt::Write as _;

use crate::crd::{Definition, Scope, Version};
use crate::types::model::{Field, Presence, Type};
use crate::types::print::{COLUMNS, Printer, Serialization, literal};

pub(crate) fn print(printer: &mut Printer<'_>, definition: &Definition, version: &Version) {
    let model = printer.model;
    let root = &model.root;
    let kind = &root.name;
    printer.import("k8s_openapi::apimachinery::pkg::apis::meta::v1", "ObjectMeta");
    printer.import("serde", "Deserialize");
    printer.import("serde", "Serialize");
    printer.import("serde", "Serializer");
    printer.import("serde::ser", "SerializeMap");

    if printer.options.docs {
        let mut docs = match &version.schema.description {
            Some(description) => description.clone(),
            None => format!("An object of the kind `{}`.", definition.names.kind),
        };
        if let Some(warning) = &version.deprecation {
            let warning = if warning.is_empty() { "This version is deprecated." } else { warning };
            let _ = write!(docs, "\n\n{warning}");
        }
        printer.docs(&docs, 0);
    }
    let mut derives = vec!["Clone", "Debug", "Deserialize", "PartialEq"];
    if root.can_default {
        derives.push("Default");
    }
    printer.derives(&derives);
    let first = ["#[serde(default)]", "pub metadata: ObjectMeta,"];
    printer.structure(kind, &first, &root.fields, root.others.as_deref(), Serialization::ByHand);

    let list = format!("{kind}List");
    if printer.options.docs {
        printer.out.push('\n');
        printer.docs(&format!("A list of {kind} objects, as the API server answers it."), 0);
    } else {
        printer.out.push('\n');
    }
    let _ = writeln!(printer.out, "pub type {list} = k8s_openapi::List<{kind}>;");

    constructor(printer);
    let scope = match definition.scope {
        Scope::Cluster => "ClusterResourceScope",
        Scope::Namespaced => "NamespaceResourceScope",
    };
    let api_version = format!("{}/{}", definition.group, version.name);
    let _ = write!(
        printer.out,
        "
impl k8s_openapi::Resource for {kind} {{
    const API_VERSION: &'static str = {};
    const GROUP: &'static str = {};
    const KIND: &'static str = {};
    const VERSION: &'static str = {};
    const URL_PATH_SEGMENT: &'static str = {};
    type Scope = k8s_openapi::{scope};
}}

impl k8s_openapi::ListableResource for {kind} {{
    const LIST_KIND: &'static str = {};
}}

impl k8s_openapi::Metadata for {kind} {{
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {{
        &self.metadata
    }}

    fn metadata_mut(&mut self) -> &mut ObjectMeta {{
        &mut self.metadata
    }}
}}
",
        literal(&api_version),
        literal(&definition.group),
        literal(&definition.names.kind),
        literal(&version.name),
        literal(&definition.names.plural),
        literal(&definition.names.list_kind),
    );
    serialize(printer, &api_version, &definition.names.kind);
    if root.others.is_some() {
        other_fields(printer);
    }
}

/// Writes `Network::new(name, spec)`, if no other field is required.
fn constructor(printer: &mut Printer<'_>) {
    let model = printer.model;
    let root = &model.root;
    let Some(spec) = root.fields.iter().find(|field| field.json_name == "spec") else { return };
    let is_only_requirement =
        root.fields.iter().all(|field| field.json_name == "spec" || field.presence == Presence::Optional);
    let Type::Named(_) = &spec.ty else { return };
    if !is_only_requirement {
        return;
    }
    let kind = &root.name;
    let spec_type = printer.type_text(&spec.ty);
    let mut fields = vec!["metadata".to_owned()];
    for field in &root.fields {
        fields.push(match (field.json_name.as_str(), field.presence) {
            ("spec", Presence::Optional) => "spec: Some(spec)".to_owned(),
            ("spec", _) => "spec".to_owned(),
            _ => format!("{}: None", field.name),
        });
    }
    if let Some(others) = &root.others {
        fields.push(format!("{others}: BTreeMap::new()"));
    }
    let docs = if printer.options.docs {
        "    /// An object with this name and spec, as it is before the API server has it.\n"
    } else {
        ""
    };
    let short = fields.join(", ");
    let body = if short.len() <= SMALL_STRUCT_MAX {
        format!("        {kind} {{ {short} }}\n")
    } else {
        let lines: String = fields.iter().map(|field| format!("            {field},\n")).collect();
        format!("        {kind} {{\n{lines}        }}\n")
    };
    let line = format!("    pub fn new(name: impl Into<String>, spec: {spec_type}) -> {kind} {{\n");
    let signature = if line.trim_end().len() <= COLUMNS {
        line
    } else {
        format!("    pub fn new(\n        name: impl Into<String>,\n        spec: {spec_type},\n    ) -> {kind} {{\n")
    };
    let _ = write!(
        printer.out,
        "
impl {kind} {{
{docs}{signature}        let metadata = ObjectMeta {{
            name: Some(name.into()),
            ..ObjectMeta::default()
        }};
{body}    }}
}}
"
    );
}

/// The width up to which rustfmt leaves the fields of a struct literal on one line.
const SMALL_STRUCT_MAX: usize = 18;

/// Writes the `Serialize` impl, which adds apiVersion and kind.
fn serialize(printer: &mut Printer<'_>, api_version: &str, kind_name: &str) {
    let model = printer.model;
    let root = &model.root;
    let kind = &root.name;
    let mut body = String::new();
    let entry = |name: &str, value: &str| format!("object.serialize_entry({}, {value})?;", literal(name));
    let _ = writeln!(body, "        {}", entry("apiVersion", &literal(api_version)));
    let _ = writeln!(body, "        {}", entry("kind", &literal(kind_name)));
    let _ = writeln!(body, "        {}", entry("metadata", "&self.metadata"));
    for field in &root.fields {
        let Field { name, json_name, presence, .. } = field;
        if *presence == Presence::Optional {
            let _ = write!(
                body,
                "        if let Some({name}) = &self.{name} {{\n            {}\n        }}\n",
                entry(json_name, name)
            );
        } else {
            let _ = writeln!(body, "        {}", entry(json_name, &format!("&self.{name}")));
        }
    }
    if let Some(others) = &root.others {
        let _ = write!(
            body,
            "        for (name, value) in &self.{others} {{\n            object.serialize_entry(name, value)?;\n        }}\n"
        );
    }
    let _ = write!(
        printer.out,
        "
impl Serialize for {kind} {{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {{
        let mut object = serializer.serialize_map(None)?;
{body}        object.end()
    }}
}}
"
    );
}

/// Writes the deserializer of the fields that the schema does not name, which drops apiVersion and kind.
fn other_fields(printer: &mut Printer<'_>) {
    let fields = printer.type_text(&Type::Map(Box::new(Type::Any)));
    printer.import("serde", "Deserializer");
    let _ = write!(
        printer.out,
        "
fn other_fields<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<{fields}, D::Error> {{
    let mut fields = <{fields}>::deserialize(deserializer)?;
    fields.retain(|name, _| name != \"apiVersion\" && name != \"kind\");
    Ok(fields)
}}
"
    );
}
