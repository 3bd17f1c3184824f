//! The smallest roles and bindings that allow the refused requests.

use crate::commands::development::explain_denied::denial::{Denial, What};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";
/// The first line of the output.
const HEAD: &str =
    "# `kubectl auth reconcile -f` adds this to what is there; `kubectl apply -f` replaces what has the same name.\n";
/// The longest part of a user's name in the names of the user's roles.
const SLUG_BYTES_MAX: usize = 50;

/// The missing permissions by user and namespace; without a namespace they are for the whole cluster.
#[derive(Debug, Default)]
pub(super) struct Grants(BTreeMap<(String, Option<String>), MissingPermissions>);

#[derive(Debug, Default)]
struct MissingPermissions {
    /// Verbs, by group, resource and name.
    resources: BTreeMap<(String, String, Option<String>), BTreeSet<String>>,
    /// Verbs, by path.
    paths: BTreeMap<String, BTreeSet<String>>,
}

/// Resources, by group, verbs and names.
type Resources<'a> = BTreeMap<(&'a str, Vec<String>, Vec<String>), Vec<String>>;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Role {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    rules: Vec<Rule>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    role_ref: RoleRef,
    subjects: [Subject; 1],
}

#[derive(Clone, Serialize)]
struct Metadata {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    non_resource_urls: Vec<String>,
    verbs: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RoleRef {
    api_group: &'static str,
    kind: &'static str,
    name: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Subject {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_group: Option<&'static str>,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

impl Grants {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the permission that a refused request lacks.
    pub(super) fn add(&mut self, denial: Denial) {
        let Denial { user, verb, what } = denial;
        let verbs = match what {
            What::Path(path) => self.0.entry((user, None)).or_default().paths.entry(path).or_default(),
            What::Resource { group, resource, namespace, name } => {
                self.0.entry((user, namespace)).or_default().resources.entry((group, resource, name)).or_default()
            }
        };
        verbs.insert(verb);
    }

    /// The roles and their bindings.
    pub(super) fn to_yaml(&self) -> Result<String, serde_saphyr::ser::Error> {
        let mut text = HEAD.to_owned();
        for ((user, namespace), wanted) in &self.0 {
            let name = format!("allow-{}", slug(user));
            let metadata = Metadata { name: name.clone(), namespace: namespace.clone() };
            let (kind, binding_kind) = match namespace {
                Some(_) => ("Role", "RoleBinding"),
                None => ("ClusterRole", "ClusterRoleBinding"),
            };
            let role = Role { api_version: API_VERSION, kind, metadata: metadata.clone(), rules: wanted.rules() };
            let binding = Binding {
                api_version: API_VERSION,
                kind: binding_kind,
                metadata,
                role_ref: RoleRef { api_group: GROUP, kind, name },
                subjects: [subject(user)],
            };
            for document in [serde_saphyr::to_string(&role)?, serde_saphyr::to_string(&binding)?] {
                text.push_str("---\n");
                text.push_str(document.trim_end());
                text.push('\n');
            }
        }
        Ok(text)
    }
}

impl MissingPermissions {
    /// One rule for all resources of a group that need the same verbs on the same names.
    fn rules(&self) -> Vec<Rule> {
        // Names that need the same verbs on the same resource are grouped first, then the resources.
        let mut names: BTreeMap<(&str, &str, Vec<String>, bool), BTreeSet<String>> = BTreeMap::new();
        for ((group, resource, name), verbs) in &self.resources {
            // Verbs that are allowed for all names need not be allowed for a single one.
            let for_all = self.resources.get(&(group.clone(), resource.clone(), None));
            let verbs = verbs.iter().filter(|verb| name.is_none() || !for_all.is_some_and(|all| all.contains(*verb)));
            let verbs: Vec<String> = verbs.cloned().collect();
            if !verbs.is_empty() {
                names.entry((group, resource, verbs, name.is_some())).or_default().extend(name.clone());
            }
        }
        let mut resources = Resources::new();
        for ((group, resource, verbs, _), names) in names {
            resources.entry((group, verbs, names.into_iter().collect())).or_default().push(resource.to_owned());
        }
        let rules = resources.into_iter().map(|((group, verbs, resource_names), resources)| Rule {
            api_groups: vec![group.to_owned()],
            resources,
            resource_names,
            verbs,
            ..Rule::default()
        });
        let mut paths: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
        for (path, verbs) in &self.paths {
            paths.entry(verbs.iter().cloned().collect()).or_default().push(path.clone());
        }
        let paths =
            paths.into_iter().map(|(verbs, non_resource_urls)| Rule { non_resource_urls, verbs, ..Rule::default() });
        rules.chain(paths).collect()
    }
}

fn subject(user: &str) -> Subject {
    let account = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    match account {
        Some((namespace, name)) => Subject {
            kind: "ServiceAccount",
            api_group: None,
            name: name.to_owned(),
            namespace: Some(namespace.to_owned()),
        },
        None => Subject { kind: "User", api_group: Some(GROUP), name: user.to_owned(), namespace: None },
    }
}

/// A user's name as a part of an object's name: characters other than letters and digits become hyphens. A name that
/// has lost something gets a number made from it, so that no two users share a role.
fn slug(user: &str) -> String {
    let account = user.strip_prefix("system:serviceaccount:").unwrap_or(user).replace(':', "-");
    let mut slug = String::new();
    for char in account.chars().map(|char| char.to_ascii_lowercase()) {
        match char {
            'a'..='z' | '0'..='9' => slug.push(char),
            _ if slug.ends_with('-') || slug.is_empty() => {}
            _ => slug.push('-'),
        }
    }
    slug.truncate(SLUG_BYTES_MAX);
    let slug = slug.trim_end_matches('-');
    if slug == account {
        return slug.to_owned();
    }
    // FNV-1a, which is the same on every machine and in every release.
    let number = user.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    if slug.is_empty() { format!("{number:08x}") } else { format!("{slug}-{number:08x}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(denials: &[(&str, &str, &str)]) -> Grants {
        let mut grants = Grants::default();
        for (user, verb, what) in denials {
            let what = match what.split(' ').collect::<Vec<_>>().as_slice() {
                [path] => What::Path((*path).to_owned()),
                [group, resource, namespace, name] => {
                    let some = |text: &str| Some(text.to_owned()).filter(|text| text != "-");
                    What::Resource {
                        group: (*group).to_owned(),
                        resource: (*resource).to_owned(),
                        namespace: some(namespace),
                        name: some(name),
                    }
                }
                _ => panic!("{what}"),
            };
            grants.add(Denial { user: (*user).to_owned(), verb: (*verb).to_owned(), what });
        }
        grants
    }

    #[track_caller]
    fn check_rules(denials: &[(&str, &str, &str)], want: &[&str]) {
        let grants = grants(denials);
        let rules = grants.0.values().flat_map(MissingPermissions::rules).map(|rule| {
            let Rule { api_groups, resources, resource_names, non_resource_urls, verbs } = rule;
            let parts = [api_groups, resources, resource_names, non_resource_urls, verbs];
            parts.map(|part| part.join(",")).join(" ")
        });
        assert_eq!(rules.collect::<Vec<_>>(), want);
    }

    #[test]
    fn a_rule_allows_what_was_refused_and_no_more() {
        check_rules(&[("u", "get", "apps deployments n d")], &["apps deployments d  get"]);
        check_rules(
            &[
                ("u", "get", "apps deployments n d"),
                ("u", "get", "apps deployments n e"),
                ("u", "list", "apps deployments n -"),
            ],
            &["apps deployments d,e  get", "apps deployments   list"],
        );
        check_rules(
            &[
                ("u", "get", "apps deployments n d"),
                ("u", "get", "apps deployments n -"),
                ("u", "get", "apps daemonsets n -"),
            ],
            &["apps daemonsets,deployments   get"],
        );
        check_rules(&[("u", "get", "/metrics"), ("u", "get", "/logs")], &["   /logs,/metrics get"]);
    }

    #[test]
    fn every_user_has_a_role_of_his_own_for_each_namespace() {
        let text = grants(&[
            ("system:serviceaccount:a:robot", "list", "apps deployments n -"),
            ("Alice", "list", "apps deployments - -"),
        ]);
        let text = text.to_yaml().unwrap();
        let want = expect(&text);
        assert_eq!(
            want,
            [
                "ClusterRole allow-alice-",
                "ClusterRoleBinding allow-alice-",
                "Role allow-a-robot",
                "RoleBinding allow-a-robot",
            ]
        );
        assert!(text.contains("kind: ServiceAccount\n") && text.contains("name: Alice\n"), "{text}");
    }

    /// The kind and the name of each document, without the number.
    fn expect(text: &str) -> Vec<String> {
        let documents = text.split("---\n").skip(1);
        let field = |document: &str, name: &str| {
            let line = document.lines().find(|line| line.trim_start().starts_with(name));
            line.and_then(|line| line.split_once(": ")).map(|(_, value)| value.to_owned()).unwrap_or_default()
        };
        let named = documents.map(|document| format!("{} {}", field(document, "kind: "), field(document, "name: ")));
        named.map(|text| text.trim_end_matches(|char: char| char.is_ascii_hexdigit()).to_owned()).collect()
    }

    #[test]
    fn names_of_roles_are_the_users_own() {
        assert_eq!(slug("alice"), "alice");
        assert_ne!(slug("Alice"), slug("alice"));
        assert_ne!(slug("a@b"), slug("a.b"));
        assert_eq!(slug("@"), format!("{:08x}", 0xc50b_f85f_u32));
        assert!(slug(&"x".repeat(300)).len() < 63);
    }
}
