//! Apply configurations: a struct for every object in a schema, with all fields optional.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::clients::names::{GroupVersion, Kind, unique};
use crate::clients::text::Text;
use crate::clients::{Options, head, types};
use crate::crd::{Additional, Schema, SchemaType, Scope};
use crate::docs;
use crate::words;

/// Names that the file imports, which no struct may have.
const IMPORTED: [&str; 11] = [
    "ApplyConfiguration",
    "BTreeMap",
    "Deserialize",
    "IntOrString",
    "ObjectMeta",
    "Option",
    "OwnerReference",
    "Serialize",
    "String",
    "Time",
    "Value",
];

/// A struct that is still to be printed.
struct Pending<'a> {
    name: String,
    /// The description of the struct for its comment.
    what: String,
    /// The path of the object, such as `spec.pools[]`.
    path: String,
    schema: &'a Schema,
}

/// The state of printing a file.
struct Printer<'a> {
    text: Text,
    structs: BTreeSet<String>,
    pending: VecDeque<Pending<'a>>,
    /// Paths of atomic maps, which have a single owner.
    atomic_maps: Vec<String>,
}

/// The type of a field.
enum Type {
    List(Box<Type>),
    Map(Box<Type>),
    /// A type that is taken by value.
    Plain(&'static str),
    Struct(String),
    Text,
}

/// A field of a struct.
struct Field<'a> {
    /// The Rust identifier.
    name: String,
    /// The name within that of the builder method.
    word: String,
    /// The name in JSON.
    json: &'a str,
    schema: &'a Schema,
    field_type: Type,
}

