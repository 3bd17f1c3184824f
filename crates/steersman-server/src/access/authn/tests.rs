//! Tests of service account tokens against a store: which are valid, and which are not.

use super::*;
use crate::access::authn::service_account::Request;
use crate::access::authn::service_account::claims::Bound;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use steersman_machinery::{GroupResource, ObjectKey};
use steersman_storage::Memory;

const NOW: i64 = 1_800_000_000;

struct AccountServer {
    authenticator: Authenticator,
    store: Store,
    key: SigningKey,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

impl AccountServer {
    /// A store with the account `a/sa` of uid `u1`, and a key that both the authenticator and the test have.
    async fn new(algorithm: Algorithm) -> AccountServer {
        let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
        let (key, pem) = SigningKey::generate(algorithm).unwrap();
        let service_accounts = ServiceAccountOptions {
            keys: Arc::new(Keyring::given(Some(SigningKey::read(&pem).unwrap()), Vec::new())),
            ..ServiceAccountOptions::default()
        };
        let options = Options { service_accounts, ..Options::default() };
        let account_server = AccountServer { authenticator: Authenticator::new(options, store.clone()), store, key };
        account_server.put("serviceaccounts", "sa", json!({"uid": "u1"})).await;
        account_server
    }

    async fn put(&self, resource: &str, name: &str, metadata: Value) {
        let (resource, key) = (GroupResource::new("", resource), ObjectKey::namespaced("a", name));
        if let Some(old) = self.store.get(&resource, &key).await.unwrap() {
            self.store.delete(&resource, &key, old.revision).await.unwrap();
        }
        let object = json!({"metadata": metadata}).to_string();
        self.store.create(&resource, &key, object.into()).await.unwrap();
    }

    async fn remove(&self, resource: &str, name: &str) {
        let (resource, key) = (GroupResource::new("", resource), ObjectKey::namespaced("a", name));
        let old = self.store.get(&resource, &key).await.unwrap().unwrap();
        self.store.delete(&resource, &key, old.revision).await.unwrap();
    }

    async fn issue(&self, request: Request) -> String {
        let accounts = self.authenticator.service_accounts();
        accounts.issue(request, self.authenticator.audiences(), at(NOW)).await.unwrap().token
    }

