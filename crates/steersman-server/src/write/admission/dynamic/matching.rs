//! The match criteria of a webhook, a policy or a binding: its rules, its selectors, and the version in which it
//! expects objects.
//!
//! [`Criteria`] are compiled once from a configuration and compared with the [`AdmittedWrite`] of each write. An [`Index`]
//! finds the configurations that may match a resource by its plural, so that configurations for other resources cost a
//! write nothing. Follows apiserver's `admission/plugin/policy/matching` and `webhook/predicates`.

mod index;
mod rule;

pub(crate) use self::index::Index;

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::action::Action;
use crate::write::admission::admitted_write::AdmittedWrite;
use crate::write::admission::dynamic::matching::rule::Rule;
use steersman_kinds::builtin::rules::selector;
use steersman_kinds::catalog::Served;
use steersman_machinery::Value;
use steersman_machinery::selector::Labels;
use steersman_machinery::value::str_at;

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: [&str; 4] = [
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];
const WEBHOOKS: [&str; 2] = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
/// Objects that are answered and not stored, and that no policy sees: a policy on them could lock out every user.
const REVIEWS: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// The match criteria of a webhook, a policy or a binding.
#[derive(Debug)]
pub(crate) struct Criteria {
    rules: Rules,
    excluded: Vec<Rule>,
    /// Whether a rule also matches the same resource in other versions and groups.
    is_equivalent: bool,
    /// The namespace selector; `None` if it cannot be parsed.
    namespaces: Option<Labels>,
    objects: Option<Labels>,
}

#[derive(Debug)]
enum Rules {
    /// Every write.
    All,
    Listed(Vec<Rule>),
}

/// Whether no webhook may act on a write, because it changes the registered webhooks or policies.
pub(crate) fn is_exempt_from_webhooks(attributes: &ResourceAttributes<'_>) -> bool {
    attributes.group == GROUP && (POLICIES.contains(&attributes.resource) || WEBHOOKS.contains(&attributes.resource))
}

/// Whether no policy may act on a write.
pub(crate) fn is_exempt_from_policies(attributes: &ResourceAttributes<'_>) -> bool {
    let is_policy = attributes.group == GROUP && POLICIES.contains(&attributes.resource);
    is_policy || REVIEWS.contains(&(attributes.group, attributes.resource))
}

impl Criteria {
    /// The criteria of one webhook of a configuration. Without rules it matches nothing.
    pub(crate) fn of_webhook(webhook: &Value) -> Criteria {
        Criteria {
            rules: Rules::Listed(Rule::list(webhook, "rules")),
            excluded: Vec::new(),
            ..Criteria::selecting(webhook)
        }
    }

    /// The criteria of the `matchConstraints` of a policy or the `matchResources` of a binding. Without rules they
    /// match everything.
    pub(crate) fn of_resources(resources: Option<&Value>) -> Criteria {
        let resources = resources.unwrap_or(&Value::Null);
        let listed = Rule::list(resources, "resourceRules");
        let rules = if listed.is_empty() { Rules::All } else { Rules::Listed(listed) };
        let excluded = Rule::list(resources, "excludeResourceRules");
        Criteria { rules, excluded, ..Criteria::selecting(resources) }
    }

    fn selecting(from: &Value) -> Criteria {
        let selector = |key| match from.get(key) {
            None | Some(Value::Null) => Some(Labels::default()),
            Some(labels) => selector::parse(labels),
        };
        Criteria {
            rules: Rules::All,
            excluded: Vec::new(),
            is_equivalent: str_at(from, &["matchPolicy"]) == Some("Equivalent"),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// Whether the write matches; if it does, the version and group in which its objects are expected.
    ///
    /// # Errors
    /// When the write may match, but the namespace does not exist, or a selector cannot be parsed.
    pub(crate) fn find(&self, write: &AdmittedWrite<'_>) -> Result<Option<Served>, Failure> {
        if self.objects.as_ref().is_some_and(|labels| !is_object_selected(labels, write)) {
            return Ok(None);
        }
        if Criteria::listed(&self.excluded, self.is_equivalent, write).is_some() {
            return Ok(None);
        }
        let target = match &self.rules {
            Rules::All => Some(write.served.clone()),
            Rules::Listed(rules) => Criteria::listed(rules, self.is_equivalent, write),
        };
        let Some(target) = target else { return Ok(None) };
        let (Some(namespaces), Some(_)) = (&self.namespaces, &self.objects) else {
            return Err(Failure::internal("a selector of namespaces or objects cannot be read"));
        };
        Ok(is_namespace_selected(namespaces, write)?.then_some(target))
    }

    /// The resource of the first rule that the write matches: the one of the request, or else an equivalent one.
    fn listed(rules: &[Rule], is_equivalent: bool, write: &AdmittedWrite<'_>) -> Option<Served> {
        let (resource, version) = (&write.served.resource, write.served.version());
        if rules.iter().any(|rule| rule.is_about(write, &resource.group, &version.name, &resource.plural)) {
            return Some(write.served.clone());
        }
        // Only a rule about the same plural can match the same objects in another version.
        if !is_equivalent || !rules.iter().any(|rule| rule.may_be_about(write, &resource.plural)) {
            return None;
        }
        let equivalents = write.equivalents();
        let found = rules.iter().find_map(|rule| {
            equivalents.iter().find(|served| {
                rule.is_about(write, &served.resource.group, &served.version().name, &served.resource.plural)
            })
        });
        found.map(|served| Served::clone(served))
    }
}

fn is_object_selected(labels: &Labels, write: &AdmittedWrite<'_>) -> bool {
    let is_selected = |object: &Value| {
        let found = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        selector::matches(labels, found.unwrap_or(&Value::Null))
    };
    // A Scale has no labels.
    if write.is_of_scale() {
        return selector::matches(labels, &Value::Null);
    }
    labels.is_everything() || write.new.is_some_and(is_selected) || write.old.is_some_and(is_selected)
}

fn is_namespace_selected(labels: &Labels, write: &AdmittedWrite<'_>) -> Result<bool, Failure> {
    if labels.is_everything() {
        return Ok(true);
    }
    let attributes = &write.attributes;
    let is_namespace = attributes.is_about("", "namespaces");
    if is_namespace && attributes.subresource.is_none() && write.action != Action::Delete {
        // The namespace itself is written: the store does not have it yet, or has its old labels.
        let new = write.new.and_then(|namespace| namespace.get("metadata")?.get("labels"));
        return Ok(selector::matches(labels, new.unwrap_or(&Value::Null)));
    }
    if attributes.namespace.is_none() && !is_namespace {
        return Ok(true);
    }
    let namespace = write.namespace()?;
    Ok(labels.matches(|key| namespace.label(key)))
}

#[cfg(test)]
mod tests;
