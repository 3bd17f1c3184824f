//! Admission policies: the writes that they refuse and change, when they take effect, and their cost for other
//! requests.

use crate::custom::definitions;
use crate::support::{Answer, CONFIGS, Http, TestServer, config, text};
use serde_json::{Value, json};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn about(resources: Value, operations: Value) -> Value {
    json!({"resourceRules": [{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": resources,
    }]})
}

fn validating(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec.get("matchConstraints").is_none() {
        spec["matchConstraints"] = about(json!(["configmaps"]), json!(["CREATE", "UPDATE"]));
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn mutating(name: &str, expression: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": about(json!(["configmaps"]), json!(["CREATE", "UPDATE"])), "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }})
}

fn binding(policy: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["policyName"] = policy.into();
    json!({"metadata": {"name": policy}, "spec": spec})
}

/// Registers a validating policy and its binding.
async fn validate(http: &Http, name: &str, spec: Value) {
    http.post(&format!("{GROUP}/validatingadmissionpolicies"), &validating(name, spec)).await.ok();
    let bound = binding(name, json!({"validationActions": ["Deny"]}));
    http.post(&format!("{GROUP}/validatingadmissionpolicybindings"), &bound).await.ok();
}

async fn mutate(http: &Http, policy: Value) {
    let name = text(&policy, "/metadata/name").to_owned();
    http.post(&format!("{GROUP}/mutatingadmissionpolicies"), &policy).await.ok();
    http.post(&format!("{GROUP}/mutatingadmissionpolicybindings"), &binding(&name, json!({}))).await.ok();
}

fn message(answer: &Answer) -> String {
    text(&answer.json(), "/message").to_owned()
}

#[tokio::test]
async fn a_policy_holds_from_the_answer_to_its_writer_until_the_answer_that_takes_it_away() {
    let test = TestServer::new().await;
    let http = test.http();
    for round in 0..20 {
        let name = format!("c{round}");
        validate(&http, "p", json!({"validations": [{"expression": "false", "message": "never"}]})).await;
        let refused = http.post(CONFIGS, &config(&name)).await;
        assert_eq!(refused.code, 422);
        assert_eq!(
            message(&refused),
            format!(
                "configmaps {name:?} is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: never"
            )
        );
        http.delete(&format!("{GROUP}/validatingadmissionpolicybindings/p")).await.ok();
        http.post(CONFIGS, &config(&name)).await.ok();
        http.delete(&format!("{GROUP}/validatingadmissionpolicies/p")).await.ok();
    }
}

#[tokio::test]
async fn a_server_starts_whatever_policies_refuse() {
    let test = TestServer::new().await;
    let http = test.http();
    let everything = about(json!(["*/*"]), json!(["CREATE", "UPDATE"]));
    let mut refused_by_all = mutating("all", "Object{metadata: Object.metadata{labels: {'a': object.missing}}}");
    refused_by_all["spec"]["matchConstraints"] = everything.clone();
    mutate(&http, refused_by_all).await;
    validate(&http, "all", json!({"matchConstraints": everything, "validations": [{"expression": "false"}]})).await;
    // Objects that the next start creates again, and that policies might refuse.
    let made_at_start = [
        "/api/v1/namespaces/default/services/kubernetes",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/global-default",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/view",
    ];
    for path in made_at_start {
        http.delete(path).await.ok();
    }
    let again =
        TestServer::of(test.store.clone(), crate::support::options(&test.store, crate::support::allow_all())).await;
    let http = again.http();
    for path in made_at_start {
        http.get(path).await.ok();
    }
    let refused = http.post(CONFIGS, &config("a")).await;
    assert_eq!(refused.code, 403, "{}", refused.body_text());
    // A locked-out administrator can still delete the policies.
    for kind in ["mutatingadmissionpolicybindings", "validatingadmissionpolicybindings"] {
        http.delete(&format!("{GROUP}/{kind}")).await.ok();
    }
    http.post(CONFIGS, &config("a")).await.ok();
}

