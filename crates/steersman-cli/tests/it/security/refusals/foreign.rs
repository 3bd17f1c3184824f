//! Services that the server relies on: an OpenID Connect issuer, and webhooks that know tokens and decide on requests.
//! All of them are one TLS server of the test, with a thread for each connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, PublicKeyData, SigningKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::security::refusals::certificates;

/// The audience of the issuer's tokens.
const AUDIENCE: &str = "steersman-refusals";

pub(crate) struct Foreign {
    url: String,
    /// The issuer's key.
    key: KeyPair,
    authority: String,
}

impl Foreign {
    pub(crate) fn start() -> Foreign {
        let (issuer, authority) = certificates::authority("foreign");
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let chain = vec![CertificateDer::from_pem_slice(certificate.pem().as_bytes()).unwrap()];
        let of_server = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, of_server).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let key = KeyPair::generate().unwrap();
        let (x, y) = key.der_bytes()[1..].split_at(32);
        let jwk = json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k", "x": encode(x), "y": encode(y)});
        let of_thread = url.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                let (config, url, jwk) = (config.clone(), of_thread.clone(), jwk.clone());
                std::thread::spawn(move || serve(stream, config, &url, &jwk));
            }
        });
        Foreign { url, key, authority }
    }

    /// Writes the files by which the server is configured for all of them, and returns its flags.
    pub(crate) fn flags(&self, home: &Path) -> Vec<String> {
        let file = |name: &str, text: &str| {
            let path = home.join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        file("foreign.crt", &self.authority);
        let hook = |name: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: h, user: u}}}}]\n\
                 clusters: [{{name: h, cluster: {{server: '{}/{name}', certificate-authority: foreign.crt}}}}]\n\
                 users: [{{name: u, user: {{}}}}]\n",
                self.url
            );
            file(&format!("{name}.kubeconfig"), &text)
        };
        let authentication = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthenticationConfiguration",
            "anonymous": {"enabled": true, "conditions": [{"path": "/livez"}]},
            "jwt": [{
                "issuer": {"url": self.url, "certificateAuthority": self.authority, "audiences": [AUDIENCE]},
                "claimMappings": {
                    "username": {"claim": "sub", "prefix": "oidc:"},
                    "groups": {"claim": "groups", "prefix": "oidc:"},
                },
            }],
        });
        let authorization = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthorizationConfiguration",
            "authorizers": [{"type": "Node", "name": "node"}, {"type": "RBAC", "name": "rbac"}, {
                "type": "Webhook",
                "name": "hook",
                "webhook": {
                    "timeout": "1s",
                    "subjectAccessReviewVersion": "v1",
                    "failurePolicy": "NoOpinion",
                    "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": hook("authorize")},
                },
            }],
        });
        vec![
            format!("--authentication-config={}", file("authentication.yaml", &authentication.to_string())),
            format!("--authentication-token-webhook-config-file={}", hook("authenticate")),
            "--authentication-token-webhook-version=v1".to_owned(),
            format!("--authorization-config={}", file("authorization.yaml", &authorization.to_string())),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
        ]
    }

    /// Tokens of the issuer, and invalid ones that look like them.
    pub(crate) fn tokens(&self) -> Vec<(&'static str, String)> {
        let now = jiff::Timestamp::now().as_second();
        let claims = |changes: Value| {
            let mut claims = json!({
                "iss": self.url, "aud": AUDIENCE, "sub": "jane", "iat": now, "exp": now + 3600, "groups": ["team"],
            });
            for (name, value) in changes.as_object().unwrap() {
                match value {
                    Value::Null => claims.as_object_mut().unwrap().remove(name),
                    value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
                };
            }
            claims
        };
        let header = json!({"alg": "ES256", "kid": "k", "typ": "JWT"});
        let issued = |changes: Value| sign(&header, &claims(changes), &self.key);
        let good = issued(json!({}));
        let (signed, signature) = good.rsplit_once('.').unwrap();
        let (head, _) = signed.split_once('.').unwrap();
        let body = |claims: &Value| encode(claims.to_string());
        let stranger = KeyPair::generate().unwrap();
        let masters = claims(json!({"sub": "jane", "groups": ["system:masters"]}));
        let spliced = format!("{head}.{}.{signature}", body(&masters));
        let none = |signature: &str| {
            format!("{}.{}.{signature}", encode(json!({"alg": "none"}).to_string()), body(&claims(json!({}))))
        };
        let mut flipped = URL_SAFE_NO_PAD.decode(signature).unwrap();
        flipped[40] ^= 1;
        let flipped = format!("{signed}.{}", encode(flipped));
        let zero = format!("{signed}.{}", encode([0; 64]));
        vec![
            ("of-issuer-master", issued(json!({"groups": ["system:masters"]}))),
            ("of-issuer-named-as-admin", issued(json!({"sub": "admin"}))),
            ("of-other-issuer", issued(json!({"iss": "https://elsewhere.example"}))),
            ("of-issuer-with-slash", issued(json!({"iss": format!("{}/", self.url)}))),
            ("of-issuer-for-another", issued(json!({"aud": "vault"}))),
            ("of-issuer-for-nobody", issued(json!({"aud": null}))),
            ("of-issuer-for-the-server", issued(json!({"aud": "https://kubernetes.default.svc"}))),
            ("of-issuer-expired", issued(json!({"exp": now - 120}))),
            ("of-issuer-without-end", issued(json!({"exp": null}))),
            ("of-issuer-not-yet", issued(json!({"nbf": now + 3600}))),
            ("of-issuer-without-name", issued(json!({"sub": null}))),
            ("of-issuer-name-a-number", issued(json!({"sub": 7}))),
            ("of-issuer-spliced", spliced),
            ("of-issuer-flipped", flipped),
            ("of-issuer-zero-signature", zero),
            ("of-issuer-unsigned", none("")),
            ("of-issuer-none-with-signature", none(signature)),
            ("of-issuer-by-a-stranger", sign(&header, &claims(json!({})), &stranger)),
            ("of-issuer-unknown-key", sign(&json!({"alg": "ES256", "kid": "other"}), &claims(json!({})), &stranger)),
            ("of-issuer-other-algorithm", sign(&json!({"alg": "RS256", "kid": "k"}), &claims(json!({})), &self.key)),
            ("of-issuer", good),
        ]
    }
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn sign(header: &Value, claims: &Value, key: &KeyPair) -> String {
    let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
    let signature = encode(plain(&key.sign(signed.as_bytes()).unwrap()));
    format!("{signed}.{signature}")
}

