//! The folder for envtest, and the programs in it, used as envtest uses them. A suite of a real operator is in
//! `tests/clients/envtest`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::plane::{run, steersman};
use crate::support::process::{Ended, Process};
use crate::support::{eventually, missing, on_path};

/// Makes the folder in `home`.
#[track_caller]
fn assets(home: &Path) -> PathBuf {
    let made = run(home, ["envtest", "assets"]);
    assert_eq!(made.status.code(), Some(0), "{made:#?}");
    made.stdout.trim_end().into()
}

#[track_caller]
fn ended(program: &Path, arguments: &[&str]) -> Ended {
    Process::start(Command::new(program).args(arguments)).end()
}

/// A port that was free a moment ago; envtest chooses its ports in the same way.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The answer to a GET without TLS.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn the_folder_has_the_programs_and_is_made_as_often_as_one_likes() {
    let home = tempfile::tempdir().unwrap();
    let dir = assets(home.path());
    assert!(dir.is_absolute() && dir.ends_with("assets"));
    assert_eq!(assets(home.path()), dir);
    for program in ["kube-apiserver", "etcd"] {
        assert!(dir.join(program).is_file(), "{program} is missing");
    }
    assert_eq!(dir.join("kubectl").exists(), on_path("kubectl").is_some());
    assert!(fs::read_dir(&dir).unwrap().count() <= 3, "something is left over");
}

#[test]
fn without_kubectl_on_path_it_is_said_where_to_have_one() {
    let home = tempfile::tempdir().unwrap();
    let made = Process::start(steersman(home.path()).env("PATH", home.path()).args(["envtest"])).end();
    assert_eq!(made.status.code(), Some(0));
    assert!(made.stderr.contains("no kubectl on PATH") && made.stderr.contains("kubernetes.io"), "{made:#?}");
    assert!(Path::new(made.stdout.trim_end()).starts_with(home.path().canonicalize().unwrap()));
}

#[test]
fn a_program_that_is_there_already_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("a folder with blanks");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("kubectl"), "mine").unwrap();
    let made = run(home.path(), [Path::new("envtest"), &dir]);
    assert_eq!((made.status.code(), Path::new(made.stdout.trim_end())), (Some(0), &*dir.canonicalize().unwrap()));
    assert_eq!(fs::read_to_string(dir.join("kubectl")).unwrap(), "mine");
    assert!(ended(&dir.join("kube-apiserver"), &["--version"]).stdout.starts_with("Kubernetes v1.36."));

    let downloaded = home.path().join("downloaded");
    fs::create_dir(&downloaded).unwrap();
    fs::write(downloaded.join("etcd"), "another").unwrap();
    let refused = run(home.path(), [Path::new("envtest"), &downloaded]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.contains("downloaded/etcd") && refused.stderr.contains("another directory"), "{refused:#?}");
    assert_eq!(fs::read_to_string(downloaded.join("etcd")).unwrap(), "another");
}

#[test]
fn where_the_folder_cannot_be_made_the_way_out_is_said() {
    let home = tempfile::tempdir().unwrap();
    let nobody =
        Process::start(steersman(home.path()).env_remove("HOME").env_remove("XDG_CACHE_HOME").args(["envtest"])).end();
    fs::write(home.path().join("file"), "").unwrap();
    let file = home.path().join("file");
    let no_directory = Process::start(steersman(home.path()).env("XDG_CACHE_HOME", file).args(["envtest"])).end();
    for refused in [nobody, no_directory] {
        assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
        assert!(refused.stderr.contains("steersman envtest DIR"), "{refused:#?}");
    }
}

#[test]
fn a_folder_that_is_complete_is_only_read() {
    use std::os::unix::fs::MetadataExt as _;
    let home = tempfile::tempdir().unwrap();
    let dir = assets(home.path());
    let of = |name: &str| fs::symlink_metadata(dir.join(name)).unwrap().ino();
    let before = (of("etcd"), of("kube-apiserver"));
    assert_eq!(assets(home.path()), dir);
    assert_eq!((of("etcd"), of("kube-apiserver")), before);
}

