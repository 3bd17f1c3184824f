//! The roles and bindings of a new cluster: created if they are missing, repaired if parts were removed.
//!
//! `access.json` lists those of Kubernetes 1.36 with its default feature gates, and, as `system:steersman:...`, those
//! that simulated nodes need in addition. Additions by users stay. An object whose annotation
//! `rbac.authorization.kubernetes.io/autoupdate` is `false` is left alone. Follows component-helpers'
//! `auth/rbac/reconciliation`.

use crate::access::authz::rbac::covers;
use crate::access::authz::rbac::resource::Resource;
use crate::access::authz::rbac::rule::Rule;
use crate::shared::conversion;
use crate::shared::operation::Operation;
use crate::shared::request::options;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::{self, Change, Current};
use futures::{StreamExt as _, TryStreamExt as _};
use serde::Deserialize;
use serde_json::json;
use steersman_kinds::catalog::Verb;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{Budget, ObjectKey, Value};

const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const GROUP: &str = "rbac.authorization.k8s.io";
/// The most objects written concurrently, so that they share commits of the store.
const WRITES_AT_A_TIME: usize = 64;

/// The content of `access.json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Access {
    cluster_roles: Vec<Role>,
    cluster_role_bindings: Vec<Binding>,
    roles: Vec<Role>,
    role_bindings: Vec<Binding>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Role {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    /// Labels beside the one that all roles have.
    #[serde(default)]
    labels: serde_json::Map<String, Value>,
    #[serde(default)]
    aggregation_rule: Option<Value>,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Binding {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    /// The role's name. Its scope is that of the binding.
    role: String,
    subjects: Vec<Value>,
}

/// An object in its wanted state.
struct DesiredObject {
    resource: Resource,
    key: ObjectKey,
    object: Value,
}

/// The action for an object.
enum Step {
    Create(Value),
    Delete,
    Nothing,
    Update(Value),
}

/// Creates or repairs all roles and bindings.
///
/// # Errors
/// When the store refuses a write.
pub(super) async fn reconcile(state: &State) -> Result<(), Failure> {
    let access: Access = serde_json::from_str(include_str!("access.json"))
        .map_err(|error| Failure::internal(format!("the list of roles cannot be read: {error}")))?;
    let wanted = wanted(access);
    let writes: Vec<_> = wanted.iter().map(|wanted| one(state, wanted)).collect();
    futures::stream::iter(writes).buffer_unordered(WRITES_AT_A_TIME).try_collect().await
}

fn wanted(access: Access) -> Vec<DesiredObject> {
    let Access { cluster_roles, cluster_role_bindings, roles, role_bindings } = access;
    let cluster_roles = cluster_roles.into_iter().map(|role| role.wanted(Resource::ClusterRoles, "ClusterRole"));
    let roles = roles.into_iter().map(|role| role.wanted(Resource::Roles, "Role"));
    let cluster_role_bindings = cluster_role_bindings
        .into_iter()
        .map(|binding| binding.wanted(Resource::ClusterRoleBindings, "ClusterRoleBinding", "ClusterRole"));
    let role_bindings =
        role_bindings.into_iter().map(|binding| binding.wanted(Resource::RoleBindings, "RoleBinding", "Role"));
    cluster_roles.chain(roles).chain(cluster_role_bindings).chain(role_bindings).collect()
}

impl Role {
    fn wanted(self, resource: Resource, kind: &str) -> DesiredObject {
        let Role { name, namespace, labels, aggregation_rule, rules } = self;
        let (key, mut object) = skeleton(kind, &name, namespace.as_deref(), labels);
        object["rules"] = json!(rules);
        if let Some(aggregation_rule) = aggregation_rule {
            object["aggregationRule"] = aggregation_rule;
        }
        DesiredObject { resource, key, object }
    }
}

impl Binding {
    fn wanted(self, resource: Resource, kind: &str, role_kind: &str) -> DesiredObject {
        let Binding { name, namespace, role, subjects } = self;
        let (key, mut object) = skeleton(kind, &name, namespace.as_deref(), serde_json::Map::new());
        object["roleRef"] = json!({"apiGroup": GROUP, "kind": role_kind, "name": role});
        let subjects = subjects.into_iter().map(|mut subject| {
            if subject["kind"] != "ServiceAccount" {
                subject["apiGroup"] = GROUP.into();
            }
            subject
        });
        let subjects: Vec<Value> = subjects.collect();
        if !subjects.is_empty() {
            object["subjects"] = subjects.into();
        }
        DesiredObject { resource, key, object }
    }
}

/// The fields that all objects have.
fn skeleton(
    kind: &str,
    name: &str,
    namespace: Option<&str>,
    mut labels: serde_json::Map<String, Value>,
) -> (ObjectKey, Value) {
    labels.insert("kubernetes.io/bootstrapping".to_owned(), "rbac-defaults".into());
    let mut object = json!({
        "kind": kind,
        "apiVersion": format!("{GROUP}/v1"),
        "metadata": {"name": name, "labels": labels, "annotations": {AUTO_UPDATE: "true"}},
    });
    let key = match namespace {
        Some(namespace) => {
            object["metadata"]["namespace"] = namespace.into();
            ObjectKey::namespaced(namespace, name)
        }
        None => ObjectKey::cluster(name),
    };
    (key, object)
}

/// Creates or repairs one object.
async fn one(state: &State, wanted: &DesiredObject) -> Result<(), Failure> {
    let storage = wanted.resource.storage();
    // The cache is up to date: the server waits for it before this begins.
    let step = match state.store.get_cached(&storage, &wanted.key) {
        None => Step::Create(wanted.object.clone()),
        Some(stored) => step(&conversion::parse(&stored)?, &wanted.object)?,
    };
    match step {
        Step::Nothing => Ok(()),
        Step::Create(object) => write(state, wanted, Verb::Create, &Change::Create(object)).await,
        Step::Update(object) => {
            let edit = |_: &mut Operation<'_>, _: &Current| Ok(object.clone());
            write(state, wanted, Verb::Update, &Change::Edit(&edit)).await
        }
        Step::Delete => {
            write(state, wanted, Verb::Delete, &Change::Delete(&options::Delete::default())).await?;
            write(state, wanted, Verb::Create, &Change::Create(wanted.object.clone())).await
        }
    }
}

async fn write(state: &State, wanted: &DesiredObject, verb: Verb, change: &Change<'_>) -> Result<(), Failure> {
    let catalog = state.catalog();
    let storage = wanted.resource.storage();
    let Some(served) = catalog.find(&storage.group, "v1", &storage.resource) else { return Ok(()) };
    let of_system = Operation::of_system(served, verb, state.now());
    let mut operation = of_system.on(verb, &wanted.key);
    registry::write(state, &mut operation, change).await.map(|_| ())
}

/// The action that brings a stored object to its wanted state.
fn step(stored: &Value, wanted: &Value) -> Result<Step, Failure> {
    if at(stored, &["metadata", "annotations", AUTO_UPDATE]).and_then(Value::as_str) == Some("false") {
        return Ok(Step::Nothing);
    }
    let is_binding = wanted.get("roleRef").is_some();
    if is_binding && stored.get("roleRef") != wanted.get("roleRef") {
        return Ok(Step::Delete);
    }
    let mut new = stored.clone();
    for map in ["annotations", "labels"] {
        // Values that a user has changed stay.
        let given = wanted["metadata"][map].as_object().into_iter().flatten();
        for (key, value) in given {
            if at(&new, &["metadata", map, key]).is_none() {
                steersman_machinery::value::set_at(&mut new, &["metadata", map, key], value.clone());
            }
        }
    }
    if is_binding {
        add_missing(&mut new, wanted, &["subjects"]);
    } else {
        add_missing(&mut new, wanted, &["aggregationRule", "clusterRoleSelectors"]);
        let (own, rules) = (rules(stored)?, rules(wanted)?);
        // The server's own roles: no client has a part in how many they are.
        let missing = covers::missing(&[own.as_slice().into()], &rules, &Budget::unlimited());
        let missing = missing.map_err(|error| Failure::internal(error.to_string()))?;
        if !missing.is_empty() {
            new["rules"] = json!(own.into_iter().chain(missing).collect::<Vec<Rule>>());
        }
    }
    Ok(if new == *stored { Step::Nothing } else { Step::Update(new) })
}

fn rules(role: &Value) -> Result<Vec<Rule>, Failure> {
    let rules = role.get("rules").filter(|rules| !rules.is_null());
    let rules = rules.map_or(Ok(Vec::new()), |rules| serde_json::from_value(rules.clone()));
    let name = str_at(role, &["metadata", "name"]).unwrap_or_default();
    rules.map_err(|error| Failure::internal(format!("the rules of the role {name:?} cannot be read: {error}")))
}

/// Adds the items of a list that are missing.
fn add_missing(new: &mut Value, wanted: &Value, path: &[&str]) {
    let list = |object: &Value| at(object, path).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut items = list(new);
    let missing: Vec<Value> = list(wanted).into_iter().filter(|item| !items.contains(item)).collect();
    if !missing.is_empty() {
        items.extend(missing);
        steersman_machinery::value::set_at(new, path, items.into());
    }
}
