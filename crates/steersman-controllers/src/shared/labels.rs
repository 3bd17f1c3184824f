//! Label selectors and node selectors in a form that is parsed once and matched often.
//!
//! Follows apimachinery's `labels` and component-helpers' `nodeaffinity`: an invalid term selects nothing, and does not
//! prevent the other terms from selecting.

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, TopologySelectorTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;
use steersman_machinery::selector::{self, Operator, Requirement};

pub(crate) type Labels = BTreeMap<String, String>;

/// A compiled label selector.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Selector {
    /// All requirements must match. Without any, everything is selected.
    All(selector::Labels),
    Nothing,
}

/// One of the alternative terms of a node selector.
#[derive(Clone, Debug)]
pub(crate) struct NodeTerm {
    labels: selector::Labels,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug)]
struct FieldRequirement {
    key: String,
    value: String,
    is_equal: bool,
}

/// Terms, at least one of which must match.
#[derive(Clone, Debug)]
pub(crate) struct NodeTerms {
    terms: Vec<NodeTerm>,
}

/// A Pod's requirements on its node's labels and name: `nodeSelector` and the required node affinity.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequiredNodes {
    labels: Labels,
    terms: Option<NodeTerms>,
    /// The only nodes that can match, if the terms name nodes.
    names: Option<Vec<String>>,
}

// === impl Selector ===

impl Selector {
    /// Selects by equal labels.
    pub(crate) fn of_labels(labels: &Labels) -> Selector {
        Selector::All(selector::Labels::new(labels.iter().map(equal).collect()))
    }

    /// Compiles a selector. An absent or invalid selector selects nothing, an empty one everything.
    pub(crate) fn read(selector: Option<&LabelSelector>) -> Selector {
        let Some(selector) = selector else { return Selector::Nothing };
        let mut requirements: Vec<Requirement> = selector.match_labels.iter().flatten().map(equal).collect();
        for expression in selector.match_expressions.iter().flatten() {
            let values = expression.values.as_deref().unwrap_or_default();
            match read(&expression.key, &expression.operator, values) {
                Some(requirement) => requirements.push(requirement),
                None => return Selector::Nothing,
            }
        }
        Selector::All(selector::Labels::new(requirements))
    }

    /// Selects the intersection of both.
    pub(crate) fn and(self, other: Selector) -> Selector {
        match (self, other) {
            (Selector::All(all), Selector::All(others)) => Selector::All(all.and(others)),
            (Selector::Nothing, _) | (_, Selector::Nothing) => Selector::Nothing,
        }
    }

    /// Whether the selector has no requirements, and so selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Selector::All(all) if all.is_everything())
    }

    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        match self {
            Selector::All(all) => all.matches(|key| value(labels, key)),
            Selector::Nothing => false,
        }
    }
}

fn value<'a>(labels: &'a Labels, key: &str) -> Option<&'a str> {
    labels.get(key).map(String::as_str)
}

fn equal((key, value): (&String, &String)) -> Requirement {
    Requirement { key: key.clone(), operator: Operator::In(vec![value.clone()]) }
}

/// `None` for an unknown operator, or one that does not allow these values.
fn read(key: &str, operator: &str, values: &[String]) -> Option<Requirement> {
    let single = || match values {
        [value] => value.parse().ok(),
        _ => None,
    };
    let operator = match operator {
        "DoesNotExist" if values.is_empty() => Operator::DoesNotExist,
        "Exists" if values.is_empty() => Operator::Exists,
        "Gt" => Operator::GreaterThan(single()?),
        "In" if !values.is_empty() => Operator::In(values.to_vec()),
        "Lt" => Operator::LessThan(single()?),
        "NotIn" if !values.is_empty() => Operator::NotIn(values.to_vec()),
        _ => return None,
    };
    Some(Requirement { key: key.to_owned(), operator })
}

// === impl NodeTerm ===

impl NodeTerm {
    /// `None` for a term that selects nothing, because it is empty or invalid.
    pub(crate) fn read(term: &NodeSelectorTerm) -> Option<NodeTerm> {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        if expressions.is_empty() && fields.is_empty() {
            return None;
        }
        let label =
            |one: &NodeSelectorRequirement| read(&one.key, &one.operator, one.values.as_deref().unwrap_or_default());
        let field = |one: &NodeSelectorRequirement| {
            let [value] = one.values.as_deref().unwrap_or_default() else { return None };
            let is_equal = match one.operator.as_str() {
                "In" => true,
                "NotIn" => false,
                _ => return None,
            };
            Some(FieldRequirement { key: one.key.clone(), value: value.clone(), is_equal })
        };
        Some(NodeTerm {
            labels: selector::Labels::new(expressions.iter().map(label).collect::<Option<_>>()?),
            fields: fields.iter().map(field).collect::<Option<_>>()?,
        })
    }

