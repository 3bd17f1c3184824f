//! Start, stop, restart: readiness, signals, files on disk.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::{Plane, steersman};
use crate::support::process::Process;

#[test]
fn ready_line_means_ready() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::up(home.path(), &[]);
    assert_eq!(Path::new(plane.ready["dataDir"].as_str().unwrap()), home.path().join("data"));
    TcpStream::connect(plane.listen()).unwrap();
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    assert_eq!(kubectl.ok("get --raw /readyz"), "ok");
    assert_eq!(
        kubectl.ok("get namespaces -o name"),
        "namespace/default\nnamespace/kube-node-lease\nnamespace/kube-public\nnamespace/kube-system"
    );
    plane.stop();
}

#[test]
fn a_closed_standard_error_is_no_reason_to_end() {
    let home = tempfile::tempdir().unwrap();
    let mut command = steersman(home.path());
    command.args(["server", "--listen", "127.0.0.1:0", "--output", "json", "--log", "debug"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ready.contains("kubeconfig") && ended.is_none(), "{ready:?} {ended:?}");
}

#[test]
fn a_start_has_no_line_of_log_for_each_control_loop() {
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::up(home.path(), &[]);
    plane.process.signal("TERM");
    let ended = plane.process.end();
    assert!(ended.stderr.contains("stopping"), "{ended:#?}");
    assert!(!ended.stderr.contains("starting workers"), "{ended:#?}");
}

#[test]
fn restart_keeps_objects_and_keys() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let first = Plane::up(home.path(), &[]);
    let kubectl = Kubectl::new(program.clone(), &first.kubeconfig());
    kubectl.ok("create configmap kept --from-literal=a=b");
    let before = kubectl.json("get configmap kept");
    let authority = |kubectl: &Kubectl| {
        kubectl.json("config view --raw --flatten")["clusters"][0]["cluster"]["certificate-authority-data"].take()
    };
    let trusted = authority(&kubectl);
    first.stop();

    let second = Plane::up(home.path(), &[]);
    let kubectl = Kubectl::new(program, &second.kubeconfig());
    assert_eq!(kubectl.json("get configmap kept"), before);
    assert_eq!(authority(&kubectl), trusted);
    second.stop();
}

#[test]
fn in_memory_leaves_no_objects_behind() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let plane = Plane::up(home.path(), &["--in-memory"]);
        let kubectl = Kubectl::new(program.clone(), &plane.kubeconfig());
        kubectl.ok("create configmap forgotten");
        plane.stop();
    }
}

#[test]
fn terminate_and_interrupt_end_with_code_0() {
    for signal in ["TERM", "INT", "HUP"] {
        for role in [Plane::up, Plane::server] {
            let home = tempfile::tempdir().unwrap();
            let plane = role(home.path(), &[]);
            plane.process.signal(signal);
            let ended = plane.process.end();
            assert_eq!(ended.status.code(), Some(0), "SIG{signal}: {ended:#?}");
            assert_eq!(ended.stdout, "", "one line is all that --output json prints");
        }
    }
}

#[test]
fn open_watch_does_not_hold_up_the_end() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    let mut watch = Process::start(&mut kubectl.command("get namespaces --watch -o name"));
    assert_eq!(watch.line().as_deref(), Some("namespace/default"));
    plane.stop();
}

#[test]
fn keys_are_for_their_owner_alone() {
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let files = files(&home.path().join("data"));
    let secrets: Vec<&PathBuf> =
        files.iter().filter(|(path, bytes)| is_secret(path, bytes)).map(|(path, _)| path).collect();
    assert!(secrets.len() >= 3, "a CA, a serving and a client key: {secrets:?}");
    for path in secrets {
        let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    plane.stop();
}

#[test]
fn people_are_told_where_the_kubeconfig_is() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let mut command = steersman(home.path());
    let mut process = Process::start(command.args(["up", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data));
    let kubeconfig = data.join("kubeconfig");
    let mut said = String::new();
    while !said.contains(&*kubeconfig.to_string_lossy()) {
        said += &process.line().unwrap_or_else(|| panic!("no {} in\n{said}", kubeconfig.display()));
        said.push('\n');
    }
    process.signal("TERM");
    said += &process.end().stdout;
    assert!(said.contains("kubectl") && said.contains("simulated"), "{said}");
}

fn is_secret(path: &Path, bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.contains("PRIVATE KEY-----") || path.ends_with("kubeconfig")
}

/// Every file below `directory`, with its content.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => {
                let bytes = std::fs::read(&path).unwrap();
                found.insert(path, bytes);
            }
        }
    }
    found
}
