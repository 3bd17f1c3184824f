//! Infers the types of a version's objects from its schema.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value};

use crate::crd::{Additional, Definition, ListType, Schema, SchemaType, Version};
use crate::types::kubernetes_type::{self, KubernetesType};
use crate::types::model::{Body, Field, Model, Presence, Root, SchemaPath, Type, TypeDef, TypeId, Variant};
use crate::types::{Enums, Options, derives, names};
use crate::words;

/// The longest default that is put into docs.
const DEFAULT_LENGTH_MAX: usize = 60;

/// The types of one version.
pub(crate) fn infer(definition: &Definition, version: &Version, options: &Options) -> Model {
    let mut inference = Inference {
        options,
        types: Vec::new(),
        known_bodies: HashMap::new(),
        known: BTreeSet::new(),
        uses_quantity: false,
    };
    let name = names::of_kind(&definition.names.kind);
    let root = inference.root(name, version);
    let Inference { types, known, uses_quantity, .. } = inference;
    let mut model = Model { root, types, known, uses_quantity };
    names::assign(&mut model, &definition.names.kind);
    derives::find(&mut model);
    model
}

struct Inference<'a> {
    options: &'a Options,
    types: Vec<TypeDef>,
    known_bodies: HashMap<Identity, TypeId>,
    known: BTreeSet<KubernetesType>,
    uses_quantity: bool,
}

/// Types that agree in this are merged into one.
#[derive(Eq, Hash, PartialEq)]
struct Identity {
    body: Body,
    /// The words of its name: all of them, or only the last if the descriptions are specific enough.
    stem: Vec<String>,
}