    /// The user name of a token, or why it is refused.
    async fn name(&self, token: &str, second: i64) -> Result<String, String> {
        let audiences = self.authenticator.audiences();
        let identity = self.authenticator.token(token, audiences, &mut Notes::default(), at(second)).await;
        identity.map(|identity| identity.user.name.clone()).map_err(|rejected| rejected.to_string())
    }
}

fn request() -> Request {
    Request {
        namespace: "a".to_owned(),
        account: bound("sa", "u1"),
        pod: None,
        node: None,
        secret: None,
        audiences: vec![DEFAULT_ISSUER.to_owned()],
        seconds: 600,
    }
}

fn bound(name: &str, uid: &str) -> Bound {
    Bound { name: name.to_owned(), uid: uid.to_owned() }
}

/// The claims of a valid token, with some of them changed.
fn claims(changes: Value) -> Value {
    let mut claims = json!({
        "aud": [DEFAULT_ISSUER], "exp": NOW + 600, "iat": NOW, "nbf": NOW, "iss": DEFAULT_ISSUER, "jti": "j",
        "sub": "system:serviceaccount:a:sa",
        "kubernetes.io": {"namespace": "a", "serviceaccount": {"name": "sa", "uid": "u1"}},
    });
    claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    claims
}

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

#[tokio::test]
async fn a_forged_or_misused_token_is_refused() {
    for algorithm in [Algorithm::Es256, Algorithm::Rs256] {
        let account_server = AccountServer::new(algorithm).await;
        let sign = |changes: Value| jws::sign(&account_server.key, &claims(changes)).unwrap();
        let good = sign(json!({}));
        assert_eq!(account_server.name(&good, NOW).await.as_deref(), Ok("system:serviceaccount:a:sa"));
        let [header, body, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!("{good}") };
        let (other_key, _) = SigningKey::generate(algorithm).unwrap();
        let with_header = |header: Value| format!("{}.{body}.{signature}", encode(&header));
        let kid = account_server.key.public().id();
        let hmac = {
            let signed = format!("{}.{body}", encode(&json!({"alg": "HS256", "kid": kid})));
            // Signed with the public key, which everybody knows, as the secret.
            let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, kid.as_bytes());
            let tag = URL_SAFE_NO_PAD.encode(ring::hmac::sign(&secret, signed.as_bytes()));
            format!("{signed}.{tag}")
        };
        let other_of_kind = match algorithm {
            Algorithm::Es256 => "RS256",
            _ => "PS256",
        };
        let none = encode(&json!({"alg": "none"}));
        let unsigned = "its signature is not of a key of this server";
        let table = [
            ("nonsense", "nonsense".to_owned(), ""),
            ("two parts", format!("{header}.{body}"), ""),
            ("no header", format!(".{body}.{signature}"), ""),
            ("alg none", format!("{none}.{body}."), ""),
            ("alg none with a signature", format!("{none}.{body}.{signature}"), ""),
            ("alg None", format!("{}.{body}.", encode(&json!({"alg": "None"}))), ""),
            ("HMAC with the public key", hmac, ""),
            ("another algorithm of the key", with_header(json!({"alg": other_of_kind, "kid": kid})), unsigned),
            ("an extension", with_header(json!({"alg": algorithm.as_str(), "kid": kid, "crit": ["b64"]})), ""),
            ("an unknown key id", with_header(json!({"alg": algorithm.as_str(), "kid": "x"})), unsigned),
            ("another key", jws::sign(&other_key, &claims(json!({}))).unwrap(), unsigned),
            ("other claims", format!("{header}.{}.{signature}", encode(&claims(json!({"jti": "k"})))), unsigned),
            ("no signature", format!("{header}.{body}."), unsigned),
            ("another issuer", sign(json!({"iss": "https://elsewhere"})), ""),
            ("another subject", sign(json!({"sub": "system:serviceaccount:a:admin"})), "its subject"),
            ("another audience", sign(json!({"aud": ["vault"]})), "token audiences [\"vault\"] is invalid for"),
            ("over", sign(json!({"exp": NOW - 61})), "service account token has expired"),
            ("endless", sign(json!({"exp": null})), "service account token has expired"),
            ("not yet", sign(json!({"nbf": NOW + 61})), "service account token is not valid yet"),
            ("of the future", sign(json!({"iat": NOW + 61})), "service account token is issued in the future"),
            ("oversized", format!("{good}{}", "A".repeat(TOKEN_BYTES_MAX)), "it has"),
            (
                "an account that there is not",
                sign(json!({
                    "sub": "system:serviceaccount:a:sb",
                    "kubernetes.io": {"namespace": "a", "serviceaccount": {"name": "sb", "uid": "u1"}},
                })),
                "serviceaccounts \"sb\" not found",
            ),
            (
                "an account of another uid",
                sign(json!({"kubernetes.io": {"namespace": "a", "serviceaccount": {"name": "sa", "uid": "u0"}}})),
                "service account UID (u1) does not match claim (u0)",
            ),
        ];
        for (what, token, why) in table {
            let refused = account_server.name(&token, NOW).await.expect_err(what);
            let want = if why.is_empty() { "invalid bearer token" } else { why };
            assert!(refused.contains(want) && (!why.is_empty() || refused == want), "{what}: {refused}");
            // Caching the token does not make it valid.
            assert_eq!(account_server.name(&token, NOW).await.expect_err(what), refused, "{what}");
        }
        assert!(account_server.name(&good, NOW).await.is_ok());
    }
}

#[tokio::test]
async fn a_token_ends_with_its_time_though_it_is_remembered() {
    let account_server = AccountServer::new(Algorithm::Es256).await;
    let token = account_server.issue(request()).await;
    for (second, is_good) in [(NOW - 60, true), (NOW, true), (NOW + 660, true), (NOW + 661, false), (NOW - 61, false)] {
        assert_eq!(account_server.name(&token, second).await.is_ok(), is_good, "{second}");
    }
}

