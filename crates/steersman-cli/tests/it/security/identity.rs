//! Authentication: tokens of service accounts with the stock kubectl, configured keys, proxies, requests without
//! credentials.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::Value;
use steersman_server::authn::{Algorithm, SigningKey};

use crate::support::curl::{As, Curl};
use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::{Plane, run, steersman};
use crate::support::process::Process;
use crate::support::{eventually, missing};

const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A part of a token as JSON.
fn part(token: &str, index: usize) -> Value {
    let part = token.split('.').nth(index).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

/// The user of a request for [`WHOAMI`].
#[track_caller]
fn who(command: &mut Command) -> Option<String> {
    let ended = Process::start(command).end();
    let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:#?}"));
    answer["status"]["userInfo"]["username"].as_str().map(str::to_owned)
}

#[test]
fn token_of_an_account_is_good_across_a_restart_and_ends_with_the_account() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let keys = home.path().join("data/pki/service-accounts");
    assert!(!keys.exists(), "a server that issues no token makes no key");
    let kubectl = Kubectl::new(program.clone(), &plane.kubeconfig());
    kubectl.ok("create serviceaccount robot");
    let token = kubectl.ok("create token robot --duration=1h");
    assert_eq!((part(&token, 0)["alg"].as_str(), std::fs::read_dir(&keys).unwrap().count()), (Some("RS256"), 1));
    let name = "system:serviceaccount:default:robot";
    if let Some(curl) = Curl::new(&kubectl) {
        let mut command = curl.request(As::Token(&token), WHOAMI);
        assert_eq!(who(command.args(["-H", "Content-Type: application/json", "-d", "{}"])).as_deref(), Some(name));
    }
    plane.stop();

    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    let curl = Curl::new(&kubectl);
    if let Some(curl) = &curl {
        assert_eq!(curl.get(As::Token(&token), "/api").0, 200);
    }
    let again = kubectl.ok("create token robot");
    assert_eq!(part(&token, 0)["kid"], part(&again, 0)["kid"], "the key is the same");
    kubectl.apply(
        r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": "robot"}}, "type": "kubernetes.io/service-account-token"}"#,
    );
    let held = eventually("the Secret has a token", || {
        Some(kubectl.json("get secret t")).filter(|secret| secret["data"]["token"].is_string())
    });
    let held = String::from_utf8(STANDARD.decode(held["data"]["token"].as_str().unwrap()).unwrap()).unwrap();
    assert_eq!(part(&held, 1)["sub"], name);
    kubectl.ok("delete serviceaccount robot");
    if let Some(curl) = &curl {
        for token in [&token, &again, &held] {
            assert_eq!(curl.get(As::Token(token), "/api").0, 401);
        }
    }
    plane.stop();
}

#[test]
fn keys_issuer_and_audiences_can_be_given() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let (_, pem) = SigningKey::generate(Algorithm::Es256).unwrap();
    let path = home.path().join("sa.key");
    std::fs::write(&path, pem).unwrap();
    let key = path.to_str().unwrap();
    let flags = [
        "--service-account-signing-key-file",
        key,
        "--service-account-key-file",
        key,
        "--service-account-issuer=https://issuer.example",
        "--api-audiences=here,there",
        "--service-account-max-token-expiration=2h",
    ];
    let plane = Plane::server(home.path(), &flags);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("create serviceaccount robot");
    let ended = kubectl.run("create token robot --duration=3h");
    assert!(ended.stderr.contains("requested expiration of 10800 seconds shortened to 7200 seconds"), "{ended:#?}");
    let (header, claims) = (part(&ended.stdout, 0), part(&ended.stdout, 1));
    assert_eq!((&header["alg"], &claims["iss"]), (&"ES256".into(), &"https://issuer.example".into()));
    assert_eq!(claims["aud"], serde_json::json!(["here", "there"]));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 7200);
    let configuration: Value =
        serde_json::from_str(&kubectl.ok("get --raw /.well-known/openid-configuration")).unwrap();
    assert_eq!(configuration["issuer"], "https://issuer.example");
    assert!(!home.path().join("data/pki/service-accounts").exists());
    plane.stop();
}

#[test]
fn key_files_that_cannot_be_used_are_named() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("odd.pem");
    std::fs::write(&path, "nothing").unwrap();
    for flag in ["--service-account-signing-key-file", "--service-account-key-file", "--requestheader-client-ca-file"] {
        for file in [path.to_str().unwrap(), "no/such/file"] {
            let ended = run(home.path(), ["server", "--listen", "127.0.0.1:0", flag, file]);
            assert_eq!(ended.status.code(), Some(2), "{ended:#?}");
            assert!(ended.stderr.contains(file), "{ended:#?}");
        }
    }
}

