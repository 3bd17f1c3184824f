//! Objects as an API server has served them: their JSON stays as it is, but for the place of kind, apiVersion and resourceVersion.

use crate::objects::kinds::{Defined, Kinds, Target, has_versions, is_definition, split};
use crate::objects::made_up::{MadeUp, Unknown};
use crate::objects::redacted::redact;
use crate::objects::{LeftOut, Objects, parallel, revision};
use crate::options::Options;
use crate::options::Redaction;
use crate::source::Served;
use crate::source::documents::Raw;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use steersman_kinds::at_rest;
use steersman_kinds::catalog::{Handling, Resource, ResourceScope};
use steersman_machinery::budget::{Interrupt, Limits as BudgetLimits};
use steersman_machinery::value::remove_at;
use steersman_machinery::{Budget, Draft, GroupResource, ObjectKey, Value};
use steersman_schema::decode::Body;
use steersman_storage::encode_key;
use steersman_storage::kv::Entry;

/// The most that the tree of one object may take where it must be converted.
const LIMITS: BudgetLimits = BudgetLimits { bytes_max: 128 << 20, items_max: 4_000_000, steps_max: 400_000_000 };

/// An entry, and how it was made.
struct Made {
    entry: Entry,
    form: Form,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Form {
    /// As it was served.
    Own,
    /// Out of another version of its kind.
    Converted,
}

pub(super) fn entries(found: Served, options: &Options) -> Objects {
    let Served { objects: raws, revision: of_list } = found;
    let (mut kinds, mut left_out) = (Kinds::new(&options.runtime_config), LeftOut::default());
    for raw in raws.iter().filter(|raw| is_definition(&raw.api_version, &raw.kind)) {
        if let Some(definition) = definition(&kinds, raw) {
            kinds.learn(&definition);
        }
    }
    let mut made_up = MadeUp::new(&options.limits);
    let mut known = Vec::with_capacity(raws.len());
    for mut raw in raws {
        name_kind(&kinds, &mut raw);
        let (group, version) = split(&raw.api_version);
        match kinds.of(group, &raw.kind) {
            Some(Target::BuiltIn(resource)) if resource.handling() != Handling::Stored => {
                left_out.count(format!("of the kind {}, which is not stored", raw.kind));
                continue;
            }
            Some(_) => {}
            None => {
                let plural = raw.hint.resource.as_deref().filter(|_| raw.hint.group.as_deref() == Some(group));
                let is_namespaced = !raw.namespace.is_empty();
                if let Err(why) = made_up.add(Unknown { group, version, kind: &raw.kind, plural, is_namespaced }) {
                    left_out.count(why);
                    continue;
                }
            }
        }
        known.push(raw);
    }
    let mut targets: HashMap<(Arc<str>, Arc<str>), Option<Target>> = HashMap::new();
    for raw in &known {
        targets.entry((raw.api_version.clone(), raw.kind.clone())).or_insert_with(|| {
            let group = split(&raw.api_version).0;
            let defined = || made_up.of(group, &raw.kind).map(|defined| Target::Defined(Arc::new(defined)));
            kinds.of(group, &raw.kind).cloned().or_else(defined)
        });
    }
    let made = parallel::map(known, |raw| {
        let target = targets.get(&(raw.api_version.clone(), raw.kind.clone()));
        let target = target.and_then(Option::as_ref).ok_or_else(|| "of unknown kinds".to_owned())?;
        made(&raw, target, options.redaction)
    });
    let mut entries = Vec::with_capacity(made.len());
    for made in made {
        match made {
            Ok(made) => entries.push(made),
            Err(why) => left_out.count(why),
        }
    }
    // A dump may have an object several times: the newest counts, and of one state the one as it was served.
    entries.sort_by(|a, b| {
        let of = |made: &Made| (Reverse(made.entry.revision), made.form);
        a.entry.key.cmp(&b.entry.key).then_with(|| of(a).cmp(&of(b)))
    });
    let entries = entries.into_iter().map(|made| made.entry).collect();
    Objects::new(entries, revision(of_list), made_up, left_out)
}

/// A definition in the form of `v1`.
fn definition(kinds: &Kinds, raw: &Raw) -> Option<Value> {
    let definition: Value = serde_json::from_slice(&raw.json).ok()?;
    let (group, version) = split(&raw.api_version);
    match kinds.of(group, &raw.kind) {
        Some(Target::BuiltIn(resource)) if version != "v1" || !has_versions(&definition) => {
            adopted(resource, version, definition).ok()
        }
        _ => Some(definition),
    }
}

/// Gives an object that does not say what it is the kind of its place.
fn name_kind(kinds: &Kinds, raw: &mut Raw) {
    if !raw.kind.is_empty() && !raw.api_version.is_empty() {
        return;
    }
    let Some(name) = raw.hint.resource.as_deref() else { return };
    let Some(resource) = kinds.named(name, raw.hint.group.as_deref()) else { return };
    let version = &resource.storage_version().name;
    let group = &resource.group;
    raw.kind = resource.kind.as_ref().into();
    raw.api_version = if group.is_empty() { version.as_ref().into() } else { format!("{group}/{version}").into() };
}

fn made(raw: &Raw, target: &Target, redaction: Redaction) -> Result<Made, String> {
    let of = || format!("of the kind {} in {}", raw.kind, raw.api_version);
    let unreadable = |error: &dyn std::fmt::Display| format!("{} that cannot be read: {error}", of());
    let mut value: Value = serde_json::from_slice(&raw.json).map_err(|error| unreadable(&error))?;
    value["kind"] = (&*raw.kind).into();
    value["apiVersion"] = (&*raw.api_version).into();
    remove_at(&mut value, &["metadata", "resourceVersion"]);
    let (draft, storage, is_namespaced, form) = match target {
        Target::BuiltIn(resource) => {
            if redaction == Redaction::Redact && resource.group.is_empty() && *resource.kind == *"Secret" {
                redact(&mut value);
            }
            let (version, is_own) = (split(&raw.api_version).1, resource.storage == resource.group_resource());
            let is_stored = is_own && *resource.storage_version().name == *version;
            let stored = if is_stored {
                value
            } else {
                adopted(resource, version, value).map_err(|why| format!("{}, {why}", of()))?
            };
            let draft = at_rest::draft(resource, stored).map_err(|error| unreadable(&error))?;
            let is_namespaced = resource.scope == ResourceScope::Namespaced;
            (draft, resource.storage.clone(), is_namespaced, if is_stored { Form::Own } else { Form::Converted })
        }
        Target::Defined(defined) => {
            let Defined { group, plural, is_namespaced, stored_as, resource } = &**defined;
            let form = match stored_as.as_deref().filter(|stored_as| **stored_as != *raw.api_version) {
                Some(stored_as) => {
                    value["apiVersion"] = stored_as.into();
                    Form::Converted
                }
                None => Form::Own,
            };
            let draft = match resource {
                Some(resource) => at_rest::draft(resource, value).map_err(|error| unreadable(&error))?,
                None => {
                    let json = serde_json::to_vec(&value).map_err(|error| unreadable(&error))?;
                    Draft::read(json.into()).map_err(|error| unreadable(&error))?
                }
            };
            (draft, GroupResource::new(group.as_str(), plural.as_str()), *is_namespaced, form)
        }
    };
    let key = match (is_namespaced, &*raw.namespace) {
        (true, "") => return Err(format!("{} without a namespace", of())),
        (true, namespace) => ObjectKey::namespaced(namespace, &*raw.name),
        (false, _) => ObjectKey::cluster(&*raw.name),
    };
    let key = encode_key(&storage, &key).map_err(|_| format!("{} with names that cannot be", of()))?;
    Ok(Made { entry: Entry { key, revision: revision(raw.revision), value: draft.encode() }, form })
}

/// An object of another version of a built-in kind in its stored form.
fn adopted(resource: &Resource, version: &str, value: Value) -> Result<Value, String> {
    let known = resource.versions.iter().find(|known| *known.name == *version);
    let version = known.ok_or("a version that this release does not know")?;
    let budget = Budget::new(LIMITS, Interrupt::default());
    let adopted = resource.strategy.adopt(resource, version, Body::Tree(value), &budget);
    let mut adopted = adopted.map_err(|error| format!("which cannot be read: {error}"))?;
    remove_at(&mut adopted, &["metadata", "resourceVersion"]);
    Ok(adopted)
}
