//! Prints a kind's types, formatted as by rustfmt.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::crd::{Definition, Version};
use crate::docs;
use crate::output::MARK;
use crate::types::model::{Body, Field, Model, Presence, SchemaPath, Type, TypeDef, TypeId, Variant};
use crate::types::{Enums, Options, resource};
use crate::words;

/// The longest line of code.
pub(crate) const COLUMNS: usize = 100;

/// The width up to which rustfmt leaves the content of an attribute on one line.
const ATTRIBUTE_MAX: usize = 70;

/// The most places of use that the docs of a type name.
const PLACES_NAMED_MAX: usize = 3;

/// The text of a kind's module.
pub(crate) fn print(definition: &Definition, version: &Version, model: &Model, options: &Options) -> String {
    let mut printer = Printer { model, options, out: String::new(), imports: BTreeMap::new() };
    resource::print(&mut printer, definition, version);
    for id in printer.order() {
        printer.type_definition(id);
    }
    let Printer { out, imports, .. } = printer;
    format!("{}{out}", import_lines(&imports))
}

/// The docs of a kind's module.
pub(crate) fn module_docs(definition: &Definition, version: &Version) -> String {
    let Definition { names, group, .. } = definition;
    format!("//! `{}` of `{group}/{}`.\n//!\n//! {MARK}: do not edit.\n", names.kind, version.name)
}

/// Writes items, and records their imports.
pub(crate) struct Printer<'a> {
    pub(crate) model: &'a Model,
    pub(crate) options: &'a Options,
    pub(crate) out: String,
    imports: BTreeMap<&'static str, BTreeSet<&'static str>>,
}

