//! A server whose objects are in a real etcd, the program that `STEERSMAN_ETCD` names.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::{Plane, run, steersman};
use crate::support::process::Process;
use crate::support::{eventually, missing};

/// An etcd of one member.
struct Etcd {
    url: String,
    _process: Process,
}

impl Etcd {
    fn start(home: &Path) -> Option<Etcd> {
        let Some(program) = std::env::var_os("STEERSMAN_ETCD") else {
            missing("etcd");
            return None;
        };
        // Both are held until both are known.
        let ports = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [client, peer] = ports.each_ref().map(|port| port.local_addr().unwrap());
        drop(ports);
        let (url, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(home.join("etcd")).args(["--unsafe-no-fsync", "--log-level", "error"]);
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url, "--listen-peer-urls", &peer]);
        command.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")]);
        let process = Process::start(&mut command);
        eventually("etcd listens", || TcpStream::connect(client).ok());
        Some(Etcd { url, _process: process })
    }
}

#[test]
fn a_second_server_on_the_same_etcd_waits_and_takes_over_when_the_first_is_gone() {
    let (Some(program), home) = (kubectl::program(), tempfile::tempdir().unwrap()) else { return };
    let Some(etcd) = Etcd::start(home.path()) else { return };
    let homes = ["a", "b"].map(|name| home.path().join(name));
    homes.iter().for_each(|home| std::fs::create_dir(home).unwrap());
    let flags = ["--etcd-servers", &etcd.url];
    let first = Plane::server(&homes[0], &flags);
    let kubectl = Kubectl::new(program.clone(), &first.kubeconfig());
    kubectl.ok("create configmap kept --from-literal=a=1");
    let mut second = steersman(&homes[1]);
    second.arg("server").arg("--data-dir").arg(homes[1].join("data"));
    let mut second = Process::start(second.args(["--listen", "127.0.0.1:0", "--output", "json"]).args(flags));
    kubectl.ok("create configmap later --from-literal=a=1");
    first.kill();
    let ready: serde_json::Value = serde_json::from_str(&second.line().unwrap()).unwrap();
    let kubectl = Kubectl::new(program, Path::new(ready["kubeconfig"].as_str().unwrap()));
    assert_eq!(kubectl.ok("get configmap kept later -o name"), "configmap/kept\nconfigmap/later");
    assert!(!homes[1].join("data/store/store.redb").exists(), "nothing is kept in the data directory");
    second.signal("TERM");
    let ended = second.end();
    assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
    assert!(ended.stderr.contains("another server works on these objects: waiting until it has ended"), "{ended:#?}");
}

#[test]
fn an_etcd_that_cannot_be_used_is_named_with_the_flag() {
    let home = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}");
    let ended = run(home.path(), ["server", "--listen", "127.0.0.1:0", "--etcd-servers", &url]);
    assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
    assert!(
        ended.stderr.contains(&format!("none of etcd's 1 endpoints answers, of which {url} is the first")),
        "{ended:#?}"
    );
    let ended = run(home.path(), ["server", "--etcd-servers", &url, "--etcd-cafile", "absent.pem"]);
    assert_eq!(ended.status.code(), Some(2), "{ended:#?}");
    assert!(ended.stderr.contains("cannot read \"absent.pem\" of --etcd-cafile"), "{ended:#?}");
    let ended = run(home.path(), ["server", "--etcd-servers", &url, "--in-memory"]);
    assert!(ended.stderr.contains("--in-memory"), "{ended:#?}");
}
