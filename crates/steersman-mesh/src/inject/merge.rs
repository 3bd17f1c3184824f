//! Pod and fragment to Pod, by a strategic merge patch. Pure: no request, no clock, no state.
//!
//! [`plan`] makes the patch, and [`inject`] applies it: the webhook answers with the result, and the initializer sends
//! the patch, so that both give the same Pod. The patch only adds: what the Pod says of itself stays, in its order.
//! Containers and volumes of the fragment come last, so that `kubectl logs` and `exec` go to the Pod's own; init
//! containers come first, so that a native sidecar runs when the others need it.
//!
//! An annotation records the names of all that was added. A Pod with the record is left as it is, whatever fragment it has: so a
//! second call changes nothing, and a fragment that is replaced between two calls for one Pod is not mixed with the
//! former.
//!
//! A user can write the record too. If none of its containers is there, only its volumes count: one of them that no
//! container of the Pod uses is left over from an injection, and the fragment's volume of that name replaces it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use steersman_schema::strategic;

use crate::inject::fragment::{Fragment, POD};
use crate::inject::{FRAGMENT, RECORD};

/// The longest record that is read. A fragment's own is far shorter.
const RECORD_BYTES_MAX: usize = 8 * 1024;
const SET_ORDER: &str = "$setElementOrder";
const RETAIN_KEYS: &str = "$retainKeys";
const DIRECTIVE: &str = "$patch";

/// How the fragment is added to a Pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// The Pod stays as it is.
    Leave(Unchanged),
    /// The strategic merge patch to apply.
    Patch(Value),
}

/// Why a Pod stays as it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unchanged {
    /// It has a record of an injection, and the containers that the record names.
    Injected,
    /// A list in it is malformed. The API server says what is wrong with it.
    Malformed,
    /// It has a container of that name, as in the document's loop.
    Present {
        /// The name of the container.
        container: String,
    },
}

/// Why the fragment cannot be added to a Pod.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Conflict {
    /// A record names containers of which some are gone: another webhook has removed them.
    #[error("the Pod's sidecar is incomplete: container {missing} was removed, but {present} is still there")]
    Half {
        /// A container that is gone.
        missing: String,
        /// A container that is not.
        present: String,
    },
    /// The merge itself failed.
    #[error("the fragment cannot be merged into the Pod: {0}")]
    Merge(strategic::Error),
    /// Two containers would listen at one port of the Pod's address.
    #[error("the sidecar's container {ours} and the Pod's container {theirs} both listen on port {port}: change one")]
    Port {
        /// The port.
        port: Port,
        /// The container of the fragment.
        ours: String,
        /// The container of the Pod.
        theirs: String,
    },
    /// The Pod has a pull secret without a name, beside which a patch can put no other.
    #[error(
        "the sidecar's imagePullSecrets cannot be added: imagePullSecrets[{at}] of the Pod has no name; name it or remove it"
    )]
    PullSecret {
        /// The index of the secret.
        at: usize,
    },
    /// The Pod has a volume of that name.
    #[error("the Pod has a volume {volume}, which is the name of a volume of the sidecar: rename it")]
    Volume {
        /// The name.
        volume: String,
    },
}

/// A port of a container.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Port {
    /// The number.
    pub number: i64,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// The names of all that was added to a Pod, as its annotation has them.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// The names of the containers.
    pub containers: Vec<String>,
    /// The names of the init containers.
    pub init_containers: Vec<String>,
    /// The names of the volumes.
    pub volumes: Vec<String>,
}

/// Whether a Pod has all, some or none of the containers of its record.
enum State {
    /// There is no record, or none of its containers.
    New(Record),
    Half {
        missing: String,
        present: String,
    },
    Whole(Record),
}

/// Where the items of a fragment go in a list of the Pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    First,
    Last,
}

/// The Pod with the fragment.
///
/// # Errors
/// [`Conflict`].
pub fn inject(pod: &Value, fragment: &Fragment) -> Result<Value, Conflict> {
    match plan(pod, fragment)? {
        Plan::Leave(_) => Ok(pod.clone()),
        Plan::Patch(patch) => apply(pod.clone(), patch),
    }
}

/// Applies the patch of a plan.
pub(crate) fn apply(pod: Value, patch: Value) -> Result<Value, Conflict> {
    strategic::apply(&POD, pod, patch).map_err(Conflict::Merge)
}