impl Printer<'_> {
    pub(crate) fn import(&mut self, module: &'static str, name: &'static str) {
        self.imports.entry(module).or_default().insert(name);
    }

    /// The types in reading order: each after the first type that mentions it.
    fn order(&self) -> Vec<TypeId> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<TypeId> = mentioned(&self.model.root.fields);
        waiting.reverse();
        while let Some(id) = waiting.pop() {
            if !seen.insert(id) {
                continue;
            }
            order.push(id);
            if let Body::Struct { fields, .. } = &self.model.get(id).body {
                let mut below = mentioned(fields);
                below.reverse();
                waiting.extend(below);
            }
        }
        order
    }

    fn type_definition(&mut self, id: TypeId) {
        let model = self.model;
        let definition = model.get(id);
        self.out.push('\n');
        self.type_docs(definition);
        match &definition.body {
            Body::Enum(variants) => self.enumeration(&definition.name, variants),
            Body::Struct { fields, others } => {
                let mut derives = vec!["Clone", "Debug", "Deserialize", "PartialEq", "Serialize"];
                if definition.can_default {
                    derives.push("Default");
                }
                self.derives(&derives);
                self.import("serde", "Deserialize");
                self.import("serde", "Serialize");
                self.structure(&definition.name, &[], fields, others.as_deref(), Serialization::Derived);
            }
        }
    }

    /// Writes the docs of a type: the description if it is the same everywhere, and where the type is used.
    fn type_docs(&mut self, definition: &TypeDef) {
        if !self.options.docs {
            return;
        }
        let description = definition.uses[0].description.clone();
        let is_shared = definition.uses.iter().all(|place| place.description == description);
        let uses = uses(&definition.uses);
        match description.filter(|_| is_shared) {
            Some(description) => self.docs(&format!("{description}\n\n{uses}"), 0),
            None => self.docs(&uses, 0),
        }
    }

    pub(crate) fn docs(&mut self, text: &str, indent: usize) {
        for line in docs::lines(text, indent) {
            let padding = " ".repeat(indent);
            let space = if line.is_empty() { "" } else { " " };
            let _ = writeln!(self.out, "{padding}///{space}{line}");
        }
    }

    /// Writes a `#[derive]` of these and of the options' derives, in alphabetical order.
    pub(crate) fn derives(&mut self, derives: &[&str]) {
        let mut all: BTreeSet<String> = derives.iter().map(|derive| (*derive).to_owned()).collect();
        if self.options.schemars {
            all.insert("schemars::JsonSchema".to_owned());
        }
        all.extend(self.options.derives.iter().cloned());
        let all: Vec<String> = all.into_iter().collect();
        let line = format!("#[derive({})]", all.join(", "));
        if line.len() <= COLUMNS {
            self.out.push_str(&line);
            self.out.push('\n');
            return;
        }
        self.out.push_str("#[derive(\n");
        let mut row = String::new();
        for derive in all {
            if !row.is_empty() && 4 + row.len() + derive.len() + 2 > COLUMNS {
                let _ = writeln!(self.out, "    {}", row.trim_end());
                row.clear();
            }
            let _ = write!(row, "{derive}, ");
        }
        let _ = writeln!(self.out, "    {}", row.trim_end());
        self.out.push_str(")]\n");
    }

    /// Writes a struct. `first` has lines that precede the fields.
    pub(crate) fn structure(
        &mut self,
        name: &str,
        first: &[&str],
        fields: &[Field],
        others: Option<&str>,
        serialization: Serialization,
    ) {
        let renames_all =
            fields.iter().any(|field| field.name != field.json_name && words::camel(&field.name) == field.json_name);
        if renames_all {
            self.out.push_str("#[serde(rename_all = \"camelCase\")]\n");
        }
        if fields.is_empty() && first.is_empty() && others.is_none() {
            let _ = writeln!(self.out, "pub struct {name} {{}}");
            return;
        }
        let _ = writeln!(self.out, "pub struct {name} {{");
        for line in first {
            let _ = writeln!(self.out, "    {line}");
        }
        for field in fields {
            self.field(field, renames_all, serialization);
        }
        if let Some(others) = others {
            let ty = self.type_text(&Type::Map(Box::new(Type::Any)));
            if self.options.docs {
                self.docs("Fields that the definition does not name, and preserves.", 4);
            }
            let reader = match serialization {
                Serialization::ByHand => ", deserialize_with = \"other_fields\"",
                Serialization::Derived => "",
            };
            let _ = writeln!(self.out, "    #[serde(flatten{reader})]\n    pub {others}: {ty},");
        }
        self.out.push_str("}\n");
    }

    fn field(&mut self, field: &Field, renames_all: bool, serialization: Serialization) {
        let mut docs = field.description.clone().unwrap_or_default();
        for note in &field.notes {
            docs = if docs.is_empty() { note.clone() } else { format!("{docs}\n\n{note}") };
        }
        self.docs(&docs, 4);
        let mut attributes = Vec::new();
        let name = if renames_all { words::camel(&field.name) } else { field.name.clone() };
        if name != field.json_name {
            attributes.push(format!("rename = {}", literal(&field.json_name)));
        }
        let mut ty = self.type_text(&field.ty);
        match field.presence {
            Presence::Defaulted => attributes.push("default".to_owned()),
            Presence::Optional => {
                ty = format!("Option<{ty}>");
                if serialization == Serialization::Derived {
                    attributes.push("skip_serializing_if = \"Option::is_none\"".to_owned());
                }
            }
            Presence::Required => {}
            Presence::RequiredNullable => ty = format!("Option<{ty}>"),
        }
        if !attributes.is_empty() {
            let short = attributes.join(", ");
            if short.len() <= ATTRIBUTE_MAX {
                let _ = writeln!(self.out, "    #[serde({short})]");
            } else {
                let _ = writeln!(self.out, "    #[serde(\n        {}\n    )]", attributes.join(",\n        "));
            }
        }
        let line = format!("    pub {}: {ty},", field.name);
        if line.len() <= COLUMNS {
            let _ = writeln!(self.out, "{line}");
        } else {
            let _ = writeln!(self.out, "    pub {}:\n        {ty},", field.name);
        }
    }

    fn enumeration(&mut self, name: &str, variants: &[Variant]) {
        let is_open = self.options.enums == Enums::Open;
        let mut derives =
            vec!["Clone", "Debug", "Deserialize", "Eq", "Hash", "Ord", "PartialEq", "PartialOrd", "Serialize"];
        if !is_open {
            derives.push("Copy");
        }
        self.derives(&derives);
        self.import("serde", "Deserialize");
        self.import("serde", "Serialize");
        let rule = Rule::best(variants);
        if let Some(name) = rule.name() {
            let _ = writeln!(self.out, "#[serde(rename_all = \"{name}\")]");
        }
        let _ = writeln!(self.out, "pub enum {name} {{");
        for variant in variants {
            if rule.apply(&variant.name) != variant.value {
                let _ = writeln!(self.out, "    #[serde(rename = {})]", literal(&variant.value));
            }
            let _ = writeln!(self.out, "    {},", variant.name);
        }
        if is_open {
            let is_free = |name: &&str| variants.iter().all(|variant| variant.name != **name);
            let other = ["Other", "Unrecognized"].into_iter().find(is_free).unwrap_or("UnrecognizedValue");
            if self.options.docs {
                self.docs("A value that the definition does not name.", 4);
            }
            let _ = writeln!(self.out, "    #[serde(untagged)]\n    {other}(String),");
        }
        self.out.push_str("}\n");
    }

    pub(crate) fn type_text(&mut self, ty: &Type) -> String {
        let (module, name) = match ty {
            Type::Any => ("serde_json", "Value"),
            Type::Bool => return "bool".to_owned(),
            Type::Bytes => ("k8s_openapi", "ByteString"),
            Type::EmbeddedObject => ("k8s_openapi::apimachinery::pkg::runtime", "RawExtension"),
            Type::F32 => return "f32".to_owned(),
            Type::F64 => return "f64".to_owned(),
            Type::I32 => return "i32".to_owned(),
            Type::I64 => return "i64".to_owned(),
            Type::IntOrString => ("k8s_openapi::apimachinery::pkg::util::intstr", "IntOrString"),
            Type::KubernetesType(known) => (known.module(), known.name()),
            Type::List(items) => return format!("Vec<{}>", self.type_text(items)),
            Type::Map(values) => {
                self.import("std::collections", "BTreeMap");
                return format!("BTreeMap<String, {}>", self.type_text(values));
            }
            Type::Named(id) => return self.model.get(*id).name.clone(),
            Type::Nullable(inner) => return format!("Option<{}>", self.type_text(inner)),
            Type::Quantity => ("super::super", "Quantity"),
            Type::String => return "String".to_owned(),
            Type::Time => ("k8s_openapi::apimachinery::pkg::apis::meta::v1", "Time"),
            Type::U8 => return "u8".to_owned(),
            Type::U16 => return "u16".to_owned(),
            Type::U32 => return "u32".to_owned(),
            Type::U64 => return "u64".to_owned(),
        };
        self.import(module, name);
        name.to_owned()
    }
}

