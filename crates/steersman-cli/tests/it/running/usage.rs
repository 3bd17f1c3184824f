//! Commands that cannot work are refused with one sentence and exit code 2, and change nothing on disk.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::support::plane::{Plane, run};
use crate::support::root;

/// Runs `steersman ARGUMENTS..` in an empty directory and expects one line that contains all of `parts`, exit code 2,
/// and an unchanged directory.
#[track_caller]
fn check_refused(arguments: &[&str], parts: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    check_refused_in(home.path(), arguments, parts);
    assert_eq!(entries(home.path()), BTreeSet::new(), "steersman {arguments:?} left something behind");
}

#[track_caller]
fn check_refused_in(home: &Path, arguments: &[&str], parts: &[&str]) {
    let ended = run(home, arguments);
    assert_eq!(ended.status.code(), Some(2), "steersman {arguments:?}: {ended:#?}");
    assert_eq!(ended.stdout, "", "steersman {arguments:?}");
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(lines.len(), 1, "steersman {arguments:?} takes more than a sentence: {}", ended.stderr);
    for part in parts {
        assert!(lines[0].contains(part), "steersman {arguments:?}: no {part:?} in {:?}", lines[0]);
    }
}

/// Every path below `directory`.
fn entries(directory: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

#[test]
fn wrong_flags_are_named() {
    check_refused(&["up", "--no-such-flag"], &["--no-such-flag"]);
    check_refused(
        &["up", "--listen", "nowhere"],
        &["--listen", "nowhere", "127.0.0.1:6443", "see steersman up --help"],
    );
    check_refused(&["up", "--advertise-address", "127.0.0.1"], &["--advertise-address", "leads to no other machine"]);
    check_refused(&["server", "--tls-san", "api example"], &["--tls-san", "a host name or an IP address"]);
    check_refused(&["up", "--neutron-auth", "magic"], &["--neutron-auth", "magic"]);
    check_refused(&["up", "--neutron-url", "not a url"], &["not a url"]);
    check_refused(&["up", "--output", "xml"], &["--output", "xml"]);
    check_refused(&["node", "token", "--dir", "etc; rm"], &["--dir", "want an absolute path"]);
    check_refused(&["node", "token", "--dir", "/"], &["--dir", "and not /"]);
    check_refused(&["node", "token", "--server", "http://a:1"], &["--server", "want https://HOST:PORT"]);
    check_refused(&["node", "token", "--server", "https://a:1/\nreboot"], &["invalid value"]);
    check_refused(&["sail"], &["sail", "see steersman --help"]);
    check_refused(
        &[],
        &["a command is missing: backup, codegen, ", "restore, run-as, server, store, up", "see steersman --help"],
    );
    check_refused(&["store"], &["a command is missing: check", "see steersman store --help"]);
    check_refused(&["server", "--etcd-prefix", "/a"], &["--etcd-servers"]);
    check_refused(&["server", "--etcd-servers", "127.0.0.1:2379"], &["--etcd-servers", "127.0.0.1:2379", "http://"]);
    check_refused(&["run-as", "default/robot"], &["not provided: <COMMAND>", "see steersman run-as --help"]);
}

#[test]
fn admission_plugins_that_cannot_be_are_refused() {
    check_refused(
        &["server", "--enable-admission-plugins", "LimitRanger,NoSuch"],
        &["\"NoSuch\"", "want one of AlwaysAdmit, AlwaysDeny, "],
    );
    check_refused(
        &["up", "--enable-admission-plugins", "ImagePolicyWebhook"],
        &["ImagePolicyWebhook", "does not exist here", "--enable-admission-plugins"],
    );
    check_refused(
        &["server", "--enable-admission-plugins", "Priority", "--disable-admission-plugins", "Priority"],
        &["Priority is enabled and disabled"],
    );
}

#[test]
fn an_authorizer_that_cannot_be_is_refused() {
    check_refused(&["server", "--authorization-mode", "ABAC"], &["--authorization-policy-file"]);
    check_refused(&["server", "--authorization-policy-file", "p"], &["--authorization-policy-file", "the mode ABAC"]);
    check_refused(
        &["server", "--authorization-mode", "ABAC", "--authorization-policy-file", "none.jsonl"],
        &["none.jsonl", "--authorization-policy-file"],
    );
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("policies"), "{\"user\": 7}\n").unwrap();
    let flags = ["server", "--authorization-mode", "Node,ABAC", "--authorization-policy-file", "policies"];
    check_refused_in(home.path(), &flags, &["line 1: {\"user\": 7}: invalid type"]);
}

