//! The subsets that are written for given Pods.

use super::*;
use serde_json::{Value, json};

fn service() -> Service {
    let spec = json!({"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"}, "ports": [
        {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"},
        {"name": "named", "port": 81, "targetPort": "metrics", "protocol": "TCP"}]});
    let metadata = json!({"name": "web", "namespace": "shop", "labels": {"tier": "front"}});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn pod(n: usize, is_ready: bool, ports: Value) -> Arc<Pod> {
    let status = if is_ready { "True" } else { "False" };
    let pod = json!({
        "metadata": {"name": format!("p{n:04}"), "namespace": "shop", "uid": format!("u{n:04}")},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": ports}]},
        "status": {"podIPs": [{"ip": format!("10.1.{}.{}", n / 250, n % 250)}],
            "conditions": [{"type": "Ready", "status": status}]},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn written(change: Change) -> Endpoints {
    match change {
        Change::Create(endpoints) | Change::Update(endpoints) => *endpoints,
        Change::Nothing => panic!("nothing is written"),
    }
}

#[test]
fn addresses_with_the_same_ports_are_together_ready_or_not() {
    let metrics = json!([{"name": "metrics", "containerPort": 9000}]);
    let pods = [pod(1, true, json!([])), pod(2, false, json!([])), pod(3, true, metrics)];
    let made = written(plan(&service(), &pods, None, None));
    let brief = |subset: &EndpointSubset| {
        let ips = |list: &Option<Vec<EndpointAddress>>| {
            list.iter().flatten().map(|address| address.ip.clone()).collect::<Vec<_>>().join(" ")
        };
        let ports: Vec<_> = subset.ports.iter().flatten().map(|port| port.port.to_string()).collect();
        format!("{} | {} | {}", ips(&subset.addresses), ips(&subset.not_ready_addresses), ports.join(" "))
    };
    let subsets: Vec<_> = made.subsets.iter().flatten().map(brief).collect();
    // The third Pod has both ports, but all three have the first port.
    assert!(subsets.contains(&"10.1.0.1 10.1.0.3 | 10.1.0.2 | 8080".to_owned()), "{subsets:?}");
    assert!(subsets.contains(&"10.1.0.3 |  | 9000".to_owned()), "{subsets:?}");
    let labels = json!({"tier": "front", "endpoints.kubernetes.io/managed-by": "endpoint-controller"});
    assert_eq!(serde_json::to_value(&made.metadata.labels).unwrap(), labels);
    assert!(matches!(plan(&service(), &pods, Some(&made), None), Change::Nothing));
}

#[test]
fn more_than_a_thousand_are_cut_those_that_are_not_ready_first() {
    let pods: Vec<_> = (0..1100).map(|n| pod(n, n < 900, json!([]))).collect();
    let made = written(plan(&service(), &pods, None, None));
    let counts = |made: &Endpoints| {
        let subset = &made.subsets.as_ref().unwrap()[0];
        let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
        (count(&subset.addresses), count(&subset.not_ready_addresses))
    };
    assert_eq!(counts(&made), (900, 100));
    assert_eq!(made.metadata.annotations.as_ref().unwrap()[OVER_CAPACITY], "truncated");
    let pods: Vec<_> = (0..1100).map(|n| pod(n, n < 1050, json!([]))).collect();
    assert_eq!(counts(&written(plan(&service(), &pods, Some(&made), None))), (1000, 0));
    let after = written(plan(&service(), &pods[..10], Some(&made), None));
    assert!(!after.metadata.annotations.unwrap().contains_key(OVER_CAPACITY));
}

#[test]
fn a_headless_service_without_ports_has_addresses_and_says_that_it_is_headless() {
    let mut service = service();
    let spec = service.spec.as_mut().unwrap();
    (spec.cluster_ip, spec.ports) = (Some("None".to_owned()), None);
    let made = written(plan(&service, &[pod(1, true, json!([]))], None, None));
    let subset = &made.subsets.as_ref().unwrap()[0];
    assert_eq!((subset.addresses.as_ref().unwrap().len(), subset.ports.is_none()), (1, true));
    assert_eq!(made.metadata.labels.unwrap()[LABEL_HEADLESS], "");
}
