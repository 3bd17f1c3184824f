//! Certificates, users and passwords.

use crate::support::cluster::Cluster;
use crate::support::{committed, connect, create, hurried, value};
use http::uri::PathAndQuery;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::error::Error as _;
use std::path::Path;
use steersman_storage::kv::Kv;
use steersman_storage_etcd::{Certificates, ConnectError, Etcd, Login, Options};

/// Requests of etcd's API that manage users, after etcd's `rpc.proto`.
mod management {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Two {
        #[prost(string, tag = "1")]
        pub(crate) first: String,
        #[prost(string, tag = "2")]
        pub(crate) second: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Grant {
        #[prost(string, tag = "1")]
        pub(crate) role: String,
        #[prost(message, optional, tag = "2")]
        pub(crate) permission: Option<Permission>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Permission {
        #[prost(int32, tag = "1")]
        pub(crate) kind: i32,
        #[prost(string, tag = "2")]
        pub(crate) key: String,
        #[prost(string, tag = "3")]
        pub(crate) range_end: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Nothing {}
}

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Authority { issuer }
    }

    /// The certificate and the key of an address.
    fn issue(&self, name: &str) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem().into_bytes(), key.serialize_pem().into_bytes())
    }

    fn pem(&self) -> Vec<u8> {
        self.issuer.pem().into_bytes()
    }
}

fn file(directory: &Path, name: &str, content: &[u8]) -> String {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The error and its sources.
fn chain(error: &ConnectError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[tokio::test]
async fn members_and_clients_show_certificates() {
    let scratch = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (certificate, key) = authority.issue("127.0.0.1");
    let path = |name: &str, content: &[u8]| file(scratch.path(), name, content);
    let (ca_file, cert_file) = (path("ca.crt", &authority.pem()), path("server.crt", &certificate));
    let key_file = path("server.key", &key);
    let flags =
        ["--client-cert-auth", "--trusted-ca-file", &ca_file, "--cert-file", &cert_file, "--key-file", &key_file];
    let Some(cluster) = Cluster::start_with(1, "https", &flags) else { return };
    let with = |certificates| hurried(cluster.options()).certificates(certificates);
    let ours = Certificates { authorities: authority.pem(), client: Some(authority.issue("steersman")) };
    let kv = connect(with(ours.clone())).await;
    committed(kv.txn(create("a", "1")).await);
    assert_eq!(value(&*kv, "a").await.unwrap(), "1");

    let nobody = Certificates { client: None, ..ours.clone() };
    let error = Etcd::connect(with(nobody)).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{}", chain(&error));
    let stranger = Certificates { client: Some(Authority::new().issue("steersman")), ..ours.clone() };
    let error = Etcd::connect(with(stranger)).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{}", chain(&error));
    let wrong = Certificates { authorities: Authority::new().pem(), ..ours };
    let error = Etcd::connect(with(wrong)).await.unwrap_err();
    assert!(chain(&error).contains("certificate"), "{}", chain(&error));
}

async fn manage<M: prost::Message + Clone + 'static>(url: &str, call: &'static str, request: M) {
    let channel = tonic::transport::Endpoint::from_shared(url.to_owned()).unwrap().connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<M, management::Nothing>::default();
    grpc.unary(tonic::Request::new(request), PathAndQuery::from_static(call), codec).await.unwrap();
}

/// Makes a user that may use one prefix, and turns authentication on.
async fn protect(url: &str, prefix: &str) {
    let two = |first: &str, second: &str| management::Two { first: first.to_owned(), second: second.to_owned() };
    for (user, password) in [("root", "all"), ("steersman", "secret")] {
        manage(url, "/etcdserverpb.Auth/UserAdd", two(user, password)).await;
    }
    for role in ["root", "storage"] {
        manage(url, "/etcdserverpb.Auth/RoleAdd", two(role, "")).await;
    }
    let permission = management::Permission { kind: 2, key: format!("{prefix}/"), range_end: format!("{prefix}0") };
    let grant = management::Grant { role: "storage".to_owned(), permission: Some(permission) };
    manage(url, "/etcdserverpb.Auth/RoleGrantPermission", grant).await;
    for (user, role) in [("root", "root"), ("steersman", "storage")] {
        manage(url, "/etcdserverpb.Auth/UserGrantRole", two(user, role)).await;
    }
    manage(url, "/etcdserverpb.Auth/AuthEnable", management::Nothing {}).await;
}

#[tokio::test]
async fn a_user_with_a_password_may_use_its_prefix_only() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    protect(&cluster.members[0].url, "/ours").await;
    let login = |password: &str| Login { user: "steersman".to_owned(), password: password.to_owned() };
    let options = |prefix: &str| -> Options { hurried(cluster.options()).prefix(prefix) };
    let own = options("/ours").login(login("secret"));
    let error = Etcd::connect(options("/theirs").login(login("secret"))).await.unwrap_err();
    assert!(chain(&error).contains("permission denied"), "{}", chain(&error));
    let error = Etcd::connect(options("/ours").login(login("guessed"))).await.unwrap_err();
    assert!(chain(&error).contains("authentication failed"), "{}", chain(&error));
    let error = Etcd::connect(options("/ours")).await.unwrap_err();
    assert!(chain(&error).contains("user"), "{}", chain(&error));

    let kv = connect(own).await;
    let revision = committed(kv.txn(create("a", "1")).await);
    let mut watch = kv.watch(steersman_machinery::Revision(revision.0 - 1));
    assert_eq!(crate::support::seen(&mut *watch, "a").await, revision);
    // Tokens end with the process that gave them.
    cluster.members[0].kill();
    cluster.members[0].start_again();
    let revision = committed(kv.txn(create("b", "1")).await);
    assert_eq!(crate::support::seen(&mut *watch, "b").await, revision);
}