#[test]
fn flags_of_tls_and_of_browsers_do_what_they_say() {
    if on_path("curl").is_none() {
        return missing("curl");
    }
    let home = tempfile::tempdir().unwrap();
    let server = assets(home.path()).join("kube-apiserver");
    let port = free_port();
    let program = Process::start(Command::new(&server).args([
        &format!("--secure-port={port}"),
        "--bind-address=127.0.0.1",
        "--authorization-mode=RBAC",
        "--tls-min-version=VersionTLS13",
        "--disable-http2-serving",
        "--strict-transport-security-directives=max-age=60,preload",
        r"--cors-allowed-origins=//ui\.example\.com$",
        "--shutdown-delay-duration=1ms",
    ]));
    let ask = |extra: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["-sSki", "--max-time", "100"]).args(extra).arg(format!("https://127.0.0.1:{port}/readyz"));
        Process::start(&mut command).end()
    };
    let ready = eventually("the server is ready", || Some(ask(&[])).filter(|answer| answer.status.success()));
    assert!(ready.stdout.starts_with("HTTP/1.1 200"), "{ready:#?}");
    assert!(ready.stdout.contains("strict-transport-security: max-age=60; preload"), "{ready:#?}");
    assert!(!ready.stdout.contains("access-control"), "{ready:#?}");
    let page = ask(&["-X", "OPTIONS", "-HOrigin: https://ui.example.com"]);
    assert!(
        page.stdout.starts_with("HTTP/1.1 204")
            && page.stdout.contains("access-control-allow-origin: https://ui.example.com")
    );
    assert!(!ask(&["--tls-max", "1.2"]).status.success());
    program.signal("TERM");
    let ended = program.end();
    assert_eq!(ended.status.code(), Some(0));
    assert!(!ended.stderr.contains("passed over"), "{}", ended.stderr);
}

#[test]
fn a_flag_whose_value_cannot_be_used_ends_the_program() {
    let home = tempfile::tempdir().unwrap();
    let server = assets(home.path()).join("kube-apiserver");
    for (flag, value) in [
        ("--tls-min-version", "VersionTLS9"),
        ("--tls-cipher-suites", "TLS_NONE"),
        ("--cors-allowed-origins", "example.com"),
        ("--strict-transport-security-directives", "never"),
        ("--request-timeout", "soon"),
        ("--request-timeout", "0s"),
    ] {
        let refused = ended(&server, &[&format!("{flag}={value}")]);
        assert_eq!(refused.status.code(), Some(1), "{flag}");
        assert!(refused.stderr.contains(flag) && refused.stderr.contains(value), "{refused:#?}");
    }
}

#[test]
fn flags_are_those_of_kube_apiserver_and_an_unknown_one_is_refused_by_name() {
    let home = tempfile::tempdir().unwrap();
    let server = assets(home.path()).join("kube-apiserver");
    let unknown = ended(&server, &["--secure-port=1", "--no-such-flag=1"]);
    assert_eq!((unknown.status.code(), unknown.stderr.trim_end()), (Some(1), "Error: unknown flag: --no-such-flag"));
    let help = ended(&server, &["--help"]);
    assert_eq!(help.status.code(), Some(0));
    // envtest searches for this flag at the beginning of a line, to learn whether it must set it.
    let flags: Vec<&str> = help.stdout.lines().map(str::trim_start).filter(|line| line.starts_with("--")).collect();
    assert!(flags.iter().all(|line| !line.starts_with("--insecure-port")) && flags.len() > 150);
    assert!(ended(&server, &["--version"]).stdout.starts_with("Kubernetes v1.36."));
    let mode = ended(&server, &["--authorization-mode=Magic"]);
    assert_eq!(mode.status.code(), Some(1));
    assert!(mode.stderr.contains("--authorization-mode") && mode.stderr.contains("\"Magic\""), "{mode:#?}");
}

