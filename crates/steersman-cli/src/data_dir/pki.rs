//! The certificates of a data directory: a CA, a server certificate, an administrator certificate.
//!
//! They are made at the first start, kept, and renewed when they are about to expire or the server's address changes;
//! [`crate::data_dir::renewal`] does that while the server runs. The CA stays, so distributed kubeconfigs keep working; a CA
//! whose certificate or key is missing is refused, not replaced.

use crate::Failure;
use crate::connections::client_certificates::ClientCertificates;
use crate::connections::serving::ServingCertificate;
use crate::connections::tls_policy::TlsPolicy;
use crate::data_dir::files::{self, Rights};
use anyhow::{Context, anyhow};
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::NoServerSessionStorage;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use x509_parser::extensions::GeneralName;

const CA_YEARS: i64 = 10;
const LEAF_DAYS: i64 = 365;
/// A certificate that expires within this many days is renewed.
const RENEW_DAYS: i64 = 30;
const HOST_NAMES: [&str; 5] =
    ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];

/// A certificate and its key, both PEM. Without `Debug`, because a key must not be logged.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The certificates of a data directory.
pub(crate) struct Pki {
    pub(crate) ca: String,
    pub(crate) server: Pair,
    pub(crate) admin: Pair,
}

/// The CA of the front proxy, and the certificate with which this server is one.
pub(crate) struct FrontProxy {
    pub(crate) ca: String,
    pub(crate) client: Pair,
}

/// The TLS configuration of the server.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) serving: Arc<ServingCertificate>,
    pub(crate) clients: Arc<ClientCertificates>,
}

/// Reads the CA of a directory, if it has one. Changes nothing.
pub(crate) fn read_ca(dir: &Path) -> Result<Option<Pair>, Failure> {
    let refused = |what: &str| {
        Failure::Refused(format!(
            "the CA in {} cannot be used, for {what}: put back what was there, or remove the directory to have a new CA, which ends the use of kubeconfigs handed out before",
            dir.display()
        ))
    };
    match (read_file(dir, "ca.crt")?, read_file(dir, "ca.key")?) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(refused("ca.crt is missing")),
        (Some(_), None) => Err(refused("ca.key is missing")),
        (Some(certificate), Some(key)) => {
            let ca = Pair { certificate, key };
            if belong_together(&ca) { Ok(Some(ca)) } else { Err(refused("ca.key is not the key of ca.crt")) }
        }
    }
}

/// A new CA.
pub(crate) fn new_ca(now: Timestamp) -> anyhow::Result<Pair> {
    signed_by_itself(&ca_params("steersman-ca", now)?)
}

fn signed_by_itself(params: &CertificateParams) -> anyhow::Result<Pair> {
    let key = KeyPair::generate().context("no key can be made for a CA")?;
    let certificate = params.self_signed(&key).context("the certificate of a CA cannot be signed")?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Reads the certificates of a directory, and makes those that are missing or not valid for the names of the server.
pub(crate) fn prepare(
    dir: &Path,
    ca: Option<Pair>,
    names: &[ServerName<'static>],
    now: Timestamp,
) -> anyhow::Result<Pki> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    // An existing directory may be open to others.
    made.and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(0o700)))
        .with_context(|| format!("the directory {} cannot be made", dir.display()))?;
    let ca = match ca {
        Some(ca) => ca,
        None => new_ca(now)?,
    };
    write(dir, "ca", &ca)?;
    let leaf = |name: &str, params: CertificateParams, names: &[ServerName<'static>]| -> anyhow::Result<Pair> {
        let found = read(dir, name)?;
        if let Some(pair) = &found
            && !is_issued_by(&pair.certificate, &ca.certificate)
        {
            set_aside(dir, name)?;
        }
        match found.filter(|pair| is_good(pair, &ca.certificate, names, now)) {
            Some(pair) => Ok(pair),
            None => make(dir, name, params, &ca),
        }
    };
    let server = leaf("server", server_params(names, now)?, names)?;
    let admin = leaf("admin", admin_params(now)?, &[])?;
    Ok(Pki { ca: ca.certificate, server, admin })
}