pub(super) fn module(group_version: &GroupVersion, kinds: &[Kind<'_>], options: &Options) -> String {
    let mut body = Printer {
        text: Text::default(),
        structs: kinds.iter().map(|kind| kind.name.as_str()).chain(IMPORTED).map(str::to_owned).collect(),
        pending: VecDeque::new(),
        atomic_maps: Vec::new(),
    };
    for (index, kind) in kinds.iter().enumerate() {
        if index > 0 {
            body.text.blank();
        }
        body.kind(kind);
        while let Some(pending) = body.pending.pop_front() {
            body.text.blank();
            body.nested(pending);
        }
    }
    let body = body.text.finish();

    let mut text = Text::default();
    let api_version = group_version.api_version();
    head(
        &mut text,
        &format!("Apply configurations of {api_version}: objects of which every field may be absent."),
        options,
    );
    let is_used = |name: &str| body.contains(name);
    if is_used("BTreeMap<") {
        text.line("use std::collections::BTreeMap;");
        text.blank();
    }
    let time = if is_used("<Time>") { ", Time" } else { "" };
    text.line(&format!("use k8s_openapi::apimachinery::pkg::apis::meta::v1::{{ObjectMeta, OwnerReference{time}}};"));
    if is_used("IntOrString") {
        text.line("use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;");
    }
    text.line("use serde::{Deserialize, Serialize};");
    if is_used("Value>") {
        text.line("use serde_json::Value;");
    }
    text.line("use steersman::typed::ApplyConfiguration;");
    text.blank();
    text.line(&format!("use {} as objects;", types(group_version, options)));
    text.blank();
    format!("{}{body}", text.finish())
}

impl<'a> Printer<'a> {
    /// Prints the configuration of a kind.
    fn kind(&mut self, kind: &Kind<'a>) {
        let fields = self.fields(&kind.name, "", &kind.version.schema, &["apiVersion", "kind", "metadata"]);
        self.text.doc(&format!("The fields of a {} that one field manager wants.", kind.name));
        self.derives();
        self.text.open(&format!("pub struct {} {{", kind.name));
        self.text.doc("Name and namespace, and what else of the metadata is to be applied.");
        self.text.line("pub metadata: ObjectMeta,");
        self.declarations(&fields, &kind.version.schema);
        self.text.close("}");
        self.text.blank();

        self.text.open(&format!("impl {} {{", kind.name));
        self.new_function(kind);
        self.metadata_methods();
        self.methods(&fields, true);
        self.text.close("}");
        self.text.blank();

        let start = self.atomic_maps.len();
        self.find_atomic_maps("", &kind.version.schema);
        let atomic_maps = self.atomic_maps.split_off(start);
        self.text.open(&format!("impl ApplyConfiguration for {} {{", kind.name));
        self.text.line(&format!("type Object = objects::{};", kind.name));
        if !atomic_maps.is_empty() {
            self.text.blank();
            let one_line = atomic_maps.iter().map(|path| format!("{path:?}")).collect::<Vec<_>>().join(", ");
            if one_line.len() <= 50 {
                self.text.line(&format!("const ATOMIC_MAPS: &'static [&'static str] = &[{one_line}];"));
            } else {
                self.text.open("const ATOMIC_MAPS: &'static [&'static str] = &[");
                for path in &atomic_maps {
                    self.text.line(&format!("{path:?},"));
                }
                self.text.close("];");
            }
        }
        self.text.blank();
        self.text.open("fn metadata(&self) -> &ObjectMeta {");
        self.text.line("&self.metadata");
        self.text.close("}");
        self.text.close("}");
    }

    fn new_function(&mut self, kind: &Kind<'_>) {
        match kind.scope {
            Scope::Cluster => {
                self.text.doc("The configuration of the object `name`.");
                self.text.open("pub fn new(name: &str) -> Self {");
                self.text.line("let name = Some(name.to_owned());");
                self.text.literal("let metadata = ObjectMeta", &["name,", "..ObjectMeta::default()"], ";");
            }
            Scope::Namespaced => {
                self.text.doc("The configuration of the object `name` in `namespace`.");
                self.text.open("pub fn new(name: &str, namespace: &str) -> Self {");
                self.text.line("let (name, namespace) = (Some(name.to_owned()), Some(namespace.to_owned()));");
                self.text.literal(
                    "let metadata = ObjectMeta",
                    &["name,", "namespace,", "..ObjectMeta::default()"],
                    ";",
                );
            }
        }
        self.text.literal("Self", &["metadata,", "..Self::default()"], "");
        self.text.close("}");
    }

    /// Prints methods for the metadata that may be applied besides the name.
    fn metadata_methods(&mut self) {
        for (method, what, field) in
            [("with_label", "The label `key`", "labels"), ("with_annotation", "The annotation `key`", "annotations")]
        {
            self.text.blank();
            self.text.doc(&format!("{what} is to be `value`."));
            let arguments = ["mut self", "key: impl Into<String>", "value: impl Into<String>"].map(str::to_owned);
            self.text.signature(&format!("pub fn {method}"), &arguments, " -> Self {");
            self.text.line(&format!("let {field} = self.metadata.{field}.get_or_insert_default();"));
            self.text.line(&format!("{field}.insert(key.into(), value.into());"));
            self.text.line("self");
            self.text.close("}");
        }
        for (method, what, field, value) in [
            ("with_finalizer", "The finalizer is to be there.", "finalizers", "impl Into<String>"),
            ("with_owner_reference", "The owner is to be there.", "owner_references", "OwnerReference"),
        ] {
            let name = method.trim_start_matches("with_");
            let pushed = if value == "OwnerReference" { name.to_owned() } else { format!("{name}.into()") };
            self.text.blank();
            self.text.doc(what);
            self.text.signature(
                &format!("pub fn {method}"),
                &["mut self".to_owned(), format!("{name}: {value}")],
                " -> Self {",
            );
            let links = [format!(".{field}"), ".get_or_insert_default()".to_owned(), format!(".push({pushed})")];
            self.text.chain("self.metadata", &links);
            self.text.line("self");
            self.text.close("}");
        }
    }

    /// Prints the configuration of an object within a kind.
    fn nested(&mut self, pending: Pending<'a>) {
        let Pending { name, what, path, schema } = pending;
        let fields = self.fields(&name, &path, schema, &[]);
        self.text.doc(&what);
        self.derives();
        self.text.open(&format!("pub struct {name} {{"));
        self.declarations(&fields, schema);
        self.text.close("}");
        self.text.blank();
        self.text.open(&format!("impl {name} {{"));
        self.text.doc("A configuration that names no field.");
        self.text.open("pub fn new() -> Self {");
        self.text.line("Self::default()");
        self.text.close("}");
        self.methods(&fields, true);
        self.text.close("}");
    }

    fn derives(&mut self) {
        self.text.line("#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]");
        self.text.line("#[serde(default, rename_all = \"camelCase\")]");
    }

    fn declarations(&mut self, fields: &[Field<'_>], schema: &Schema) {
        for field in fields {
            if let Some(text) = &field.schema.description {
                self.text.description(text);
            }
            let rename = match words::camel(&field.name) == field.json {
                true => String::new(),
                false => format!("rename = {:?}, ", field.json),
            };
            self.text.line(&format!("#[serde({rename}skip_serializing_if = \"Option::is_none\")]"));
            self.text.line(&format!("pub {}: Option<{}>,", field.name, field.field_type.rust()));
        }
        if schema.preserves_unknown && !schema.properties.is_empty() {
            self.text.doc("Fields that the schema does not name.");
            self.text.line("#[serde(flatten)]");
            self.text.line("pub unknown_fields: BTreeMap<String, Value>,");
        }
    }

    /// Prints a method for each field. `after_another`: another method precedes them.
    fn methods(&mut self, fields: &[Field<'_>], after_another: bool) {
        for (index, field) in fields.iter().enumerate() {
            if index > 0 || after_another {
                self.text.blank();
            }
            let (argument, name) = (&field.name, &field.name);
            match &field.field_type {
                Type::List(item) => {
                    self.text.doc(&format!("Adds entries to {}.", docs::code(field.json)));
                    let items = if matches!(**item, Type::Text) { "impl Into<String>" } else { &item.rust() };
                    self.signature(&field.word, argument, &format!("impl IntoIterator<Item = {items}>"));
                    let into = if matches!(**item, Type::Text) { ".into_iter().map(Into::into)" } else { "" };
                    self.extend(name, &format!("{argument}{into}"));
                }
                Type::Map(value) => {
                    self.text.doc(&format!("Adds entries to {}.", docs::code(field.json)));
                    let entries = format!("impl IntoIterator<Item = (String, {})>", value.rust());
                    self.signature(&field.word, argument, &entries);
                    self.extend(name, argument);
                }
                Type::Text => {
                    self.text.doc(&format!("Sets {}.", docs::code(field.json)));
                    self.signature(&field.word, argument, "impl Into<String>");
                    self.text.line(&format!("self.{name} = Some({argument}.into());"));
                }
                Type::Plain(_) | Type::Struct(_) => {
                    self.text.doc(&format!("Sets {}.", docs::code(field.json)));
                    self.signature(&field.word, argument, &field.field_type.rust());
                    self.text.line(&format!("self.{name} = Some({argument});"));
                }
            }
            self.text.line("self");
            self.text.close("}");
        }
    }

    /// Prints a statement that adds the items of `entries` to an optional field.
    fn extend(&mut self, name: &str, entries: &str) {
        let links = [".get_or_insert_default()".to_owned(), format!(".extend({entries})")];
        self.text.chain(&format!("self.{name}"), &links);
    }

    fn signature(&mut self, word: &str, argument: &str, argument_type: &str) {
        let arguments = ["mut self".to_owned(), format!("{argument}: {argument_type}")];
        self.text.signature(&format!("pub fn with_{word}"), &arguments, " -> Self {");
    }

    /// The fields of `schema`, whose struct is called `name`. Structs that they need are printed later.
    fn fields(&mut self, name: &str, path: &str, schema: &'a Schema, except: &[&str]) -> Vec<Field<'a>> {
        let mut taken: BTreeSet<String> = except.iter().map(|name| (*name).to_owned()).collect();
        if schema.preserves_unknown {
            taken.insert("unknown_fields".to_owned());
        }
        let properties: &'a BTreeMap<String, Schema> = &schema.properties;
        let mut fields = Vec::new();
        for (json, property) in properties.iter().filter(|(json, _)| !except.contains(&json.as_str())) {
            let plain = words::field(json);
            let identifier = unique(plain.clone(), &mut taken);
            // The underscore of a keyword is dropped in a longer name; one that distinguishes two fields is kept.
            let word = if identifier == plain { plain.trim_matches('_').to_owned() } else { identifier.clone() };
            let below = if path.is_empty() { json.clone() } else { format!("{path}.{json}") };
            let mut stem = words::words(json);
            if property.items.is_some() || matches!(property.additional, Some(Additional::Of(_))) {
                // The struct stands for a single item.
                stem = words::singular(&stem);
            }
            let field_type = self.type_of(&format!("{name}{}", words::pascal(&stem)), &below, property);
            fields.push(Field { name: identifier, word, json, schema: property, field_type });
        }
        fields
    }

    fn type_of(&mut self, name: &str, path: &str, schema: &'a Schema) -> Type {
        if schema.is_int_or_string {
            return Type::Plain("IntOrString");
        }
        match schema.schema_type {
            Some(SchemaType::Boolean) => Type::Plain("bool"),
            Some(SchemaType::Integer) if schema.format.as_deref() == Some("int32") => Type::Plain("i32"),
            Some(SchemaType::Integer) => Type::Plain("i64"),
            Some(SchemaType::Number) => Type::Plain("f64"),
            Some(SchemaType::String) if schema.format.as_deref() == Some("date-time") => Type::Plain("Time"),
            Some(SchemaType::String) => Type::Text,
            Some(SchemaType::Array) => match &schema.items {
                Some(items) => Type::List(Box::new(self.type_of(name, &format!("{path}[]"), items))),
                None => Type::List(Box::new(Type::Plain("Value"))),
            },
            Some(SchemaType::Object) if schema.is_embedded_resource => Type::Plain("Value"),
            Some(SchemaType::Object) => match &schema.additional {
                Some(Additional::Of(values)) if schema.properties.is_empty() => {
                    Type::Map(Box::new(self.type_of(name, &format!("{path}.*"), values)))
                }
                _ if schema.properties.is_empty() => Type::Plain("Value"),
                _ => {
                    let name = unique(name.to_owned(), &mut self.structs);
                    let what = format!("{}, of which every field may be absent.", docs::code(path));
                    self.pending.push_back(Pending { name: name.clone(), what, path: path.to_owned(), schema });
                    Type::Struct(name)
                }
            },
            None => Type::Plain("Value"),
        }
    }

    fn find_atomic_maps(&mut self, path: &str, schema: &Schema) {
        if schema.is_atomic_map {
            self.atomic_maps.push(path.to_owned());
            // Everything below has the same owner.
            return;
        }
        for (name, property) in &schema.properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.find_atomic_maps(&path, property);
        }
        if let Some(items) = &schema.items {
            self.find_atomic_maps(&format!("{path}[]"), items);
        }
        if let Some(Additional::Of(values)) = &schema.additional {
            self.find_atomic_maps(&format!("{path}.*"), values);
        }
    }
}

impl Type {
    fn rust(&self) -> String {
        match self {
            Type::List(item) => format!("Vec<{}>", item.rust()),
            Type::Map(value) => format!("BTreeMap<String, {}>", value.rust()),
            Type::Plain(name) => (*name).to_owned(),
            Type::Struct(name) => name.clone(),
            Type::Text => "String".to_owned(),
        }
    }
}
