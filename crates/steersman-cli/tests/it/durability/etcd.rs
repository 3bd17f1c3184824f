//! Servers whose objects are in a real etcd, the program that `STEERSMAN_ETCD` names.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use serde_json::{Value, json};

use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::{Plane, run, steersman};
use crate::support::process::Process;
use crate::support::{eventually, missing};

/// An etcd of one member.
pub(crate) struct Etcd {
    pub(crate) url: String,
    process: Process,
}

impl Etcd {
    pub(crate) fn start(home: &Path) -> Option<Etcd> {
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
        Some(Etcd { url, process })
    }
}

impl Etcd {
    /// The bytes under a key, by etcd's gateway to HTTP.
    pub(crate) fn value(&self, key: &str) -> Vec<u8> {
        let body = json!({"key": STANDARD.encode(key)}).to_string();
        let host = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).unwrap();
        let head = format!("POST /v3/kv/range HTTP/1.0\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        STANDARD.decode(answer["kvs"][0]["value"].as_str().unwrap_or_else(|| panic!("no {key} in {answer}"))).unwrap()
    }

    /// Ends it in an orderly way, and returns its database.
    pub(crate) fn database(self, home: &Path) -> Vec<u8> {
        self.process.signal("TERM");
        self.process.end();
        std::fs::read(home.join("etcd/member/snap/db")).unwrap()
    }
}

/// Starts a server with a directory of its own on an etcd.
fn server(home: &Path, name: &str, etcd: &Etcd, start: fn(&Path, &[&str]) -> Plane) -> Plane {
    let home = home.join(name);
    std::fs::create_dir(&home).unwrap();
    start(&home, &["--etcd-servers", &etcd.url])
}

