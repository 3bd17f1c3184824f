//! Names for types and variants.
//!
//! `spec` and `status` are named after the kind. Any other type gets the shortest suffix of its path that is free:
//! `Port`, then `ContainerPort`. Types near the root choose first, so that a field that is added deep inside renames
//! nothing above it.

use std::collections::BTreeSet;

use crate::types::model::{Body, Model, SchemaPath};
use crate::words;

/// Names with another meaning in a generated file.
const RESERVED: &[&str] = &[
    "BTreeMap",
    "Box",
    "ByteString",
    "Clone",
    "Debug",
    "Default",
    "Deserialize",
    "Eq",
    "Err",
    "From",
    "Hash",
    "IntOrString",
    "Into",
    "JsonSchema",
    "None",
    "ObjectMeta",
    "Ok",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Quantity",
    "RawExtension",
    "Result",
    "Self",
    "Serialize",
    "SerializeMap",
    "Serializer",
    "Some",
    "String",
    "Time",
    "Value",
    "Vec",
];

/// The name of a kind's struct: the kind itself, if that is a valid name in Rust.
pub(crate) fn of_kind(kind: &str) -> String {
    let is_camel = kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind.chars().all(|character| character.is_ascii_alphanumeric());
    let name = if is_camel { kind.to_owned() } else { of_words(&words::words(kind)) };
    if RESERVED.contains(&name.as_str()) { format!("{name}Object") } else { name }
}

/// The name of a variant for a value of an enum.
pub(crate) fn of_variant(value: &str) -> String {
    if value.is_empty() {
        return "Empty".to_owned();
    }
    let mut found = words::words(value);
    let symbols = words::words_of_symbols(value);
    if found.is_empty() {
        found = symbols;
    }
    of_words(&found)
}

fn of_words(found: &[String]) -> String {
    let name = words::pascal(found);
    match name.as_str() {
        "" => "Value".to_owned(),
        "Self" => "Self_".to_owned(),
        _ if name.starts_with(|first: char| first.is_ascii_digit()) => format!("V{name}"),
        _ => name,
    }
}

/// Names every type of the model.
pub(crate) fn assign(model: &mut Model, kind: &str) {
    let root = model.root.name.clone();
    let mut taken: BTreeSet<String> = RESERVED.iter().map(|name| (*name).to_owned()).collect();
    taken.insert(root.clone());
    taken.insert(format!("{}List", root));
    taken.extend(model.known.iter().map(|known| known.name().to_owned()));
    for definition in &mut model.types {
        definition.uses.sort_by_cached_key(|place| (place.stems.len(), place.path.clone()));
    }
    let mut order: Vec<usize> = (0..model.types.len()).collect();
    order.sort_by_cached_key(|index| {
        let place = &model.types[*index].uses[0];
        (place.stems.len(), place.path.clone())
    });
    let kind_words = words::words(kind);
    for index in order {
        let definition = &mut model.types[index];
        let candidates = candidates(&definition.uses, &root, &kind_words);
        let free = candidates.iter().find(|name| !taken.contains(*name));
        let name = match free {
            Some(name) => name.clone(),
            None => {
                let longest = candidates.last().cloned().unwrap_or_default();
                let numbered = (2..).map(|n| format!("{longest}{n}")).find(|name| !taken.contains(name));
                numbered.unwrap_or(longest)
            }
        };
        taken.insert(name.clone());
        definition.name = name;
        if let Body::Enum(variants) = &mut definition.body {
            variants.sort_by(|left, right| left.name.cmp(&right.name));
        }
    }
    model.types.iter().enumerate().for_each(|(index, definition)| {
        debug_assert!(!definition.name.is_empty(), "type {index} has no name");
    });
}

/// Names for a type with these uses, the best first.
fn candidates(uses: &[SchemaPath], root: &str, kind: &[String]) -> Vec<String> {
    let first = &uses[0];
    let stems = &first.stems;
    if stems.len() == 1 {
        return vec![format!("{root}{}", words::pascal(&stems[0]))];
    }
    let mut names = Vec::new();
    let shared = shared_ending(uses);
    if !shared.is_empty() {
        names.push(of_words(&shared));
    }
    let whole = stems.len().saturating_sub(1);
    for start in (0..=whole).rev() {
        names.push(of_words(&joined(&stems[start..])));
    }
    let mut with_kind = vec![kind.to_vec()];
    with_kind.extend(stems.iter().cloned());
    names.push(of_words(&joined(&with_kind)));
    names
}

/// The common suffix of the words in the last steps of all uses.
fn shared_ending(uses: &[SchemaPath]) -> Vec<String> {
    let mut last = uses.iter().filter_map(|place| place.stems.last());
    let Some(mut shared) = last.next().cloned() else { return Vec::new() };
    for stem in last {
        let n = shared.iter().rev().zip(stem.iter().rev()).take_while(|(left, right)| left == right).count();
        shared.drain(..shared.len() - n);
    }
    shared
}

/// The words of a path. Words that a step repeats from the end of the step before are used once: `container`,
/// `container_port`.
fn joined(stems: &[Vec<String>]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for stem in stems {
        let overlap = (1..=stem.len().min(words.len())).rev().find(|n| words.ends_with(&stem[..*n]));
        words.extend(stem[overlap.unwrap_or(0)..].iter().cloned());
    }
    words
}
