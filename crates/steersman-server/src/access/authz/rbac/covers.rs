//! Compares rules, and finds those that are missing: a user who grants permissions must have them.
//!
//! Follows component-helpers' `auth/rbac/validation`: a rule is split into parts of one group, resource, name and verb,
//! and a single rule of the owner must contain each part.

use crate::access::authz::rbac::rule::{Rule, has, has_or_all, is_path_below};
use std::collections::HashMap;
use std::sync::Arc;
use steersman_machinery::budget::{self, Budget};

/// The maximum number of parts of all rules together. Kubernetes' largest role, `admin`, has about a thousand.
const PARTS_MAX: usize = 10_000;

/// Why rules cannot be compared with those that their writer has.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum MissingError {
    /// The request is given up, or needs too much.
    #[error(transparent)]
    Budget(#[from] budget::Error),
    /// They have too many parts.
    #[error(
        "the rules combine more than {PARTS_MAX} groups, resources, names and verbs: write them with *, or as several roles"
    )]
    TooMany,
}

/// The parts of the wanted rules that the owner's rules do not contain.
///
/// # Errors
/// When there are too many parts, or looking for them takes more than the budget.
pub(crate) fn missing(owner: &[Arc<[Rule]>], wanted: &[Rule], budget: &Budget) -> Result<Vec<Rule>, MissingError> {
    let n_parts = wanted.iter().map(n_parts).fold(0, usize::saturating_add);
    if n_parts > PARTS_MAX {
        return Err(MissingError::TooMany);
    }
    let n_steps: usize = owner.iter().flat_map(|rules| rules.iter()).map(steps).sum();
    let mut missing = Vec::new();
    for part in wanted.iter().flat_map(parts) {
        budget.work(n_steps)?;
        if !owner.iter().flat_map(|rules| rules.iter()).any(|rule| contains(rule, &part)) {
            missing.push(part);
        }
    }
    Ok(missing)
}

/// The steps of comparing a part with a rule.
fn steps(rule: &Rule) -> usize {
    let names = rule.api_groups.len() + rule.resources.len() + rule.resource_names.len();
    1 + (names + rule.verbs.len() + rule.non_resource_urls.len()) / 8
}

fn n_parts(rule: &Rule) -> usize {
    let of_resources = [rule.resources.len(), rule.verbs.len(), rule.resource_names.len().max(1)];
    let of_resources = of_resources.into_iter().fold(rule.api_groups.len(), usize::saturating_mul);
    of_resources.saturating_add(rule.non_resource_urls.len().saturating_mul(rule.verbs.len()))
}

fn parts(rule: &Rule) -> Vec<Rule> {
    let one = |text: &String| vec![text.clone()];
    let mut parts = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let part =
                    Rule { api_groups: one(group), resources: one(resource), verbs: one(verb), ..Rule::default() };
                if rule.resource_names.is_empty() {
                    parts.push(part);
                    continue;
                }
                let named = rule.resource_names.iter().map(|name| Rule { resource_names: one(name), ..part.clone() });
                parts.extend(named);
            }
        }
    }
    for url in &rule.non_resource_urls {
        let of_url = rule.verbs.iter();
        parts.extend(of_url.map(|verb| Rule { non_resource_urls: one(url), verbs: one(verb), ..Rule::default() }));
    }
    parts
}

/// Whether a rule contains a part.
fn contains(rule: &Rule, part: &Rule) -> bool {
    let is_named = rule.resource_names.is_empty()
        || !part.resource_names.is_empty() && part.resource_names.iter().all(|name| has(&rule.resource_names, name));
    is_named
        && part.verbs.iter().all(|verb| has_or_all(&rule.verbs, verb))
        && part.api_groups.iter().all(|group| has_or_all(&rule.api_groups, group))
        && part.resources.iter().all(|resource| contains_resource(&rule.resources, resource))
        && part.non_resource_urls.iter().all(|url| rule.non_resource_urls.iter().any(|own| is_path_below(own, url)))
}

fn contains_resource(own: &[String], resource: &str) -> bool {
    has_or_all(own, resource)
        || resource.split_once('/').is_some_and(|(_, subresource)| has(own, &format!("*/{subresource}")))
}