#[test]
fn servers_on_one_etcd_are_one_cluster_for_their_clients() {
    let (Some(program), home) = (kubectl::program(), tempfile::tempdir().unwrap()) else { return };
    let Some(etcd) = Etcd::start(home.path()) else { return };
    let [first, second] = ["a", "b"].map(|name| server(home.path(), name, &etcd, Plane::server));
    // One kubeconfig is good for both: they have the same CA.
    let kubectl = Kubectl::new(program.clone(), &first.kubeconfig());
    let second_url = format!("https://{}", second.listen());
    let at_second = |words: &str| kubectl.ok(&format!("--server {second_url} {words}"));
    kubectl.ok("create configmap kept --from-literal=a=1");
    at_second("patch configmap kept --type=merge -p {\"data\":{\"a\":\"2\"}}");
    assert_eq!(kubectl.ok("get configmap kept -o jsonpath={.data.a}"), "2");
    // So is the token of an account.
    kubectl.ok("create serviceaccount robot");
    let token = kubectl.ok("create token robot");
    let refused = Kubectl::new(program.clone(), Path::new("/dev/null"));
    let ca = home.path().join("b/data/pki/ca.crt");
    let said = refused.fails(&format!(
        "--server {second_url} --certificate-authority {} --token {} get pods",
        ca.display(),
        token.trim()
    ));
    assert!(said.contains(r#"User "system:serviceaccount:default:robot" cannot list"#), "{said}");
    assert!(!home.path().join("a/data/store/store.redb").exists(), "nothing is kept in the data directory");

    first.kill();
    let kubectl = Kubectl::new(program, &second.kubeconfig());
    assert_eq!(kubectl.ok("get configmap kept -o name").trim(), "configmap/kept");
    second.stop();
}

/// kubectl knows one address, behind which there are two servers.
#[test]
fn a_client_of_the_forwarder_goes_on_when_a_server_ends() {
    let (Some(program), home) = (kubectl::program(), tempfile::tempdir().unwrap()) else { return };
    let Some(etcd) = Etcd::start(home.path()) else { return };
    let [first, second] = ["a", "b"].map(|name| server(home.path(), name, &etcd, Plane::server));
    let servers = format!("{},{}", first.listen(), second.listen());
    let mut forwarder =
        Process::start(steersman(home.path()).args(["forward", "--listen", "127.0.0.1:0", "--servers", &servers]));
    let said = forwarder.line().unwrap();
    let address = said.strip_prefix("forwarding ").and_then(|rest| rest.split(' ').next()).unwrap();
    let kubectl = Kubectl::new(program, &second.kubeconfig());
    let through = |words: &str| kubectl.ok(&format!("--server https://{address} {words}"));
    through("create configmap kept --from-literal=a=1");
    first.kill();
    for round in 0..4 {
        through(&format!("create configmap c-{round} --from-literal=a=1"));
        assert_eq!(through("get configmap kept -o jsonpath={.data.a}"), "1");
    }
    second.kill();
    let said = kubectl.fails(&format!("--server https://{address} get configmap kept"));
    assert!(said.contains("EOF") || said.contains("reset"), "{said}");
    forwarder.signal("TERM");
    assert_eq!(forwarder.end().status.code(), Some(0));
}

#[test]
fn a_server_with_another_ca_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(home.path()) else { return };
    let other = home.path().join("other");
    std::fs::create_dir(&other).unwrap();
    Plane::server(&other, &[]).stop();
    let first = server(home.path(), "a", &etcd, Plane::server);
    let ended = run(&other, ["server", "--data-dir", "data", "--listen", "127.0.0.1:0", "--etcd-servers", &etcd.url]);
    assert_eq!(ended.status.code(), Some(2), "{ended:#?}");
    assert!(ended.stderr.contains("data/pki is not that of the servers on this etcd"), "{ended:#?}");
    first.stop();
}

#[test]
fn the_controllers_move_to_another_server_when_theirs_ends() {
    let (Some(program), home) = (kubectl::program(), tempfile::tempdir().unwrap()) else { return };
    let Some(etcd) = Etcd::start(home.path()) else { return };
    // A server that runs no controllers leaves the Lease to others.
    let idle = home.path().join("idle");
    std::fs::create_dir(&idle).unwrap();
    let idle = Plane::server(&idle, &["--etcd-servers", &etcd.url, "--controllers=-*"]);
    let first = server(home.path(), "a", &etcd, Plane::up);
    let lease = "get lease kube-controller-manager -n kube-system -o jsonpath={.spec.holderIdentity}";
    let leads = |kubectl: &Kubectl| Some(kubectl.run(lease).stdout).filter(|holder| !holder.is_empty());
    let at_first = Kubectl::new(program.clone(), &first.kubeconfig());
    let holder = eventually("the first server leads", || leads(&at_first));
    let second = server(home.path(), "b", &etcd, Plane::up);
    let kubectl = Kubectl::new(program, &second.kubeconfig());
    let replicas = |count: &str| {
        let found = kubectl.ok("get replicasets -l app=web -o jsonpath={.items[*].spec.replicas}");
        (found == count).then_some(())
    };
    kubectl.ok("create deployment web --image=registry.example/web --replicas=2");
    eventually("the first server makes a ReplicaSet", || replicas("2"));
    assert_eq!(leads(&kubectl), Some(holder.clone()));
    first.stop();
    eventually("the second server leads", || leads(&kubectl).filter(|now| *now != holder));
    kubectl.ok("scale deployment web --replicas=3");
    eventually("the second server scales it", || replicas("3"));
    second.stop();
    idle.stop();
}

/// Whether a file below a directory has the text.
fn files_have(dir: &Path, text: &str) -> bool {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
        true => files_have(&path, text),
        // etcd may remove a file meanwhile.
        false => std::fs::read(&path).is_ok_and(|bytes| memchr::memmem::find(&bytes, text.as_bytes()).is_some()),
    })
}