#[test]
fn an_audit_log_that_cannot_be_is_refused() {
    check_refused(&["server", "--audit-log-path", "log"], &["--audit-policy-file"]);
    check_refused(&["server", "--audit-log-maxage", "3"], &["--audit-log-path"]);
    check_refused(&["server", "--audit-webhook-config-file", "hook"], &["--audit-policy-file"]);
    check_refused(&["server", "--audit-webhook-mode", "blocking"], &["--audit-webhook-config-file"]);
    check_refused(
        &["server", "--listen", "127.0.0.1:0", "--audit-log-path", "-", "--audit-policy-file", "none.yaml"],
        &["none.yaml", "--audit-policy-file"],
    );
    check_refused(&["server", "--audit-log-format", "legacy"], &["--audit-log-format", "legacy", "json"]);
    check_refused(&["server", "--max-requests-inflight", "0"], &["--max-requests-inflight", "0"]);
    let home = tempfile::tempdir().unwrap();
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Everything\n";
    std::fs::write(home.path().join("policy.yaml"), policy).unwrap();
    let flags = ["server", "--listen", "127.0.0.1:0", "--audit-log-path", "log", "--audit-policy-file", "policy.yaml"];
    check_refused_in(home.path(), &flags, &["policy.yaml", "Everything", "line 4"]);
    assert_eq!(entries(home.path()), BTreeSet::from([home.path().join("policy.yaml")]));
}

#[test]
fn history_that_is_none_or_out_of_bounds_is_named_with_the_bounds() {
    for role in ["up", "server"] {
        for duration in ["soon", "300", "30s", "31d"] {
            let parts = ["--history", duration, "from 1m to 30d"];
            check_refused(&[role, "--listen", "127.0.0.1:0", "--history", duration], &parts);
        }
        for size in ["much", "1023Ki", "-2Gi", "2GB"] {
            let parts = ["--history-size", size, "at least 1Mi"];
            check_refused(&[role, "--listen", "127.0.0.1:0", &format!("--history-size={size}")], &parts);
        }
    }
}

#[test]
fn an_authorizer_that_there_is_not_is_named() {
    let server = ["server", "--listen", "127.0.0.1:0"];
    for (flags, parts) in [
        (&["--authorization-mode=RBAC,Nodes"][..], &["--authorization-mode", "\"Nodes\"", "AlwaysDeny"][..]),
        (&["--authorization-mode=RBAC,RBAC"], &["names RBAC twice"]),
        (&["--authorization-mode=Webhook"], &["--authorization-webhook-config-file"]),
        (&["--authorization-webhook-version=v1"], &["--authorization-webhook-version", "needs the mode Webhook"]),
        (
            &["--authorization-mode=Webhook", "--authorization-webhook-config-file=/no/such"],
            &["--authorization-webhook-config-file", "/no/such"],
        ),
        (&["--authorization-config=/no/such"], &["--authorization-config", "/no/such"]),
        (
            &["--authorization-config=/no/such", "--authorization-mode=RBAC"],
            &["--authorization-mode", "--authorization-config"],
        ),
    ] {
        check_refused(&[&server[..], flags].concat(), parts);
    }
    check_refused(&["explain-denied", "/no/such"], &["/no/such"]);
    let parts = ["simulated nodes", "add Node to --authorization-mode", "--simulate-nodes 0"];
    check_refused(&["up", "--listen", "127.0.0.1:0", "--authorization-mode=RBAC"], &parts);
    check_refused(&[&server[..], &["--simulate-nodes=1", "--authorization-mode=AlwaysDeny"]].concat(), &parts);
}

#[test]
fn bad_log_filter_is_named() {
    check_refused(&["--log", "steersman=loud", "server", "--listen", "127.0.0.1:0"], &["steersman=loud", "--log"]);
    check_refused(
        &["--log", "inof", "server", "--listen", "127.0.0.1:0"],
        &["\"inof\"", "none of the levels", "--log"],
    );
}

#[test]
fn cloud_for_no_controller_is_refused() {
    let up = ["up", "--listen", "127.0.0.1:0", "--controllers=-network"];
    for flags in [&["--neutron-url", "http://127.0.0.1:9"][..], &["--neutron-auth", "none"], &["--os-cloud", "a"]] {
        check_refused(&[&up, flags].concat(), &[flags[0], "--controllers"]);
    }
}

#[test]
fn simulated_cloud_beside_a_real_one_is_refused() {
    for role in ["up", "network"] {
        check_refused(&[role, "--simulated", "--neutron-url", "http://127.0.0.1:9"], &["--simulated", "--neutron-url"]);
    }
    check_refused(&["up", "--listen", "127.0.0.1:0", "--controllers=-network", "--simulated"], &["--simulated"]);
}

#[test]
fn network_controller_of_a_server_alone_is_refused() {
    check_refused(&["server", "--listen", "127.0.0.1:0", "--controllers", "network"], &["network", "steersman up"]);
}

#[test]
fn access_log_that_cannot_be_written_is_named() {
    for role in ["up", "server"] {
        check_refused(
            &[role, "--listen", "127.0.0.1:0", "--access-log", "no/such/dir"],
            &["no/such/dir", "--access-log"],
        );
    }
}

