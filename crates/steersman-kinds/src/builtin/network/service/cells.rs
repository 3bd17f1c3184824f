//! The row of a Service in a table.

use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::rules::selector;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

pub fn of_service(service: &Value, now: Timestamp) -> Vec<Value> {
    let address = str_at(service, &["spec", "clusterIP"]).filter(|address| !address.is_empty());
    vec![
        cells::name(service),
        cells::text(service, &["spec", "type"]),
        Value::from(address.unwrap_or(NONE)),
        Value::from(outside(service)),
        Value::from(ports(service)),
        cells::age(service, now),
        Value::from(selector::labels_text(at(service, &["spec", "selector"]).unwrap_or(&Value::Null))),
    ]
}

fn outside(service: &Value) -> String {
    let list = |path: &[&str]| at(service, path).and_then(Value::as_array).into_iter().flatten();
    let mut addresses: Vec<&str> = Vec::new();
    match str_at(service, &["spec", "type"]).unwrap_or_default() {
        "ExternalName" => return str_at(service, &["spec", "externalName"]).unwrap_or_default().to_owned(),
        "LoadBalancer" => {
            let ingress = list(&["status", "loadBalancer", "ingress"]);
            addresses.extend(ingress.filter_map(|one| str_at(one, &["ip"]).or(str_at(one, &["hostname"]))));
            addresses.extend(list(&["spec", "externalIPs"]).filter_map(Value::as_str));
            if addresses.is_empty() {
                return "<pending>".to_owned();
            }
        }
        _ => addresses.extend(list(&["spec", "externalIPs"]).filter_map(Value::as_str)),
    }
    if addresses.is_empty() { NONE.to_owned() } else { addresses.join(",") }
}

/// `80:30000/TCP,53/UDP`.
fn ports(service: &Value) -> String {
    let ports = at(service, &["spec", "ports"]).and_then(Value::as_array).into_iter().flatten();
    let text = |port: &Value| {
        let protocol = str_at(port, &["protocol"]).unwrap_or_default();
        match (cells::number(port, &["port"]), cells::number(port, &["nodePort"])) {
            (number, 0) => format!("{number}/{protocol}"),
            (number, node_port) => format!("{number}:{node_port}/{protocol}"),
        }
    };
    let texts: Vec<String> = ports.map(text).collect();
    if texts.is_empty() { NONE.to_owned() } else { texts.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(spec: Value, status: Value, want: [&str; 4]) {
        let service = json!({"metadata": {"name": "s"}, "spec": spec, "status": status});
        let cells = of_service(&service, "2026-01-01T00:00:00Z".parse().unwrap());
        let texts: Vec<&str> = cells[1..5].iter().map(|cell| cell.as_str().unwrap()).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn every_type_shows_what_it_is_reached_by() {
        let port = json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]);
        check(
            json!({"type": "ClusterIP", "clusterIP": "10.96.0.9", "externalIPs": ["1.2.3.4", "1.2.3.5"], "ports": port}),
            json!({}),
            ["ClusterIP", "10.96.0.9", "1.2.3.4,1.2.3.5", "80:30080/TCP,53/UDP"],
        );
        check(
            json!({"type": "ExternalName", "externalName": "example.com"}),
            json!({}),
            ["ExternalName", "<none>", "example.com", "<none>"],
        );
        check(
            json!({"type": "LoadBalancer", "clusterIP": "10.96.0.9"}),
            json!({}),
            ["LoadBalancer", "10.96.0.9", "<pending>", "<none>"],
        );
        check(
            json!({"type": "LoadBalancer", "clusterIP": "10.96.0.9"}),
            json!({"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}, {"hostname": "h"}]}}),
            ["LoadBalancer", "10.96.0.9", "9.9.9.9,h", "<none>"],
        );
        check(json!({"type": "ClusterIP", "clusterIP": "None"}), json!({}), ["ClusterIP", "None", "<none>", "<none>"]);
    }
}
