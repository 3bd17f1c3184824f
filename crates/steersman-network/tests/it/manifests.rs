//! The manifests: they grant the permissions that the operator needs, and the metrics of dashboards and alerts exist.

use crate::environment::{Environment, plain};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use serde_json::Value;
use std::collections::BTreeSet;
use steersman::metrics::MetricsFormat;
use steersman_network::Options;
use steersman_network::permissions::{missing, rules};
use steersman_testkit::{ControlPlane, User};

const RBAC: &str = include_str!("../../../../manifests/network-operator/rbac.yaml");
const ALERTS: &str = include_str!("../../../../manifests/network-operator/monitoring/alerts.yaml");
const DASHBOARD: &str = include_str!("../../../../manifests/network-operator/monitoring/dashboard.json");

/// All files of the kustomization, in its order.
const BASE: [&str; 5] = [
    include_str!("../../../../manifests/network-operator/namespace.yaml"),
    RBAC,
    include_str!("../../../../manifests/network-operator/deployment.yaml"),
    include_str!("../../../../manifests/network-operator/service.yaml"),
    include_str!("../../../../manifests/network-operator/disruption.yaml"),
];

#[tokio::test]
async fn the_service_account_may_do_what_the_operator_needs_and_no_more() {
    let plane = ControlPlane::start().await;
    for manifest in BASE {
        plane.apply(manifest).await;
    }
    let account = "system:serviceaccount:network-operator:network-controller";
    let groups = ["system:serviceaccounts".to_owned(), "system:serviceaccounts:network-operator".to_owned()];
    let client = plane.client_as(User::authenticated(account, groups));
    // The options in the Deployment's arguments.
    let options = Options { lease_namespace: Some("network-operator".to_owned()), ..Options::default() };
    let needed = rules(&options);
    assert_eq!(missing(&client, &needed).await.unwrap(), []);
    let of_cluster: kube::Api<ClusterRole> = kube::Api::all(plane.client());
    let mut granted = of_cluster.get("network-controller").await.unwrap().rules.unwrap();
    let of_namespace: kube::Api<Role> = kube::Api::namespaced(plane.client(), "network-operator");
    granted.extend(of_namespace.get("network-controller").await.unwrap().rules.unwrap());
    assert_eq!(granted.len(), needed.len());
    for (granted, needed) in granted.iter().zip(&needed) {
        assert_eq!(granted.verbs, needed.verbs, "{needed:?}");
        assert_eq!(granted.resources.as_deref(), Some([needed.resource.to_owned()].as_slice()));
        let name = needed.name.map(|name| vec![name.to_owned()]);
        assert_eq!(granted.resource_names, name, "{needed:?}");
    }
    let leases = kube::Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(client.clone(), "network-operator");
    let lease = serde_json::json!({"metadata": {"name": "network-controller"}});
    leases.create(&Default::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let elsewhere = kube::Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(client, "default");
    assert!(elsewhere.list(&Default::default()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_operator_works_with_the_rules_of_the_manifests() {
    let environment = Environment::simulated().await;
    for manifest in BASE {
        environment.plane.apply(manifest).await;
    }
    let account = "system:serviceaccount:network-operator:network-controller";
    let client = environment.plane.client_as(User::authenticated(account, []));
    let manager = steersman::Manager::new(client).elect("network-controller", "network-operator");
    let cloud = std::sync::Arc::new(environment.cloud.clone());
    // The cluster is named after the uid of kube-system, which the role allows to read.
    let options = Options::default();
    environment.create("a", plain()).await;
    let made = async {
        environment.until_ready("a").await;
        let description = environment.networks().await[0].description.clone();
        environment.api().delete("a", &Default::default()).await.unwrap();
        environment.eventually("the network is gone", async || environment.networks().await.is_empty()).await;
        let namespaces = kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(environment.client());
        let uid = namespaces.get("kube-system").await.unwrap().metadata.uid.unwrap();
        assert!(description.starts_with(&format!("network-controller:{uid}:")), "{description}");
    };
    steersman_network::run_with(manager, cloud, options, made).await.unwrap();
}

/// The names of metrics in an expression of Prometheus.
fn names(expression: &str) -> BTreeSet<String> {
    let mut outside = String::new();
    let mut depth = 0_u32;
    for letter in expression.chars() {
        match letter {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ if depth == 0 => outside.push(letter),
            _ => {}
        }
    }
    // Labels of an aggregation are not metrics; all our metrics have an underscore, and labels have none.
    let words = outside.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let is_metric = |word: &&str| word.contains('_') && *word != "histogram_quantile";
    words.filter(is_metric).map(str::to_owned).collect()
}

#[test]
fn alerts_of_what_is_not_done_fire_where_nobody_tells() {
    for series in
        ["leader_election_master_status{name=\"network-controller\"}", "network_operator_survey_timestamp_seconds"]
    {
        assert!(ALERTS.contains(&format!("or absent({series})\n")), "no alert where there is no {series}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_alerts_and_dashboard_ask_for_is_among_the_metrics() {
    let environment = Environment::simulated().await;
    let metrics = steersman::metrics::Metrics::new();
    let client = kube::client::ClientBuilder::new(environment.plane.service_as(User::master("operator")), "default")
        .with_layer(&metrics.request_layer())
        .build();
    let manager =
        steersman::Manager::new(client).with_metrics(metrics.clone()).elect("network-controller", "kube-system");
    environment.create("a", plain()).await;
    let until = async {
        environment.until_ready("a").await;
        tokio::time::sleep(3 * crate::environment::INTERVAL).await;
        let text = metrics.encode(MetricsFormat::Prometheus);
        let shown: BTreeSet<&str> = text.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
        let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
        let mut asked: Vec<String> = targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
        let mut lines = ALERTS.lines().peekable();
        while let Some(line) = lines.next() {
            let Some(expression) = line.trim().strip_prefix("expr: ") else { continue };
            let mut expression = expression.trim_start_matches(">-").to_owned();
            while let Some(more) = lines.next_if(|line| !line.trim_start().starts_with("for:")) {
                expression.push_str(more);
            }
            asked.push(expression);
        }
        assert!(15 <= asked.len(), "{asked:?}");
        for expression in asked {
            let names = names(&expression);
            assert!(!names.is_empty(), "{expression}");
            for name in names {
                assert!(shown.contains(name.as_str()), "{name} in {expression} is not among {shown:?}");
            }
        }
        for selector in [
            "leader_election_master_status{name=\"network-controller\"}",
            "workqueue_depth{name=\"network-controller\"",
        ] {
            assert!(text.contains(selector), "{selector} is not in {text}");
        }
        assert!(ALERTS.contains("leader_election_master_status{name=\"network-controller\"}"));
    };
    steersman_network::run_with(manager, std::sync::Arc::new(environment.cloud.clone()), Environment::options(), until)
        .await
        .unwrap();
}
