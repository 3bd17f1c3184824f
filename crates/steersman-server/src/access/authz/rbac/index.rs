//! Roles by name, and bindings by subject.
//!
//! The bindings of a subject are grouped by role, so that a role is checked once even if several bindings grant it to
//! the same subject.

use crate::access::authz::rbac::binding::{Binding, Grant, RoleRef, Subject};
use crate::access::authz::rbac::resource::Resource;
use crate::access::authz::rbac::role::Role;
use crate::access::authz::rbac::rule::Rule;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use steersman_kinds::builtin::rules::selector;
use steersman_kinds::user::User;
use steersman_machinery::selector::Labels;
use steersman_machinery::{Object, ObjectKey, Value};

/// The roles and bindings in effect. Keys come from users, so the maps' hashers resist collisions.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// All bindings, by key.
    bindings: HashMap<ObjectKey, Arc<Binding>>,
    cluster_roles: HashMap<Box<str>, ClusterRole>,
    /// The subjects of ClusterRoleBindings.
    cluster: Subjects,
    /// Namespaces with roles or bindings; none is empty.
    namespaces: HashMap<Box<str>, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    roles: HashMap<Box<str>, Role>,
    /// The subjects of RoleBindings.
    subjects: Subjects,
}

/// The roles granted to each subject.
#[derive(Debug, Default)]
struct Subjects {
    groups: HashMap<Box<str>, Grants>,
    /// Service accounts by their user name.
    users: HashMap<Box<str>, Grants>,
}

/// For each role the bindings that grant it, sorted by name. None of the lists is empty.
type Grants = BTreeMap<RoleRef, Vec<Grant>>;

#[derive(Debug)]
pub(super) struct ClusterRole {
    role: Role,
    object: Arc<Object>,
    /// Selects the roles whose rules are aggregated; `None` if it is not an aggregated role.
    gathers: Option<Vec<Labels>>,
}

/// An object as stored in the index. It is parsed before the index is locked.
#[derive(Debug)]
pub(super) enum Entry {
    Binding(Arc<Binding>),
    ClusterRole(ClusterRole),
    Role(Role),
}

/// A role granted to a user.
pub(super) struct Held<'a> {
    pub(super) name: &'a RoleRef,
    /// The bindings that give it, at least one.
    pub(super) grants: &'a [Grant],
    /// `None` if it does not exist.
    pub(super) role: Option<&'a Role>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    #[serde(default)]
    rules: Option<Vec<Rule>>,
    #[serde(default)]
    aggregation_rule: Option<Value>,
}

impl Entry {
    /// Parses a stored object. One that cannot be parsed grants nothing.
    pub(super) fn read(resource: Resource, object: &Arc<Object>) -> Option<Entry> {
        let read = match resource {
            Resource::ClusterRoleBindings | Resource::RoleBindings => {
                Binding::read(object).map(|binding| Entry::Binding(Arc::new(binding)))
            }
            Resource::ClusterRoles | Resource::Roles => {
                serde_json::from_slice(object.json()).map(|stored: Stored| stored.entry(object))
            }
        };
        read.inspect_err(|error| {
            tracing::error!(resource = resource.plural(), key = %object.key, %error, "it cannot be read, and grants nothing");
        })
        .ok()
    }
}

impl Stored {
    fn entry(self, object: &Arc<Object>) -> Entry {
        let role = Role::new(self.rules.unwrap_or_default());
        if object.key.namespace.is_some() {
            return Entry::Role(role);
        }
        let rule = self.aggregation_rule.filter(|rule| !rule.is_null());
        let gathers = rule.map(|rule| {
            let selectors = rule.get("clusterRoleSelectors").and_then(Value::as_array).into_iter().flatten();
            selectors.filter_map(selector::parse).collect()
        });
        Entry::ClusterRole(ClusterRole { role, object: object.clone(), gathers })
    }
}

impl ClusterRole {
    /// Whether it aggregates the rules of the other role; it never aggregates its own.
    fn is_gathering(&self, other: &ClusterRole) -> bool {
        let selectors = self.gathers.as_deref().unwrap_or_default();
        self.object.key != other.object.key
            && selectors.iter().any(|selector| selector.matches(|key| other.object.label(key)))
    }
}

