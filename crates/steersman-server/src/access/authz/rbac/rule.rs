//! A rule of a role, and the requests that it allows.

use crate::shared::operation::{Attributes, ResourceAttributes};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Verbs that are allowed on resources or on paths. A rule has either resources or paths.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rule {
    #[serde(default, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub(crate) api_groups: Vec<String>,
    #[serde(default, deserialize_with = "list", rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub(crate) non_resource_urls: Vec<String>,
    /// The names to which the rule is limited; empty: all names.
    #[serde(default, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
    #[serde(default, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    #[serde(default, deserialize_with = "list")]
    pub(crate) verbs: Vec<String>,
}

/// A list, which may also be null.
fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Option::<Vec<String>>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Whether a list contains a string.
pub(super) fn has(list: &[String], word: &str) -> bool {
    list.iter().any(|one| one == word)
}

/// Whether a list contains a string, or `*` for all strings.
pub(super) fn has_or_all(list: &[String], word: &str) -> bool {
    list.iter().any(|one| one == "*" || one == word)
}

/// Whether the path of a rule matches a path. `*` at its end matches the rest.
pub(super) fn is_path_below(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

impl Rule {
    /// Whether the rule allows a request.
    pub(crate) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        match attributes {
            Attributes::NonResource { verb, path } => {
                has_or_all(&self.verbs, verb) && self.non_resource_urls.iter().any(|url| is_path_below(url, path))
            }
            Attributes::Resource(asked) => {
                // The group first: it excludes most rules of a large role.
                has_or_all(&self.api_groups, asked.group)
                    && has_or_all(&self.verbs, asked.verb)
                    && self.resources.iter().any(|resource| stands_for(resource, asked))
                    && (self.resource_names.is_empty() || has(&self.resource_names, asked.name.unwrap_or_default()))
            }
        }
    }
}

/// Whether the resource of a rule matches the requested one: `*`, `pods`, `pods/log` or `*/log`.
fn stands_for(rule: &str, asked: &ResourceAttributes<'_>) -> bool {
    if rule == "*" {
        return true;
    }
    let Some(subresource) = asked.subresource.filter(|subresource| !subresource.is_empty()) else {
        return rule == asked.resource;
    };
    let Some(rest) = rule.strip_suffix(subresource).and_then(|rest| rest.strip_suffix('/')) else { return false };
    rest == "*" || rest == asked.resource
}

/// The form in denials: `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let parts = parts.into_iter().filter(|(_, list)| !list.is_empty());
        let parts: Vec<String> = parts.map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
        write!(f, "{{{}}}", parts.join(", "))
    }
}

/// A list of strings as Go's `%q` prints it.
pub(crate) fn quoted(list: &[String]) -> String {
    let texts: Vec<String> = list.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(value: serde_json::Value) -> Rule {
        serde_json::from_value(value).unwrap()
    }

    #[track_caller]
    fn check(rule: &Rule, asked: &str, want: bool) {
        let words: Vec<&str> = asked.split(' ').collect();
        let attributes = match words.as_slice() {
            [verb, path] => Attributes::NonResource { verb, path },
            [verb, group, resource, name] => {
                let (resource, subresource) = match resource.split_once('/') {
                    Some((resource, subresource)) => (resource, Some(subresource)),
                    None => (*resource, None),
                };
                let name = Some(*name).filter(|name| *name != "-");
                let group = if *group == "core" { "" } else { group };
                let attributes = ResourceAttributes { verb, group, resource, subresource, name, ..Default::default() };
                Attributes::Resource(attributes)
            }
            _ => panic!("{asked}"),
        };
        assert_eq!(rule.allows(&attributes), want, "{asked}");
    }

    #[test]
    fn a_resource_does_not_open_its_subresources_nor_the_other_way_round() {
        let pods = rule(json!({"apiGroups": [""], "resources": ["pods", "*/scale", "nodes/log"], "verbs": ["get"]}));
        check(&pods, "get core pods p", true);
        check(&pods, "get core pods/log p", false);
        check(&pods, "get core nodes/log n", true);
        check(&pods, "get core nodes n", false);
        check(&pods, "get core deployments/scale d", true);
        check(&pods, "get core deployments/upscale d", false);
        check(&pods, "get core scale -", false);
        check(&pods, "list core pods -", false);
        check(&pods, "get apps pods p", false);
        check(&pods, "get /pods", false);
    }

    #[test]
    fn a_star_stands_for_all() {
        let all = rule(json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}));
        check(&all, "get core pods p", true);
        check(&all, "deletecollection apps deployments/status -", true);
        check(&all, "get /metrics", false);
        let paths = rule(json!({"nonResourceURLs": ["/metrics", "/logs/*", "/deep*"], "verbs": ["get"]}));
        for (path, want) in
            [("/metrics", true), ("/metrics/", false), ("/logs/", true), ("/logs/a/b", true), ("/logs", false)]
        {
            check(&paths, &format!("get {path}"), want);
        }
        check(&paths, "get /deeper", true);
        check(&paths, "post /metrics", false);
        check(&paths, "get core pods p", false);
    }

    #[test]
    fn a_name_must_be_asked_for_where_a_rule_has_names() {
        let one = rule(json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["open"], "verbs": ["*"]}));
        check(&one, "get core secrets open", true);
        check(&one, "get core secrets shut", false);
        check(&one, "list core secrets -", false);
        check(&one, "list core secrets open", true);
    }

    #[test]
    fn lists_may_be_null() {
        let none = rule(json!({"apiGroups": null, "resources": null, "verbs": null}));
        assert_eq!(none, Rule::default());
    }
}
