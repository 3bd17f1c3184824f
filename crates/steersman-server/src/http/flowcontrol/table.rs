//! Finds the FlowSchema of a request: the rules of all schemas, compiled for lookups by user and group.
//!
//! Rules are numbered in the order in which their schemas are tried. Each user name, service account and group that any
//! rule names has a bit set of its rules. A request looks up its name and its groups, and tries only the rules that it
//! finds, the lowest first. So the cost depends on the groups of the user, and hardly on the number of schemas.

use crate::http::flowcontrol::counts::Counts;
use crate::http::flowcontrol::level::Level;
use crate::http::flowcontrol::spec::{self, ANY, Distinguisher, NonResourceRule, ResourceRule, Rule, Subject};
use crate::shared::operation::{Attributes, ResourceAttributes};
use hashbrown::HashMap;
use http::HeaderValue;
use std::sync::Arc;
use steersman_kinds::user::User;

/// The prefix of the user names of service accounts.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Words of bits that need no allocation: 256 rules.
const WORDS_INLINE: usize = 4;

/// A FlowSchema that is in force.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(super) name: Box<str>,
    /// The value of the header; `None` if there is no stored object.
    pub(super) uid: Option<HeaderValue>,
    pub(super) level_uid: Option<HeaderValue>,
    pub(super) level: Arc<Level>,
    pub(super) distinguisher: Option<Distinguisher>,
    pub(super) counts: Arc<Counts>,
}

/// All schemas in force.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) schemas: Vec<Arc<Schema>>,
    /// In the order of the schemas, each with the position of its schema.
    rules: Vec<(usize, Conditions)>,
    everyone: Bits,
    users: HashMap<Box<str>, Bits>,
    /// Service accounts of a namespace, whatever their names.
    namespaces: HashMap<Box<str>, Bits>,
    groups: HashMap<Box<str>, Bits>,
    /// The schema of requests that match no other.
    catch_all: Arc<Schema>,
}

/// The conditions of a rule beside its subjects.
#[derive(Debug)]
struct Conditions {
    resources: Vec<ResourceRule>,
    non_resources: Vec<NonResourceRule>,
}

type Bits = Box<[u64]>;

impl Table {
    /// Compiles schemas, in the order in which they are tried.
    pub(super) fn new(schemas: Vec<(Arc<Schema>, Vec<Rule>)>, catch_all: Arc<Schema>) -> Table {
        let n_rules: usize = schemas.iter().map(|(_, rules)| rules.len()).sum();
        let none = || vec![0; n_rules.div_ceil(64)].into_boxed_slice();
        let mut table = Table {
            schemas: Vec::with_capacity(schemas.len()),
            rules: Vec::with_capacity(n_rules),
            everyone: none(),
            users: HashMap::new(),
            namespaces: HashMap::new(),
            groups: HashMap::new(),
            catch_all,
        };
        for (schema, rules) in schemas {
            for Rule { subjects, resource_rules, non_resource_rules } in rules {
                let number = table.rules.len();
                for subject in subjects {
                    let bits = match table.bits_of(subject) {
                        Some(bits) if bits.is_empty() => {
                            *bits = none();
                            bits
                        }
                        Some(bits) => bits,
                        None => continue,
                    };
                    bits[number / 64] |= 1 << (number % 64);
                }
                let conditions = Conditions { resources: resource_rules, non_resources: non_resource_rules };
                table.rules.push((table.schemas.len(), conditions));
            }
            table.schemas.push(schema);
        }
        table
    }

    /// The rules of a subject; empty if it is named for the first time.
    fn bits_of(&mut self, subject: Subject) -> Option<&mut Bits> {
        match subject.kind.as_str() {
            "Group" => match subject.group?.name {
                any if any == ANY => Some(&mut self.everyone),
                name => Some(self.groups.entry(name.into()).or_default()),
            },
            "ServiceAccount" => match subject.service_account? {
                spec::ServiceAccount { namespace, name } if name == ANY => {
                    Some(self.namespaces.entry(namespace.into()).or_default())
                }
                spec::ServiceAccount { namespace, name } => {
                    Some(self.users.entry(format!("{SERVICE_ACCOUNT}{namespace}:{name}").into()).or_default())
                }
            },
            "User" => match subject.user?.name {
                any if any == ANY => Some(&mut self.everyone),
                name => Some(self.users.entry(name.into()).or_default()),
            },
            _ => None,
        }
    }

