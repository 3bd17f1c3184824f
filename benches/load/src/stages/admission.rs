//! Creations that pass admission policies and a webhook, compared with creations without them.

use anyhow::Context;
use serde_json::{Value, json};

use crate::hook;
use crate::objects::{GROUP, LABEL};
use crate::results::{IsWanted, Results};
use crate::stage::{Site, Stage};
use crate::stages::writes;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

pub(super) async fn measure(
    stage: &mut Stage,
    site: &Site,
    is_wanted: &IsWanted<'_>,
    results: &mut Results,
) -> anyhow::Result<()> {
    stage.define_widgets().await?;
    let mut from = 0;
    let mut n_policies = 0;
    for (row, wanted) in [("admission-none", 0), ("admission-policy", 1), ("admission-policies", 10)] {
        for number in n_policies..wanted {
            register(stage, number).await?;
        }
        n_policies = wanted;
        if is_wanted(row) {
            from = create(stage, row, from, results).await?;
        }
    }
    for path in [BINDINGS, POLICIES] {
        stage.delete_all(&format!("{path}?labelSelector={LABEL}=true"), stage.bounds.limit).await?;
    }
    // An existing server does not know the address of the webhook.
    if matches!(site, Site::Own(_)) && is_wanted("admission-webhook") {
        let rules =
            json!([{"apiGroups": [GROUP], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["CREATE"]}]);
        let service = json!({"namespace": hook::NAMESPACE, "name": hook::NAME, "path": "/allow"});
        let webhook = json!({"name": "allow.load.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": service}, "rules": rules});
        let configuration = object("ValidatingWebhookConfiguration", 0, &json!({"webhooks": [webhook]}));
        stage.create(WEBHOOKS, &configuration).await?;
        create(stage, "admission-webhook", from, results).await?;
        stage.delete_all(&format!("{WEBHOOKS}?labelSelector={LABEL}=true"), stage.bounds.limit).await?;
    }
    Ok(())
}

/// Fills a row, and returns the number of the next object.
async fn create(stage: &Stage, row: &'static str, from: u64, results: &mut Results) -> anyhow::Result<u64> {
    stage.settle().await?;
    let (outcome, sample) = writes::create(stage, from, stage.bounds.duration).await?;
    results.add(row, sample);
    from.checked_add(outcome.n).context("more objects than can be numbered")
}

/// Registers a policy for Widgets, with two expressions and a binding.
async fn register(stage: &Stage, number: usize) -> anyhow::Result<()> {
    let rules = json!([{"apiGroups": [GROUP], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["CREATE", "UPDATE"]}]);
    let spec = json!({
        "matchConstraints": {"resourceRules": rules},
        "validations": [
            {"expression": "object.spec.replicas >= 0 && object.spec.replicas <= 1000000"},
            {"expression": "object.spec.ports.all(p, p.port > 0 && p.name != '') && object.metadata.name.startsWith('w-')"}]});
    stage.create(POLICIES, &object("ValidatingAdmissionPolicy", number, &json!({"spec": spec}))).await?;
    let binding = json!({"spec": {"policyName": name(number), "validationActions": ["Deny"]}});
    stage.create(BINDINGS, &object("ValidatingAdmissionPolicyBinding", number, &binding)).await?;
    Ok(())
}

fn name(number: usize) -> String {
    format!("bench-{number}")
}

fn object(kind: &str, number: usize, rest: &Value) -> String {
    let mut object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name(number), "labels": {LABEL: "true"}}});
    if let (Some(object), Some(rest)) = (object.as_object_mut(), rest.as_object()) {
        object.extend(rest.clone());
    }
    object.to_string()
}