#[tokio::test]
async fn a_token_ends_with_what_it_is_bound_to() {
    let account_server = AccountServer::new(Algorithm::Es256).await;
    for resource in ["pods", "secrets"] {
        account_server.put(resource, "x", json!({"uid": "x1"})).await;
        let mut request = request();
        match resource {
            "pods" => request.pod = Some(bound("x", "x1")),
            _ => request.secret = Some(bound("x", "x1")),
        }
        let token = account_server.issue(request).await;
        assert!(account_server.name(&token, NOW).await.is_ok());
        let deleted_at = |second: i64| json!({"uid": "x1", "deletionTimestamp": at(second).to_string()});
        account_server.put(resource, "x", deleted_at(NOW - 60)).await;
        assert!(account_server.name(&token, NOW).await.is_ok(), "{resource} ends");
        account_server.put(resource, "x", deleted_at(NOW - 61)).await;
        assert!(account_server.name(&token, NOW).await.is_err(), "{resource} should have ended");
        account_server.put(resource, "x", json!({"uid": "x2"})).await;
        let refused = account_server.name(&token, NOW).await.unwrap_err();
        assert!(refused.contains("UID (x2) does not match service account"), "{refused}");
        account_server.remove(resource, "x").await;
        let refused = account_server.name(&token, NOW).await.unwrap_err();
        assert_eq!(refused, "[invalid bearer token, service account token has been invalidated]");
    }
    let token = account_server.issue(request()).await;
    account_server.put("serviceaccounts", "sa", json!({"uid": "u2"})).await;
    let refused = account_server.name(&token, NOW).await.unwrap_err();
    assert_eq!(refused, "[invalid bearer token, service account UID (u2) does not match claim (u1)]");
    account_server.remove("serviceaccounts", "sa").await;
    let refused = account_server.name(&token, NOW).await.unwrap_err();
    assert_eq!(refused, "[invalid bearer token, serviceaccounts \"sa\" not found]");
}

#[tokio::test]
async fn a_token_of_a_secret_is_good_while_the_secret_holds_it() {
    let account_server = AccountServer::new(Algorithm::Es256).await;
    let accounts = account_server.authenticator.service_accounts();
    let token = accounts.issue_legacy("a", &bound("sa", "u1"), "t", at(NOW)).await.unwrap();
    let (secrets, key) = (GroupResource::new("", "secrets"), ObjectKey::namespaced("a", "t"));
    assert!(account_server.name(&token, NOW).await.is_err(), "before it is in the secret");
    let secret = |data: Value| json!({"metadata": {"uid": "t1"}, "data": data}).to_string();
    let held = secret(json!({"token": STANDARD.encode(&token)}));
    let created = account_server.store.create(&secrets, &key, held.into()).await.unwrap();
    for second in [NOW, NOW + 100_000_000] {
        assert_eq!(account_server.name(&token, second).await.as_deref(), Ok("system:serviceaccount:a:sa"));
    }
    account_server.store.update(&secrets, &key, created.revision, secret(json!({})).into()).await.unwrap();
    let refused = account_server.name(&token, NOW).await.unwrap_err();
    assert_eq!(refused, "[invalid bearer token, service account token does not match server's copy]");
}

#[tokio::test]
async fn a_bad_credential_is_refused_where_none_is_needed() {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let of = |anonymous: Anonymous| {
        let tokens = Tokens::parse("secret,alice,1").unwrap();
        Authenticator::new(Options { tokens, anonymous, ..Options::default() }, store.clone())
    };
    let send = async |authenticator: &Authenticator, header: &[u8]| {
        let mut headers = HeaderMap::new();
        if !header.is_empty() {
            headers.insert(AUTHORIZATION, http::HeaderValue::from_bytes(header).unwrap());
        }
        let user = authenticator
            .authenticate(&headers, &http::Extensions::default(), "/healthz", &mut Notes::default(), at(NOW))
            .await;
        user.map(|user| user.name.clone())
    };
    let (open, closed) = (of(Anonymous::Always), of(Anonymous::At(vec!["/livez".to_owned()])));
    for (header, open_for, closed_for) in [
        (&b""[..], Some(ANONYMOUS), None),
        (b"Bearer secret", Some("alice"), Some("alice")),
        (b"bearer secret", Some("alice"), Some("alice")),
        (b"Bearer secret and more", Some("alice"), Some("alice")),
        (b"Bearer  secret", Some(ANONYMOUS), None),
        (b"Bearer wrong", None, None),
        (b"Bearer \xff", None, None),
        (b"Bearer ", Some(ANONYMOUS), None),
        (b"Basic YTpi", Some(ANONYMOUS), None),
    ] {
        assert_eq!(send(&open, header).await.as_deref(), open_for, "{header:?}");
        assert_eq!(send(&closed, header).await.as_deref(), closed_for, "{header:?}");
    }
}

