//! Parses text to definitions, with errors that name the place.

use serde_json::{Map, Value};

use crate::crd::schema;
use crate::crd::{Column, Definition, Names, ReadError, Scale, Schema, Scope, Source, Version};

const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "CustomResourceDefinition";

/// An object of a manifest, and its path.
pub(crate) struct Reader<'a> {
    path: String,
    object: &'a Map<String, Value>,
}

/// An invalid field: its path, and the problem.
#[derive(Debug)]
pub(crate) struct Wrong {
    path: String,
    problem: String,
}

/// The documents of a text. Empty ones are included as null.
pub(crate) fn documents(file: &str, text: &str) -> Result<Vec<Value>, ReadError> {
    // A file written by another program may be large: the definitions of an operator reach some megabytes.
    let options = serde_saphyr::options! { budget: None, with_snippet: false, legacy_octal_numbers: true };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| ReadError::Syntax { file: file.to_owned(), message: error.to_string() })
}

/// Appends the definitions in `document` to `found`.
pub(crate) fn objects(mut document: Value, found: &mut Vec<Value>) {
    let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
    if kind == KIND {
        found.push(document);
    } else if kind.ends_with("List")
        && let Some(Value::Array(items)) = document.get_mut("items").map(Value::take)
    {
        for item in items {
            objects(item, found);
        }
    }
}

/// Appends the definitions in `document` to `definitions`, and the kinds of other objects to `others`.
pub(crate) fn definitions(
    source: &Source,
    document: Value,
    definitions: &mut Vec<Definition>,
    others: &mut Vec<String>,
) -> Result<(), ReadError> {
    let Value::Object(mut object) = document else { return Ok(()) };
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if kind == KIND || (kind.is_empty() && looks_like_definition(&object)) {
        let definition = definition(source, &api_version, &object).map_err(|wrong| {
            let name = object.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
            let definition = match name {
                Some(name) => format!("{KIND} {name}"),
                None => format!("a {KIND} without a name"),
            };
            ReadError::Field { place: source.clone(), definition, path: wrong.path, problem: wrong.problem }
        })?;
        definitions.push(definition);
        return Ok(());
    }
    if kind.ends_with("List")
        && let Some(Value::Array(items)) = object.remove("items")
    {
        for item in items {
            self::definitions(source, item, definitions, others)?;
        }
        return Ok(());
    }
    let other = if kind.is_empty() { "an object without a kind".to_owned() } else { kind };
    if !others.contains(&other) {
        others.push(other);
    }
    Ok(())
}

/// Whether an object looks like a definition: the items of a list from a server have no kind.
fn looks_like_definition(object: &Map<String, Value>) -> bool {
    object.get("spec").is_some_and(|spec| spec.pointer("/names/kind").is_some() && spec.get("group").is_some())
}

fn definition(source: &Source, api_version: &str, object: &Map<String, Value>) -> Result<Definition, Wrong> {
    let root = Reader { path: String::new(), object };
    let is_known = ["", &format!("{GROUP}/v1"), &format!("{GROUP}/v1beta1")].contains(&api_version);
    if !is_known {
        return Err(root.wrong("apiVersion", &format!("is {api_version:?}: want {GROUP}/v1 or {GROUP}/v1beta1")));
    }
    let spec = root.child("spec")?;
    let group = spec.text("group")?;
    spec.check("group", &group, is_domain(&group), "a domain in lower case, such as storage.example.org")?;
    let names = names(&spec.child("names")?)?;
    let scope = match spec.optional_text("scope")?.as_deref() {
        Some("Cluster") => Scope::Cluster,
        Some("Namespaced") => Scope::Namespaced,
        // The default of v1beta1.
        None | Some("") if api_version.ends_with("v1beta1") => Scope::Namespaced,
        None => return Err(spec.wrong("scope", "is missing: want Cluster or Namespaced")),
        Some(other) => return Err(spec.wrong("scope", &format!("is {other:?}: want Cluster or Namespaced"))),
    };
    let versions = versions(&spec)?;
    let name = match root.optional_child("metadata")? {
        Some(metadata) => {
            let name = metadata.optional_text("name")?;
            if let Some(name) = &name {
                metadata.check("name", name, is_domain(name), "<plural>.<group>")?;
            }
            name
        }
        None => None,
    };
    let name = name.unwrap_or_else(|| format!("{}.{group}", names.plural));
    Ok(Definition { source: source.clone(), name, group, names, scope, versions })
}

