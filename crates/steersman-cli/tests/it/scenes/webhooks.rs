//! Admission webhooks of a running server: one whose address a flag gives, one that is the server itself, and
//! `steersman webhooks`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::{Plane, run};

/// A webhook on loopback that allows all ConfigMaps except those named `no`. Returns its address.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || while answer(&stream).is_some() {});
        }
    });
    address
}

/// Answers one review on a connection; `None` at its end.
fn answer(mut stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let review: Value = serde_json::from_slice(&body).ok()?;
    let is_allowed = review["request"]["name"] != "no";
    let response = json!({"uid": review["request"]["uid"], "allowed": is_allowed});
    let answer =
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}).to_string();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()).ok()
}

fn configuration(name: &str, client: &Value) -> String {
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": client, "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        }],
    })
    .to_string()
}

#[test]
fn who_was_called_and_with_what_outcome_is_printed() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let mapping = format!("shop/prices=http://{}", serve());
    let plane = Plane::server(home.path(), &["--webhook-service", &mapping]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    let service = json!({"service": {"namespace": "shop", "name": "prices", "path": "/review"}});
    kubectl.apply(&configuration("prices", &service));
    kubectl.ok("create configmap yes");
    let refused = kubectl.fails("create configmap no");
    assert!(
        refused.contains("admission webhook \"prices.example.com\" denied the request without explanation"),
        "{refused}"
    );
    let kubeconfig = plane.kubeconfig();
    let printed = run(home.path(), ["webhooks", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    assert!(printed.status.success(), "{printed:#?}");
    let rows: Vec<Vec<&str>> = printed.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 2, "{printed:#?}");
    assert_eq!(rows[1][..10], ["validating", "prices", "prices.example.com", "CREATE", "2", "1", "1", "0", "0", "0"]);
    assert!(rows[1][10].ends_with("ms"), "{printed:#?}");
    plane.stop();
}

#[test]
fn a_webhook_that_is_the_server_itself_is_told_so_at_once() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    let config = kubectl.json("config view --raw");
    let ca = &config["clusters"][0]["cluster"]["certificate-authority-data"];
    let url = format!("https://{}/api/v1/namespaces/default/configmaps", plane.listen());
    kubectl.apply(&configuration("loop", &json!({"url": url, "caBundle": ca})));
    let refused = kubectl.fails("create configmap a");
    assert!(refused.contains("failed calling webhook \"loop.example.com\""), "{refused}");
    assert!(refused.contains("the URL of the webhook leads back to the server"), "{refused}");
    // There is no route to the Service: the error has the remedy.
    kubectl.ok("delete validatingwebhookconfiguration loop");
    kubectl.apply(&configuration("lost", &json!({"service": {"namespace": "shop", "name": "prices"}})));
    let refused = kubectl.fails("create configmap a");
    assert!(refused.contains("service \"prices\" not found"), "{refused}");
    assert!(refused.contains("--webhook-service shop/prices=https://HOST:PORT"), "{refused}");
    // A webhook that is down: the error has its address and the connection's error.
    kubectl.ok("delete validatingwebhookconfiguration lost");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    kubectl.apply(&configuration("down", &json!({"url": format!("https://{closed}/review")})));
    let refused = kubectl.fails("create configmap a");
    let why = format!("Post \"https://{closed}/review?timeout=10s\": tcp connect error: Connection refused");
    assert!(refused.contains(&why), "{refused}");
    plane.stop();
}
