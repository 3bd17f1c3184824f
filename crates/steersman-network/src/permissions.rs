//! The rules that the operator needs in the cluster, and a check for those that are missing.

use crate::metrics::Counts;
use crate::{NAME, Options};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};
use std::convert::Infallible;
use std::fmt;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often missing rules are checked again, so that the log says when they are granted.
const AGAIN: Duration = Duration::from_secs(60);

/// One rule of a role.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The resource, with a subresource behind a slash.
    pub resource: &'static str,
    /// The namespace whose Role has the rule; `None` for a ClusterRole.
    pub namespace: Option<String>,
    /// The name of the only object that the rule is for; none for all.
    pub name: Option<&'static str>,
    /// The verbs that are granted.
    pub verbs: &'static [&'static str],
}

/// The rules that the operator needs with these options. `manifests/network-operator/rbac.yaml` grants those that it
/// needs there.
pub fn rules(options: &Options) -> Vec<Rule> {
    let cluster = |group, resource, name, verbs| Rule { group, resource, namespace: None, name, verbs };
    // Where the definition has no status subresource, the status is patched into the object.
    let mut rules = vec![
        cluster("samplecrd.k8s.io", "networks", None, &["get", "list", "watch", "patch"]),
        cluster("samplecrd.k8s.io", "networks/status", None, &["patch"]),
        cluster("", "events", None, &["create", "patch"]),
    ];
    if options.cluster.is_none() {
        rules.push(cluster("", "namespaces", Some("kube-system"), &["get"]));
    }
    if let Some(namespace) = &options.lease_namespace {
        let lease = |name, verbs| Rule {
            group: "coordination.k8s.io",
            resource: "leases",
            namespace: Some(namespace.clone()),
            name,
            verbs,
        };
        // The authorizer does not know the name of an object that is to be created, so `create` cannot be limited to a
        // name.
        rules.extend([lease(None, &["create"]), lease(Some(NAME), &["get", "update"])]);
    }
    rules
}

/// A verb of a rule that is not granted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Missing {
    /// The rule to add.
    pub rule: Rule,
    /// The verb that is not allowed.
    pub verb: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { group, resource, namespace, name, verbs } = &self.rule;
        let dot = if group.is_empty() { "" } else { "." };
        let (resource_name, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let slash = if subresource.is_empty() { "" } else { "/" };
        let (role, place) = match namespace {
            Some(namespace) => ("Role", format!(" in namespace {namespace}")),
            None => ("ClusterRole", String::new()),
        };
        let quoted = |words: &[&str]| words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        write!(
            f,
            "may not {} {resource_name}{dot}{group}{slash}{subresource}{place}: add to its {role} the rule {{apiGroups: [{group:?}], resources: [{resource:?}], verbs: [{}]",
            self.verb,
            quoted(verbs)
        )?;
        match name {
            Some(name) => write!(f, ", resourceNames: [{name:?}]}}"),
            None => f.write_str("}"),
        }
    }
}

/// The verbs of `rules` that the client's user does not have.
///
/// # Errors
/// The server cannot be asked.
pub async fn missing(client: &Client, rules: &[Rule]) -> Result<Vec<Missing>, kube::Error> {
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let mut missing = Vec::new();
    for rule in rules {
        for verb in rule.verbs {
            let (resource, subresource) = rule.resource.split_once('/').unwrap_or((rule.resource, ""));
            let attributes = ResourceAttributes {
                group: Some(rule.group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource: (!subresource.is_empty()).then(|| subresource.to_owned()),
                namespace: rule.namespace.clone(),
                name: rule.name.map(str::to_owned),
                verb: Some((*verb).to_owned()),
                ..ResourceAttributes::default()
            };
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() },
                ..Default::default()
            };
            let answer = reviews.create(&PostParams::default(), &review).await?;
            if !answer.status.is_some_and(|status| status.allowed) {
                missing.push(Missing { rule: rule.clone(), verb });
            }
        }
    }
    Ok(missing)
}

/// Logs missing rules until none is missing; each change of them is logged too.
pub(crate) async fn watch(
    client: Client,
    rules: Vec<Rule>,
    counts: Counts,
    stop: CancellationToken,
) -> Result<(), Infallible> {
    let check = async {
        let mut known: Option<Vec<Missing>> = None;
        loop {
            match missing(&client, &rules).await {
                Ok(missing) => {
                    counts.lacks_permissions(missing.len());
                    if known.as_ref() != Some(&missing) {
                        for one in &missing {
                            tracing::error!("the operator {one}");
                        }
                        if known.is_some() && missing.is_empty() {
                            tracing::info!("the operator has every permission now");
                        }
                    }
                    if missing.is_empty() {
                        return;
                    }
                    known = Some(missing);
                }
                Err(error) => tracing::debug!(%error, "the operator's permissions cannot be asked for"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    stop.run_until_cancelled(check).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_the_rule_to_add() {
        let options = Options { lease_namespace: Some("ops".to_owned()), ..Options::default() };
        let text = |index: usize, verb| Missing { rule: rules(&options)[index].clone(), verb }.to_string();
        assert_eq!(
            text(0, "list"),
            "may not list networks.samplecrd.k8s.io: add to its ClusterRole the rule {apiGroups: [\"samplecrd.k8s.io\"], resources: [\"networks\"], verbs: [\"get\", \"list\", \"watch\", \"patch\"]}"
        );
        assert_eq!(
            text(1, "patch"),
            "may not patch networks.samplecrd.k8s.io/status: add to its ClusterRole the rule {apiGroups: [\"samplecrd.k8s.io\"], resources: [\"networks/status\"], verbs: [\"patch\"]}"
        );
        assert_eq!(
            text(3, "get"),
            "may not get namespaces: add to its ClusterRole the rule {apiGroups: [\"\"], resources: [\"namespaces\"], verbs: [\"get\"], resourceNames: [\"kube-system\"]}"
        );
        assert_eq!(
            text(5, "update"),
            "may not update leases.coordination.k8s.io in namespace ops: add to its Role the rule {apiGroups: [\"coordination.k8s.io\"], resources: [\"leases\"], verbs: [\"get\", \"update\"], resourceNames: [\"network-controller\"]}"
        );
    }

    #[test]
    fn what_no_option_asks_for_is_not_needed() {
        let resources = |options: &Options| rules(options).iter().map(|rule| rule.resource).collect::<Vec<_>>();
        let by_default = ["networks", "networks/status", "events", "namespaces"];
        assert_eq!(resources(&Options::default()), by_default);
        let named = Options { cluster: "c".parse().ok(), ..Options::default() };
        assert_eq!(resources(&named), by_default[..3]);
        let elected = Options { lease_namespace: Some("ops".to_owned()), ..named };
        assert_eq!(resources(&elected)[3..], ["leases", "leases"]);
    }
}