#[tokio::test]
async fn a_policy_holds_after_a_restart() {
    let test = TestServer::new().await;
    validate(&test.http(), "p", json!({"validations": [{"expression": "object.metadata.name != 'bad'"}]})).await;
    let again =
        TestServer::of(test.store.clone(), crate::support::options(&test.store, crate::support::allow_all())).await;
    let http = again.http();
    assert_eq!(http.post(CONFIGS, &config("bad")).await.code, 422);
    http.post(CONFIGS, &config("good")).await.ok();
}

#[tokio::test]
async fn what_is_not_to_be_deleted_stays_also_where_a_collection_goes() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(CONFIGS, &config("kept")).await.ok();
    http.post(CONFIGS, &config("other")).await.ok();
    let constraints = about(json!(["configmaps"]), json!(["DELETE"]));
    let expression = "oldObject.metadata.name != 'kept' && object == null";
    validate(&http, "p", json!({"matchConstraints": constraints, "validations": [{"expression": expression}]})).await;
    let refused = http.delete(CONFIGS).await;
    assert_eq!(refused.code, 422);
    assert!(message(&refused).starts_with("configmaps \"Unknown\" is forbidden"), "{}", message(&refused));
    assert_eq!(http.delete(&format!("{CONFIGS}/kept")).await.code, 422);
    http.get(&format!("{CONFIGS}/kept")).await.ok();
}