/// How the fields of a struct are serialized.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Serialization {
    ByHand,
    Derived,
}

/// The types that fields mention, in order.
fn mentioned(fields: &[Field]) -> Vec<TypeId> {
    let mut mentioned = Vec::new();
    for field in fields {
        field.ty.walk(&mut |ty| {
            if let Type::Named(id) = ty {
                mentioned.push(*id);
            }
        });
    }
    mentioned
}

/// The places where a type is used, as a sentence.
fn uses(places: &[SchemaPath]) -> String {
    let paths: BTreeSet<&str> = places.iter().map(|place| place.path.as_str()).collect();
    let mut named: Vec<String> = places.iter().take(PLACES_NAMED_MAX).map(|place| docs::code(&place.path)).collect();
    let more = paths.len().saturating_sub(named.len());
    if more > 0 {
        named.push(format!("{more} more"));
    }
    let list = match named.as_slice() {
        [only] => only.clone(),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
        [] => String::new(),
    };
    format!("Used as {list}.")
}

fn import_lines(imports: &BTreeMap<&'static str, BTreeSet<&'static str>>) -> String {
    let mut sections: [Vec<String>; 3] = Default::default();
    for (module, names) in imports {
        let section = match *module {
            module if module.starts_with("std") => 0,
            module if module.starts_with("super") => 2,
            _ => 1,
        };
        let names: Vec<&str> = names.iter().copied().collect();
        let line = match names.as_slice() {
            [name] => format!("use {module}::{name};"),
            names => format!("use {module}::{{{}}};", names.join(", ")),
        };
        sections[section].push(line);
    }
    let mut text = String::new();
    for mut section in sections.into_iter().filter(|section| !section.is_empty()) {
        // Sorted as by rustfmt: a list of names comes after the modules beside it.
        section.sort_by_key(|line| line.replace('{', "~"));
        text.push_str(&section.join("\n"));
        text.push_str("\n\n");
    }
    text
}

/// A Rust string literal.
pub(crate) fn literal(text: &str) -> String {
    format!("{text:?}")
}

/// The rules of serde's `rename_all` for variants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Rule {
    AsIs,
    Lower,
    Upper,
    Camel,
    Snake,
    ScreamingSnake,
    Kebab,
}

impl Rule {
    /// The rule with the fewest exceptions. The first one wins, so that no rule is used without need.
    fn best(variants: &[Variant]) -> Rule {
        let rules = [Rule::AsIs, Rule::Lower, Rule::Upper, Rule::Camel, Rule::Snake, Rule::ScreamingSnake, Rule::Kebab];
        let exceptions =
            |rule: &Rule| variants.iter().filter(|variant| rule.apply(&variant.name) != variant.value).count();
        rules.into_iter().min_by_key(exceptions).unwrap_or(Rule::AsIs)
    }

    fn name(self) -> Option<&'static str> {
        match self {
            Rule::AsIs => None,
            Rule::Lower => Some("lowercase"),
            Rule::Upper => Some("UPPERCASE"),
            Rule::Camel => Some("camelCase"),
            Rule::Snake => Some("snake_case"),
            Rule::ScreamingSnake => Some("SCREAMING_SNAKE_CASE"),
            Rule::Kebab => Some("kebab-case"),
        }
    }

    fn apply(self, variant: &str) -> String {
        let snake = || {
            let mut snake = String::new();
            for (index, character) in variant.char_indices() {
                if index > 0 && character.is_uppercase() {
                    snake.push('_');
                }
                snake.push(character.to_ascii_lowercase());
            }
            snake
        };
        match self {
            Rule::AsIs => variant.to_owned(),
            Rule::Lower => variant.to_ascii_lowercase(),
            Rule::Upper => variant.to_ascii_uppercase(),
            Rule::Camel => {
                let mut characters = variant.chars();
                let first = characters.next().map(|first| first.to_ascii_lowercase().to_string());
                first.unwrap_or_default() + characters.as_str()
            }
            Rule::Snake => snake(),
            Rule::ScreamingSnake => snake().to_ascii_uppercase(),
            Rule::Kebab => snake().replace('_', "-"),
        }
    }
}