/// Reads the certificates of the front proxy, and makes those that are missing or about to expire. They have a CA of their
/// own: whoever has one is believed whatever he says about users.
pub(crate) fn front_proxy(dir: &Path, name: &str, now: Timestamp) -> anyhow::Result<FrontProxy> {
    let (ca_name, client_name) = ("front-proxy-ca", "front-proxy-client");
    let is_lasting = |ca: &Pair| belong_together(ca) && is_good(ca, &ca.certificate, &[], now);
    let ca = match read(dir, ca_name)?.filter(is_lasting) {
        Some(ca) => ca,
        None => {
            let ca = signed_by_itself(&ca_params("steersman-front-proxy-ca", now)?)?;
            write(dir, ca_name, &ca)?;
            ca
        }
    };
    // As long as its CA, since it is not renewed while the server runs.
    let client = client(dir, client_name, params(name, None, CA_YEARS * 365, now)?, &ca, now)?;
    Ok(FrontProxy { ca: ca.certificate, client })
}

/// Reads the certificate with which kubelets are called, and makes it if it is missing or about to expire, as kubeadm does.
pub(crate) fn kubelet_client(dir: &Path, ca: &Pair, now: Timestamp) -> anyhow::Result<Pair> {
    // As long as its CA, since it is not renewed while the server runs.
    let masters = Some(steersman_server::user::MASTERS);
    let params = params("kube-apiserver-kubelet-client", masters, CA_YEARS * 365, now)?;
    client(dir, "apiserver-kubelet-client", params, ca, now)
}