/// The patch that adds the fragment to a Pod, or the reason to leave the Pod as it is.
///
/// # Errors
/// [`Conflict`].
pub fn plan(pod: &Value, fragment: &Fragment) -> Result<Plan, Conflict> {
    let (Some(own), Some(labels), Some(annotations)) =
        (Lists::of(pod), texts(pod, "/metadata/labels"), texts(pod, "/metadata/annotations"))
    else {
        return Ok(Plan::Leave(Unchanged::Malformed));
    };
    let before = match own.state(pod) {
        State::New(record) => record,
        State::Half { missing, present } => return Err(Conflict::Half { missing, present }),
        State::Whole(record) => {
            own.check_ports(&record)?;
            return Ok(Plan::Leave(Unchanged::Injected));
        }
    };
    if let Some(container) = fragment.container_names().find(|name| own.names.contains(name)) {
        return Ok(Plan::Leave(Unchanged::Present { container: container.to_owned() }));
    }
    let volumes = own.new_volumes(fragment, &before)?;
    own.check_new_ports(fragment)?;
    let mut spec = Map::new();
    add(&mut spec, "containers", own.containers, fragment.containers.clone(), Place::Last);
    add(&mut spec, "initContainers", own.init_containers, fragment.init_containers.clone(), Place::First);
    add(&mut spec, "volumes", own.volumes, volumes, Place::Last);
    own.add_secrets(&mut spec, fragment)?;
    // This list is replaced as a whole by a patch.
    let gates = missing_in(own.readiness_gates, &fragment.readiness_gates, "conditionType");
    if !gates.is_empty() {
        spec.insert("readinessGates".to_owned(), own.readiness_gates.iter().cloned().chain(gates).collect());
    }
    let grace = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    if let Some(seconds) = fragment.grace_seconds.filter(|seconds| grace.is_none_or(|grace| grace < *seconds)) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), seconds.into());
    }
    let metadata = added_metadata(labels, annotations, fragment);
    Ok(Plan::Patch(json!({"metadata": metadata, "spec": spec})))
}

/// The labels and annotations that the Pod does not have, and those of the injector.
fn added_metadata(
    labels: Option<&Map<String, Value>>,
    annotations: Option<&Map<String, Value>>,
    fragment: &Fragment,
) -> Map<String, Value> {
    let absent = |own: Option<&Map<String, Value>>, ours: &BTreeMap<String, String>| -> Map<String, Value> {
        let new = ours.iter().filter(|(key, _)| own.is_none_or(|own| !own.contains_key(*key)));
        new.map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect()
    };
    let mut metadata = Map::new();
    let added = absent(labels, &fragment.labels);
    if !added.is_empty() {
        metadata.insert("labels".to_owned(), added.into());
    }
    let mut added = absent(annotations, &fragment.annotations);
    added.insert(FRAGMENT.to_owned(), fragment.hash().into());
    added.insert(RECORD.to_owned(), Record::of(fragment).to_string().into());
    metadata.insert("annotations".to_owned(), added.into());
    metadata
}

/// Whether a Pod has the record of an injection and everything that it names.
pub fn is_injected(pod: &Value) -> bool {
    Lists::of(pod).is_some_and(|own| matches!(own.state(pod), State::Whole(_)))
}

/// The lists of a Pod that the fragment adds to. Every container and volume has a name of its own, as the server wants.
struct Lists<'p> {
    containers: &'p [Value],
    init_containers: &'p [Value],
    volumes: &'p [Value],
    image_pull_secrets: &'p [Value],
    readiness_gates: &'p [Value],
    /// The names of all containers.
    names: HashSet<&'p str>,
}