#[test]
fn requests_without_credentials_are_answered_where_that_is_wanted() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &["--anonymous-auth"]);
    let Some(curl) = Curl::new(&Kubectl::new(program, &plane.kubeconfig())) else { return };
    assert_eq!(curl.get(As::Nobody, "/healthz"), (200, "ok".to_owned()));
    let (code, body) = curl.get(As::Nobody, "/api/v1/namespaces");
    assert!(code == 403 && body.contains("User \\\"system:anonymous\\\" cannot list"), "{body}");
    assert_eq!(curl.get(As::Token("wrong"), "/healthz").0, 401);
    plane.stop();
}

/// Writes a CA, and a client certificate that it has signed, with its key.
fn write_certificates(dir: &Path, name: &str) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "proxies");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let leaf = params.signed_by(&key, &issuer).unwrap();
    std::fs::write(dir.join("proxies.crt"), ca.pem()).unwrap();
    std::fs::write(dir.join("proxy.crt"), leaf.pem()).unwrap();
    std::fs::write(dir.join("proxy.key"), key.serialize_pem()).unwrap();
}

#[test]
fn headers_about_a_user_count_with_a_certificate_of_the_proxies_ca_alone() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    write_certificates(home.path(), "front-proxy-client");
    let ca = home.path().join("proxies.crt");
    let flags = ["--requestheader-client-ca-file", ca.to_str().unwrap()];
    let plane =
        Plane::server(home.path(), &[&flags[..], &["--requestheader-allowed-names=front-proxy-client"]].concat());
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    let Some(curl) = Curl::new(&kubectl) else { return };
    let who = |certificate: Option<[&str; 2]>| {
        let mut command = curl.request(As::Nobody, WHOAMI);
        command.args(["-H", "Content-Type: application/json", "-H", "X-Remote-User: jane", "-d", "{}"]);
        if let Some([certificate, key]) = certificate {
            command.arg("--cert").arg(home.path().join(certificate)).arg("--key").arg(home.path().join(key));
        }
        who(&mut command)
    };
    assert_eq!(who(Some(["proxy.crt", "proxy.key"])).as_deref(), Some("jane"));
    assert_eq!(who(None), None);
    assert_eq!(who(Some(["data/pki/admin.crt", "data/pki/admin.key"])).as_deref(), Some("kubernetes-admin"));
    plane.stop();
}

#[test]
fn command_runs_as_an_account_as_in_a_pod() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program.clone(), &plane.kubeconfig());
    kubectl.ok("create serviceaccount robot");
    let kubeconfig = plane.kubeconfig();
    let runtime_dir = home.path().join("runtime");
    std::fs::create_dir(&runtime_dir).unwrap();
    let run_as = |account: &str, script: &str| {
        let mut command = steersman(home.path());
        command.args(["run-as", account, "--kubeconfig"]).arg(&kubeconfig).args(["--", "sh", "-c", script]);
        command.env("KUBECTL", &program).env("KUBECACHEDIR", home.path().join("cache"));
        command.env("XDG_RUNTIME_DIR", &runtime_dir);
        Process::start(&mut command)
    };
    const WHO: &str = "\"$KUBECTL\" auth whoami -o jsonpath={.status.userInfo.username}";
    let name = "system:serviceaccount:default:robot";
    assert_eq!(run_as("default/robot", WHO).end().stdout, name);
    let ended = run_as("default/robot", "test -e /var/run/secrets/kubernetes.io/serviceaccount/token").end();
    if ended.stderr.contains("mount namespace") {
        missing("a mount namespace for users who are not root");
    } else {
        assert!(ended.status.success(), "{ended:#?}");
        // In-cluster configuration: only the standard path and the two variables.
        let ended = run_as("default/robot", &format!("unset KUBECONFIG; ls /run >&2; {WHO}")).end();
        assert_eq!(ended.stdout, name, "{ended:#?}");
        let ended = run_as("default/robot", "cat /var/run/secrets/kubernetes.io/serviceaccount/namespace").end();
        assert_eq!(ended.stdout, "default", "{ended:#?}");
        assert!(!Path::new("/var/run/secrets/kubernetes.io/serviceaccount/token").exists(), "for nobody else");
    }
    assert_eq!(run_as("default/robot", "exit 7").end().status.code(), Some(7));
    let ended = run_as("default/nobody", "true").end();
    assert_eq!(ended.status.code(), Some(2), "{ended:#?}");
    let want = "steersman: there is no token for the account default/nobody: serviceaccounts \"nobody\" not found; \
                make it with: kubectl create serviceaccount nobody --namespace default\n";
    assert_eq!(ended.stderr, want);

    let mut waiting = run_as("default/robot", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done");
    assert_eq!(waiting.line().as_deref(), Some("ready"));
    waiting.signal("TERM");
    assert_eq!(waiting.end().status.code(), Some(9), "it was told, and ended in its own way");
    assert_eq!(std::fs::read_dir(&runtime_dir).unwrap().count(), 0, "no token stays");
    plane.stop();
}