fn client(dir: &Path, name: &str, mut params: CertificateParams, ca: &Pair, now: Timestamp) -> anyhow::Result<Pair> {
    if let Some(found) = read(dir, name)?.filter(|pair| is_good(pair, &ca.certificate, &[], now)) {
        return Ok(found);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    make(dir, name, params, ca)
}

impl Pki {
    /// The TLS configuration of the server: clients may show a certificate of the CA, one of the proxies' CA, or none.
    /// The server's own certificate can be replaced.
    pub(crate) fn server_config(&self, proxies: Option<&str>, policy: &TlsPolicy) -> anyhow::Result<Tls> {
        let provider = policy.provider.clone();
        let clients = Arc::new(ClientCertificates::new(Some(&self.ca), proxies, &provider)?);
        let serving = Arc::new(ServingCertificate::new(&self.server, provider)?);
        Ok(Tls { config: Arc::new(tls(clients.clone(), serving.clone(), policy)?), serving, clients })
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A TLS configuration with which clients may show one of these certificates, or none.
pub(crate) fn tls(
    clients: Arc<ClientCertificates>,
    serving: Arc<ServingCertificate>,
    policy: &TlsPolicy,
) -> anyhow::Result<ServerConfig> {
    let config = ServerConfig::builder_with_provider(policy.provider.clone());
    let config = config.with_protocol_versions(policy.versions)?;
    let mut config = config.with_client_cert_verifier(clients).with_cert_resolver(serving);
    // No resumption: a client keeps its connection, kubectl stores nothing between runs, and a new connection shows a
    // certificate that is checked again. Tickets would cost a signature's time and some KB each.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = policy.protocols();
    Ok(config)
}

/// A self-signed server certificate.
pub(crate) fn self_signed(addresses: &[IpAddr]) -> anyhow::Result<Pair> {
    let mut all = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from(std::net::Ipv6Addr::LOCALHOST)];
    for address in addresses {
        if !address.is_unspecified() && !all.contains(address) {
            all.push(*address);
        }
    }
    let key = KeyPair::generate()?;
    let names: Vec<_> = all.into_iter().map(|address| ServerName::IpAddress(address.into())).collect();
    let certificate = server_params(&names, Timestamp::now())?.self_signed(&key)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn read(dir: &Path, name: &str) -> anyhow::Result<Option<Pair>> {
    match (read_file(dir, &format!("{name}.crt"))?, read_file(dir, &format!("{name}.key"))?) {
        (Some(certificate), Some(key)) => Ok(Some(Pair { certificate, key })),
        _ => Ok(None),
    }
}

/// Keeps a certificate of another CA, and its key, beside those that take their place.
fn set_aside(dir: &Path, name: &str) -> anyhow::Result<()> {
    for ending in ["crt", "key"] {
        let path = dir.join(format!("{name}.{ending}"));
        let kept = path.with_added_extension("replaced");
        fs::rename(&path, &kept)
            .with_context(|| format!("{} cannot be renamed to {}", path.display(), kept.display()))?;
        tracing::warn!(path = %path.display(), kept = %kept.display(), "a certificate that the CA of this directory has not issued is replaced by one of this CA");
    }
    Ok(())
}

fn read_file(dir: &Path, name: &str) -> anyhow::Result<Option<String>> {
    let path = dir.join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(anyhow!(error).context(format!("{} cannot be read", path.display()))),
    }
}

fn make(dir: &Path, name: &str, params: CertificateParams, ca: &Pair) -> anyhow::Result<Pair> {
    let key = KeyPair::generate().with_context(|| format!("no key can be made for {name}"))?;
    let ca_key = KeyPair::from_pem(&ca.key).context("the key of the CA cannot be read")?;
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate, ca_key).context("the CA cannot be read")?;
    let certificate =
        params.signed_by(&key, &issuer).with_context(|| format!("the certificate {name} cannot be signed"))?;
    let pair = Pair { certificate: certificate.pem(), key: key.serialize_pem() };
    write(dir, name, &pair)?;
    Ok(pair)
}

fn write(dir: &Path, name: &str, pair: &Pair) -> anyhow::Result<()> {
    for (ending, text, rights) in [("key", &pair.key, Rights::Secret), ("crt", &pair.certificate, Rights::Public)] {
        let path = dir.join(format!("{name}.{ending}"));
        files::write(&path, text.as_bytes(), rights)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

fn ca_params(name: &str, now: Timestamp) -> anyhow::Result<CertificateParams> {
    let mut params = params(name, None, CA_YEARS * 365, now)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn server_params(names: &[ServerName<'_>], now: Timestamp) -> anyhow::Result<CertificateParams> {
    let mut params = params("steersman-server", None, LEAF_DAYS, now)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for name in HOST_NAMES {
        params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
    }
    for name in names {
        params.subject_alt_names.push(match name {
            ServerName::DnsName(name) => SanType::DnsName(name.as_ref().try_into()?),
            ServerName::IpAddress(address) => SanType::IpAddress((*address).into()),
            other => return Err(anyhow!("a certificate cannot have the name {other:?}")),
        });
    }
    Ok(params)
}

fn admin_params(now: Timestamp) -> anyhow::Result<CertificateParams> {
    let mut params = params("kubernetes-admin", Some(steersman_server::user::MASTERS), LEAF_DAYS, now)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn params(
    common_name: &str,
    organization: Option<&str>,
    days: i64,
    now: Timestamp,
) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let now = now.to_zoned(TimeZone::UTC);
    // Valid from a day before, for peers whose clocks are slow.
    let (from, to) = (now.checked_sub(1.day())?, now.checked_add(days.days())?);
    params.not_before =
        rcgen::date_time_ymd(from.year().into(), u8::try_from(from.month())?, u8::try_from(from.day())?);
    params.not_after = rcgen::date_time_ymd(to.year().into(), u8::try_from(to.month())?, u8::try_from(to.day())?);
    Ok(params)
}

/// Whether a key belongs to its certificate.
fn belong_together(pair: &Pair) -> bool {
    let Ok(der) = CertificateDer::from_pem_slice(pair.certificate.as_bytes()) else { return false };
    let (Ok((_, certificate)), Ok(key)) = (x509_parser::parse_x509_certificate(&der), KeyPair::from_pem(&pair.key))
    else {
        return false;
    };
    certificate.public_key().raw == key.subject_public_key_info()
}

/// Whether a certificate is signed by a CA.
fn is_issued_by(certificate: &str, ca: &str) -> bool {
    let read = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes());
    let (Ok(leaf), Ok(ca)) = (read(certificate), read(ca)) else { return false };
    let (Ok((_, leaf)), Ok((_, ca))) =
        (x509_parser::parse_x509_certificate(&leaf), x509_parser::parse_x509_certificate(&ca))
    else {
        return false;
    };
    // The name of a CA is no evidence: every CA made here has the same.
    leaf.issuer() == ca.subject() && leaf.verify_signature(Some(ca.public_key())).is_ok()
}

/// Whether a certificate has its key, was signed by this CA, does not expire soon and is valid for the names.
fn is_good(pair: &Pair, ca: &str, wanted: &[ServerName<'_>], now: Timestamp) -> bool {
    let Ok(leaf) = CertificateDer::from_pem_slice(pair.certificate.as_bytes()) else { return false };
    let Ok((_, leaf)) = x509_parser::parse_x509_certificate(&leaf) else { return false };
    let ends = leaf.validity().not_after.timestamp();
    let renew = now.as_second() + RENEW_DAYS * 24 * 3600;
    let names = leaf
        .subject_alternative_name()
        .ok()
        .flatten()
        .map(|names| names.value.general_names.clone())
        .unwrap_or_default();
    let is_named = |wanted: &ServerName<'_>| match wanted {
        ServerName::DnsName(wanted) => {
            names.iter().any(|name| matches!(name, GeneralName::DNSName(name) if *name == wanted.as_ref()))
        }
        ServerName::IpAddress(wanted) => {
            let octets = match IpAddr::from(*wanted) {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            names.iter().any(|name| matches!(name, GeneralName::IPAddress(bytes) if *bytes == octets))
        }
        _ => false,
    };
    is_issued_by(&pair.certificate, ca) && belong_together(pair) && ends > renew && wanted.iter().all(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(dir: &Path, names: &[&str]) -> Result<Pki, Failure> {
        let names: Vec<_> = names.iter().map(|name| ServerName::try_from((*name).to_owned()).unwrap()).collect();
        Ok(super::prepare(dir, read_ca(dir)?, &names, Timestamp::now())?)
    }

    #[test]
    fn certificates_are_kept_and_follow_the_names_of_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let (local, other, host) = ("127.0.0.1", "10.0.0.1", "api.example.com");
        let first = prepare(dir.path(), &[local]).unwrap();
        let second = prepare(dir.path(), &[local]).unwrap();
        assert_eq!(
            (&first.ca, &first.server.certificate, &first.admin.key),
            (&second.ca, &second.server.certificate, &second.admin.key)
        );
        let third = prepare(dir.path(), &[local, other]).unwrap();
        assert_eq!((&first.ca, &first.admin.certificate), (&third.ca, &third.admin.certificate));
        assert_ne!(first.server.certificate, third.server.certificate);
        let fourth = prepare(dir.path(), &[local, other, host]).unwrap();
        assert_ne!(third.server.certificate, fourth.server.certificate);
        let fifth = prepare(dir.path(), &[host]).unwrap();
        assert_eq!(fourth.server.certificate, fifth.server.certificate);
        third.server_config(None, &TlsPolicy::default()).unwrap();
    }

    #[test]
    fn the_administrator_is_a_master() {
        let dir = tempfile::tempdir().unwrap();
        let pki = prepare(dir.path(), &[]).unwrap();
        let der = CertificateDer::from_pem_slice(pki.admin.certificate.as_bytes()).unwrap();
        let user = steersman_server::authn::certificate_user(&der).unwrap();
        assert!(user.name == "kubernetes-admin" && user.is_in("system:masters"));
    }

    #[test]
    fn what_another_ca_signed_is_made_anew() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = prepare(dir.path(), &[]).unwrap();
        prepare(other.path(), &[]).unwrap();
        for file in ["server.crt", "server.key"] {
            fs::copy(other.path().join(file), dir.path().join(file)).unwrap();
        }
        let second = prepare(dir.path(), &[]).unwrap();
        assert_eq!((&first.ca, &first.admin.certificate), (&second.ca, &second.admin.certificate));
        let server = fs::read_to_string(dir.path().join("server.crt")).unwrap();
        assert_ne!(server, fs::read_to_string(other.path().join("server.crt")).unwrap());
        assert_eq!(server, second.server.certificate);
        for file in ["server.crt", "server.key"] {
            let kept = fs::read(dir.path().join(file).with_added_extension("replaced")).unwrap();
            assert!(kept == fs::read(other.path().join(file)).unwrap(), "{file} is lost");
        }
    }

    #[test]
    fn a_leaf_with_the_key_of_another_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let first = prepare(dir.path(), &[]).unwrap();
        fs::copy(dir.path().join("admin.key"), dir.path().join("server.key")).unwrap();
        let second = prepare(dir.path(), &[]).unwrap();
        assert!(first.server.certificate != second.server.certificate && belong_together(&second.server));
        second.server_config(None, &TlsPolicy::default()).unwrap();
    }

    #[test]
    fn a_ca_with_the_key_of_another_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let first = prepare(dir.path(), &[]).unwrap();
        fs::copy(dir.path().join("admin.key"), dir.path().join("ca.key")).unwrap();
        assert!(matches!(prepare(dir.path(), &[]), Err(Failure::Refused(_))));
        assert_eq!(fs::read_to_string(dir.path().join("ca.crt")).unwrap(), first.ca);
    }

    #[test]
    fn kubelets_are_called_with_a_certificate_of_the_ca_which_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let ca = new_ca(Timestamp::now()).unwrap();
        let first = kubelet_client(dir.path(), &ca, Timestamp::now()).unwrap();
        assert!(is_issued_by(&first.certificate, &ca.certificate));
        let der = CertificateDer::from_pem_slice(first.certificate.as_bytes()).unwrap();
        let user = steersman_server::authn::certificate_user(&der).unwrap();
        assert_eq!(user.name, "kube-apiserver-kubelet-client");
        assert!(user.groups.iter().any(|group| group == steersman_server::user::MASTERS), "{:?}", user.groups);
        assert_eq!(kubelet_client(dir.path(), &ca, Timestamp::now()).unwrap().certificate, first.certificate);
        let other = new_ca(Timestamp::now()).unwrap();
        let second = kubelet_client(dir.path(), &other, Timestamp::now()).unwrap();
        assert!(is_issued_by(&second.certificate, &other.certificate));
    }

    #[test]
    fn the_front_proxy_has_a_ca_of_its_own_which_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let pki = prepare(dir.path(), &[]).unwrap();
        let first = front_proxy(dir.path(), "front-proxy-client", Timestamp::now()).unwrap();
        let second = front_proxy(dir.path(), "front-proxy-client", Timestamp::now()).unwrap();
        assert_eq!((&first.ca, &first.client.certificate), (&second.ca, &second.client.certificate));
        assert!(
            is_issued_by(&first.client.certificate, &first.ca) && !is_issued_by(&first.client.certificate, &pki.ca)
        );
        let der = CertificateDer::from_pem_slice(first.client.certificate.as_bytes()).unwrap();
        assert_eq!(steersman_server::authn::certificate_user(&der).unwrap().name, "front-proxy-client");
        fs::remove_file(dir.path().join("front-proxy-ca.key")).unwrap();
        let third = front_proxy(dir.path(), "front-proxy-client", Timestamp::now()).unwrap();
        assert!(third.ca != first.ca && is_issued_by(&third.client.certificate, &third.ca));
        assert_eq!(prepare(dir.path(), &[]).unwrap().ca, pki.ca);
    }

    #[test]
    fn the_directory_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        prepare(dir.path(), &[]).unwrap();
        assert_eq!(fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