impl Index {
    /// Calls `each` with every role of a user in a namespace, those of ClusterRoleBindings first, until it breaks.
    pub(super) fn visit<'a, B>(
        &'a self,
        user: &User,
        namespace: Option<&str>,
        mut each: impl FnMut(Held<'a>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let namespace = namespace.and_then(|namespace| self.namespaces.get(namespace));
        let scopes = [Some((&self.cluster, None)), namespace.map(|namespace| (&namespace.subjects, Some(namespace)))];
        for (subjects, namespace) in scopes.into_iter().flatten() {
            let of_user = subjects.users.get(&*user.name);
            let of_groups = user.groups.iter().filter_map(|group| subjects.groups.get(&**group));
            for (name, grants) in of_user.into_iter().chain(of_groups).flatten() {
                each(Held { name, grants, role: self.find(name, namespace) })?;
            }
        }
        ControlFlow::Continue(())
    }

    fn find<'a>(&'a self, role: &RoleRef, namespace: Option<&'a Namespace>) -> Option<&'a Role> {
        match role {
            RoleRef::ClusterRole(name) => self.cluster_roles.get(&**name).map(|cluster_role| &cluster_role.role),
            RoleRef::Role(name) => namespace?.roles.get(&**name),
        }
    }

    /// The rules of a role, referred to from a namespace or from the cluster.
    pub(super) fn rules(&self, role: &RoleRef, namespace: Option<&str>) -> Option<Arc<[Rule]>> {
        let found = self.find(role, namespace.and_then(|namespace| self.namespaces.get(namespace)));
        found.map(|role| role.rules().clone())
    }

    // === aggregation ===

    /// The names of the aggregated roles in the order of aggregation: sorted, but each after the roles that it
    /// aggregates, except in cycles.
    pub(super) fn aggregated(&self) -> Vec<Box<str>> {
        let aggregated = self.cluster_roles.iter().filter(|(_, role)| role.gathers.is_some());
        let mut left: Vec<(&Box<str>, &ClusterRole)> = aggregated.collect();
        left.sort_by_key(|(name, _)| *name);
        let gathered_by = |role: &ClusterRole| left.iter().filter(|(_, other)| role.is_gathering(other)).count();
        let mut n_gathered: Vec<usize> = left.iter().map(|(_, role)| gathered_by(role)).collect();
        let mut names = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let next = n_gathered.iter().position(|n_gathered| *n_gathered == 0).unwrap_or(0);
            let (name, taken) = left.remove(next);
            n_gathered.remove(next);
            for ((_, role), n_gathered) in left.iter().zip(&mut n_gathered) {
                *n_gathered -= usize::from(role.is_gathering(taken));
            }
            names.push(name.clone());
        }
        names
    }

    /// The rules of all selected roles, without duplicates: selector by selector, and for each in the order of the
    /// roles' names, as kube-controller-manager writes them. `None` if the role already has these rules, or is not
    /// aggregated.
    pub(super) fn gathered(&self, cluster_role: &str) -> Option<Vec<Rule>> {
        let aggregated = self.cluster_roles.get(cluster_role)?;
        let mut gathered: Vec<Rule> = Vec::new();
        for selector in aggregated.gathers.as_ref()? {
            let selected = self
                .cluster_roles
                .iter()
                .filter(|(name, role)| &***name != cluster_role && selector.matches(|key| role.object.label(key)));
            let mut selected: Vec<_> = selected.collect();
            selected.sort_by_key(|(name, _)| *name);
            for rule in selected.into_iter().flat_map(|(_, selected)| selected.role.rules().iter()) {
                if !gathered.contains(rule) {
                    gathered.push(rule.clone());
                }
            }
        }
        (gathered != **aggregated.role.rules()).then_some(gathered)
    }

    // === changes ===

    /// Adds an object, in place of the previous one with its key.
    pub(super) fn insert(&mut self, resource: Resource, key: &ObjectKey, entry: Entry) {
        self.remove(resource, key);
        let name = key.name.clone();
        match entry {
            Entry::Binding(binding) => self.insert_binding(binding),
            Entry::ClusterRole(role) => {
                self.cluster_roles.insert(name, role);
            }
            Entry::Role(role) => {
                let namespace = key.namespace.clone().unwrap_or_default();
                self.namespaces.entry(namespace).or_default().roles.insert(name, role);
            }
        }
    }

    fn insert_binding(&mut self, binding: Arc<Binding>) {
        let subjects = match &binding.key.namespace {
            Some(namespace) => &mut self.namespaces.entry(namespace.clone()).or_default().subjects,
            None => &mut self.cluster,
        };
        for (at, subject) in binding.subjects.iter().enumerate() {
            let grants = subjects.of(subject).entry(binding.role.clone()).or_default();
            let place = grants.binary_search_by(|grant| grant.binding.key.name.cmp(&binding.key.name));
            // A subject that a binding names twice has the binding already.
            if let Err(place) = place {
                grants.insert(place, Grant { binding: binding.clone(), subject: at });
            }
        }
        self.bindings.insert(binding.key.clone(), binding);
    }

    /// Removes the object with this key.
    pub(super) fn remove(&mut self, resource: Resource, key: &ObjectKey) {
        match (resource, &key.namespace) {
            (Resource::ClusterRoles, _) => {
                self.cluster_roles.remove(&key.name);
            }
            (Resource::Roles, Some(namespace)) => {
                if let Some(of) = self.namespaces.get_mut(namespace) {
                    of.roles.remove(&key.name);
                }
            }
            (Resource::ClusterRoleBindings | Resource::RoleBindings, _) => self.remove_binding(key),
            (Resource::Roles, None) => {}
        }
        if let Some(namespace) = &key.namespace
            && self.namespaces.get(namespace).is_some_and(Namespace::is_empty)
        {
            self.namespaces.remove(namespace);
        }
    }

    fn remove_binding(&mut self, key: &ObjectKey) {
        let Some(binding) = self.bindings.remove(key) else { return };
        let subjects = match &key.namespace {
            Some(namespace) => self.namespaces.get_mut(namespace).map(|namespace| &mut namespace.subjects),
            None => Some(&mut self.cluster),
        };
        let Some(subjects) = subjects else { return };
        for subject in &binding.subjects {
            subjects.remove(subject, &binding);
        }
    }

    /// Removes all objects of a resource.
    pub(super) fn clear(&mut self, resource: Resource) {
        match resource {
            Resource::ClusterRoles => self.cluster_roles.clear(),
            Resource::Roles => self.namespaces.values_mut().for_each(|namespace| namespace.roles.clear()),
            Resource::ClusterRoleBindings => {
                self.bindings.retain(|key, _| key.namespace.is_some());
                self.cluster = Subjects::default();
            }
            Resource::RoleBindings => {
                self.bindings.retain(|key, _| key.namespace.is_none());
                self.namespaces.values_mut().for_each(|namespace| namespace.subjects = Subjects::default());
            }
        }
        self.namespaces.retain(|_, namespace| !namespace.is_empty());
    }
}

