//! One question: a request made of a kind's object, changed in a few places, with parameters. It is data, so that it can be made smaller.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Map, Value, json};

use crate::requests::kind::Kind;
use crate::requests::mutation::{Change, Mutation, Path, Step, at, display};
use crate::requests::schema::Schema;
use crate::server::Request;

/// The name of objects that are created, always as a dry run.
const CREATED: &str = "case";
const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verb {
    Create,
    Update,
    UpdateStatus,
    Scale,
    MergePatch,
    StrategicPatch,
    JsonPatch,
    Apply,
    ApplyStatus,
    Delete,
    Get,
    List,
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) number: usize,
    /// The index of its kind.
    pub(crate) kind: usize,
    pub(crate) verb: Verb,
    pub(crate) mutations: Vec<Mutation>,
    pub(crate) query: Vec<(&'static str, &'static str)>,
    accept: &'static str,
    has_version: Versioned,
}

/// Whether an update names the version that it changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Versioned {
    Named,
    Unnamed,
}

// === impl Case ===

impl Case {
    /// The case with this number. `stored` is the object of the kind as the kube-apiserver has it.
    pub(crate) fn draw(rng: &mut StdRng, number: usize, index: usize, kind: &Kind<'_>, stored: &Value) -> Case {
        let verb = draw_verb(rng, kind);
        let n_mutations = match verb {
            Verb::Get | Verb::List => 0,
            _ => [0, 1, 1, 1, 1, 1, 1, 2, 2, 3].choose(rng).copied().unwrap_or(1),
        };
        let (object, schema) = subject(verb, kind, stored);
        let mut mutations = Vec::new();
        for _ in 0..n_mutations {
            let mutation = Mutation::draw(rng, &object, schema);
            mutations.extend(
                mutation.filter(|mutation| is_about(verb, mutation) || verb != Verb::Delete && rng.random_bool(0.1)),
            );
        }
        let accept = match verb {
            Verb::Get | Verb::Delete => [JSON, JSON, TABLE, METADATA].choose(rng).copied().unwrap_or(JSON),
            Verb::List => [JSON, TABLE, METADATA_LIST].choose(rng).copied().unwrap_or(JSON),
            _ => [JSON, JSON, JSON, JSON, JSON, JSON, TABLE, METADATA].choose(rng).copied().unwrap_or(JSON),
        };
        let has_version = if rng.random_bool(0.7) { Versioned::Named } else { Versioned::Unnamed };
        Case { number, kind: index, verb, mutations, query: draw_query(rng, verb), accept, has_version }
    }

    /// The creation of an object of the kind, changed in a few places, which is not a dry run.
    pub(crate) fn draw_creation(rng: &mut StdRng, number: usize, index: usize, kind: &Kind<'_>) -> Case {
        let (object, schema) = subject(Verb::Create, kind, &Value::Null);
        let n_mutations = [0, 1, 1, 2, 3].choose(rng).copied().unwrap_or(1);
        let mutations = (0..n_mutations).filter_map(|_| Mutation::draw(rng, &object, schema)).collect();
        let (query, accept, has_version) = (Vec::new(), JSON, Versioned::Unnamed);
        Case { number, kind: index, verb: Verb::Create, mutations, query, accept, has_version }
    }

    pub(crate) fn request(&self, kind: &Kind<'_>, stored: &Value) -> Request {
        let (object, schema) = subject(self.verb, kind, stored);
        let mut changed = object.clone();
        for mutation in &self.mutations {
            mutation.apply(&mut changed);
        }
        let path = kind.object_path();
        let (method, path, content_type, body) = match self.verb {
            Verb::Create => ("POST", kind.path.clone(), JSON, changed),
            Verb::Update => ("PUT", path, JSON, self.versioned(changed)),
            Verb::UpdateStatus => ("PUT", format!("{path}/status"), JSON, self.versioned(changed)),
            Verb::Scale => ("PUT", format!("{path}/scale"), JSON, changed),
            Verb::MergePatch => ("PATCH", path, "application/merge-patch+json", self.merged(&object)),
            Verb::StrategicPatch => {
                ("PATCH", path, "application/strategic-merge-patch+json", self.strategic(&object, schema))
            }
            Verb::JsonPatch => ("PATCH", path, "application/json-patch+json", self.operations(&object)),
            Verb::Apply => ("PATCH", path, "application/apply-patch+yaml", changed),
            Verb::ApplyStatus => ("PATCH", format!("{path}/status"), "application/apply-patch+yaml", changed),
            Verb::Delete => ("DELETE", path, JSON, changed),
            Verb::Get => ("GET", path, "", Value::Null),
            Verb::List => ("GET", kind.path.clone(), "", Value::Null),
        };
        let query: Vec<String> = self.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let path = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
        let body = if content_type.is_empty() { String::new() } else { body.to_string() };
        Request { method: method.into(), path, content_type: content_type.into(), accept: self.accept.into(), body }
    }