#[test]
fn what_is_encrypted_is_not_in_etcd_and_a_server_that_gets_a_key_later_reads_what_others_wrote_with_it() {
    let (Some(program), home) = (kubectl::program(), tempfile::tempdir().unwrap()) else { return };
    let Some(etcd) = Etcd::start(home.path()) else { return };
    let write = |name: &str, keys: &[(&str, char)]| {
        let keys: Vec<String> = keys
            .iter()
            .map(|(name, letter)| {
                let secret = STANDARD.encode(letter.to_string().repeat(32));
                format!("{{name: {name}, secret: {secret}}}")
            })
            .collect();
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: [{{aesgcm: {{keys: [{}]}}}}]\n",
            keys.join(", ")
        );
        std::fs::write(home.path().join(name).join("encryption.yaml"), text).unwrap();
    };
    let flags = [
        "--encryption-provider-config",
        "encryption.yaml",
        "--encryption-provider-config-automatic-reload",
        "--etcd-servers",
        &etcd.url,
    ];
    let [first, second] = ["a", "b"].map(|name| {
        std::fs::create_dir(home.path().join(name)).unwrap();
        write(name, &[("one", '1')]);
        Plane::server(&home.path().join(name), &flags)
    });
    let [at_first, at_second] = [&first, &second].map(|plane| Kubectl::new(program.clone(), &plane.kubeconfig()));
    at_first.ok("create secret generic s --from-literal=password=correct-horse");
    let password = "get secret s -o jsonpath={.data.password}";
    assert_eq!(at_second.ok(password), "Y29ycmVjdC1ob3JzZQ==");
    let etcd_dir = home.path().join("etcd");
    for plain in ["Y29ycmVjdC1ob3JzZQ==", "PRIVATE KEY"] {
        assert!(!files_have(&etcd_dir, plain), "{plain} is in etcd");
    }
    assert!(files_have(&etcd_dir, "k8s:enc:aesgcm:v1:one:"));
    assert!(files_have(&etcd_dir, "kube-root-ca") || files_have(&etcd_dir, "kube-system"), "the rest is plain");

    // The first server alone gets another key, which is the wrong order.
    write("a", &[("two", '2'), ("one", '1')]);
    eventually("the first server writes with it", || {
        at_first.ok("annotate secret s --overwrite a=b");
        at_first.ok("annotate secret s --overwrite a=c");
        etcd.value("/registry/secrets/default/s").starts_with(b"k8s:enc:aesgcm:v1:two:").then_some(())
    });
    let said = at_second.fails(password);
    assert!(said.contains("if it is encrypted, give the server its key"), "{said}");
    write("b", &[("two", '2'), ("one", '1')]);
    let found =
        eventually("the second server reads it", || Some(at_second.run(password).stdout).filter(|out| !out.is_empty()));
    assert_eq!(found, "Y29ycmVjdC1ob3JzZQ==");
    assert_eq!(at_first.ok(password), "Y29ycmVjdC1ob3JzZQ==");
    first.stop();
    second.stop();
}

#[test]
fn an_etcd_that_went_back_while_no_server_ran_is_refused() {
    let (Some(program), home) = (kubectl::program(), tempfile::tempdir().unwrap()) else { return };
    let [old, new] = ["old", "new"].map(|name| home.path().join(name));
    let Some(etcd) = Etcd::start(&old) else { return };
    let plane = Plane::server(home.path(), &["--etcd-servers", &etcd.url]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    for n in 0..10 {
        kubectl.ok(&format!("create configmap c{n} --from-literal=a=1"));
    }
    plane.stop();
    // With nothing but what a start needs.
    let Some(etcd) = Etcd::start(&new) else { return };
    let start = ["server", "--data-dir", "data", "--listen", "127.0.0.1:0", "--etcd-servers", &etcd.url];
    let ended = run(home.path(), start);
    assert_eq!(ended.status.code(), Some(2), "{ended:#?}");
    assert!(ended.stderr.contains("and this server has seen revision "), "{ended:#?}");
    std::fs::remove_file(home.path().join("data/etcd.newest")).unwrap();
    Plane::server(home.path(), &["--etcd-servers", &etcd.url]).stop();
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
