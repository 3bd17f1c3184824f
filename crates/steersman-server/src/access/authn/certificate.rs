//! Client certificates. The transport verifies them and puts a [`Peer`] into the request's extensions.

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;
use steersman_kinds::user::User;
use x509_parser::x509::X509Name;

/// The object identifier of the uid in upstream's certificates.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// The client of a connection: the subject of a verified client certificate, or the in-process caller. The transport
/// puts it into the extensions of every request of the connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The user; `None` where the certificate is only valid for a proxy.
    pub(super) user: Option<Arc<User>>,
    /// The common name of the certificate, if the proxies' CA signed it.
    pub(super) proxy: Option<Arc<str>>,
    /// Whether the certificate is not a valid user certificate: such a client is not anonymous, even where anonymous
    /// requests are allowed.
    pub(super) is_refused: bool,
    /// The expiration of the certificate. A connection may last longer; requests after it are treated as if the
    /// certificate was refused.
    ends: Option<Timestamp>,
}

impl Peer {
    /// The peer of a user.
    pub fn new(user: User) -> Peer {
        Peer { user: Some(Arc::new(user)), proxy: None, is_refused: false, ends: None }
    }

    /// The name of the user, if the peer has one.
    pub fn user_name(&self) -> Option<&str> {
        self.user.as_deref().map(|user| user.name.as_str())
    }

    /// The common name of the peer's certificate, if it is a proxy's.
    pub fn proxy_name(&self) -> Option<&str> {
        self.proxy.as_deref()
    }

    /// The peer of an authenticating proxy, by the common name of its certificate; it may also be a user.
    pub fn proxy(name: &str, user: Option<User>) -> Peer {
        Peer { is_refused: user.is_none(), user: user.map(Arc::new), proxy: Some(name.into()), ends: None }
    }

    /// The peer of a client with an invalid certificate: of another CA, expired, or not for clients. It needs a token.
    pub fn refused() -> Peer {
        Peer { user: None, proxy: None, is_refused: true, ends: None }
    }

    /// The same peer with an expiration of its certificate; later requests are treated as if the certificate was
    /// refused.
    #[must_use]
    pub fn until(self, ends: Option<Timestamp>) -> Peer {
        Peer { ends, ..self }
    }

    /// Whether the certificate has expired.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.ends.is_some_and(|ends| ends < now)
    }

    /// Whether the certificate identifies a user or a proxy.
    pub fn is_known(&self) -> bool {
        self.user.is_some() || self.proxy.is_some()
    }
}

/// The user of a verified client certificate: the subject's common name, with its organizations as groups.
///
/// `None` if the certificate cannot be parsed or names no user.
pub fn certificate_user(der: &[u8]) -> Option<User> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let subject = certificate.subject();
    let name = common_name(subject)?;
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned);
    let uid = subject.iter_attributes().find(|attribute| attribute.attr_type().to_id_string() == UID);
    let mut id = "X509SHA256=".to_owned();
    for byte in Sha256::digest(der) {
        let _ = write!(id, "{byte:02x}");
    }
    let user = User {
        uid: uid.and_then(|uid| uid.as_str().ok()).unwrap_or_default().to_owned(),
        extra: [("authentication.kubernetes.io/credential-id".to_owned(), vec![id])].into(),
        ..User::authenticated(name, groups.collect::<Vec<_>>())
    };
    (!name.is_empty()).then_some(user)
}

/// The last second at which a certificate is valid. `None` if it cannot be parsed.
pub fn certificate_end(der: &[u8]) -> Option<Timestamp> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

/// The common name of a subject. Of several the last is used, as in Go's `pkix.Name`: approvers and signers of a
/// request must see the same name that authentication will use.
pub(crate) fn common_name<'a>(subject: &X509Name<'a>) -> Option<&'a str> {
    subject.iter_common_name().last()?.as_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_user_groups_and_uid() {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "alice");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
        params.distinguished_name.push(rcgen::DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), "1001");
        let key = rcgen::KeyPair::generate().unwrap();
        let user = certificate_user(params.self_signed(&key).unwrap().der()).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("alice", "1001"));
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
        let id = &user.extra["authentication.kubernetes.io/credential-id"][0];
        assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
        assert!(certificate_user(b"nonsense").is_none());
    }

    #[test]
    fn the_last_of_several_common_names_counts() {
        let named = |last: rcgen::DnValue| {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(rcgen::DnType::CommonName, "system:kube-controller-manager");
            params.distinguished_name.push(rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]), last);
            let key = rcgen::KeyPair::generate().unwrap();
            certificate_user(params.self_signed(&key).unwrap().der()).map(|user| user.name)
        };
        assert_eq!(named("system:node:n1".into()).as_deref(), Some("system:node:n1"));
        // An unreadable last name does not fall back to an earlier one.
        assert_eq!(named(rcgen::DnValue::BmpString("system:node:n1".try_into().unwrap())), None);
        assert_eq!(named("".into()), None);
    }
}