    /// Whether a schema is in force at a level.
    pub(super) fn has(&self, schema: &str, level: &str) -> bool {
        let schemas = self.schemas.iter().chain([&self.catch_all]);
        schemas.into_iter().any(|one| &*one.name == schema && &*one.level.name == level)
    }

    /// The schema of a request.
    pub(super) fn find(&self, user: &User, attributes: &Attributes<'_>) -> &Arc<Schema> {
        let n_words = self.everyone.len();
        let mut inline = [0; WORDS_INLINE];
        let mut spilled = Vec::new();
        let bits = match inline.get_mut(..n_words) {
            Some(inline) => inline,
            None => {
                spilled.resize(n_words, 0);
                &mut spilled[..]
            }
        };
        bits.copy_from_slice(&self.everyone);
        let namespace = user.name.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':'));
        let named =
            [self.users.get(user.name.as_str()), namespace.and_then(|(namespace, _)| self.namespaces.get(namespace))];
        let groups = user.groups.iter().map(|group| self.groups.get(group.as_str()));
        for found in named.into_iter().chain(groups).flatten() {
            bits.iter_mut().zip(found).for_each(|(word, found)| *word |= found);
        }
        for (index, word) in bits.iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                let number = index * 64 + word.trailing_zeros() as usize;
                word &= word - 1;
                if let Some((schema, conditions)) = self.rules.get(number)
                    && conditions.hold(attributes)
                {
                    return &self.schemas[*schema];
                }
            }
        }
        &self.catch_all
    }
}

impl Conditions {
    fn hold(&self, attributes: &Attributes<'_>) -> bool {
        match attributes {
            Attributes::NonResource { verb, path } => self
                .non_resources
                .iter()
                .any(|rule| has(&rule.verbs, verb) && rule.urls.iter().any(|url| covers(url, path))),
            Attributes::Resource(of) => self.resources.iter().any(|rule| is_for(rule, of)),
        }
    }
}

fn is_for(rule: &ResourceRule, of: &ResourceAttributes<'_>) -> bool {
    has(&rule.verbs, of.verb)
        && has(&rule.api_groups, of.group)
        && rule.resources.iter().any(|one| is_resource(one, of))
        && match of.namespace {
            None => rule.cluster_scope,
            Some(namespace) => has(&rule.namespaces, namespace),
        }
}

fn is_resource(wanted: &str, of: &ResourceAttributes<'_>) -> bool {
    match of.subresource {
        _ if wanted == ANY => true,
        None => wanted == of.resource,
        Some(subresource) => {
            wanted.strip_prefix(of.resource).and_then(|rest| rest.strip_prefix('/')) == Some(subresource)
        }
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == ANY || one == wanted)
}

