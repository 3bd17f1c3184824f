//! `SelfSubjectRulesReview`: all that the sender may do in a namespace (`kubectl auth can-i --list`).

use crate::access::authz::{NonResourceRule, ResourceRule};
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use futures::future::BoxFuture;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::{set_at, str_at};

/// The cost of writing a rule, in bytes of objects that can be read in the same time.
const RULE_BYTES: usize = 256;

pub(super) fn of_self<'a>(
    state: &'a State,
    operation: &'a mut Operation<'_>,
    mut review: Value,
) -> BoxFuture<'a, Result<Value, Failure>> {
    Box::pin(async move {
        let namespace = str_at(&review, &["spec", "namespace"]).unwrap_or_default().to_owned();
        if namespace.is_empty() {
            return Err(Failure::bad_request("no namespace on request"));
        }
        let n_rules = state.rbac.rules_of(operation.user, Some(&namespace)).n_rules();
        operation.load.expect_work(n_rules.saturating_mul(RULE_BYTES)).await;
        let rules = state.authorizer.rules_for(operation.user, &namespace).await;
        operation
            .load
            .expect_work((rules.resources.len() + rules.non_resources.len()).saturating_mul(RULE_BYTES))
            .await;
        let mut status = json!({
            "resourceRules": rules.resources.iter().map(resource_rule).collect::<Vec<_>>(),
            "nonResourceRules": rules.non_resources.iter().map(non_resource_rule).collect::<Vec<_>>(),
            "incomplete": rules.is_incomplete,
        });
        if let Some(error) = rules.error {
            status["evaluationError"] = error.into();
        }
        set_at(&mut review, &["spec"], json!({}));
        set_at(&mut review, &["status"], status);
        Ok(review)
    })
}

fn resource_rule(rule: &ResourceRule) -> Value {
    let mut printed = json!({"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources});
    if !rule.resource_names.is_empty() {
        printed["resourceNames"] = json!(rule.resource_names);
    }
    printed
}

fn non_resource_rule(rule: &NonResourceRule) -> Value {
    json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths})
}