    /// The places that are changed.
    pub(crate) fn places(&self) -> String {
        let places: Vec<String> = self.mutations.iter().map(|mutation| display(&mutation.path)).collect();
        places.join(" + ")
    }

    fn versioned(&self, mut object: Value) -> Value {
        if self.has_version == Versioned::Named && object["metadata"].is_object() {
            object["metadata"]["resourceVersion"] = json!("{rv}");
        }
        object
    }

    /// A merge patch: lists are replaced as a whole.
    fn merged(&self, object: &Value) -> Value {
        let mut changed = object.clone();
        let mut patch = json!({});
        for mutation in &self.mutations {
            mutation.apply(&mut changed);
            let n_fields = mutation.path.iter().take_while(|step| matches!(step, Step::Field(_))).count();
            let way = &mutation.path[..n_fields];
            put(&mut patch, way, at(&changed, way).cloned().unwrap_or_default());
        }
        patch
    }

    /// A strategic merge patch: an item of a list with a merge key is named by it.
    fn strategic(&self, object: &Value, schema: Schema<'_>) -> Value {
        let mut patch = json!({});
        for mutation in &self.mutations {
            merge(&mut patch, strategic(object, Some(schema), &mutation.path, &mutation.change));
        }
        patch
    }

    fn operations(&self, object: &Value) -> Value {
        let operations = self.mutations.iter().map(|mutation| {
            let path = pointer(&mutation.path);
            let is_there = at(object, &mutation.path).is_some();
            match &mutation.change {
                Change::Remove => json!({"op": "remove", "path": path}),
                Change::Set(value) if is_there => json!({"op": "replace", "path": path, "value": value}),
                Change::Set(value) | Change::Insert(value) => json!({"op": "add", "path": path, "value": value}),
                Change::Repeat => json!({"op": "copy", "from": path, "path": path}),
            }
        });
        operations.collect()
    }
}

/// The object that is changed and sent, and its schema.
fn subject<'a>(verb: Verb, kind: &Kind<'a>, stored: &Value) -> (Value, Schema<'a>) {
    let object = match verb {
        Verb::Create => {
            let mut object = kind.seed.clone();
            if kind.name().starts_with("base-") {
                object["metadata"]["name"] = json!(CREATED);
            }
            release_addresses(&mut object);
            object
        }
        Verb::Update | Verb::UpdateStatus | Verb::MergePatch | Verb::StrategicPatch | Verb::JsonPatch => stored.clone(),
        Verb::Apply => kind.seed.clone(),
        Verb::ApplyStatus => {
            let head = ["apiVersion", "kind"].map(|name| (name.to_owned(), kind.seed[name].clone()));
            let mut object = Value::Object(Map::from_iter(head));
            object["metadata"] = json!({"name": kind.seed["metadata"]["name"]});
            object["status"] = stored.get("status").cloned().unwrap_or_else(|| json!({}));
            object
        }
        Verb::Scale => json!({
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": kind.name(), "namespace": crate::requests::kind::NAMESPACE},
            "spec": {"replicas": 2},
        }),
        // A body replaces the parameters, so that it must ask for the dry run itself.
        Verb::Delete => {
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"], "preconditions": {"uid": "{uid}"}})
        }
        Verb::Get | Verb::List => Value::Null,
    };
    (object, kind.schema)
}

