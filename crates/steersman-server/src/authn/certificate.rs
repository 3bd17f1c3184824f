//! Client certificates. The transport judges them and puts a [`Peer`] into the request's extensions.

use steersman_kinds::user::User;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;
use x509_parser::x509::X509Name;

/// The object identifier of a subject's uid in upstream's certificates.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// The user of a connection, as the transport knows it: the subject of a verified client certificate, or the code that
/// calls the server within its process. Put into the extensions of every request of the connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// `None` where the certificate is good only for a proxy.
    pub(super) user: Option<Arc<User>>,
    /// The common name of the certificate, if it is of the proxies' CA.
    pub(super) proxy: Option<Arc<str>>,
    /// Whether the certificate is no user's: who shows one that is not good is not nobody, even where nobody may ask.
    pub(super) is_refused: bool,
    /// When the certificate ends. A connection may last for longer, and its peer is nobody from then on.
    ends: Option<Timestamp>,
}

impl Peer {
    /// The holder of a connection.
    pub fn new(user: User) -> Peer {
        Peer { user: Some(Arc::new(user)), proxy: None, is_refused: false, ends: None }
    }

    /// The name of the user, if the peer is one.
    pub fn user_name(&self) -> Option<&str> {
        self.user.as_deref().map(|user| user.name.as_str())
    }

    /// The common name of the peer's certificate, if it is a proxy's.
    pub fn proxy_name(&self) -> Option<&str> {
        self.proxy.as_deref()
    }

    /// An authenticating proxy, by the common name of its certificate, who may be a user too.
    pub fn proxy(name: &str, user: Option<User>) -> Peer {
        Peer { is_refused: user.is_none(), user: user.map(Arc::new), proxy: Some(name.into()), ends: None }
    }

    /// Somebody with a certificate that stands for nobody: of another CA, expired, or not for clients. Such a peer needs a token.
    pub fn refused() -> Peer {
        Peer { user: None, proxy: None, is_refused: true, ends: None }
    }

    /// The same peer, whose certificate ends at this time; requests after it are those of a peer whose certificate is not good.
    #[must_use]
    pub fn until(self, ends: Option<Timestamp>) -> Peer {
        Peer { ends, ..self }
    }

    /// Whether the certificate has ended.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.ends.is_some_and(|ends| ends < now)
    }

    /// Whether the certificate stands for somebody.
    pub fn is_known(&self) -> bool {
        self.user.is_some() || self.proxy.is_some()
    }
}

/// The user that a verified client certificate stands for: the subject's common name, its organizations as groups.
///
/// `None` if the certificate cannot be read or names nobody.
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

/// The last second at which a certificate is good. `None` if it cannot be read.
pub fn certificate_end(der: &[u8]) -> Option<Timestamp> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

/// The common name of a subject. Of several the last counts, as in Go's `pkix.Name`: whoever approves or signs a request must
/// mean the name that its holder will have.
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
        // One that cannot be read does not leave the place to another.
        assert_eq!(named(rcgen::DnValue::BmpString("system:node:n1".try_into().unwrap())), None);
        assert_eq!(named("".into()), None);
    }
}