    pub(crate) fn matches(&self, name: &str, labels: &Labels) -> bool {
        let has_fields = |one: &FieldRequirement| {
            let value = if one.key == "metadata.name" { name } else { "" };
            (value == one.value) == one.is_equal
        };
        self.labels.matches(|key| value(labels, key)) && self.fields.iter().all(has_fields)
    }
}

// === impl NodeTerms ===

impl NodeTerms {
    pub(crate) fn read(selector: &NodeSelector) -> NodeTerms {
        NodeTerms { terms: selector.node_selector_terms.iter().filter_map(NodeTerm::read).collect() }
    }

    pub(crate) fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.terms.iter().any(|term| term.matches(name, labels))
    }
}

// === impl RequiredNodes ===

impl RequiredNodes {
    pub(crate) fn read(spec: &PodSpec) -> RequiredNodes {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        RequiredNodes {
            labels: spec.node_selector.clone().unwrap_or_default(),
            terms: required.map(NodeTerms::read),
            names: required.and_then(named),
        }
    }

    /// Whether every node matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.terms.is_none()
    }

    /// The only nodes that can match, if the Pod names them. An empty list means that its terms contradict each other.
    pub(crate) fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    pub(crate) fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.terms.as_ref().is_none_or(|terms| terms.matches(name, labels))
    }
}

/// The nodes that all terms together name; `None` if a term does not name any.
fn named(selector: &NodeSelector) -> Option<Vec<String>> {
    let mut all: Vec<String> = Vec::new();
    for term in &selector.node_selector_terms {
        let mut of_term: Option<Vec<String>> = None;
        for field in term.match_fields.iter().flatten() {
            if field.key == "metadata.name" && field.operator == "In" {
                let values = field.values.clone().unwrap_or_default();
                of_term = Some(match of_term {
                    None => values,
                    Some(known) => known.into_iter().filter(|name| values.contains(name)).collect(),
                });
            }
        }
        all.extend(of_term?);
    }
    if selector.node_selector_terms.is_empty() {
        return None;
    }
    all.sort();
    all.dedup();
    Some(all)
}

/// Whether labels are within the allowed topologies of a StorageClass. Without terms, all labels are.
pub(crate) fn is_in_topologies(terms: &[TopologySelectorTerm], labels: &Labels) -> bool {
    let matches = |term: &TopologySelectorTerm| {
        let expressions = term.match_label_expressions.as_deref().unwrap_or_default();
        !expressions.is_empty()
            && expressions.iter().all(|one| labels.get(&one.key).is_some_and(|value| one.values.contains(value)))
    };
    terms.is_empty() || terms.iter().any(matches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[track_caller]
    fn selects(selector: Value, pairs: &[(&str, &str)], expected: bool) {
        let selector: LabelSelector = serde_json::from_value(selector).unwrap();
        assert_eq!(Selector::read(Some(&selector)).matches(&labels(pairs)), expected);
    }

    #[test]
    fn operators_select_as_the_api_says() {
        let one = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        selects(json!({}), &[], true);
        selects(json!({"matchLabels": {"a": "1"}}), &[("a", "1")], true);
        selects(json!({"matchLabels": {"a": "1"}}), &[("a", "2")], false);
        selects(one("In", &["1", "2"]), &[("a", "2")], true);
        selects(one("NotIn", &["1"]), &[], true);
        selects(one("NotIn", &["1"]), &[("a", "1")], false);
        selects(one("Exists", &[]), &[("a", "")], true);
        selects(one("DoesNotExist", &[]), &[("a", "")], false);
        selects(one("Whatever", &["1"]), &[("a", "1")], false);
        assert!(!Selector::read(None).matches(&labels(&[])));
    }

    #[test]
    fn a_node_term_that_cannot_be_read_does_not_hide_the_others() {
        let selector: NodeSelector = serde_json::from_value(json!({"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["many"]}]},
            {},
            {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        ]}))
        .unwrap();
        let terms = NodeTerms::read(&selector);
        assert!(terms.matches("n0", &labels(&[("cores", "8")])));
        assert!(!terms.matches("n0", &labels(&[("cores", "4")])));
        assert!(terms.matches("n1", &labels(&[])));
    }
}
