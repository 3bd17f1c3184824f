//! Nodes that join with a bootstrap token. What real kubelets make of it is a fact of `cargo xtask cluster`.

use crate::support::kubectl::{Kubectl, program};
use crate::support::missing;
use crate::support::plane::{Plane, run};
use std::path::Path;
use std::process::Command;

#[test]
fn a_node_gets_all_that_it_needs_from_a_script() {
    let Some(program) = program() else { return missing("kubectl") };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &["--enable-bootstrap-token-auth"]);
    let kubeconfig = plane.kubeconfig();
    let (kubeconfig, server) = (kubeconfig.to_str().unwrap(), format!("https://{}", plane.listen()));
    let dir = home.path().join("etc");
    let words = [
        "node",
        "token",
        "--kubeconfig",
        kubeconfig,
        "--server",
        &server,
        "--dir",
        dir.to_str().unwrap(),
        "--ttl",
        "1h",
    ];
    for _ in 0..2 {
        let made = run(home.path(), words);
        assert!(made.status.success(), "a second time too: {made:#?}");
        assert!(made.stdout.contains("kubeadm join 127.0.0.1:"), "{}", made.stdout);
        std::fs::write(home.path().join("join.sh"), &made.stdout).unwrap();
    }
    let joined = Command::new("sh").arg(home.path().join("join.sh")).output().unwrap();
    assert!(joined.status.success(), "{joined:?}");
    let command = String::from_utf8(joined.stdout).unwrap();
    assert!(command.starts_with(&format!("kubelet --config {}/kubelet.yaml ", dir.display())), "{command}");
    let configuration = std::fs::read_to_string(dir.join("kubelet.yaml")).unwrap();
    for part in ["kind: KubeletConfiguration", "serverTLSBootstrap: true", "10.96.0.10"] {
        assert!(configuration.contains(part), "{part} in {configuration}");
    }

    std::fs::write(dir.join("kubelet.conf"), "").unwrap();
    let again = Command::new("sh").arg(home.path().join("join.sh")).output().unwrap();
    assert!(!again.status.success(), "a kubelet that has joined would not use the token");

    let kubectl_with = |kubeconfig: &Path| Kubectl::new(program.clone(), kubeconfig);
    let node = kubectl_with(&dir.join("bootstrap-kubelet.conf"));
    let user = node.ok("auth whoami -o yaml");
    assert!(user.contains("system:bootstrappers:kubeadm:default-node-token"), "{user}");
    assert_eq!(node.ok("auth can-i create certificatesigningrequests.certificates.k8s.io").trim(), "yes");
    assert!(node.fails("get secrets -A").contains("is forbidden"));
    let found = node.ok("get configmap -n kube-system kubelet-config kubeadm-config -o yaml");
    assert!(found.contains("clusterDomain: cluster.local") && found.contains("serviceSubnet: 10.96.0.0/16"), "{found}");

    // The scheduler runs where nodes may join.
    let admin = kubectl_with(Path::new(kubeconfig));
    admin.ok("wait --for=create --timeout=60s serviceaccount/default");
    admin.apply(r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}"#);
    admin.ok("wait --for=condition=PodScheduled=False --timeout=60s pod/p");
    plane.stop();
}
