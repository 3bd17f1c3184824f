//! Client certificates: from the server's own CA, which the test can read, and from others.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};

use crate::security::refusals::wire::Credential;

pub(crate) fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), certificate)
}

/// The PEM of a certificate and its key. It is a client certificate, unless `change` changes that.
pub(crate) fn certificate(
    issuer: &Issuer<'_, KeyPair>,
    subject: &[(DnType, &str)],
    change: impl Fn(&mut CertificateParams),
) -> (String, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), *value);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem())
}

/// A certificate signing request in the form of the API.
pub(crate) fn request(name: &str, group: &str) -> String {
    request_of(&[(DnType::CommonName, name.into()), (DnType::OrganizationName, group.into())])
}

/// The same with any subject.
pub(crate) fn request_of(subject: &[(DnType, DnValue)]) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), value.clone());
    }
    STANDARD.encode(params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap())
}

/// A second common name beside [`DnType::CommonName`], because rcgen allows only one of these in a subject.
pub(crate) fn second_name() -> DnType {
    DnType::CustomDnType(vec![2, 5, 4, 3])
}

/// The senders with a certificate, made with the server's own CA, which the test can read, or with another.
pub(crate) fn all(home: &Path, pki: &Path) -> BTreeMap<String, Credential> {
    use DnType::{CommonName, OrganizationName};
    let masters = (OrganizationName, "system:masters");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let issuer_of = |name: &str| {
        let key = KeyPair::from_pem(&read(&pki.join(format!("{name}.key")))).unwrap();
        Issuer::from_ca_cert_pem(&read(&pki.join(format!("{name}.crt"))), key).unwrap()
    };
    let (ca, (other, _)) = (issuer_of("ca"), authority("steersman-ca"));
    let nothing = |_: &mut CertificateParams| {};
    let date = rcgen::date_time_ymd;
    let named = [(CommonName, "somebody"), masters.clone()];
    let mut all: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut add = |name: &str, pair| all.insert(name.to_owned(), pair);
    add("certified", certificate(&ca, &[(CommonName, "certified")], nothing));
    add("certified-master", certificate(&ca, &named, nothing));
    add("of-another-ca", certificate(&other, &named, nothing));
    add("expired-certificate", certificate(&ca, &named, |params| params.not_after = date(2020, 1, 1)));
    add("early-certificate", certificate(&ca, &named, |params| params.not_before = date(2090, 1, 1)));
    add(
        "for-servers-only",
        certificate(&ca, &named, |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
    );
    add("without-name", certificate(&ca, std::slice::from_ref(&masters), nothing));
    add("with-empty-name", certificate(&ca, &[(CommonName, ""), masters.clone()], nothing));
    add("group-in-name", certificate(&ca, &[(CommonName, "system:masters")], nothing));
    add(
        "group-in-other-case",
        certificate(&ca, &[(CommonName, "somebody"), (OrganizationName, "System:Masters")], nothing),
    );
    add(
        "group-with-blank",
        certificate(&ca, &[(CommonName, "somebody"), (OrganizationName, "system:masters ")], nothing),
    );
    add(
        "group-in-a-list",
        certificate(&ca, &[(CommonName, "somebody"), (OrganizationName, "a,system:masters")], nothing),
    );
    add(
        "group-as-unit",
        certificate(&ca, &[(CommonName, "somebody"), (DnType::OrganizationalUnitName, "system:masters")], nothing),
    );
    add("name-with-line-break", certificate(&ca, &[(CommonName, "a\r\nsystem:masters")], nothing));
    add("name-with-nul", certificate(&ca, &[(CommonName, "reader\0.example")], nothing));
    add("name-in-other-letters", certificate(&ca, &[(CommonName, "r\u{435}ader")], nothing));
    add("name-of-an-account", certificate(&ca, &[(CommonName, "system:serviceaccount:team:spare")], nothing));
    let nodes = (OrganizationName, "system:nodes");
    add("node-one", certificate(&ca, &[(CommonName, "system:node:n1"), nodes.clone()], nothing));
    let two = [(CommonName, "system:node:n1"), nodes.clone(), (second_name(), "somebody")];
    add("node-and-somebody", certificate(&ca, &two, nothing));
    add("node-without-group", certificate(&ca, &[(CommonName, "system:node:n1")], nothing));
    add("node-without-name", certificate(&ca, &[(CommonName, "system:node:"), nodes], nothing));
    // A user uses its own certificate as a CA.
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(CommonName, "certified");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let own = params.signed_by(&key, &ca).unwrap().pem();
    let (leaf, leaf_key) = certificate(&Issuer::new(params, key), &named, nothing);
    add("by-a-user", (format!("{leaf}{own}"), leaf_key));
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in named {
        params.distinguished_name.push(kind, value);
    }
    add("self-signed", (params.self_signed(&key).unwrap().pem(), key.serialize_pem()));
    add("the-server-itself", (read(&pki.join("server.crt")), read(&pki.join("server.key"))));
    for name in ["front-proxy", "other-proxy"] {
        add(name, (read(&home.join(format!("{name}.crt"))), read(&home.join(format!("{name}.key")))));
    }
    all.into_iter().map(|(name, (chain, key))| (name, Credential::Certificate(chain, key))).collect()
}