impl<'p> Lists<'p> {
    /// `None` where a list is malformed: the API server will say so.
    fn of(pod: &'p Value) -> Option<Lists<'p>> {
        let spec = pod.get("spec")?.as_object()?;
        let list = |field: &str| match spec.get(field) {
            None | Some(Value::Null) => Some([].as_slice()),
            Some(list) => list.as_array().map(Vec::as_slice),
        };
        let (containers, init_containers, volumes) = (list("containers")?, list("initContainers")?, list("volumes")?);
        let (image_pull_secrets, readiness_gates) = (list("imagePullSecrets")?, list("readinessGates")?);
        let mut names = HashSet::new();
        let is_new = containers.iter().chain(init_containers).all(|item| name(item).is_some_and(|it| names.insert(it)));
        let mut others = HashSet::new();
        let are_new = volumes.iter().all(|item| name(item).is_some_and(|it| others.insert(it)));
        (is_new && are_new && image_pull_secrets.iter().all(Value::is_object)).then_some(Lists {
            containers,
            init_containers,
            volumes,
            image_pull_secrets,
            readiness_gates,
            names,
        })
    }

    fn state(&self, pod: &Value) -> State {
        let record = pod.pointer("/metadata/annotations").and_then(|all| all.get(RECORD)).and_then(Value::as_str);
        let record = record.filter(|text| text.len() <= RECORD_BYTES_MAX);
        let record: Record = record.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let (present, missing): (Vec<&String>, Vec<&String>) =
            record.names().partition(|name| self.names.contains(name.as_str()));
        match (present.first(), missing.first()) {
            (None, _) => State::New(record),
            (Some(_), None) => State::Whole(record),
            (Some(present), Some(missing)) => State::Half { missing: (*missing).clone(), present: (*present).clone() },
        }
    }

    /// The volumes of the fragment as a patch has them. One that is left over from an injection is replaced, since merging
    /// would give the volume two sources.
    fn new_volumes(&self, fragment: &Fragment, before: &Record) -> Result<Vec<Value>, Conflict> {
        let taken: HashMap<&str, &Value> = self.volumes.iter().filter_map(|it| Some((name(it)?, it))).collect();
        let recorded: HashSet<&str> = before.volumes.iter().map(String::as_str).collect();
        let containers = self.containers.iter().chain(self.init_containers);
        let mounts = containers.flat_map(|container| ["volumeMounts", "volumeDevices"].map(|list| container.get(list)));
        let used: HashSet<&str> = mounts.flatten().filter_map(Value::as_array).flatten().filter_map(name).collect();
        let as_patched = |volume: &Value| match name(volume).and_then(|name| taken.get_key_value(name)) {
            None => Ok(volume.clone()),
            Some((name, old)) if recorded.contains(name) && !used.contains(name) => Ok(replacement(volume, old)),
            Some((name, _)) => Err(Conflict::Volume { volume: (*name).to_owned() }),
        };
        fragment.volumes.iter().map(as_patched).collect()
    }

    /// Adds the pull secrets that the Pod does not have. The server accepts Pods that have one twice, or one without a name.
    fn add_secrets(&self, spec: &mut Map<String, Value>, fragment: &Fragment) -> Result<(), Conflict> {
        let own = self.image_pull_secrets;
        let secrets = missing_in(own, &fragment.image_pull_secrets, "name");
        if secrets.is_empty() {
            return Ok(());
        }
        if let Some(at) = own.iter().position(|secret| name(secret).is_none()) {
            return Err(Conflict::PullSecret { at });
        }
        let mut names = HashSet::new();
        if own.iter().filter_map(name).all(|name| names.insert(name)) {
            add(spec, "imagePullSecrets", own, secrets, Place::Last);
        } else {
            // An order names each item once.
            spec.insert("imagePullSecrets".to_owned(), secrets.into());
        }
        Ok(())
    }

    /// Whether containers that joined later listen at a port of the sidecar.
    fn check_ports(&self, record: &Record) -> Result<(), Conflict> {
        let ours: HashSet<&str> = record.names().map(String::as_str).collect();
        let is_ours = |container: &&Value| name(container).is_some_and(|name| ours.contains(name));
        let natives = self.init_containers.iter().filter(|it| is_ours(it) && is_native(it));
        self.check_against(natives, self.containers.iter().filter(is_ours), |it| !is_ours(&it))
    }

    fn check_new_ports(&self, fragment: &Fragment) -> Result<(), Conflict> {
        let natives = fragment.init_containers.iter().filter(|container| is_native(container));
        self.check_against(natives, fragment.containers.iter(), |_| true)
    }

    /// Ordinary init containers run beside native sidecars only, all others beside each other.
    fn check_against<'a>(
        &self,
        natives: impl Iterator<Item = &'a Value>,
        plain: impl Iterator<Item = &'a Value>,
        is_theirs: impl Fn(&Value) -> bool,
    ) -> Result<(), Conflict> {
        let (mut running, mut starting) = (HashMap::new(), HashMap::new());
        let inits = self.init_containers.iter().map(|container| (container, is_native(container)));
        let all = self.containers.iter().map(|container| (container, true)).chain(inits);
        for (container, is_long_running) in all.filter(|(container, _)| is_theirs(container)) {
            let listeners = if is_long_running { &mut running } else { &mut starting };
            for port in ports(container) {
                listeners.entry(port).or_insert(container);
            }
        }
        let mut ours = natives.map(|it| (it, true)).chain(plain.map(|it| (it, false)));
        ours.try_for_each(|(container, is_native)| {
            for port in ports(container) {
                let other = running.get(&port).or_else(|| starting.get(&port).filter(|_| is_native));
                if let Some(other) = other {
                    let text = |container: &Value| name(container).unwrap_or_default().to_owned();
                    return Err(Conflict::Port { ours: text(container), theirs: text(other), port });
                }
            }
            Ok(())
        })
    }
}

