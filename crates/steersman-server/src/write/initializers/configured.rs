//! The InitializerConfigurations of the store in compiled form, and the task that follows them.

use crate::shared::follower::{self, Followed, Progress};
use crate::shared::operation::ResourceAttributes;
use crate::write::initializers::TIMEOUT_SECONDS;
use crate::write::initializers::figures::Figures;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::builtin::cluster::admission_registration::initializer::TIMEOUT_SECONDS_MAX;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{GroupResource, Object, Revision, Value};
use steersman_storage::{Event, Kind, ReadError, Store};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The initializers of a server.
#[derive(Debug, Default)]
pub(crate) struct Configured {
    /// By the name of the configuration. Initializers run in this order.
    configurations: RwLock<BTreeMap<Box<str>, Vec<Initializer>>>,
    progress: Progress,
    /// Notified when an object begins or ceases to wait.
    pub(crate) changed: Notify,
    pub(crate) figures: Figures,
}

/// An initializer of a configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Initializer {
    name: Box<str>,
    /// It initializes the objects that any of these rules matches.
    rules: Vec<Rule>,
    timeout_policy: TimeoutPolicy,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Rule {
    groups: Vec<Box<str>>,
    versions: Vec<Box<str>>,
    resources: Vec<Box<str>>,
}

/// The time limit of an initializer, and the action when it has passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TimeoutPolicy {
    pub(crate) timeout: Duration,
    pub(crate) on_timeout: OnTimeout,
}

/// The action when an object has waited too long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OnTimeout {
    /// The object is deleted, and its creation fails.
    Fail,
    /// The initializer is skipped.
    Ignore,
}

/// Follows the configurations. When it is dropped, even by a panic, writers that wait for them fail instead of waiting
/// for ever.
struct Follow(Arc<Configured>);

/// Puts the configurations of the store in force, and starts the task that keeps them up to date until the server
/// stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn follow(
    store: &Store,
    configured: &Arc<Configured>,
    stopping: &CancellationToken,
) -> Result<JoinHandle<()>, ReadError> {
    follower::start(store, Box::new(Follow(configured.clone())), stopping)
}

/// The resource of the configurations.
pub(crate) fn resource() -> GroupResource {
    GroupResource::new("admissionregistration.k8s.io", "initializerconfigurations")
}

// === impl Configured ===

impl Configured {
    /// The initializers that a new object waits for, in their order: those with a rule for its resource, and those that
    /// it requests by name.
    pub(crate) fn names_for(&self, of: &ResourceAttributes<'_>, asked: &[String]) -> Vec<Box<str>> {
        let configurations = self.configurations.read();
        let mut names: Vec<Box<str>> = Vec::new();
        for initializer in configurations.values().flatten() {
            let cares = initializer.rules.iter().any(|rule| rule.matches(of))
                || asked.iter().any(|name| **name == *initializer.name);
            if cares && !names.contains(&initializer.name) {
                names.push(initializer.name.clone());
            }
        }
        names
    }

    /// The time limit of an initializer; the default if no configuration names it.
    pub(crate) fn timeout_policy(&self, name: &str) -> TimeoutPolicy {
        let configurations = self.configurations.read();
        let found = configurations.values().flatten().find(|initializer| *initializer.name == *name);
        found.map(|initializer| initializer.timeout_policy).unwrap_or_default()
    }

    /// The configurations, with the names of their initializers.
    pub(crate) fn configurations(&self) -> Vec<(Box<str>, Vec<Box<str>>)> {
        let configurations = self.configurations.read();
        let names = |initializers: &Vec<Initializer>| initializers.iter().map(|one| one.name.clone()).collect();
        configurations.iter().map(|(name, initializers)| (name.clone(), names(initializers))).collect()
    }

    /// The progress of following the configurations.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Waits until what was written at a revision is in force; false if it will never be.
    pub(crate) async fn wait_for(&self, revision: Revision) -> bool {
        self.progress.wait_for(revision).await
    }

    fn report(&self, revision: Revision) {
        self.progress.report(revision);
        self.changed.notify_one();
    }
}

impl Default for TimeoutPolicy {
    fn default() -> TimeoutPolicy {
        TimeoutPolicy { timeout: Duration::from_secs(TIMEOUT_SECONDS.unsigned_abs()), on_timeout: OnTimeout::Fail }
    }
}

impl OnTimeout {
    /// The spelling in configurations and objects.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            OnTimeout::Fail => "Fail",
            OnTimeout::Ignore => "Ignore",
        }
    }

    pub(crate) fn parse(text: &str) -> OnTimeout {
        if text == "Ignore" { OnTimeout::Ignore } else { OnTimeout::Fail }
    }
}

// === impl Initializer, Rule ===

impl Initializer {
    /// The initializers of a configuration.
    fn read_all(configuration: &Object) -> Vec<Initializer> {
        let Ok(configuration) = serde_json::from_slice::<Value>(configuration.json()) else { return Vec::new() };
        let list = at(&configuration, &["initializers"]).and_then(Value::as_array);
        list.into_iter().flatten().map(Initializer::read).collect()
    }

