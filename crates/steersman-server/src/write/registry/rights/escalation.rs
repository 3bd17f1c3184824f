//! Prevents privilege escalation: the writer of a role or a binding may not grant more than he has, or everybody who
//! may write roles would be an administrator.
//!
//! The verb `escalate` on the role, or `bind` on the role that a binding names, exempts a writer, and so does
//! membership of `system:masters`. Follows kubernetes'
//! `pkg/registry/rbac/{role,clusterrole,rolebinding,clusterrolebinding}/policybased`.

use crate::access::authz::rbac::UserRules;
use crate::access::authz::rbac::binding::RoleRef;
use crate::access::authz::rbac::covers::{self, MissingError};
use crate::access::authz::rbac::resource::{GROUP, Resource};
use crate::access::authz::rbac::rule::{Rule, quoted};
use crate::access::authz::{self, Attributes, ResourceAttributes};
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use std::collections::BTreeSet;
use steersman_kinds::user::MASTERS;
use steersman_machinery::Value;
use steersman_machinery::value::{at, remove_at, str_at};

/// Checks a write, with the object in the requested form after admission. Costs a comparison for objects of other
/// kinds.
///
/// # Errors
/// 403 with the rules that the writer does not have; 404 if a binding names a role that does not exist.
pub(in crate::write::registry) async fn check(
    state: &State,
    operation: &mut Operation<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let Some(resource) = Resource::find(operation.attributes.group, operation.attributes.resource) else {
        return Ok(());
    };
    if operation.user.is_in(MASTERS) || old.is_some_and(|old| is_bookkeeping(new, old)) {
        return Ok(());
    }
    match resource {
        Resource::ClusterRoles | Resource::Roles => check_role(state, operation, new, old).await,
        Resource::ClusterRoleBindings | Resource::RoleBindings => check_binding(state, operation, new).await,
    }
}

async fn check_role(
    state: &State,
    operation: &mut Operation<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let attributes = ResourceAttributes { verb: "escalate", version: "*", subresource: None, ..operation.attributes };
    if is_allowed(state, operation, attributes).await {
        return Ok(());
    }
    let rules = match new.get("rules") {
        Some(rules) if !rules.is_null() => serde_json::from_value(rules.clone())
            .map_err(|error| Failure::bad_request(format!("the rules of the role cannot be read: {error}")))?,
        Some(_) | None => Vec::new(),
    };
    confirm(state, operation, new, &rules).await?;
    // An aggregated role can gather anything.
    if aggregates(new) || old.is_some_and(aggregates) {
        let confirmed = confirm(state, operation, new, &everything()).await;
        confirmed.map_err(|failure| match failure.code() {
            403 => forbidden(operation, new, "must have cluster-admin privileges to use the aggregationRule"),
            _ => failure,
        })?;
    }
    Ok(())
}

async fn check_binding(state: &State, operation: &mut Operation<'_>, new: &Value) -> Result<(), Failure> {
    let text = |field: &str| str_at(new, &["roleRef", field]).unwrap_or_default();
    let (kind, name, namespace) = (text("kind"), text("name"), operation.namespace());
    let role = match RoleRef::new(kind, name) {
        Some(RoleRef::Role(_)) if namespace.is_none() => None,
        role => role,
    };
    // Validation refuses other kinds of references.
    let Some(role) = role else { return Ok(()) };
    let resource = match &role {
        RoleRef::ClusterRole(_) => Resource::ClusterRoles,
        RoleRef::Role(_) => Resource::Roles,
    };
    let attributes = ResourceAttributes {
        verb: "bind",
        group: GROUP,
        version: "*",
        resource: resource.plural(),
        subresource: None,
        namespace,
        name: Some(name),
        ..ResourceAttributes::default()
    };
    if is_allowed(state, operation, attributes).await {
        return Ok(());
    }
    match state.rbac.rules_of_role(&role, namespace) {
        Some(rules) => confirm(state, operation, new, &rules).await,
        None => Err(Failure::not_found(&operation.group_resource(), name)),
    }
}

async fn is_allowed(state: &State, operation: &Operation<'_>, attributes: ResourceAttributes<'_>) -> bool {
    let attributes = Attributes::Resource(attributes);
    authz::verdict(&*state.authorizer, operation.user, &attributes).await.is_allowed()
}

/// Refuses rules that the writer does not have.
async fn confirm(state: &State, operation: &mut Operation<'_>, new: &Value, rules: &[Rule]) -> Result<(), Failure> {
    let user = operation.user;
    let UserRules { roles, not_found } = state.rbac.rules_of(user, operation.namespace());
    let missing = operation.computed(|operation| covers::missing(&roles, rules, &operation.budget)).await;
    let missing = missing.map_err(|error| match error {
        MissingError::Budget(error) => Failure::of_budget(&error),
        error @ MissingError::TooMany => forbidden(operation, new, &error.to_string()),
    })?;
    if missing.is_empty() {
        return Ok(());
    }
    let missing: BTreeSet<String> = covers::compacted(missing).iter().map(Rule::to_string).collect();
    let missing: Vec<String> = missing.into_iter().collect();
    let mut why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        missing.join("\n")
    );
    if !not_found.is_empty() {
        // Upstream names the resource of the request here, not that of the role.
        let resource = operation.group_resource();
        let errors = not_found.iter().map(|role| format!("{resource} {:?} not found", role.name())).collect();
        why.push_str(&format!("; resolution errors: [{}]", authz::rbac::aggregate(errors)));
    }
    Err(forbidden(operation, new, &why))
}

fn forbidden(operation: &Operation<'_>, object: &Value, why: &str) -> Failure {
    let name = str_at(object, &["metadata", "name"]).unwrap_or_default();
    Failure::forbidden(&operation.group_resource(), name, why)
}

fn aggregates(cluster_role: &Value) -> bool {
    let selectors = at(cluster_role, &["aggregationRule", "clusterRoleSelectors"]).and_then(Value::as_array);
    selectors.is_some_and(|selectors| !selectors.is_empty())
}

fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { api_groups: all(), resources: all(), verbs: all(), ..Rule::default() },
        Rule { non_resource_urls: all(), verbs: all(), ..Rule::default() },
    ]
}

/// Whether a change affects only owners and finalizers, which garbage collection needs and which grant nothing.
fn is_bookkeeping(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        for field in ["finalizers", "managedFields", "ownerReferences", "resourceVersion", "selfLink"] {
            remove_at(&mut object, &["metadata", field]);
        }
        object
    };
    rest(new) == rest(old)
}