/// Adds a list of the fragment to a patch, with the order that the merged list is to have.
fn add(spec: &mut Map<String, Value>, field: &str, own: &[Value], ours: Vec<Value>, place: Place) {
    if ours.is_empty() {
        return;
    }
    let taken: HashSet<&str> = ours.iter().filter_map(name).collect();
    let kept = own.iter().filter_map(name).filter(|name| !taken.contains(name));
    let added = ours.iter().filter_map(name);
    let item = |name: &str| json!({"name": name});
    let order: Vec<Value> = match place {
        Place::First => added.chain(kept).map(item).collect(),
        Place::Last => kept.chain(added).map(item).collect(),
    };
    spec.insert(format!("{SET_ORDER}/{field}"), order.into());
    spec.insert(field.to_owned(), ours.into());
}

/// The item of a patch that puts a volume in the place of another with its name.
fn replacement(volume: &Value, old: &Value) -> Value {
    let mut item = volume.clone();
    let Value::Object(fields) = &mut item else { return item };
    let retained: Vec<Value> = fields.keys().map(|key| Value::from(key.as_str())).collect();
    // A source of the same kind would be merged with the old one.
    let same = fields.iter_mut().filter(|(key, _)| old.get(key.as_str()).is_some_and(Value::is_object));
    for source in same.filter_map(|(_, value)| value.as_object_mut()) {
        source.insert(DIRECTIVE.to_owned(), "replace".into());
    }
    fields.insert(RETAIN_KEYS.to_owned(), retained.into());
    item
}

/// The items whose key the Pod's list does not have.
fn missing_in(own: &[Value], ours: &[Value], key: &str) -> Vec<Value> {
    let known: HashSet<&str> = own.iter().filter_map(|item| item.get(key)?.as_str()).collect();
    ours.iter()
        .filter(|item| item.get(key).and_then(Value::as_str).is_some_and(|it| !known.contains(it)))
        .cloned()
        .collect()
}

/// A map of texts; `None` where it is something else.
fn texts<'p>(pod: &'p Value, path: &str) -> Option<Option<&'p Map<String, Value>>> {
    match pod.pointer(path) {
        None | Some(Value::Null) => Some(None),
        Some(map) => map.as_object().map(Some),
    }
}

pub(crate) fn name(item: &Value) -> Option<&str> {
    item.get("name")?.as_str()
}

/// Whether an init container is a native sidecar: it runs for as long as the Pod does, and a Job's Pod ends without it.
pub(crate) fn is_native(container: &Value) -> bool {
    container.get("restartPolicy").and_then(Value::as_str) == Some("Always")
}

/// The ports at which a container says that it listens.
pub(crate) fn ports(container: &Value) -> impl Iterator<Item = Port> {
    let ports = container.get("ports").and_then(Value::as_array).into_iter().flatten();
    ports.filter_map(|port| {
        let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP").to_owned();
        Some(Port { number: port.get("containerPort")?.as_i64()?, protocol })
    })
}

// === impl Record ===

impl Record {
    fn of(fragment: &Fragment) -> Record {
        let names = |items: &[Value]| items.iter().filter_map(name).map(str::to_owned).collect();
        Record {
            containers: names(&fragment.containers),
            init_containers: names(&fragment.init_containers),
            volumes: names(&fragment.volumes),
        }
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        self.init_containers.iter().chain(&self.containers)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.protocol)
    }
}

#[cfg(test)]
mod tests;