    fn read(initializer: &Value) -> Initializer {
        let rules = at(initializer, &["rules"]).and_then(Value::as_array);
        let seconds = at(initializer, &["timeoutSeconds"]).and_then(Value::as_i64).unwrap_or(TIMEOUT_SECONDS);
        Initializer {
            name: str_at(initializer, &["name"]).unwrap_or_default().into(),
            rules: rules.into_iter().flatten().map(Rule::read).collect(),
            timeout_policy: TimeoutPolicy {
                timeout: Duration::from_secs(seconds.clamp(1, TIMEOUT_SECONDS_MAX).unsigned_abs()),
                on_timeout: OnTimeout::parse(str_at(initializer, &["failurePolicy"]).unwrap_or_default()),
            },
        }
    }
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        let texts = |field| {
            let list = at(rule, &[field]).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(Value::as_str).map(Box::from).collect()
        };
        Rule { groups: texts("apiGroups"), versions: texts("apiVersions"), resources: texts("resources") }
    }

    fn matches(&self, of: &ResourceAttributes<'_>) -> bool {
        let has = |list: &[Box<str>], text: &str| list.iter().any(|one| **one == *"*" || **one == *text);
        has(&self.groups, of.group) && has(&self.versions, of.version) && has(&self.resources, of.resource)
    }
}

// === impl Follow ===

impl Followed for Follow {
    fn resource(&self) -> GroupResource {
        resource()
    }

    fn replace(&self, objects: &[Arc<Object>], revision: Revision) {
        let read = |object: &Arc<Object>| (Box::from(&*object.key.name), Initializer::read_all(object));
        let all: BTreeMap<_, _> = objects.iter().map(read).collect();
        *self.0.configurations.write() = all;
        self.0.report(revision);
    }

    fn change(&self, events: &[Arc<Event>]) {
        for event in events {
            let name = &event.object.key.name;
            match event.kind {
                Kind::Added | Kind::Modified => {
                    let read = Initializer::read_all(&event.object);
                    self.0.configurations.write().insert(Box::from(&**name), read);
                }
                Kind::Deleted => {
                    self.0.configurations.write().remove(&**name);
                }
            }
        }
        if let Some(last) = events.last() {
            self.0.report(last.revision);
        }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.0.progress.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use steersman_machinery::{Draft, ObjectKey};

    fn configuration(name: &str, initializers: Value) -> Arc<Object> {
        let object = json!({"metadata": {"name": name}, "initializers": initializers});
        let draft = Draft::read(object.to_string().into_bytes().into()).unwrap();
        Arc::new(Object::decode(ObjectKey::cluster(name), Revision(1), &draft.encode()).unwrap())
    }

    fn rule(group: &str, resource: &str) -> Value {
        json!({"apiGroups": [group], "apiVersions": ["*"], "resources": [resource]})
    }

    fn names(configured: &Configured, group: &str, resource: &str, asked: &[&str]) -> Vec<Box<str>> {
        let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
        let of = ResourceAttributes { group, version: "v1", resource, ..ResourceAttributes::default() };
        configured.names_for(&of, &asked)
    }

    #[test]
    fn initializers_run_in_the_order_of_configurations_and_once() {
        let configured = Arc::new(Configured::default());
        let second = configuration("b", json!([{"name": "x.y.z", "rules": [rule("", "pods"), rule("apps", "*")]}]));
        let first = configuration(
            "a",
            json!([
                {"name": "c.d.e", "rules": [rule("", "pods")]},
                {"name": "a.b.c", "rules": [rule("*", "pods")]},
                {"name": "x.y.z", "rules": [rule("", "pods")]},
                {"name": "o.p.q"},
            ]),
        );
        Follow(configured.clone()).replace(&[second, first], Revision(7));
        assert_eq!(names(&configured, "", "pods", &[]), ["c.d.e".into(), "a.b.c".into(), Box::from("x.y.z")]);
        assert_eq!(names(&configured, "apps", "deployments", &[]), [Box::from("x.y.z")], "one rule of two is enough");
        assert_eq!(names(&configured, "", "services", &["o.p.q", "n.o.t"]), [Box::from("o.p.q")], "asked for by name");
        assert_eq!(names(&configured, "", "services", &[]), []);
    }

    #[test]
    fn who_says_nothing_of_time_gets_thirty_seconds() {
        let configured = Arc::new(Configured::default());
        let said = json!([
            {"name": "a.b.c", "timeoutSeconds": 5, "failurePolicy": "Ignore"}, {"name": "d.e.f"},
        ]);
        Follow(configured.clone()).replace(&[configuration("a", said)], Revision(1));
        let timeout_policy = |seconds, on_timeout| TimeoutPolicy { timeout: Duration::from_secs(seconds), on_timeout };
        assert_eq!(configured.timeout_policy("a.b.c"), timeout_policy(5, OnTimeout::Ignore));
        assert_eq!(configured.timeout_policy("d.e.f"), timeout_policy(30, OnTimeout::Fail));
        assert_eq!(configured.timeout_policy("of.no.configuration"), timeout_policy(30, OnTimeout::Fail));
    }
}