#[tokio::test]
async fn a_parameter_is_as_it_was_written_last() {
    let test = TestServer::new().await;
    let http = test.http();
    let mut limits = config("limits");
    limits["data"] = json!({"max": "3"});
    http.post(CONFIGS, &limits).await.ok();
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": about(json!(["secrets"]), json!(["CREATE"])),
        "validations": [{"expression": "size(object.metadata.name) <= int(params.data.max)"}],
    });
    http.post(&format!("{GROUP}/validatingadmissionpolicies"), &validating("p", spec)).await.ok();
    let bound =
        json!({"validationActions": ["Deny"], "paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}});
    http.post(&format!("{GROUP}/validatingadmissionpolicybindings"), &binding("p", bound)).await.ok();
    let secrets = "/api/v1/namespaces/default/secrets?dryRun=All";
    let secret = json!({"metadata": {"name": "abcd"}});
    for max in 4..24 {
        assert_eq!(http.post(secrets, &json!({"metadata": {"name": "a".repeat(max)}})).await.code, 422);
        http.merge(&format!("{CONFIGS}/limits"), &json!({"data": {"max": max.to_string()}})).await.ok();
        http.post(secrets, &json!({"metadata": {"name": "a".repeat(max)}})).await.ok();
    }
    http.delete(&format!("{CONFIGS}/limits")).await.ok();
    assert!(message(&http.post(secrets, &secret).await).ends_with(
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    ));
}

#[tokio::test]
async fn parameters_that_need_more_than_the_request_may_refuse_it_whatever_the_policy_ignores() {
    let test = TestServer::new().await;
    let http = test.http();
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    http.post(definitions::DEFINITIONS, &definitions::definition(&any)).await.ok();
    for name in ["a", "b", "c"] {
        let list = vec![json!([]); 400_000];
        let kite =
            json!({"apiVersion": "example.com/v1", "kind": "Kite", "metadata": {"name": name}, "spec": {"list": list}});
        http.post(definitions::KITES, &kite).await.ok();
    }
    let spec = json!({
        "paramKind": {"apiVersion": "example.com/v1", "kind": "Kite"}, "failurePolicy": "Ignore",
        "matchConstraints": about(json!(["secrets"]), json!(["CREATE"])),
        "validations": [{"expression": "params.metadata.name != ''"}],
    });
    http.post(&format!("{GROUP}/validatingadmissionpolicies"), &validating("p", spec)).await.ok();
    let selected =
        json!({"validationActions": ["Deny"], "paramRef": {"selector": {}, "parameterNotFoundAction": "Deny"}});
    http.post(&format!("{GROUP}/validatingadmissionpolicybindings"), &binding("p", selected)).await.ok();
    let secrets = "/api/v1/namespaces/default/secrets";
    let refused = http.post(secrets, &json!({"metadata": {"name": "s"}})).await;
    assert_eq!(refused.code, 413, "{}", refused.body_text());
    assert_eq!(
        message(&refused),
        "the parameters that the binding \"p\" selects for the policy \"p\" need more than the 36 MiB of memory that one request may use: \
         let its paramRef select fewer or smaller ones"
    );
    http.delete(&format!("{}/a", definitions::KITES)).await.ok();
    http.post(secrets, &json!({"metadata": {"name": "s"}})).await.ok();
}

#[tokio::test]
async fn policies_and_reviews_are_out_of_reach_of_policies() {
    let test = TestServer::new().await;
    let http = test.http();
    let everything = about(json!(["*"]), json!(["*"]));
    validate(&http, "p", json!({"matchConstraints": everything, "validations": [{"expression": "false"}]})).await;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    http.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await.ok();
    assert_eq!(http.post(CONFIGS, &config("c")).await.code, 422);
    http.delete(&format!("{GROUP}/validatingadmissionpolicies/p")).await.ok();
    http.post(CONFIGS, &config("c")).await.ok();
}

#[tokio::test]
async fn a_policy_about_one_version_sees_writes_in_another_as_that() {
    let test = TestServer::new().await;
    let http = test.http();
    let mut constraints = about(json!(["horizontalpodautoscalers"]), json!(["CREATE"]));
    constraints["resourceRules"][0]["apiVersions"] = json!(["v2"]);
    let said = "request.kind.version + ' for ' + request.requestKind.version + ': ' + string(object.spec.metrics[0].resource.target.averageUtilization)";
    let validations = json!([{"expression": "false", "messageExpression": said}]);
    validate(&http, "p", json!({"matchConstraints": constraints, "validations": validations})).await;
    let scaler = json!({"metadata": {"name": "s"}, "spec": {
        "maxReplicas": 3, "targetCPUUtilizationPercentage": 70,
        "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
    }});
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let refused = http.post(path, &scaler).await;
    assert!(message(&refused).ends_with("denied request: v2 for v1: 70"), "{}", message(&refused));
}

#[tokio::test]
async fn a_scale_is_seen_and_changed_as_a_scale() {
    let test = TestServer::new().await;
    let http = test.http();
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    http.post(deployments, &deployment).await.ok();
    let scales = about(json!(["deployments/scale"]), json!(["UPDATE"]));
    let validations =
        json!([{"expression": "object.kind == 'Scale' && request.kind.kind == 'Scale' && object.spec.replicas <= 5"}]);
    validate(&http, "p", json!({"matchConstraints": scales, "validations": validations})).await;
    let scale = format!("{deployments}/d/scale");
    assert_eq!(http.merge(&scale, &json!({"spec": {"replicas": 6}})).await.code, 422);
    assert_eq!(http.merge(&scale, &json!({"spec": {"replicas": 4}})).await.ok()["spec"]["replicas"], 4);
    let mut halves =
        mutating("m", "Object{spec: Object.spec{replicas: object.spec.replicas > 3 ? 3 : object.spec.replicas}}");
    halves["spec"]["matchConstraints"] = scales;
    mutate(&http, halves).await;
    assert_eq!(http.merge(&scale, &json!({"spec": {"replicas": 100}})).await.ok()["spec"]["replicas"], 3);
    let stored = http.get(&format!("{deployments}/d")).await.ok();
    assert_eq!(
        (&stored["spec"]["replicas"], &stored["spec"]["template"]["metadata"]["labels"]["a"]),
        (&json!(3), &json!("b"))
    );
}

#[tokio::test]
async fn a_mutation_that_is_ignored_leaves_those_behind_it_to_act() {
    let test = TestServer::new().await;
    let http = test.http();
    let mut policy = mutating("m", "Object{data: {'a': string(int(object.metadata.name))}}");
    policy["spec"]["failurePolicy"] = "Ignore".into();
    let second = json!({"patchType": "JSONPatch", "jsonPatch": {"expression":
        "[JSONPatch{op: 'add', path: '/data', value: {'b': 'set'}}]"}});
    policy["spec"]["mutations"].as_array_mut().unwrap().push(second);
    mutate(&http, policy).await;
    let mut sent = config("c");
    sent["data"] = json!({});
    assert_eq!(http.post(CONFIGS, &sent).await.ok()["data"], json!({"b": "set"}));
    let mut sent = config("12");
    sent["data"] = json!({});
    assert_eq!(http.post(CONFIGS, &sent).await.ok()["data"], json!({"b": "set"}));
}

#[tokio::test]
async fn what_a_mutation_makes_is_checked_by_the_rules_of_the_kind() {
    let test = TestServer::new().await;
    let http = test.http();
    mutate(&http, mutating("m", "Object{metadata: Object.metadata{labels: {'bad': 'a b'}}}")).await;
    let refused = http.post(CONFIGS, &config("c")).await;
    assert_eq!(refused.code, 422);
    assert!(message(&refused).contains("metadata.labels: Invalid value: \"a b\""), "{}", message(&refused));
}

#[tokio::test]
async fn a_mutation_cannot_make_an_object_of_another_kind() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(definitions::DEFINITIONS, &definitions::definition(&definitions::spec())).await.ok();
    let mut policy = mutating("m", "Object{}");
    policy["spec"]["matchConstraints"] = about(json!(["configmaps", "kites"]), json!(["CREATE"]));
    mutate(&http, policy).await;
    let policies = format!("{GROUP}/mutatingadmissionpolicies/m");
    for (operation, key) in [
        ("op: 'replace', path: '/kind', value: 'Other'", "kind"),
        ("op: 'remove', path: '/kind'", "kind"),
        ("op: 'replace', path: '/apiVersion', value: 'other/v7'", "apiVersion"),
    ] {
        let expression = format!("[JSONPatch{{{operation}}}]");
        let mutations = json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]);
        http.merge(&policies, &json!({"spec": {"mutations": mutations}})).await.ok();
        for (path, object) in [(definitions::KITES, definitions::kite("a", 1)), (CONFIGS, config("a"))] {
            let refused = http.post(path, &object).await;
            assert_eq!(refused.code, 403, "{}", refused.body_text());
            let want = format!("error applying patch: {key} was changed: that is not possible");
            assert!(message(&refused).ends_with(&want), "{}", message(&refused));
            assert_eq!(http.get(&format!("{path}/a")).await.code, 404);
        }
    }
}