impl Inference<'_> {
    fn root(&mut self, name: String, version: &Version) -> Root {
        let schema = &version.schema;
        let place = SchemaPath { path: String::new(), stems: Vec::new(), description: None };
        let mut taken = Identifiers::new(["metadata"]);
        let mut fields = Vec::new();
        let mut names: Vec<&String> = schema.properties.keys().collect();
        names.sort_by_key(|name| match name.as_str() {
            "spec" => 0,
            "status" => 2,
            _ => 1,
        });
        for name in names.into_iter().filter(|name| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata")) {
            let mut field = self.field(schema, name, &place, &mut taken);
            if name == "spec" && field.presence == Presence::Optional {
                let is_empty_as_absent = is_empty_as_absent(&schema.properties[name]);
                if is_empty_as_absent || self.options.spec_always {
                    field.presence = if is_empty_as_absent { Presence::Defaulted } else { Presence::Required };
                }
            }
            fields.push(field);
        }
        let others = schema.preserves_unknown.then(|| taken.take("other_fields"));
        Root { name, fields, others, can_default: true }
    }

    fn field(&mut self, parent: &Schema, name: &str, place: &SchemaPath, taken: &mut Identifiers) -> Field {
        let schema = &parent.properties[name];
        let mut stems = place.stems.clone();
        let mut stem = words::words(name);
        if stem.is_empty() {
            stem = words::words_of_symbols(name);
        }
        if stem.is_empty() {
            stem = vec!["field".to_owned()];
        }
        stems.push(stem);
        let path = if place.path.is_empty() { name.to_owned() } else { format!("{}.{name}", place.path) };
        let place = SchemaPath { path, stems, description: None };
        let ty = self.value(schema, &place);
        let presence = match (parent.required.contains(name), schema.is_nullable) {
            (true, false) => Presence::Required,
            (true, true) => Presence::RequiredNullable,
            (false, _) => Presence::Optional,
        };
        let description = schema.description.clone().filter(|_| self.options.docs);
        let notes = if self.options.docs { notes(schema) } else { Vec::new() };
        Field { name: taken.take(&words::field(name)), json_name: name.to_owned(), description, notes, presence, ty }
    }

    /// The type of a value that is present and not null.
    fn value(&mut self, schema: &Schema, place: &SchemaPath) -> Type {
        if schema.is_int_or_string {
            return self.int_or_string(schema);
        }
        match schema.schema_type {
            None => Type::Any,
            Some(SchemaType::Array) => self.list(schema, place),
            Some(SchemaType::Boolean) => Type::Bool,
            Some(SchemaType::Integer) => integer(schema),
            Some(SchemaType::Number) => match schema.format.as_deref() {
                Some("float") => Type::F32,
                _ => Type::F64,
            },
            Some(SchemaType::Object) => self.object(schema, place),
            Some(SchemaType::String) => self.string(schema, place),
        }
    }

    /// Recognizes a quantity by Kubernetes' pattern, which contains the suffixes.
    fn int_or_string(&mut self, schema: &Schema) -> Type {
        if schema.pattern.as_deref().is_some_and(|pattern| pattern.contains("[KMGTPE]i")) {
            self.uses_quantity = true;
            return Type::Quantity;
        }
        Type::IntOrString
    }

    fn list(&mut self, schema: &Schema, place: &SchemaPath) -> Type {
        let Some(items) = &schema.items else { return Type::List(Box::new(Type::Any)) };
        Type::List(Box::new(self.inner(items, &place.inside("[]", items))))
    }

    /// The type of the items of a list or the values of a map.
    fn inner(&mut self, schema: &Schema, place: &SchemaPath) -> Type {
        let ty = self.value(schema, place);
        if schema.is_nullable && ty != Type::Any { Type::Nullable(Box::new(ty)) } else { ty }
    }

    fn string(&mut self, schema: &Schema, place: &SchemaPath) -> Type {
        if !schema.enumeration.is_empty() && self.options.enums != Enums::Strings {
            // A null among the values only means that the string may be null.
            let values = schema.enumeration.iter().filter(|value| !value.is_null()).map(Value::as_str);
            if let Some(values) = values.collect::<Option<Vec<_>>>()
                && !values.is_empty()
            {
                let body = Body::Enum(variants(&values));
                return Type::Named(self.named(body, true, place, schema));
            }
        }
        match schema.format.as_deref() {
            Some("byte") => Type::Bytes,
            Some("date-time") => Type::Time,
            _ => Type::String,
        }
    }

    fn object(&mut self, schema: &Schema, place: &SchemaPath) -> Type {
        if self.options.known_types
            && let Some(known) = kubernetes_type::recognize(schema)
        {
            self.known.insert(known);
            return Type::KubernetesType(known);
        }
        if schema.properties.is_empty() {
            return match &schema.additional {
                Some(Additional::Of(values)) => Type::Map(Box::new(self.inner(values, &place.inside("{}", values)))),
                _ if schema.is_embedded_resource => Type::EmbeddedObject,
                _ => Type::Map(Box::new(Type::Any)),
            };
        }
        let mut taken = Identifiers::new([]);
        let with_implied = implied_properties(schema);
        let schema = with_implied.as_ref().unwrap_or(schema);
        let fields: Vec<Field> =
            schema.properties.keys().map(|name| self.field(schema, name, place, &mut taken)).collect();
        let preserves_others =
            schema.preserves_unknown || matches!(schema.additional, Some(Additional::Allowed | Additional::Of(_)));
        let others = preserves_others.then(|| taken.take("other_fields"));
        let is_documented = fields.iter().any(|field| field.description.is_some());
        Type::Named(self.named(Body::Struct { fields, others }, !is_documented, place, schema))
    }

    /// The type with this body: an existing one, or a new one.
    fn named(&mut self, body: Body, needs_same_stem: bool, place: &SchemaPath, schema: &Schema) -> TypeId {
        let whole = place.stems.last().cloned().unwrap_or_default();
        let is_part_of_root = place.stems.len() == 1;
        let stem = match whole.last() {
            Some(last) if !needs_same_stem && !is_part_of_root => vec![last.clone()],
            _ => whole,
        };
        let mut place = place.clone();
        if place.description.is_none() && self.options.docs {
            place.description = schema.description.clone();
        }
        let identity = Identity { body: body.clone(), stem };
        if let Some(id) = self.known_bodies.get(&identity).filter(|_| !is_part_of_root) {
            self.types[id.0].uses.push(place);
            return *id;
        }
        let id = TypeId(self.types.len());
        if !is_part_of_root {
            self.known_bodies.insert(identity, id);
        }
        self.types.push(TypeDef { name: String::new(), body, uses: vec![place], can_default: true });
        id
    }
}

