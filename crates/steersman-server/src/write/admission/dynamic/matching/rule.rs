//! One rule of a webhook, a policy or a binding: operations on resources.

use crate::write::admission::action::Action;
use crate::write::admission::admitted_write::AdmittedWrite;
use steersman_machinery::Value;
use steersman_machinery::value::str_at;

const ANY: &str = "*";

/// A compiled rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) operations: Operations,
    groups: Names,
    versions: Names,
    resources: Vec<Named>,
    scope: Scope,
    /// The names of objects to which the rule is limited; empty: all names.
    names: Vec<Box<str>>,
}

/// A set of operations.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Operations(u8);

/// The names that a rule matches.
#[derive(Debug)]
enum Names {
    Any,
    These(Vec<Box<str>>),
}

/// A resource with or without a subresource, either of which may be `*`.
#[derive(Debug)]
pub(super) struct Named {
    plural: Box<str>,
    subresource: Box<str>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

impl Operations {
    fn of(action: Action) -> Operations {
        Operations(match action {
            Action::Connect => 1,
            Action::Create => 2,
            Action::Delete => 4,
            Action::Update => 8,
        })
    }

    fn named(name: &str) -> Operations {
        match name {
            ANY => Operations::all(),
            "CONNECT" => Operations::of(Action::Connect),
            "CREATE" => Operations::of(Action::Create),
            "DELETE" => Operations::of(Action::Delete),
            "UPDATE" => Operations::of(Action::Update),
            _ => Operations::default(),
        }
    }

    pub(super) fn all() -> Operations {
        Operations(15)
    }

    pub(super) fn with(self, other: Operations) -> Operations {
        Operations(self.0 | other.0)
    }

    pub(super) fn has(self, action: Action) -> bool {
        self.0 & Operations::of(action).0 != 0
    }
}

impl Names {
    fn of(texts: Vec<Box<str>>) -> Names {
        if texts.iter().any(|text| **text == *ANY) { Names::Any } else { Names::These(texts) }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Names::Any => true,
            Names::These(names) => names.iter().any(|one| **one == *name),
        }
    }
}

impl Named {
    /// The plural that it matches; `None` for every plural.
    pub(super) fn plural(&self) -> Option<&str> {
        (*self.plural != *ANY).then_some(&self.plural)
    }

    fn is(&self, plural: &str, subresource: &str) -> bool {
        let is_plural = *self.plural == *ANY || *self.plural == *plural;
        is_plural && (*self.subresource == *ANY || *self.subresource == *subresource)
    }
}

impl Rule {
    /// The rules in a list of an object.
    pub(super) fn list(from: &Value, key: &str) -> Vec<Rule> {
        from.get(key).and_then(Value::as_array).into_iter().flatten().map(Rule::read).collect()
    }

    fn read(rule: &Value) -> Rule {
        let texts = |key: &str| -> Vec<Box<str>> {
            let list = rule.get(key).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(Box::from).collect()
        };
        let operations = texts("operations");
        let operations = operations.iter().map(|name| Operations::named(name));
        let resources = texts("resources").into_iter().map(|text| match text.split_once('/') {
            Some((plural, subresource)) => Named { plural: plural.into(), subresource: subresource.into() },
            None => Named { plural: text, subresource: "".into() },
        });
        Rule {
            operations: operations.fold(Operations::default(), Operations::with),
            groups: Names::of(texts("apiGroups")),
            versions: Names::of(texts("apiVersions")),
            resources: resources.collect(),
            scope: match str_at(rule, &["scope"]) {
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::All,
            },
            names: texts("resourceNames"),
        }
    }

    pub(super) fn resources(&self) -> &[Named] {
        &self.resources
    }

    /// Whether the rule matches a write, with this group, version and plural as its resource.
    pub(super) fn is_about(&self, write: &AdmittedWrite<'_>, group: &str, version: &str, plural: &str) -> bool {
        self.groups.has(group) && self.versions.has(version) && self.may_be_about(write, plural)
    }

    /// Whether the rule matches a write, except for the group and the version of its resource.
    pub(super) fn may_be_about(&self, write: &AdmittedWrite<'_>, plural: &str) -> bool {
        let attributes = &write.attributes;
        let is_cluster_wide = attributes.namespace.is_none() || attributes.is_about("", "namespaces");
        let is_in_scope = match self.scope {
            Scope::All => true,
            Scope::Cluster => is_cluster_wide,
            Scope::Namespaced => !is_cluster_wide,
        };
        let subresource = attributes.subresource.unwrap_or_default();
        self.operations.has(write.action)
            && is_in_scope
            && self.resources.iter().any(|named| named.is(plural, subresource))
            && (self.names.is_empty() || self.names.iter().any(|name| **name == *write.name))
    }
}