/// Leaves addresses and ports of a Service to the servers: those of the seed are taken by the object that exists.
fn release_addresses(object: &mut Value) {
    if object["kind"] == "Service" && object["spec"]["clusterIP"] != "None" {
        for name in ["clusterIP", "healthCheckNodePort"] {
            object["spec"].as_object_mut().map(|spec| spec.remove(name));
        }
        for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
}

/// Whether a change is in the part of an object that a verb writes.
fn is_about(verb: Verb, mutation: &Mutation) -> bool {
    let is_status = mutation.path.first() == Some(&Step::Field("status".to_owned()));
    match verb {
        Verb::UpdateStatus | Verb::ApplyStatus => is_status,
        Verb::Delete => mutation.path.first() != Some(&Step::Field("dryRun".to_owned())),
        _ => !is_status,
    }
}

fn draw_verb(rng: &mut StdRng, kind: &Kind<'_>) -> Verb {
    loop {
        let verb = match rng.random_range(0..100) {
            0..22 => Verb::Create,
            22..38 => Verb::Update,
            38..48 => Verb::UpdateStatus,
            48..51 => Verb::Scale,
            51..60 => Verb::MergePatch,
            60..70 => Verb::StrategicPatch,
            70..77 => Verb::JsonPatch,
            77..87 => Verb::Apply,
            87..91 => Verb::ApplyStatus,
            91..95 => Verb::Delete,
            95..97 => Verb::Get,
            _ => Verb::List,
        };
        let subresource = match verb {
            Verb::UpdateStatus | Verb::ApplyStatus => "status",
            Verb::Scale => "scale",
            _ => return verb,
        };
        if kind.subresources.iter().any(|served| served == subresource) {
            return verb;
        }
    }
}

fn draw_query(rng: &mut StdRng, verb: Verb) -> Vec<(&'static str, &'static str)> {
    let mut query = Vec::new();
    let mut sometimes = |chance: f64, name: &'static str, values: &[&'static str]| {
        if rng.random_bool(chance) {
            query.extend(values.choose(rng).map(|value| (name, *value)));
        }
    };
    match verb {
        Verb::Get => {}
        Verb::List => {
            sometimes(
                0.4,
                "labelSelector",
                &[
                    "app",
                    "app=web",
                    "app!=web",
                    "!app",
                    "app%20in%20(web,x)",
                    "a%3D%3D",
                    ",",
                    "a=b=c",
                    "-=x",
                    "x%20notin%20()",
                ],
            );
            sometimes(
                0.4,
                "fieldSelector",
                &[
                    "metadata.name=base-1",
                    "metadata.name!=base-1",
                    "metadata.namespace=diff",
                    "spec.x=1",
                    "metadata.name",
                    "status.phase=Pending",
                    "spec.nodeName=",
                    "type=Opaque",
                    "reason=Started",
                    "metadata.name=a,metadata.name=b",
                    "spec.mode=Fast",
                    "involvedObject.kind=Pod",
                ],
            );
            sometimes(0.2, "limit", &["1", "500", "-1", "x", "0"]);
            sometimes(0.1, "resourceVersion", &["0", "x", "-1", "99999999"]);
            sometimes(0.1, "resourceVersionMatch", &["Exact", "NotOlderThan", "x"]);
            sometimes(0.05, "continue", &["x", "e30"]);
        }
        Verb::Delete => {
            sometimes(1.0, "dryRun", &["All"]);
            sometimes(0.2, "propagationPolicy", &["Foreground", "Orphan", "Background", "x"]);
            sometimes(0.2, "gracePeriodSeconds", &["0", "5", "-1", "x"]);
            sometimes(0.1, "orphanDependents", &["true", "x"]);
        }
        _ => {
            sometimes(1.0, "dryRun", &["All"]);
            sometimes(0.3, "fieldValidation", &["Strict", "Strict", "Warn", "Ignore", "x"]);
            let needs_manager = matches!(verb, Verb::Apply | Verb::ApplyStatus);
            let chance = if needs_manager { 0.95 } else { 0.15 };
            sometimes(chance, "fieldManager", &["one", "one", "two", "creator", "two%20words", "%07"]);
            sometimes(if needs_manager { 0.5 } else { 0.03 }, "force", &["true", "true", "false", "x"]);
        }
    }
    query
}

/// Puts a value at the end of a way of fields, as a merge patch has it.
fn put(patch: &mut Value, way: &[Step], value: Value) {
    let mut place = patch;
    for step in way {
        let Step::Field(name) = step else { return };
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[name.as_str()];
    }
    *place = value;
}

fn strategic(value: &Value, schema: Option<Schema<'_>>, path: &[Step], change: &Change) -> Value {
    let Some((step, rest)) = path.split_first() else {
        return match change {
            Change::Set(value) | Change::Insert(value) => value.clone(),
            Change::Remove | Change::Repeat => Value::Null,
        };
    };
    match step {
        Step::Field(name) => {
            let below = schema.and_then(|schema| schema.field(name));
            json!({name: strategic(&value[name.as_str()], below, rest, change)})
        }
        Step::Item(index) => {
            let item = &value[*index];
            let key = schema.and_then(Schema::merge_key).filter(|key| item.get(key).is_some());
            let (Some(key), false) = (key, rest.is_empty() && matches!(change, Change::Set(_) | Change::Insert(_)))
            else {
                let mut changed = value.clone();
                Mutation { path: path.to_vec(), change: change.clone() }.apply(&mut changed);
                return changed;
            };
            let mut patch = match (rest.is_empty(), change) {
                (true, Change::Remove) => json!({"$patch": "delete"}),
                (true, _) => item.clone(),
                (false, _) => strategic(item, schema.and_then(Schema::items), rest, change),
            };
            if patch.is_object() && patch.get(key).is_none() {
                patch[key] = item[key].clone();
            }
            json!([patch])
        }
    }
}

/// Lays one patch over another; lists of both are joined.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                match into.get_mut(&name) {
                    Some(into) => merge(into, value),
                    None => {
                        into.insert(name, value);
                    }
                }
            }
        }
        (Value::Array(into), Value::Array(mut from)) => into.append(&mut from),
        (into, from) => *into = from,
    }
}

fn pointer(path: &Path) -> String {
    let mut text = String::new();
    for step in path {
        text.push('/');
        match step {
            Step::Field(name) => text.push_str(&name.replace('~', "~0").replace('/', "~1")),
            Step::Item(index) => text.push_str(&index.to_string()),
        }
    }
    text
}
