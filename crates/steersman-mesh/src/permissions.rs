//! The rules that a part of the mesh needs in the cluster, and a check for those that are missing.

use std::fmt;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

/// One rule of a role.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// The namespace whose Role has the rule; `None` for a ClusterRole.
    pub namespace: Option<String>,
    /// The name of the only object that the rule is for; none for all.
    pub name: Option<String>,
    /// The verbs that are granted.
    pub verbs: &'static [&'static str],
}

/// A verb of a rule that is not granted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Missing {
    /// The rule to add.
    pub rule: Rule,
    /// The verb that is not allowed.
    pub verb: &'static str,
}

/// The verbs of `rules` that the client's user is not allowed.
///
/// # Errors
/// The server cannot be asked.
pub async fn missing(client: &Client, rules: &[Rule]) -> Result<Vec<Missing>, kube::Error> {
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let mut missing = Vec::new();
    for rule in rules {
        for verb in rule.verbs {
            let attributes = ResourceAttributes {
                group: Some(rule.group.to_owned()),
                resource: Some(rule.resource.to_owned()),
                namespace: rule.namespace.clone(),
                name: rule.name.clone(),
                verb: Some((*verb).to_owned()),
                ..ResourceAttributes::default()
            };
            let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
            let review = SelfSubjectAccessReview { spec, ..Default::default() };
            let answer = reviews.create(&PostParams::default(), &review).await?;
            if !answer.status.is_some_and(|status| status.allowed) {
                missing.push(Missing { rule: rule.clone(), verb });
            }
        }
    }
    Ok(missing)
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { group, resource, namespace, name, verbs } = &self.rule;
        let dot = if group.is_empty() { "" } else { "." };
        let (role, place) = match namespace {
            Some(namespace) => ("Role", format!(" in namespace {namespace}")),
            None => ("ClusterRole", String::new()),
        };
        let verbs = verbs.iter().map(|verb| format!("{verb:?}")).collect::<Vec<_>>().join(", ");
        let verb = self.verb;
        write!(
            f,
            "may not {verb} {resource}{dot}{group}{place}: add to its {role} the rule {{apiGroups: [{group:?}], resources: [{resource:?}], verbs: [{verbs}]"
        )?;
        match name {
            Some(name) => write!(f, ", resourceNames: [{name:?}]}}"),
            None => f.write_str("}"),
        }
    }
}
