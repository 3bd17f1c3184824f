//! Client certificates. The transport verifies them and puts a [`Peer`] into the request's extensions.

use crate::user::User;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;

/// The object identifier of a subject's uid in upstream's certificates.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// The user of a connection, as the transport knows it: the subject of a verified client certificate, or the code that
/// calls the server within its process. Put into the extensions of every request of the connection.
#[derive(Clone, Debug)]
pub struct Peer(pub(crate) Arc<User>);

impl Peer {
    /// The holder of a connection.
    pub fn new(user: User) -> Peer {
        Peer(Arc::new(user))
    }
}

/// The user that a verified client certificate stands for: the subject's common name, its organizations as groups.
///
/// `None` if the certificate cannot be read or names nobody.
pub fn certificate_user(der: &[u8]) -> Option<User> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
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
}
