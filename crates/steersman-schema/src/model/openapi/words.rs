//! The descriptions of the built-in definitions and their fields, and the values of enumerations, for OpenAPI
//! documents.
//!
//! Two embedded texts (`data/words.txt`, `data/enums.txt`), which are indexed when the first document is requested.
//! Only documents use them: the rules of a kind decide whether a value is valid.

use serde_json::json;
use std::collections::HashMap;
use std::sync::LazyLock;
use steersman_machinery::Value;
use steersman_machinery::value::Map;

const WORDS: &str = include_str!("../../../data/words.txt");
const ENUMS: &str = include_str!("../../../data/enums.txt");
/// The section of fields that several definitions share.
const COMMON: &str = "*";
/// Abbreviations of names in `words.txt`.
const META: (&str, &str) = ("meta.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1.");
const API: &str = "io.k8s.api.";
const FULL: &str = "io.k8s.";

/// A definition's part of `words.txt`.
#[derive(Clone, Copy, Debug, Default)]
struct Section {
    /// The description of the definition; empty for the common section.
    words: &'static str,
    /// Indented lines with a field and its description.
    fields: &'static str,
}

static SECTIONS: LazyLock<HashMap<Box<str>, Section>> = LazyLock::new(|| sections().collect());

/// Adds the descriptions of a definition and its fields.
pub(super) fn describe(name: &str, definition: &mut Map) {
    let section = SECTIONS.get(name).copied().unwrap_or_default();
    let common = SECTIONS.get(COMMON).copied().unwrap_or_default();
    if !section.words.is_empty() {
        definition.insert("description".to_owned(), Value::from(section.words));
    }
    let Some(Value::Object(properties)) = definition.get_mut("properties") else { return };
    for (field, property) in properties.iter_mut() {
        let words = section.field(field).or_else(|| common.field(field));
        if let (Some(words), Value::Object(property)) = (words, property) {
            property.insert("description".to_owned(), Value::from(words));
        }
    }
    for (field, values) in values(name) {
        let (field, is_of_items) = field.strip_suffix("[]").map_or((field, false), |field| (field, true));
        let property = properties.get_mut(field);
        let holder = if is_of_items { property.and_then(|list| list.get_mut("items")) } else { property };
        if let Some(Value::Object(holder)) = holder {
            holder.insert("enum".to_owned(), json!(values.collect::<Vec<&str>>()));
        }
    }
}

/// Adds the description of a field that many definitions have.
pub(super) fn describe_common(field: &str, property: &mut Map) {
    let common = SECTIONS.get(COMMON).copied().unwrap_or_default();
    if let Some(words) = common.field(field) {
        property.insert("description".to_owned(), Value::from(words));
    }
}

impl Section {
    fn field(self, name: &str) -> Option<&'static str> {
        let mut fields = self.fields.lines().filter_map(|line| line.trim_start().split_once(' '));
        fields.find(|(field, _)| *field == name).map(|(_, words)| words)
    }
}

/// Every section by the full name of its definition.
fn sections() -> impl Iterator<Item = (Box<str>, Section)> {
    let is_head = |line: &str| !line.is_empty() && !line.starts_with([' ', '#']);
    let mut rest = WORDS;
    std::iter::from_fn(move || {
        // The line of the definition, followed by all lines up to the next one.
        while !rest.lines().next().is_none_or(is_head) {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
        }
        let (head, below) = rest.split_once('\n').unwrap_or((rest, ""));
        if head.is_empty() {
            return None;
        }
        let indented: usize = below.split_inclusive('\n').take_while(|line| line.starts_with(' ')).map(str::len).sum();
        let (fields, after) = below.split_at(indented);
        rest = after;
        let (name, words) = head.split_once(' ').unwrap_or((head, ""));
        Some((full(name), Section { words, fields }))
    })
}