#[test]
fn half_a_certificate_authority_is_refused() {
    let home = tempfile::tempdir().unwrap();
    Plane::server(home.path(), &[]).stop();
    let pki = home.path().join("data/pki");
    let whole = entries(home.path());
    for half in ["ca.crt", "ca.key"] {
        std::fs::rename(pki.join(half), home.path().join(half)).unwrap();
        let before = entries(home.path());
        check_refused_in(home.path(), &["server", "--listen", "127.0.0.1:0", "--data-dir", "data"], &[half, "put"]);
        assert_eq!(entries(home.path()), before);
        std::fs::rename(home.path().join(half), pki.join(half)).unwrap();
    }
    assert_eq!(entries(home.path()), whole);
}

#[test]
fn unknown_controller_is_named() {
    check_refused(&["up", "--listen", "127.0.0.1:0", "--controllers", "network,no-such"], &["no-such", "network"]);
}

#[test]
fn port_in_use_is_named() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    for role in ["up", "server"] {
        check_refused(&[role, "--listen", &address], &[&address, "--listen"]);
    }
}

#[test]
fn unreadable_token_file_is_named() {
    check_refused(&["up", "--listen", "127.0.0.1:0", "--token-auth-file", "no-such.csv"], &["no-such.csv"]);
    check_refused(&["server", "--listen", "127.0.0.1:0", "--token-auth-file", "."], &["--token-auth-file"]);
}

#[test]
fn token_file_that_is_none_is_named_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.csv");
    std::fs::write(&file, "good-token,good,1\nonly-a-token\n").unwrap();
    let file = file.to_string_lossy();
    check_refused(&["server", "--listen", "127.0.0.1:0", "--token-auth-file", &file], &[&file, "2"]);
}

#[test]
fn data_directory_that_is_a_file_is_named() {
    let file = root().join("LICENSE").canonicalize().unwrap();
    let file = file.to_string_lossy();
    check_refused(&["up", "--listen", "127.0.0.1:0", "--data-dir", &file], &[&file]);
}

#[test]
fn data_directory_of_another_process_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let data = home.path().join("data");
    let (before, kubeconfig) = (entries(&data), std::fs::read(plane.kubeconfig()).unwrap());

    let data_text = data.to_string_lossy();
    for role in ["up", "server"] {
        check_refused_in(home.path(), &[role, "--listen", "127.0.0.1:0", "--data-dir", &data_text], &[&data_text]);
    }
    assert_eq!(entries(&data), before);
    assert_eq!(std::fs::read(plane.kubeconfig()).unwrap(), kubeconfig);
    plane.stop();
}

#[test]
fn kubeconfig_that_cannot_be_read_is_named() {
    let cloud = ["--neutron-url", "http://127.0.0.1:9", "--neutron-auth", "none"];
    check_refused(&[&["network", "--kubeconfig", "no-such-kubeconfig"][..], &cloud].concat(), &["no-such-kubeconfig"]);
}

#[test]
fn command_without_a_cluster_is_told_to_name_one() {
    let parts = ["no API server is configured: pass --kubeconfig or set KUBECONFIG", ".kube/config"];
    check_refused(&["webhooks"], &parts);
    check_refused(&["run-as", "default/builder", "--", "true"], &parts);
}

#[test]
fn controller_without_a_cloud_is_told_to_name_one() {
    check_refused(&["network"], &["--neutron-url", "--neutron-auth", "--simulated"]);
}

#[test]
fn help_and_version_are_no_errors() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [&["--help"][..], &["--version"], &["up", "--help"], &["server", "--help"], &["network", "--help"]]
    {
        let ended = run(home.path(), arguments);
        assert_eq!(ended.status.code(), Some(0), "steersman {arguments:?}: {ended:#?}");
        assert!(ended.stdout.contains("steersman"), "steersman {arguments:?}: {ended:#?}");
    }
}

#[test]
fn data_directory_of_another_process_is_named_before_its_port() {
    let home = tempfile::tempdir().unwrap();
    let first = Plane::server(home.path(), &[]);
    let before = entries(home.path());
    let listen = first.listen().to_owned();
    check_refused_in(
        home.path(),
        &["server", "--listen", &listen, "--data-dir", "data"],
        &["holds", "data", "--data-dir"],
    );
    assert_eq!(entries(home.path()), before);
    first.stop();
}

#[test]
fn store_cut_short_is_damaged() {
    let home = tempfile::tempdir().unwrap();
    Plane::server(home.path(), &[]).stop();
    let store = entries(&home.path().join("data/store"));
    let file = store.iter().find(|path| path.extension().is_some_and(|kind| kind == "redb")).unwrap();
    let whole = std::fs::read(file).unwrap();
    // A start may rescue everything that was acknowledged from a longer part, as it happens to be laid out.
    for length in [10_000, 5_000, 100, 1] {
        std::fs::write(file, &whole[..length]).unwrap();
        let name = file.file_name().unwrap().to_string_lossy();
        check_refused_in(
            home.path(),
            &["server", "--listen", "127.0.0.1:0", "--data-dir", "data"],
            &[&name, "damaged"],
        );
    }
}

#[test]
fn help_begins_with_what_it_is() {
    let home = tempfile::tempdir().unwrap();
    let said = run(home.path(), ["--help"]).stdout;
    assert!(said.starts_with("A Kubernetes-compatible control plane in one process"), "{said}");
}