/// Whether a rule's path covers that of a request: all paths, the same path, or a prefix that ends in `/*`.
fn covers(url: &str, path: &str) -> bool {
    match url.strip_suffix('*') {
        Some("") => true,
        Some(prefix) => path.starts_with(prefix),
        None => url == path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::flowcontrol::queues::Policy;
    use crate::shared::request::query::Query;
    use crate::shared::request::request_info::RequestInfo;
    use http::Method;
    use serde_json::{Value, json};

    fn schema(name: &str) -> Arc<Schema> {
        Arc::new(Schema {
            name: name.into(),
            uid: None,
            level_uid: None,
            level: Arc::new(Level::new(name, Policy::Exempt, 0)),
            distinguisher: None,
            counts: Arc::default(),
        })
    }

    fn table(rules: &[(&str, Value)]) -> Table {
        let compiled = rules.iter().map(|(name, rules)| (schema(name), serde_json::from_value(rules.clone()).unwrap()));
        Table::new(compiled.collect(), schema("catch-all"))
    }

    #[track_caller]
    fn check(table: &Table, user: &User, request: (Method, &str), want: &str) {
        let (method, path) = request;
        let info = RequestInfo::new(&method, path, &Query::default());
        assert_eq!(&*table.find(user, &info.attributes()).name, want, "{method} {path} of {}", user.name);
    }

    fn account(namespace: &str, name: &str) -> User {
        let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        User::authenticated(format!("{SERVICE_ACCOUNT}{namespace}:{name}"), groups)
    }

    #[test]
    fn the_first_schema_with_a_rule_for_subject_and_request_is_taken() {
        let any = json!(["*"]);
        let everything =
            json!({"verbs": any, "apiGroups": any, "resources": any, "clusterScope": true, "namespaces": any});
        let paths = json!({"verbs": any, "nonResourceURLs": any});
        let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
        let table = table(&[
            (
                "exempt",
                json!([{"subjects": [group("system:masters")], "resourceRules": [everything], "nonResourceRules": [paths]}]),
            ),
            (
                "probes",
                json!([{"subjects": [group("*")],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz/*"]}]}]),
            ),
            (
                "leases",
                json!([{"subjects": [
                    {"kind": "User", "user": {"name": "system:kube-scheduler"}},
                    {"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}}],
                "resourceRules": [{"verbs": ["get", "update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                    "namespaces": any}]}]),
            ),
            (
                "status",
                json!([{"subjects": [{"kind": "User", "user": {"name": "*"}}],
                "resourceRules": [{"verbs": any, "apiGroups": any, "resources": ["pods/status", "nodes"], "clusterScope": true,
                    "namespaces": ["a"]}]}]),
            ),
            (
                "one",
                json!([{"subjects": [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "x"}}],
                "resourceRules": [everything]}]),
            ),
        ]);
        let (admin, alice) = (User::master("admin"), User::authenticated("alice", []));
        let scheduler = User::authenticated("system:kube-scheduler", []);
        check(&table, &admin, (Method::DELETE, "/api/v1/namespaces/a/pods/p"), "exempt");
        check(&table, &admin, (Method::GET, "/healthz"), "exempt");
        check(&table, &alice, (Method::GET, "/healthz"), "probes");
        check(&table, &alice, (Method::GET, "/readyz/ping"), "probes");
        check(&table, &alice, (Method::GET, "/readyz"), "catch-all");
        check(&table, &alice, (Method::POST, "/healthz"), "catch-all");
        let lease = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l";
        check(&table, &scheduler, (Method::PUT, lease), "leases");
        check(&table, &account("kube-system", "any"), (Method::GET, lease), "leases");
        check(&table, &account("kube-public", "any"), (Method::GET, lease), "catch-all");
        check(&table, &scheduler, (Method::GET, "/apis/coordination.k8s.io/v1/leases"), "catch-all");
        check(&table, &alice, (Method::PUT, "/api/v1/namespaces/a/pods/p/status"), "status");
        check(&table, &alice, (Method::PUT, "/api/v1/namespaces/a/pods/p"), "catch-all");
        check(&table, &alice, (Method::PUT, "/api/v1/namespaces/b/pods/p/status"), "catch-all");
        check(&table, &alice, (Method::GET, "/api/v1/nodes/n"), "status");
        check(&table, &account("a", "x"), (Method::GET, "/api/v1/pods"), "one");
        check(&table, &account("a", "y"), (Method::GET, "/api/v1/pods"), "catch-all");
    }

    #[test]
    fn there_may_be_any_number_of_rules() {
        let rule = |user: usize| {
            json!([{"subjects": [{"kind": "User", "user": {"name": user.to_string()}}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}])
        };
        let names: Vec<String> = (0..1000).map(|n| format!("s{n}")).collect();
        let rules: Vec<(&str, Value)> = names.iter().enumerate().map(|(n, name)| (name.as_str(), rule(n))).collect();
        let table = table(&rules);
        for n in [0, 63, 64, 255, 256, 999] {
            check(&table, &User::authenticated(n.to_string(), []), (Method::GET, "/version"), &format!("s{n}"));
        }
        check(&table, &User::authenticated("1000", []), (Method::GET, "/version"), "catch-all");
    }
}