/// Converts a DER signature to the form of a JWT: its two numbers, 32 bytes each.
fn plain(der: &[u8]) -> Vec<u8> {
    let (mut rest, mut numbers) = (&der[2..], Vec::new());
    for _ in 0..2 {
        let (number, after) = rest[2..].split_at(usize::from(rest[1]));
        let number = &number[number.len().saturating_sub(32)..];
        numbers.extend(std::iter::repeat_n(0, 32 - number.len()).chain(number.iter().copied()));
        rest = after;
    }
    numbers
}

/// Answers the requests of one connection.
fn serve(stream: TcpStream, config: Arc<ServerConfig>, url: &str, jwk: &Value) -> Option<()> {
    let connection = ServerConnection::new(config).ok()?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
            if head.is_empty() {
                head = line;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        let path = head.split(' ').nth(1)?;
        let review: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (status, answer) = match path {
            "/.well-known/openid-configuration" => {
                (200, json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string())
            }
            "/keys" => (200, json!({"keys": [jwk]}).to_string()),
            "/authenticate" => authenticate(&review),
            "/authorize" => authorize(&review)?,
            _ => (404, "there is no such thing".to_owned()),
        };
        let head = format!(
            "HTTP/1.1 {status} S\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        stream.get_mut().write_all(format!("{head}{answer}").as_bytes()).ok()?;
        stream.get_mut().flush().ok()?;
    }
}

/// The webhook's answer about a token.
fn authenticate(review: &Value) -> (u16, String) {
    let status = match review["spec"]["token"].as_str().unwrap_or_default() {
        "hook-knows-0123456789" => json!({"authenticated": true, "user": {"username": "hooked"}}),
        "hook-nameless-0123456789" => json!({"authenticated": true, "user": {"groups": ["system:masters"]}}),
        "hook-elsewhere-0123456789" => {
            json!({"authenticated": true, "user": {"username": "hooked"}, "audiences": ["vault"]})
        }
        "hook-refuses-0123456789" => json!({"authenticated": false, "user": {"username": "hooked"}}),
        "hook-errs-0123456789" => {
            json!({"authenticated": true, "user": {"username": "hooked"}, "error": "no database"})
        }
        "hook-fails-0123456789" => return (403, "no".to_owned()),
        "hook-babbles-0123456789" => return (200, "{\"authenticated\": true".to_owned()),
        _ => json!({"authenticated": false}),
    };
    (200, json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}).to_string())
}

/// The webhook's answer about a request; `None` if it keeps its caller waiting until that disconnects.
fn authorize(review: &Value) -> Option<(u16, String)> {
    let status = match review["spec"]["user"].as_str().unwrap_or_default() {
        "judged-allowed" => json!({"allowed": true}),
        "judged-denied" => json!({"allowed": false, "denied": true, "reason": "not on Sundays"}),
        "judged-both" => json!({"allowed": true, "denied": true}),
        "judged-undecided" => json!({"allowed": false, "reason": "ask somebody else"}),
        "judged-failing" => return Some((403, "no".to_owned())),
        "judged-nonsense" => return Some((200, "allowed".to_owned())),
        "judged-late" => {
            std::thread::park_timeout(std::time::Duration::from_secs(5));
            return None;
        }
        _ => json!({"allowed": false}),
    };
    Some((
        200,
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status}).to_string(),
    ))
}