fn full(name: &str) -> Box<str> {
    if name == COMMON || name.starts_with(FULL) {
        return name.into();
    }
    match name.strip_prefix(META.0) {
        Some(rest) => format!("{}{rest}", META.1).into(),
        None => format!("{API}{name}").into(),
    }
}

/// The enumerated fields of a definition with their values. The lines are sorted.
fn values(name: &str) -> impl Iterator<Item = (&'static str, impl Iterator<Item = &'static str>)> {
    let of_definition = move |line: &'static str| {
        let mut words = line.strip_prefix(name)?.strip_prefix('\t')?.split('\t');
        Some((words.next()?, words))
    };
    ENUMS.lines().filter_map(of_definition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Definitions;
    use crate::model::definitions::Edition;
    use crate::model::openapi::{Version, definition_json};

    #[test]
    fn every_name_in_the_texts_is_that_of_a_definition_or_of_a_field_of_it() {
        let has_field = |definition: &str, field: &str| {
            let schema = Definitions::of(Edition::WithInitializers)
                .schema(definition)
                .unwrap_or_else(|| panic!("no definition {definition}"));
            assert!(schema.property(field).is_some(), "{definition} has no field {field}");
        };
        let mut n_fields = 0;
        for (name, section) in sections().filter(|(name, _)| &**name != COMMON) {
            assert!(section.words.ends_with('.'), "{name}: {}", section.words);
            for line in section.fields.lines() {
                let (field, words) = line.trim_start().split_once(' ').unwrap();
                assert!(words.ends_with('.'), "{name}.{field}: {words}");
                has_field(&name, field);
                n_fields += 1;
            }
        }
        assert!(n_fields > 500, "{n_fields}");
        for line in ENUMS.lines() {
            let mut words = line.split('\t');
            has_field(words.next().unwrap(), words.next().unwrap().trim_end_matches("[]"));
            assert!(words.next().is_some(), "{line}");
        }
    }

    #[test]
    fn a_section_begins_in_the_first_column() {
        assert_eq!(sections().next().unwrap().0.as_ref(), COMMON);
        let pod = SECTIONS["io.k8s.api.core.v1.PodSpec"];
        assert!(pod.field("containers").unwrap().starts_with("The containers."));
        assert_eq!(pod.field("container"), None);
        assert!(SECTIONS.contains_key("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
    }

    #[test]
    fn every_kind_says_what_it_is_and_what_its_parts_are() {
        for (kind, definition) in Definitions::builtin().kinds() {
            let name = definition.name();
            let is_stored = definition.schema().property("metadata").is_some() && !name.ends_with("List");
            // Versions that are not served by default have no descriptions of their own.
            if !is_stored || kind.version.contains("alpha") || kind.version.contains("beta") {
                continue;
            }
            let json = definition_json(Edition::Kubernetes, name, Version::V3).unwrap();
            assert!(json["description"].is_string(), "{name}");
            assert!(json["properties"]["metadata"]["description"].is_string(), "{name}");
        }
    }

    #[track_caller]
    fn check(definition: &str, path: &str, want: Value) {
        for version in [Version::V2, Version::V3] {
            assert_eq!(
                definition_json(Edition::Kubernetes, definition, version).unwrap().pointer(path),
                Some(&want),
                "{version:?}"
            );
        }
    }

    #[test]
    fn fields_of_few_values_name_them() {
        check("io.k8s.api.core.v1.ContainerPort", "/properties/protocol/enum", json!(["SCTP", "TCP", "UDP"]));
        // A value may have several words.
        let usages = "/properties/usages/items/enum/1";
        check("io.k8s.api.certificates.v1.CertificateSigningRequestSpec", usages, json!("cert sign"));
        let operators = json!(["DoesNotExist", "Exists", "In", "NotIn"]);
        check("io.k8s.api.core.v1.ScopedResourceSelectorRequirement", "/properties/operator/enum", operators);
        check(
            "io.k8s.api.networking.v1.NetworkPolicySpec",
            "/properties/policyTypes/items/enum",
            json!(["Egress", "Ingress"]),
        );
    }
}