impl Namespace {
    fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.subjects.groups.is_empty() && self.subjects.users.is_empty()
    }
}

impl Subjects {
    /// The grants of a subject, for changing them.
    fn of(&mut self, subject: &Subject) -> &mut Grants {
        let (map, name) = self.place(subject);
        map.entry(name).or_default()
    }

    fn remove(&mut self, subject: &Subject, binding: &Arc<Binding>) {
        let (map, name) = self.place(subject);
        let Some(grants) = map.get_mut(&name) else { return };
        if let Some(of_role) = grants.get_mut(&binding.role) {
            of_role.retain(|grant| !Arc::ptr_eq(&grant.binding, binding));
            if of_role.is_empty() {
                grants.remove(&binding.role);
            }
        }
        if grants.is_empty() {
            map.remove(&name);
        }
    }

    fn place(&mut self, subject: &Subject) -> (&mut HashMap<Box<str>, Grants>, Box<str>) {
        match subject {
            Subject::Group(name) => (&mut self.groups, name.as_str().into()),
            Subject::ServiceAccount { namespace, name } => {
                (&mut self.users, format!("system:serviceaccount:{namespace}:{name}").into())
            }
            Subject::User(name) => (&mut self.users, name.as_str().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::operation::{Attributes, ResourceAttributes};
    use proptest::prelude::{Strategy, any};
    use proptest::{collection, prop_assert, prop_assert_eq, proptest};
    use serde_json::json;
    use steersman_machinery::Revision;

    /// A namespace, or the cluster.
    type Scope = Option<&'static str>;

    /// A role or a binding that is written or deleted, among two namespaces and two names of each kind.
    #[derive(Clone, Debug)]
    struct Change {
        scope: Scope,
        name: &'static str,
        what: What,
    }

    #[derive(Clone, Debug)]
    enum What {
        /// The role and the subject of the binding; `None` deletes it.
        Binding(Option<(&'static str, &'static str, Subject)>),
        /// The verb that the role allows on pods; `None` deletes the role.
        Role(Option<&'static str>),
    }

    const NAMES: [&str; 2] = ["a", "b"];
    const VERBS: [&str; 2] = ["get", "list"];
    const SCOPES: [Scope; 3] = [None, Some("n"), Some("m")];

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let change = (any::<[bool; 6]>(), 0..3usize, 0..3usize).prop_map(|(flags, scope, subject)| {
            let pick = |names: [&'static str; 2], at: usize| names[usize::from(flags[at])];
            let (name, scope) = (pick(NAMES, 0), SCOPES[scope]);
            let subject = match subject {
                0 => Subject::User(pick(NAMES, 1).to_owned()),
                1 => Subject::Group(pick(NAMES, 1).to_owned()),
                _ => Subject::ServiceAccount { namespace: "n".to_owned(), name: pick(NAMES, 1).to_owned() },
            };
            let kind = if scope.is_none() { "ClusterRole" } else { pick(["Role", "ClusterRole"], 2) };
            let what = match (flags[3], flags[4]) {
                (true, is_written) => What::Role(is_written.then(|| pick(VERBS, 5))),
                (false, is_written) => What::Binding(is_written.then(|| (kind, pick(NAMES, 5), subject))),
            };
            Change { scope, name, what }
        });
        collection::vec(change, 0..40)
    }

    fn key(scope: Scope, name: &str) -> ObjectKey {
        scope.map_or_else(|| ObjectKey::cluster(name), |namespace| ObjectKey::namespaced(namespace, name))
    }

    fn resource(change: &Change) -> Resource {
        match (&change.what, change.scope) {
            (What::Binding(_), None) => Resource::ClusterRoleBindings,
            (What::Binding(_), Some(_)) => Resource::RoleBindings,
            (What::Role(_), None) => Resource::ClusterRoles,
            (What::Role(_), Some(_)) => Resource::Roles,
        }
    }

    /// The stored object; `None` if it is deleted.
    fn object(change: &Change) -> Option<Arc<Object>> {
        let json = match &change.what {
            What::Role(verb) => {
                let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": [(*verb)?]});
                json!({"metadata": {"name": change.name}, "rules": [rule]})
            }
            What::Binding(bound) => {
                let (kind, role, subject) = bound.as_ref()?;
                let subject = match subject {
                    Subject::Group(name) => json!({"kind": "Group", "name": name}),
                    Subject::ServiceAccount { namespace, name } => {
                        json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
                    }
                    Subject::User(name) => json!({"kind": "User", "name": name}),
                };
                let role = json!({"kind": kind, "name": role});
                // A subject may be listed twice.
                json!({"metadata": {"name": change.name}, "roleRef": role, "subjects": [subject, subject]})
            }
        };
        let key = key(change.scope, change.name);
        Some(Arc::new(Object::decode(key, Revision::default(), json.to_string().as_bytes()).unwrap()))
    }

    fn users() -> Vec<User> {
        let names = ["a", "b", "system:serviceaccount:n:a", "system:serviceaccount:m:a"];
        let groups = [vec![], vec!["a"], vec!["a", "b"]];
        let users = names.iter().flat_map(|name| groups.iter().map(move |groups| (name, groups)));
        users.map(|(name, groups)| User::authenticated(*name, groups.iter().map(|group| (*group).to_owned()))).collect()
    }

    /// Whether a user is allowed, by a linear search over all objects.
    fn is_allowed(world: &BTreeMap<(bool, Scope, &str), Change>, user: &User, scope: Scope, verb: &str) -> bool {
        world.values().any(|change| {
            let What::Binding(Some((kind, role, subject))) = &change.what else { return false };
            let is_for = match subject {
                Subject::Group(name) => user.is_in(name),
                Subject::ServiceAccount { namespace, name } => {
                    user.name == format!("system:serviceaccount:{namespace}:{name}")
                }
                Subject::User(name) => user.name == *name,
            };
            let role_scope = change.scope.filter(|_| *kind == "Role");
            let role = world.get(&(true, role_scope, *role));
            let allows = role.is_some_and(|role| matches!(role.what, What::Role(Some(allowed)) if allowed == verb));
            is_for && allows && (change.scope.is_none() || change.scope == scope)
        })
    }

    proptest! {
        #[test]
        fn the_index_decides_as_the_objects_say_and_forgets_all_that_goes(changes in changes()) {
            let mut index = Index::default();
            let mut world = BTreeMap::new();
            for change in &changes {
                match object(change) {
                    Some(object) => {
                        let entry = Entry::read(resource(change), &object).unwrap();
                        index.insert(resource(change), &object.key, entry);
                    }
                    None => index.remove(resource(change), &key(change.scope, change.name)),
                }
                world.insert((matches!(change.what, What::Role(_)), change.scope, change.name), change.clone());
            }
            for user in users() {
                for (scope, verb) in SCOPES.iter().flat_map(|scope| VERBS.map(|verb| (*scope, verb))) {
                    let asked = ResourceAttributes { verb, resource: "pods", namespace: scope, ..Default::default() };
                    let asked = Attributes::Resource(asked);
                    let allowed = index.visit(&user, scope, |held| match held.role {
                        Some(role) if role.allows(&asked) => ControlFlow::Break(()),
                        Some(_) | None => ControlFlow::Continue(()),
                    });
                    let want = is_allowed(&world, &user, scope, verb);
                    prop_assert_eq!(allowed.is_break(), want, "{} {:?} {:?} {}", user.name, user.groups, scope, verb);
                }
            }
            for change in &changes {
                index.remove(resource(change), &key(change.scope, change.name));
            }
            let is_empty = index.bindings.is_empty() && index.cluster_roles.is_empty() && index.namespaces.is_empty();
            prop_assert!(is_empty && index.cluster.groups.is_empty() && index.cluster.users.is_empty());
        }
    }

    #[test]
    fn an_aggregated_role_gathers_by_name_each_rule_once_and_not_its_own() {
        let mut index = Index::default();
        let mut role = |name: &str, labels: Value, verbs: &[&str], rule: Value| {
            let rules: Vec<Value> =
                verbs.iter().map(|verb| json!({"nonResourceURLs": ["/x"], "verbs": [verb]})).collect();
            let json = json!({"metadata": {"name": name, "labels": labels}, "rules": rules, "aggregationRule": rule});
            let object = Object::decode(ObjectKey::cluster(name), Revision::default(), json.to_string().as_bytes());
            let object = Arc::new(object.unwrap());
            let entry = Entry::read(Resource::ClusterRoles, &object).unwrap();
            index.insert(Resource::ClusterRoles, &object.key, entry);
        };
        let select = |value: &str| json!({"matchLabels": {"to": value}});
        role("z", json!({"to": "one"}), &["get", "put"], Value::Null);
        role("a", json!({"to": "one"}), &["put", "head"], Value::Null);
        role("m", json!({"to": "two"}), &["post"], Value::Null);
        role("all", json!({"to": "one"}), &["own"], json!({"clusterRoleSelectors": [select("two"), select("one")]}));
        let verbs = |rules: Vec<Rule>| rules.into_iter().flat_map(|rule| rule.verbs).collect::<Vec<_>>();
        assert_eq!(index.gathered("all").map(verbs).unwrap(), ["post", "put", "head", "get"]);
        assert_eq!((index.gathered("z"), index.aggregated()), (None, vec!["all".into()]));
    }

    #[test]
    fn a_role_comes_after_those_whose_rules_it_gathers() {
        let mut index = Index::default();
        let mut role = |name: &str, label: &str, gathers: &str| {
            let rule = json!({"clusterRoleSelectors": [{"matchLabels": {"to": gathers}}]});
            let json = json!({"metadata": {"name": name, "labels": {"to": label}}, "aggregationRule": rule});
            let object = Object::decode(ObjectKey::cluster(name), Revision::default(), json.to_string().as_bytes());
            let object = Arc::new(object.unwrap());
            let entry = Entry::read(Resource::ClusterRoles, &object).unwrap();
            index.insert(Resource::ClusterRoles, &object.key, entry);
        };
        role("admin", "", "admin");
        role("edit", "admin", "edit");
        role("view", "edit", "view");
        // Two roles that aggregate each other's rules have no right order, and a role that would aggregate its own
        // aggregates nothing.
        role("left", "left", "right");
        role("right", "right", "left");
        role("self", "self", "self");
        assert_eq!(index.aggregated().join(" "), "self view edit admin left right");
    }
}