#[test]
fn etcd_says_that_it_is_healthy_and_holds_nothing() {
    let home = tempfile::tempdir().unwrap();
    let etcd = assets(home.path()).join("etcd");
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let program = Process::start(Command::new(&etcd).args([
        "--listen-client-urls",
        &url,
        "--advertise-client-urls",
        &url,
        "--listen-peer-urls=http://localhost:0",
        "--data-dir=unused",
        "--unsafe-no-fsync=true",
    ]));
    let health = eventually("etcd answers", || get(port, "/health"));
    assert!(health.starts_with("HTTP/1.1 200") && health.contains(r#""health":"true""#), "{health}");
    assert!(get(port, "/v3/kv/range").unwrap().starts_with("HTTP/1.1 404"));
    program.signal("TERM");
    assert_eq!(program.end().status.code(), Some(0));
    assert!(ended(&etcd, &["--help"]).stdout.contains("--unsafe-no-fsync"));
}

#[test]
fn a_server_takes_the_certificates_it_is_given_and_answers_health_to_anybody() {
    if on_path("curl").is_none() {
        return missing("curl");
    }
    let home = tempfile::tempdir().unwrap();
    let server = assets(home.path()).join("kube-apiserver");
    let certs = home.path().join("certs");
    let port = free_port();
    fs::write(home.path().join("tokens.csv"), "secret,ann,1,system:masters\nother,bob,2\n").unwrap();
    let program = Process::start(Command::new(&server).env_remove("STEERSMAN_LOG").args([
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", certs.display()),
        format!("--token-auth-file={}", home.path().join("tokens.csv").display()),
        "--etcd-servers=http://127.0.0.1:1".to_owned(),
        "--service-cluster-ip-range=10.7.0.0/24".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction,ImagePolicyWebhook".to_owned(),
    ]));
    let url = format!("https://127.0.0.1:{port}");
    // The answer and its status code, for a user with a token or for an anonymous one.
    let ask = |token: Option<&str>, path: &str| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "100", "-w", "%{http_code}", "--cacert"]).arg(certs.join("apiserver.crt"));
        command.args(token.map(|token| format!("-HAuthorization: Bearer {token}"))).arg(format!("{url}{path}"));
        Process::start(&mut command).end()
    };
    let healthy =
        eventually("the server is healthy", || Some(ask(None, "/healthz")).filter(|answer| answer.status.success()));
    assert_eq!(healthy.stdout, "ok200");
    let namespaces = "/api/v1/namespaces";
    assert!(ask(Some("secret"), namespaces).stdout.ends_with("200"));
    let range = ask(Some("secret"), "/apis/networking.k8s.io/v1/servicecidrs/kubernetes").stdout;
    assert!(range.contains("\"10.7.0.0/24\""), "{range}");
    for (token, name) in [(None, "system:anonymous"), (Some("other"), "bob")] {
        let refused = ask(token, namespaces).stdout;
        let message = format!("User \\\"{name}\\\" cannot list resource");
        assert!(refused.ends_with("403") && refused.contains(&message), "{refused}");
    }
    assert!(ask(Some("wrong"), namespaces).stdout.ends_with("401"));
    program.signal("TERM");
    let ended = program.end();
    assert_eq!(ended.status.code(), Some(0));
    let absent = "admission plugins that do not exist here are passed over plugins=\"ImagePolicyWebhook\"";
    for said in ["--allow-privileged", "http://127.0.0.1:1", absent] {
        assert!(ended.stderr.contains(said), "{said} is not in {}", ended.stderr);
    }
    for flag in ["--bind-address", "--service-cluster-ip-range"] {
        assert!(!ended.stderr.contains(flag), "{flag} is passed over: {}", ended.stderr);
    }
}

#[test]
fn twenty_servers_run_side_by_side() {
    let home = tempfile::tempdir().unwrap();
    let server = assets(home.path()).join("kube-apiserver");
    let programs: Vec<(u16, Process)> = (0..20)
        .map(|_| {
            let port = free_port();
            let arguments = [format!("--secure-port={port}"), "--bind-address=127.0.0.1".to_owned()];
            (port, Process::start(Command::new(&server).args(arguments)))
        })
        .collect();
    for (port, program) in programs {
        eventually("the server listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        program.signal("TERM");
        let ended = program.end();
        assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
    }
}