#[test]
fn command_runs_as_an_account_by_a_user_who_is_not_root() {
    const NOBODY: u32 = 65_534;
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("create serviceaccount robot");
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        // Then `command_runs_as_an_account_as_in_a_pod` is that test.
        plane.stop();
        return;
    }
    let theirs = tempfile::tempdir().unwrap();
    std::fs::set_permissions(theirs.path(), Permissions::from_mode(0o755)).unwrap();
    let kubeconfig = theirs.path().join("kubeconfig");
    std::fs::copy(plane.kubeconfig(), &kubeconfig).unwrap();
    std::fs::set_permissions(&kubeconfig, Permissions::from_mode(0o644)).unwrap();
    let runtime_dir = theirs.path().join("runtime");
    std::fs::create_dir(&runtime_dir).unwrap();
    std::os::unix::fs::chown(&runtime_dir, Some(NOBODY), Some(NOBODY)).unwrap();
    let run_as = |script: &str| {
        let mut command = steersman(theirs.path());
        command.args(["run-as", "default/robot", "--kubeconfig"]).arg(&kubeconfig).args(["--", "sh", "-c", script]);
        command.env("XDG_RUNTIME_DIR", &runtime_dir).current_dir("/").uid(NOBODY).gid(NOBODY);
        command
    };
    if let Err(error) = run_as("true").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        missing(&format!("a way for another user to run the program ({error})"));
        plane.stop();
        return;
    }
    let script = "id -u; stat -c %a \"$(dirname \"$KUBECONFIG\")\"; cut -d. -f2 \"$(dirname \"$KUBECONFIG\")/token\"";
    let ended = Process::start(&mut run_as(script)).end();
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let [uid, mode, claims] = lines.as_slice() else { panic!("{ended:#?}") };
    // In its own mount namespace, a user is root.
    assert!(["0", "65534"].contains(uid), "{ended:#?}");
    assert_eq!(*mode, "700");
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    assert_eq!(claims["sub"], "system:serviceaccount:default:robot");
    assert_eq!(std::fs::read_dir(&runtime_dir).unwrap().count(), 0, "no token stays");
    plane.stop();
}

#[test]
fn tokens_of_another_server_are_known_by_a_webhook_to_it() {
    let Some(program) = kubectl::program() else { return };
    let (home, other_home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = Plane::server(other_home.path(), &[]);
    let other_kubectl = Kubectl::new(program.clone(), &other.kubeconfig());
    other_kubectl.ok("create serviceaccount robot");
    let token = other_kubectl.ok("create token robot");
    let pki = other_home.path().join("data/pki");
    let webhook = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {
            "server": format!("https://{}/apis/authentication.k8s.io/v1/tokenreviews", other.listen()),
            "certificate-authority": pki.join("ca.crt"),
        }}],
        "users": [{"name": "u", "user": {"client-certificate": pki.join("admin.crt"), "client-key": pki.join("admin.key")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    });
    let path = home.path().join("webhook");
    std::fs::write(&path, webhook.to_string()).unwrap();
    let flags = [
        "--authentication-token-webhook-config-file",
        path.to_str().unwrap(),
        "--authentication-token-webhook-version=v1",
        "--authentication-token-webhook-cache-ttl=0s",
    ];
    let plane = Plane::server(home.path(), &flags);
    let Some(curl) = Curl::new(&Kubectl::new(program, &plane.kubeconfig())) else { return };
    let who_of = |token: &str| {
        let mut command = curl.request(As::Token(token), WHOAMI);
        who(command.args(["-H", "Content-Type: application/json", "-d", "{}"]))
    };
    assert_eq!(who_of(&token).as_deref(), Some("system:serviceaccount:default:robot"));
    assert_eq!(who_of("wrong"), None);
    other_kubectl.ok("delete serviceaccount robot");
    assert_eq!(who_of(&token), None);
    other.stop();
    assert_eq!(who_of(&token), None);
    plane.stop();
}