#[tokio::test]
async fn an_expression_that_does_not_compile_is_refused_with_its_place() {
    let test = TestServer::new().await;
    let http = test.http();
    let spec = json!({"validations": [{"expression": "object.x +"}, {"expression": "'text'"}]});
    let refused = http.post(&format!("{GROUP}/validatingadmissionpolicies"), &validating("p", spec)).await;
    assert_eq!(refused.code, 422);
    let causes = refused.json()["details"]["causes"].as_array().unwrap().clone();
    let fields: Vec<&str> = causes.iter().map(|cause| text(cause, "/field")).collect();
    assert_eq!(fields, ["spec.validations[0].expression", "spec.validations[1].expression"]);
    assert!(text(&causes[1], "/message").ends_with("must evaluate to bool but got string"));
}

#[tokio::test]
async fn evaluations_are_counted() {
    let test = TestServer::new().await;
    let http = test.http();
    validate(&http, "p", json!({"validations": [{"expression": "object.metadata.name != 'bad'"}]})).await;
    http.post(CONFIGS, &config("good")).await.ok();
    assert_eq!(http.post(CONFIGS, &config("bad")).await.code, 422);
    let metrics = http.get("/metrics").await.body_text();
    for action in ["allow", "deny"] {
        let line = format!(
            "apiserver_validating_admission_policy_check_total{{enforcement_action=\"{action}\",error_type=\"no_error\",policy=\"p\",policy_binding=\"p\"}} 1"
        );
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn a_budget_bounds_what_the_conditions_of_a_policy_may_cost() {
    let test = TestServer::new().await;
    let http = test.http();
    let condition = json!([{"name": "dear", "expression": "object.data.all(a, object.data.all(b, object.data.all(c, object.data.all(d, a == a + b + c + d || true))))"}]);
    validate(&http, "p", json!({"matchConditions": condition, "validations": [{"expression": "true"}]})).await;
    let mut large = config("large");
    large["data"] = (0..40).map(|n| (format!("k{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    let refused = http.post(CONFIGS, &large).await;
    assert_eq!(refused.code, 422);
    assert!(message(&refused).contains("cost limit exceeded"), "{}", message(&refused));
    large["metadata"]["name"] = "small".into();
    large["data"] = json!({"k": "v"});
    http.post(CONFIGS, &large).await.ok();
}

#[tokio::test]
async fn a_patch_that_is_large_because_its_parts_are_shared_is_refused() {
    let test = TestServer::new().await;
    let http = test.http();
    let doubled = (0..30).fold("'v'".to_owned(), |inner, at| format!("[{inner}].map(x{at}, [x{at}, x{at}])[0]"));
    mutate(&http, mutating("m", "Object{}")).await;
    let policy = format!("{GROUP}/mutatingadmissionpolicies/m");
    for mutation in [
        json!({"patchType": "JSONPatch", "jsonPatch": {"expression": format!("[JSONPatch{{op: 'add', path: '/data', value: {doubled}}}]")}}),
        json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": format!("Object{{data: {doubled}}}")}}),
    ] {
        http.merge(&policy, &json!({"spec": {"mutations": [mutation]}})).await.ok();
        let refused = http.post(CONFIGS, &config("c")).await;
        assert_eq!(refused.code, 403, "{}", refused.body_text());
        assert!(message(&refused).ends_with("actual cost limit exceeded"), "{}", message(&refused));
    }
    let fits = "[JSONPatch{op: 'add', path: '/data', value: {'a': string(5.0), 'b': 'x'}}]";
    let fits = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": fits}});
    http.merge(&policy, &json!({"spec": {"mutations": [fits]}})).await.ok();
    assert_eq!(http.post(CONFIGS, &config("c")).await.ok()["data"], json!({"a": "5", "b": "x"}));
}

#[tokio::test]
async fn the_status_of_a_policy_says_where_it_does_not_fit_its_kinds() {
    let mut test = TestServer::new().await;
    let http = test.http();
    let path = format!("{GROUP}/validatingadmissionpolicies");
    let mut watch = http.watch(&format!("{path}?watch=1")).await;
    test.server.check_policies();
    let spec = json!({"validations": [{"expression": "object.replicas > 1"}], "matchConstraints": {"resourceRules": [{
        "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"],
    }]}});
    http.post(&path, &validating("p", spec)).await.ok();
    let checked = loop {
        let event = watch.next().await.unwrap();
        if event["object"]["status"]["observedGeneration"] == 1 {
            break event["object"].clone();
        }
    };
    let warning = &checked["status"]["typeChecking"]["expressionWarnings"][0];
    assert_eq!(text(warning, "/fieldRef"), "spec.validations[0].expression");
    assert!(
        text(warning, "/warning")
            .starts_with("apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'")
    );
    let managers = checked["metadata"]["managedFields"].as_array().unwrap();
    assert!(
        managers
            .iter()
            .any(|one| one["manager"] == "validatingadmissionpolicy-status" && one["subresource"] == "status")
    );
    http.json_patch(
        &format!("{path}/p"),
        &json!([{"op": "replace", "path": "/spec/validations/0/expression", "value": "object.spec.replicas > 1"}]),
    )
    .await
    .ok();
    loop {
        let event = watch.next().await.unwrap();
        if event["object"]["status"]["observedGeneration"] == 2 {
            assert!(event["object"]["status"]["typeChecking"]["expressionWarnings"].is_null());
            return;
        }
    }
}