fn names(reader: &Reader<'_>) -> Result<Names, Wrong> {
    let kind = reader.text("kind")?;
    let plural = reader.text("plural")?;
    let list_kind = reader.optional_text("listKind")?.filter(|name| !name.is_empty());
    let singular = reader.optional_text("singular")?.filter(|name| !name.is_empty());
    let names = Names {
        list_kind: list_kind.unwrap_or_else(|| format!("{kind}List")),
        singular: singular.unwrap_or_else(|| kind.to_lowercase()),
        short_names: reader.texts("shortNames")?,
        categories: reader.texts("categories")?,
        kind,
        plural,
    };
    for (key, name) in [("kind", &names.kind), ("listKind", &names.list_kind)] {
        let wanted = "letters, digits and '-', beginning with a letter, at most 63";
        reader.check(key, name, is_label(&name.to_ascii_lowercase()), wanted)?;
    }
    let others = [("plural", &names.plural), ("singular", &names.singular)];
    let short_names = names.short_names.iter().map(|name| ("shortNames", name));
    let categories = names.categories.iter().map(|name| ("categories", name));
    for (key, name) in others.into_iter().chain(short_names).chain(categories) {
        reader.check(key, name, is_label(name), LABEL)?;
    }
    Ok(names)
}

/// The requirement that [`is_label`] checks, for messages.
const LABEL: &str = "lower-case letters, digits and '-', beginning with a letter, at most 63";

/// Names become file names, identifiers and comments of generated code, so they must be names that an API server
/// accepts: RFC 1035.
fn is_label(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase()) && is_part_of_domain(name)
}

/// Whether a name is a subdomain by RFC 1123.
fn is_domain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_part_of_domain)
}

fn is_part_of_domain(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(is_known) && !name.starts_with('-') && !name.ends_with('-')
}

/// The versions of a definition. In v1beta1, they take missing parts from the spec, and may be given by a single name.
fn versions(spec: &Reader<'_>) -> Result<Vec<Version>, Wrong> {
    let listed = spec.list("versions")?;
    if listed.is_empty() {
        let Some(name) = spec.optional_text("version")? else {
            return Err(spec.wrong("versions", "is missing: a definition has at least one version"));
        };
        spec.check("version", &name, is_label(&name), LABEL)?;
        return Ok(vec![Version { name, is_served: true, is_storage: true, ..version(spec, spec)? }]);
    }
    listed
        .iter()
        .map(|reader| {
            let version = version(reader, spec)?;
            let is_served = reader.value("served").is_none() || reader.flag("served")?;
            let name = reader.text("name")?;
            reader.check("name", &name, is_label(&name), LABEL)?;
            Ok(Version { name, is_served, is_storage: reader.flag("storage")?, ..version })
        })
        .collect()
}

/// The parts of a version from `reader`, or else from `spec`, without its name and flags.
fn version(reader: &Reader<'_>, spec: &Reader<'_>) -> Result<Version, Wrong> {
    let from_either = |key: &str| match reader.optional_child(key)? {
        Some(child) => Ok(Some(child)),
        None => spec.optional_child(key),
    };
    let schema = match reader.optional_child("schema")? {
        Some(schema) => schema.optional_child("openAPIV3Schema")?,
        None => match spec.optional_child("validation")? {
            Some(validation) => validation.optional_child("openAPIV3Schema")?,
            None => None,
        },
    };
    let schema = match schema {
        Some(schema) => schema::read(&schema)?,
        None => Schema { preserves_unknown: true, ..Schema::default() },
    };
    let subresources = from_either("subresources")?;
    let (has_status, scale) = match subresources {
        Some(subresources) => (subresources.value("status").is_some(), scale(&subresources)?),
        None => (false, None),
    };
    let columns = match reader.list("additionalPrinterColumns")? {
        columns if columns.is_empty() => spec.list("additionalPrinterColumns")?,
        columns => columns,
    };
    let selectable = reader.list("selectableFields")?;
    let deprecation = match reader.flag("deprecated")? {
        true => Some(reader.optional_text("deprecationWarning")?.unwrap_or_default()),
        false => None,
    };
    Ok(Version {
        name: String::new(),
        is_served: true,
        is_storage: false,
        deprecation,
        schema,
        has_status,
        scale,
        columns: columns.iter().map(column).collect::<Result<_, _>>()?,
        selectable_fields: selectable.iter().map(|field| field.text("jsonPath")).collect::<Result<_, _>>()?,
    })
}