/// Whether an empty object is equivalent to an absent one: it is valid, and the API server fills both with the same
/// defaults.
fn is_empty_as_absent(schema: &Schema) -> bool {
    let is_valid_empty = schema.schema_type == Some(SchemaType::Object)
        && !schema.is_nullable
        && schema.required.is_empty()
        && !schema.has_rules_for_empty;
    let has_same_defaults = match &schema.default {
        // An absent object becomes this default.
        Some(default) => default.as_object().is_some_and(Map::is_empty),
        // The server fills an empty object with the defaults of its fields; defaults further down apply only below a
        // parent that is written.
        None => schema.properties.values().all(|property| property.default.is_none()),
    };
    is_valid_empty && has_same_defaults
}

fn integer(schema: &Schema) -> Type {
    let is_unsigned = schema.minimum.is_some_and(|minimum| minimum >= 0.0);
    match schema.format.as_deref() {
        Some("int32") => Type::I32,
        Some("uint8") if is_unsigned => Type::U8,
        Some("uint16") if is_unsigned => Type::U16,
        Some("uint32") if is_unsigned => Type::U32,
        Some("uint" | "uint64") if is_unsigned => Type::U64,
        _ => Type::I64,
    }
}

/// The schema with the fields that every embedded resource has, if it does not name them. `None` if nothing has to be
/// added.
fn implied_properties(schema: &Schema) -> Option<Schema> {
    if !schema.is_embedded_resource {
        return None;
    }
    let mut schema = schema.clone();
    let implied = [("apiVersion", SchemaType::String), ("kind", SchemaType::String), ("metadata", SchemaType::Object)];
    for (name, schema_type) in implied {
        let property = Schema { schema_type: Some(schema_type), ..Schema::default() };
        schema.properties.entry(name.to_owned()).or_insert(property);
    }
    Some(schema)
}

fn variants(values: &[&str]) -> Vec<Variant> {
    let mut by_name: BTreeMap<String, usize> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut variants = Vec::new();
    for value in values.iter().filter(|value| seen.insert(**value)) {
        let base = names::of_variant(value);
        let n = by_name.entry(base.clone()).or_default();
        *n += 1;
        let mut name = if *n == 1 { base.clone() } else { format!("{base}{n}") };
        while variants.iter().any(|variant: &Variant| variant.name == name) {
            name.push('_');
        }
        variants.push(Variant { name, value: (*value).to_owned() });
    }
    variants
}

/// Notes on properties of a schema that its description may leave out.
fn notes(schema: &Schema) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(default) = &schema.default {
        let text = default.to_string();
        let is_said = schema.description.as_deref().is_some_and(|description| {
            let description = description.to_lowercase();
            description.contains("default")
        });
        if !is_said && text.len() <= DEFAULT_LENGTH_MAX && !text.contains('`') {
            notes.push(format!("Defaults to `{text}`."));
        }
    }
    match schema.list_type {
        Some(ListType::Map) if !schema.list_map_keys.is_empty() => {
            let keys: Vec<_> = schema.list_map_keys.iter().map(|key| format!("`{key}`")).collect();
            notes.push(format!("No two items have the same {}.", keys.join(" and ")));
        }
        Some(ListType::Set) => notes.push("No two items are the same.".to_owned()),
        _ => {}
    }
    notes
}

/// The identifiers of a struct's fields, each used once.
struct Identifiers {
    taken: BTreeSet<String>,
}

impl Identifiers {
    fn new<const N: usize>(taken: [&str; N]) -> Identifiers {
        Identifiers { taken: taken.into_iter().map(str::to_owned).collect() }
    }

    /// `name`, with a number appended if it is taken.
    fn take(&mut self, name: &str) -> String {
        let mut candidate = name.to_owned();
        let mut n = 2;
        while !self.taken.insert(candidate.clone()) {
            candidate = format!("{name}_{n}");
            n += 1;
        }
        candidate
    }
}

// === impl SchemaPath ===

impl SchemaPath {
    /// The place of the items or values of this one.
    fn inside(&self, step: &str, inner: &Schema) -> SchemaPath {
        let mut stems = self.stems.clone();
        if let Some(last) = stems.last_mut() {
            *last = words::singular(last);
        }
        SchemaPath { path: format!("{}{step}", self.path), stems, description: inner.description.clone() }
    }
}
