//! Tests of the kinds that register webhooks and policies for admission.

use super::*;

const GROUP: &str = "admissionregistration.k8s.io";

fn webhook(changes: Value) -> Value {
    let mut webhook = json!({
        "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://x/y"}, "rules": [{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
        }],
    });
    for (field, value) in changes.as_object().unwrap() {
        webhook[field] = value.clone();
    }
    json!({"metadata": {"name": "w"}, "webhooks": [webhook]})
}

#[test]
fn a_webhook_gets_its_defaults() {
    for (kind, reinvocation) in
        [("ValidatingWebhookConfiguration", None), ("MutatingWebhookConfiguration", Some("Never"))]
    {
        let subject = Subject::of(GROUP, kind);
        let made = subject.created(webhook(json!({})));
        let one = &made["webhooks"][0];
        assert_eq!(
            (&one["failurePolicy"], &one["matchPolicy"], &one["timeoutSeconds"], &one["rules"][0]["scope"]),
            (&json!("Fail"), &json!("Equivalent"), &json!(10), &json!("*"))
        );
        assert_eq!(one.get("reinvocationPolicy").and_then(Value::as_str), reinvocation);
        assert!(subject.strategy().warnings(subject.version(), &made, &Value::Null).is_empty());
    }
}

#[test]
fn a_url_is_checked_part_by_part() {
    Subject::of(GROUP, "ValidatingWebhookConfiguration").refused(
        webhook(json!({"clientConfig": {"url": "http://me@x/y?q=1#f"}})),
        &[
            r#"webhooks[0].clientConfig.url: Invalid value: "f": fragments are not permitted in the URL"#,
            r#"webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#,
            r#"webhooks[0].clientConfig.url: Invalid value: "me": user information is not permitted in the URL"#,
            r#"webhooks[0].clientConfig.url: Invalid value: "q=1": query parameters are not permitted in the URL"#,
        ],
    );
}

#[test]
fn what_an_old_configuration_has_is_tolerated() {
    let subject = Subject::of(GROUP, "ValidatingWebhookConfiguration");
    let mut old = subject.created(webhook(json!({})));
    old["webhooks"][0]["sideEffects"] = json!("Some");
    assert_errors(subject.update(Endpoint::Main, &old, |_| {}).1, &[]);
    subject.refused(
        webhook(json!({"sideEffects": "Some"})),
        &[r#"webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun""#],
    );
}

fn policy(changes: Value) -> Value {
    let mut spec = json!({
        "matchConstraints": {"resourceRules": [{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
        }]},
    });
    for (field, value) in changes.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({"metadata": {"name": "p"}, "spec": spec})
}

#[test]
fn a_validating_policy_says_what_it_validates() {
    let policies = Subject::of(GROUP, "ValidatingAdmissionPolicy");
    let made = policies.created(policy(json!({"validations": [{"expression": "true"}], "paramKind": {
        "apiVersion": "v1", "kind": "ConfigMap",
    }})));
    let constraints = &made["spec"]["matchConstraints"];
    assert_eq!(
        (&made["spec"]["failurePolicy"], &constraints["matchPolicy"], &constraints["resourceRules"][0]["scope"]),
        (&json!("Fail"), &json!("Equivalent"), &json!("*"))
    );
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(policies.strategy().cells(policies.version(), &made, now)[1..3], [json!(1), json!("v1/ConfigMap")]);
    policies.refused(
        policy(json!({
            "validations": [{"expression": " ", "message": "a\nb", "reason": "Because"}],
            "variables": [{"name": "in", "expression": "1"}], "paramKind": {"apiVersion": "a/b/c", "kind": ""},
        })),
        &[
            r#"spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
            "spec.paramKind.kind: Required value",
            "spec.validations[0].expression: Required value: expression is not specified",
            r#"spec.validations[0].message: Invalid value: "a\nb": must not contain line breaks"#,
            r#"spec.validations[0].reason: Unsupported value: "Because": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge""#,
            r#"spec.variables[0].name: Invalid value: "in": must be a valid CEL identifier"#,
        ],
    );
    policies.refused(
        policy(json!({})),
        &[
            "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
            "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
        ],
    );
}

#[test]
fn a_warning_of_a_policy_is_about_a_field() {
    let policies = Subject::of(GROUP, "ValidatingAdmissionPolicy");
    let old = policies.created(policy(json!({"validations": [{"expression": "true"}]})));
    let blamed = |field: &str| {
        let warning = json!({"fieldRef": field, "warning": "w"});
        let set = |policy: &mut Value| policy["status"] = json!({"typeChecking": {"expressionWarnings": [warning]}});
        fields(&policies.update(Endpoint::Status, &old, set).1)
    };
    for valid in ["spec.validations[0].expression", ".spec", " a ", "a b", ".spec['a b']", "$.spec", "@.spec", "$"] {
        assert_eq!(blamed(valid), [""; 0], "{valid}");
    }
    for invalid in ["", " ", "spec[", "spec]", "{", "*", "-a", "(a)", "a -b", "1.2.3"] {
        assert_eq!(blamed(invalid), ["status.typeChecking.expressionWarnings[0].fieldRef"], "{invalid}");
    }
}

#[test]
fn a_write_of_the_status_of_a_policy_leaves_its_metadata() {
    let policies = Subject::of(GROUP, "ValidatingAdmissionPolicy");
    let old = policies.created(policy(json!({"validations": [{"expression": "true"}]})));
    let (new, errors) = policies.update(Endpoint::Status, &old, |policy| {
        policy["metadata"]["labels"] = json!({"a": "b"});
        policy["status"] = json!({"observedGeneration": 1});
    });
    assert_eq!((new["metadata"].get("labels"), &new["status"]["observedGeneration"]), (None, &json!(1)));
    assert_eq!(fields(&errors), [""; 0]);
}

#[test]
fn a_mutating_policy_has_patches_of_one_type_each() {
    let policies = Subject::of(GROUP, "MutatingAdmissionPolicy");
    policies.created(policy(json!({
        "reinvocationPolicy": "Never", "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression":
            "[JSONPatch{op: 'remove', path: '/data'}]"}}],
    })));
    policies.refused(
        policy(json!({"mutations": [
            {"patchType": "JSONPatch", "applyConfiguration": {"expression": "x"}}, {"patchType": "Other"},
        ]})),
        &[
            r#"spec.mutations[0].applyConfiguration: Invalid value: "{applyConfiguration}": must not be specified when patchType is JSONPatch"#,
            "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
            r#"spec.mutations[1].patchType: Unsupported value: "Other": supported values: "ApplyConfiguration", "JSONPatch""#,
            "spec.reinvocationPolicy: Required value",
        ],
    );
}

#[test]
fn a_binding_denies_or_warns() {
    let bindings = Subject::of(GROUP, "ValidatingAdmissionPolicyBinding");
    let made = bindings.created(json!({"metadata": {"name": "b"}, "spec": {
        "policyName": "p", "validationActions": ["Deny"],
        "paramRef": {"name": "n", "parameterNotFoundAction": "Deny"},
    }}));
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(bindings.strategy().cells(bindings.version(), &made, now)[1..3], [json!("p"), json!("*/n")]);
    bindings.refused(
        json!({"metadata": {"name": "b"}, "spec": {
            "validationActions": ["Deny", "Warn"], "paramRef": {"name": "n", "selector": {}},
        }}),
        &[
            "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
            "spec.paramRef.parameterNotFoundAction: Required value",
            "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
            "spec.policyName: Required value",
            r#"spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"#,
        ],
    );
}