/// Combines parts that differ only by their verb.
pub(crate) fn compacted(parts: Vec<Rule>) -> Vec<Rule> {
    let mut compacted: Vec<Rule> = Vec::new();
    let mut places: HashMap<Rule, usize> = HashMap::new();
    for part in parts {
        if !part.non_resource_urls.is_empty() {
            compacted.push(part);
            continue;
        }
        let without_verbs = Rule { verbs: Vec::new(), ..part.clone() };
        match places.get(&without_verbs) {
            Some(place) => compacted[*place].verbs.extend(part.verbs),
            None => {
                places.insert(without_verbs, compacted.len());
                compacted.push(part);
            }
        }
    }
    compacted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules(value: serde_json::Value) -> Vec<Rule> {
        serde_json::from_value(value).unwrap()
    }

    #[track_caller]
    fn check(owner: serde_json::Value, wanted: serde_json::Value, want: &[&str]) {
        let missing = missing(&[rules(owner).into()], &rules(wanted), &Budget::unlimited());
        let missing = compacted(missing.unwrap());
        let missing: Vec<String> = missing.iter().map(Rule::to_string).collect();
        assert_eq!(missing, want);
    }

    #[test]
    fn what_is_missing_is_told_by_resource_with_all_its_verbs() {
        let owner = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
        check(owner.clone(), json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "get"]}]), &[]);
        check(
            owner,
            json!([{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "delete"]},
                   {"nonResourceURLs": ["/a"], "verbs": ["get", "put"]}]),
            &[
                r#"{APIGroups:[""], Resources:["configmaps"], Verbs:["delete"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "delete"]}"#,
                r#"{NonResourceURLs:["/a"], Verbs:["get"]}"#,
                r#"{NonResourceURLs:["/a"], Verbs:["put"]}"#,
            ],
        );
    }

    #[test]
    fn a_star_contains_everything_and_only_a_star_contains_a_star() {
        let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        let many = json!([{"apiGroups": ["", "apps"], "resources": ["pods", "pods/log"], "resourceNames": ["a"], "verbs": ["get", "*"]}]);
        check(all.clone(), many.clone(), &[]);
        check(
            all.clone(),
            json!([{"nonResourceURLs": ["*"], "verbs": ["*"]}]),
            &[r#"{NonResourceURLs:["*"], Verbs:["*"]}"#],
        );
        let almost = json!([{"apiGroups": ["", "apps"], "resources": ["pods", "*/log"], "verbs": ["get"]}]);
        check(almost.clone(), all, &[r#"{APIGroups:["*"], Resources:["*"], Verbs:["*"]}"#]);
        check(
            almost,
            json!([{"apiGroups": ["apps"], "resources": ["x/log", "x"], "verbs": ["get"]}]),
            &[r#"{APIGroups:["apps"], Resources:["x"], Verbs:["get"]}"#],
        );
    }

    #[test]
    fn a_name_is_less_than_every_name() {
        let named =
            json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get"]}]);
        let every = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
        check(every.clone(), named.clone(), &[]);
        check(named.clone(), every, &[r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#]);
        let others =
            json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["b", "c"], "verbs": ["get"]}]);
        check(named, others, &[r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["c"], Verbs:["get"]}"#]);
    }

    #[test]
    fn paths_contain_what_is_below_them() {
        let owner = json!([{"nonResourceURLs": ["/a/*"], "verbs": ["get"]}]);
        check(owner.clone(), json!([{"nonResourceURLs": ["/a/b", "/a/b/*"], "verbs": ["get"]}]), &[]);
        check(
            owner,
            json!([{"nonResourceURLs": ["/a"], "verbs": ["get"]}]),
            &[r#"{NonResourceURLs:["/a"], Verbs:["get"]}"#],
        );
    }

    #[test]
    fn rules_of_too_many_parts_are_not_taken_apart() {
        let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
        let rule = json!([{"apiGroups": [""], "resources": many, "verbs": many}]);
        assert_eq!(missing(&[], &rules(rule), &Budget::unlimited()), Err(MissingError::TooMany));
    }

    #[test]
    fn comparing_with_very_many_rules_is_charged() {
        let own = json!({"apiGroups": ["g"], "resources": ["r"], "verbs": ["v"]});
        let owner: Arc<[Rule]> = rules(json!(vec![own; 20_000])).into();
        let words: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let wanted = rules(json!([{"apiGroups": [""], "resources": words, "verbs": words}]));
        let outcome = missing(&[owner], &wanted, &Budget::default());
        assert!(matches!(outcome, Err(MissingError::Budget(budget::Error::Exceeded { .. }))), "{outcome:?}");
    }
}