fn scale(subresources: &Reader<'_>) -> Result<Option<Scale>, Wrong> {
    let Some(scale) = subresources.optional_child("scale")? else { return Ok(None) };
    Ok(Some(Scale {
        spec_replicas: scale.text("specReplicasPath")?,
        status_replicas: scale.text("statusReplicasPath")?,
        label_selector: scale.optional_text("labelSelectorPath")?,
    }))
}

fn column(reader: &Reader<'_>) -> Result<Column, Wrong> {
    // v1beta1 has another spelling.
    let json_path = match reader.optional_text("jsonPath")? {
        Some(path) => path,
        None => match reader.optional_text("JSONPath")? {
            Some(path) => path,
            None => return Err(reader.wrong("jsonPath", "is missing")),
        },
    };
    Ok(Column {
        name: reader.text("name")?,
        column_type: reader.text("type")?,
        format: reader.optional_text("format")?,
        description: reader.optional_text("description")?,
        priority: reader.value("priority").and_then(Value::as_i64).unwrap_or_default(),
        json_path,
    })
}

// === impl Reader ===

impl<'a> Reader<'a> {
    /// The value of a field that is present and not null.
    pub(crate) fn value(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn wrong(&self, key: &str, problem: &str) -> Wrong {
        Wrong { path: self.path_of(key), problem: problem.to_owned() }
    }

    /// Returns an error unless `is_valid`.
    fn check(&self, key: &str, value: &str, is_valid: bool, wanted: &str) -> Result<(), Wrong> {
        if is_valid { Ok(()) } else { Err(self.wrong(key, &format!("is {value:?}: want {wanted}"))) }
    }

    pub(crate) fn optional_text(&self, key: &str) -> Result<Option<String>, Wrong> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong(key, &format!("is {other}: want a string"))),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<String, Wrong> {
        match self.optional_text(key)? {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(self.wrong(key, "is missing")),
        }
    }

    pub(crate) fn flag(&self, key: &str) -> Result<bool, Wrong> {
        match self.value(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong(key, &format!("is {other}: want true or false"))),
        }
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Vec<String>, Wrong> {
        match self.value(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| match item {
                    Value::String(text) => Ok(text.clone()),
                    other => Err(self.wrong(key, &format!("has {other}: want strings"))),
                })
                .collect(),
            Some(_) => Err(self.wrong(key, "is not a list")),
        }
    }

    /// The value of a field that must be an object.
    pub(crate) fn child(&self, key: &str) -> Result<Reader<'a>, Wrong> {
        match self.optional_child(key)? {
            Some(child) => Ok(child),
            None => Err(self.wrong(key, "is missing")),
        }
    }

    fn optional_child(&self, key: &str) -> Result<Option<Reader<'a>>, Wrong> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Reader { path: self.path_of(key), object })),
            Some(_) => Err(self.wrong(key, "is not an object")),
        }
    }

    /// The fields of an object whose values must be objects.
    pub(crate) fn children(&self, key: &str) -> Result<Vec<(String, Reader<'a>)>, Wrong> {
        let Some(parent) = self.optional_child(key)? else { return Ok(Vec::new()) };
        parent.object.keys().map(|name| Ok((name.clone(), parent.child(name)?))).collect()
    }

    /// The items of a list that must be objects.
    fn list(&self, key: &str) -> Result<Vec<Reader<'a>>, Wrong> {
        match self.value(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, item)| match item {
                    Value::Object(object) => Ok(Reader { path: format!("{}[{index}]", self.path_of(key)), object }),
                    _ => Err(self.wrong(key, &format!("has an item that is not an object: number {index}"))),
                })
                .collect(),
            Some(_) => Err(self.wrong(key, "is not a list")),
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}
