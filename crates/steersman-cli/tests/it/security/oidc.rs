//! Users of a real OpenID Connect provider: node-oidc-provider on loopback, with TLS.

use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;

use crate::support::curl::{As, Curl};
use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::Plane;
use crate::support::process::Process;
use crate::support::{eventually, missing, on_path, root};

const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

struct Provider {
    process: Process,
    issuer: String,
    ca: PathBuf,
}

impl Provider {
    /// A provider that signs with this algorithm; `None`, with a message, if this machine has none.
    fn start(home: &Path, algorithm: &str) -> Option<Provider> {
        let modules = std::env::var_os("OIDC_PROVIDER_MODULES").filter(|_| on_path("node").is_some());
        let Some(modules) = modules else {
            missing("an OpenID Connect provider");
            return None;
        };
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let (ca, key_path) = (home.join("oidc.crt"), home.join("oidc.key"));
        std::fs::write(&ca, certificate.pem()).unwrap();
        std::fs::write(&key_path, key.serialize_pem()).unwrap();
        let mut command = Command::new("node");
        command.arg(root().join("tests/oidc/provider.mjs")).arg(modules).arg(&ca).arg(key_path);
        let mut process = Process::start(command.env("SIGNING_ALG", algorithm));
        let Some(line) = process.line() else { panic!("the provider has ended: {:#?}", process.end()) };
        let ready: Value = serde_json::from_str(&line).unwrap();
        Some(Provider { process, issuer: ready["issuer"].as_str().unwrap().to_owned(), ca })
    }

    /// A token of the client `robot`.
    fn token(&self) -> String {
        let mut command = Command::new("curl");
        command.args(["-sS", "-u", "robot:secret", "-d", "grant_type=client_credentials", "--cacert"]).arg(&self.ca);
        let ended = Process::start(command.arg(format!("{}/token", self.issuer))).end();
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:#?}"));
        answer["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    fn stop(self) {
        self.process.signal("KILL");
        self.process.end();
    }
}

/// The user of a token; `None` if it is refused.
fn who(curl: &Curl, token: &str) -> Option<Value> {
    let mut command = curl.request(As::Token(token), WHOAMI);
    // Over HTTP/2 this curl reports an error if a refusal arrives before it has sent its body.
    command.args(["--http1.1", "-H", "Content-Type: application/json", "-d", "{}"]);
    let ended = Process::start(&mut command).end();
    let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:#?}"));
    Some(answer["status"]["userInfo"].clone()).filter(Value::is_object)
}

/// The token with other claims, as made without the key.
fn forged(token: &str) -> String {
    let [header, claims, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!("{token}") };
    let first = if claims.starts_with('A') { 'B' } else { 'A' };
    format!("{header}.{first}{}.{signature}", &claims[1..])
}

#[test]
fn users_of_a_provider_sign_in_by_flags() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let Some(provider) = Provider::start(home.path(), "RS256") else { return };
    let flags = [
        "--oidc-issuer-url",
        &provider.issuer,
        "--oidc-client-id=steersman",
        "--oidc-groups-claim=groups",
        "--oidc-groups-prefix=oidc:",
        "--oidc-username-claim=email",
        "--oidc-required-claim=client_id=robot",
        "--oidc-ca-file",
        provider.ca.to_str().unwrap(),
    ];
    let plane = Plane::server(home.path(), &flags);
    let Some(curl) = Curl::new(&Kubectl::new(program, &plane.kubeconfig())) else { return };
    let token = provider.token();
    let user = eventually("the user of the provider", || who(&curl, &token));
    assert_eq!(user["username"], "robot@example.com");
    assert_eq!(user["groups"], serde_json::json!(["oidc:developers", "oidc:testers", "system:authenticated"]));
    assert_eq!(who(&curl, &forged(&token)), None);
    provider.stop();
    // The server has the keys, so tokens are valid while the provider is down.
    assert!(who(&curl, &token).is_some());
    plane.stop();
}

#[test]
fn users_of_a_provider_sign_in_by_a_configuration() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let Some(provider) = Provider::start(home.path(), "ES256") else { return };
    let write = |audience: &str| {
        let ca = std::fs::read_to_string(&provider.ca).unwrap();
        let configuration = serde_json::json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {"url": provider.issuer, "audiences": [audience], "certificateAuthority": ca},
                "claimMappings": {"username": {"claim": "sub", "prefix": "p:"}},
            }],
            "anonymous": {"enabled": true, "conditions": [{"path": "/livez"}]},
        });
        let path = home.path().join(format!("{audience}.yaml"));
        std::fs::write(&path, configuration.to_string()).unwrap();
        path
    };
    let token = provider.token();
    let path = write("steersman");
    let plane = Plane::server(home.path(), &["--authentication-config", path.to_str().unwrap()]);
    let curl = Curl::new(&Kubectl::new(program.clone(), &plane.kubeconfig()));
    let Some(curl) = curl else { return };
    let user = eventually("the user of the provider", || who(&curl, &token));
    assert_eq!(user["username"], "p:robot");
    assert_eq!((curl.get(As::Nobody, "/livez").0, curl.get(As::Nobody, "/readyz").0), (200, 401));
    plane.stop();

    let path = write("elsewhere");
    let plane = Plane::server(home.path(), &["--authentication-config", path.to_str().unwrap()]);
    let Some(curl) = Curl::new(&Kubectl::new(program, &plane.kubeconfig())) else { return };
    assert_eq!(who(&curl, &token), None, "for another audience");
    plane.stop();
    provider.stop();
}