#[tokio::test]
async fn what_a_proxy_says_counts_only_with_a_certificate_of_its_ca() {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let of = |request_header: Option<RequestHeader>| {
        Authenticator::new(
            Options { request_header, anonymous: Anonymous::Always, ..Options::default() },
            store.clone(),
        )
    };
    let believed = of(Some(RequestHeader {
        allowed_names: vec!["proxy".to_owned()],
        username_headers: vec![http::HeaderName::from_static("x-remote-user")],
        ..RequestHeader::default()
    }));
    let disbelieved = of(None);
    let send = async |authenticator: &Authenticator, peer: Option<Peer>, names_user: bool| {
        let (mut headers, mut extensions) = (HeaderMap::new(), http::Extensions::new());
        if names_user {
            headers.insert("x-remote-user", "jane".parse().unwrap());
        }
        if let Some(peer) = peer {
            extensions.insert(peer);
        }
        let user = authenticator.authenticate(&headers, &extensions, "/api", &mut Notes::default(), at(NOW)).await;
        user.map(|user| user.name.clone()).unwrap_or_default()
    };
    let alice = || User::authenticated("alice", []);
    assert_eq!(send(&believed, Some(Peer::proxy("proxy", None)), true).await, "jane");
    assert_eq!(send(&believed, Some(Peer::proxy("proxy", Some(alice()))), true).await, "jane");
    assert_eq!(send(&believed, Some(Peer::proxy("proxy", Some(alice()))), false).await, "alice");
    assert_eq!(send(&believed, Some(Peer::proxy("other", Some(alice()))), true).await, "alice");
    // The certificate of a user, and none at all.
    assert_eq!(send(&believed, Some(Peer::new(alice())), true).await, "alice");
    assert_eq!(send(&believed, None, true).await, ANONYMOUS);
    // A client whose certificate is not a user's is not anonymous.
    assert_eq!(send(&disbelieved, Some(Peer::proxy("proxy", None)), true).await, "");
    assert_eq!(send(&believed, Some(Peer::refused()), true).await, "");
}

#[tokio::test]
async fn a_certificate_is_good_until_it_ends_though_its_connection_lasts() {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let request_header = RequestHeader {
        username_headers: vec![http::HeaderName::from_static("x-remote-user")],
        ..RequestHeader::default()
    };
    let options = Options {
        request_header: Some(request_header),
        anonymous: Anonymous::Always,
        tokens: Tokens::parse("secret,bob,1").unwrap(),
        ..Options::default()
    };
    let authenticator = Authenticator::new(options, store);
    let send = async |peer: Peer, header: (&'static str, &str), second: i64| {
        let (mut headers, mut extensions) = (HeaderMap::new(), http::Extensions::new());
        headers.insert(header.0, header.1.parse().unwrap());
        extensions.insert(peer.until(Some(at(NOW))));
        let user = authenticator.authenticate(&headers, &extensions, "/api", &mut Notes::default(), at(second)).await;
        user.map(|user| user.name.clone()).unwrap_or_default()
    };
    let alice = || Peer::new(User::authenticated("alice", []));
    let (jane, token) = (("x-remote-user", "jane"), ("authorization", "Bearer secret"));
    assert_eq!(send(alice(), token, NOW).await, "alice");
    assert_eq!(send(alice(), jane, NOW + 1).await, "");
    // With a valid token such a client is the user of the token.
    assert_eq!(send(alice(), token, NOW + 1).await, "bob");
    assert_eq!(send(Peer::proxy("proxy", None), jane, NOW).await, "jane");
    assert_eq!(send(Peer::proxy("proxy", None), jane, NOW + 1).await, "");
}

#[tokio::test]
async fn a_static_token_is_for_the_audiences_of_the_server() {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let tokens = Tokens::parse("secret,alice,1").unwrap();
    let authenticator = Authenticator::new(Options { tokens, ..Options::default() }, store);
    let vault = ["vault".to_owned()];
    assert_eq!(authenticator.token("secret", &vault, &mut Notes::default(), at(NOW)).await, Err(Rejected::default()));
    let both = ["vault".to_owned(), DEFAULT_ISSUER.to_owned()];
    let identity = authenticator.token("secret", &both, &mut Notes::default(), at(NOW)).await.unwrap();
    assert_eq!(identity.audiences, [DEFAULT_ISSUER]);
}
