//! Authorization: kubectl's commands about access, the flags that choose the authorizers, and `explain-denied`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::eventually;
use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::{Plane, run, steersman};

/// The output of `explain-denied` for a text.
fn explained(home: &Path, text: &str) -> String {
    let mut command: Command = steersman(home);
    let mut child =
        command.arg("explain-denied").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("steersman starts");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_explain_denied_prints_allows_what_was_denied() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("access.log");
    let plane = Plane::server(home.path(), &["--access-log", log.to_str().unwrap()]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("create namespace app");
    kubectl.ok("create configmap config --namespace app");
    kubectl.ok("create configmap other --namespace app");
    kubectl.ok("create serviceaccount robot --namespace app");

    // From the access log: a user in a namespace, and in the whole cluster.
    let wanted =
        ["get configmap config --namespace app --as alice", "get nodes --as alice", "get --raw /metrics --as alice"];
    for words in wanted {
        assert!(kubectl.fails(words).contains("(Forbidden)"), "{words}");
    }
    let logged = |path: &str| {
        std::fs::read_to_string(&log).unwrap().lines().any(|line| line.contains(path) && line.contains("\"denied\""))
    };
    eventually("the refusals are logged", || {
        ["/configmaps/config", "/nodes", "/metrics"].into_iter().all(logged).then_some(())
    });
    let explained_log = run(home.path(), ["explain-denied", log.to_str().unwrap()]);
    let granted = kubectl.with_manifest("auth reconcile", &explained_log.stdout);
    assert!(granted.status.success(), "{granted:#?} of {}", explained_log.stdout);
    for words in wanted {
        kubectl.ok(words);
    }
    // And nothing more.
    for words in [
        "get configmap other --namespace app --as alice",
        "get configmaps --namespace app --as alice",
        "delete node n --as alice",
    ] {
        assert!(kubectl.fails(words).contains("(Forbidden)"), "{words}");
    }

    // From kubectl's output: a service account, which also gets access to all objects by `kubectl apply`.
    let robot = "get configmaps --namespace app --as system:serviceaccount:app:robot";
    let said = kubectl.fails(robot);
    let yaml = explained(home.path(), &said);
    assert!(yaml.contains("kind: ServiceAccount"), "{yaml}");
    kubectl.apply(&yaml);
    kubectl.ok(robot);

    // The text contains no refusal by authorization.
    let nothing = home.path().join("nothing");
    std::fs::write(&nothing, "pods \"p\" is forbidden: exceeded quota\n").unwrap();
    let ended = run(home.path(), ["explain-denied", nothing.to_str().unwrap()]);
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), ""));
    assert!(ended.stderr.contains("has no request that authorization refused"), "{}", ended.stderr);
    plane.stop();
}

#[test]
fn kubectl_asks_who_may_what_and_brings_roles_up_to_date() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    assert!(kubectl.ok("auth whoami").contains("system:masters"));
    assert_eq!(kubectl.ok("auth can-i * *"), "yes");
    assert_eq!(kubectl.run("auth can-i list pods --as alice").stdout, "no");
    kubectl.ok("create rolebinding alice --clusterrole=view --user=alice");
    // A role is in force when its write is answered.
    assert_eq!(kubectl.ok("auth can-i list pods --as alice"), "yes");
    assert_eq!(kubectl.run("auth can-i list secrets --as alice").stdout, "no");
    assert!(kubectl.ok("auth can-i --list --as alice").contains("deployments.apps"));
    let refused = kubectl.fails("create clusterrolebinding more --clusterrole=cluster-admin --user=alice --as alice");
    assert!(refused.contains("User \"alice\" cannot create resource \"clusterrolebindings\""), "{refused}");
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r, namespace: default}\nrules:\n- {apiGroups: [''], resources: [secrets], verbs: [get]}\n";
    for want in ["missing rules added", ""] {
        let reconciled = kubectl.with_manifest("auth reconcile", role);
        assert!(reconciled.status.success() && reconciled.stderr.contains(want), "{reconciled:#?}");
    }
    assert_eq!(kubectl.json("get role r")["rules"].as_array().unwrap().len(), 1);
    plane.stop();
}

#[test]
fn authorizers_are_chosen_by_flags_and_by_a_file() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("authorization.yaml");
    let file = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- {type: AlwaysAllow, name: all}\n";
    std::fs::write(&config, file).unwrap();
    let config = config.to_str().unwrap();
    for (flags, refused) in [
        (&["--authorization-mode=RBAC"][..], Some("cannot list resource \"secrets\"")),
        (&["--authorization-mode=RBAC,AlwaysAllow"], None),
        (&["--authorization-mode=AlwaysDeny"], Some("Everything is forbidden.")),
        (&["--authorization-config", config], None),
    ] {
        let plane = Plane::server(home.path(), flags);
        let kubectl = Kubectl::new(program.clone(), &plane.kubeconfig());
        // Members of system:masters may do everything, whatever the mode.
        kubectl.ok("get secrets");
        match refused {
            Some(refused) => assert!(kubectl.fails("get secrets --as alice").contains(refused), "{flags:?}"),
            None => assert_eq!(kubectl.ok("get secrets --as alice"), "", "{flags:?}"),
        }
        plane.stop();
    }
}
