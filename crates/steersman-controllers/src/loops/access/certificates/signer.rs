//! The built-in signers and their rules.
//!
//! Follows upstream's `pkg/apis/certificates/helpers.go`.

use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use std::collections::BTreeSet;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension, SubjectAlternativeName};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

/// A built-in signer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Signer {
    /// The signer of client certificates for any user of the API server.
    Client,
    /// The signer of kubelets' client certificates.
    KubeletClient,
    /// The signer of kubelets' serving certificates.
    KubeletServing,
}

const NODES: &str = "system:nodes";
const NODE: &str = "system:node:";
const CLIENT: &str = "client auth";
const ENCIPHERMENT: &str = "key encipherment";
const SERVER: &str = "server auth";
const SIGNATURE: &str = "digital signature";

/// The subject and alternative names that a request asks for.
struct Subject {
    common_name: String,
    organizations: Vec<String>,
    dns_names: usize,
    addresses: usize,
    emails: usize,
    uris: usize,
}

impl Signer {
    /// The built-in signer of this name.
    pub(crate) fn of(name: &str) -> Option<Signer> {
        match name {
            "kubernetes.io/kube-apiserver-client" => Some(Signer::Client),
            "kubernetes.io/kube-apiserver-client-kubelet" => Some(Signer::KubeletClient),
            "kubernetes.io/kubelet-serving" => Some(Signer::KubeletServing),
            _ => None,
        }
    }

    /// Reads a request for this signer that obeys its rules. `None` for any other.
    pub(crate) fn read<T>(
        self,
        spec: &CertificateSigningRequestSpec,
        read: impl FnOnce(&X509CertificationRequest<'_>) -> T,
    ) -> Option<T> {
        if Signer::of(&spec.signer_name) != Some(self) {
            return None;
        }
        let block = Pem::iter_from_buffer(&spec.request.0).next()?.ok()?;
        let (_, request) = X509CertificationRequest::from_der(&block.contents).ok()?;
        let is_good = self.fault(&request, spec.usages.as_deref().unwrap_or_default()).is_none();
        is_good.then(|| read(&request))
    }

    /// Why this signer refuses a request, with upstream's text.
    pub(crate) fn fault(self, request: &X509CertificationRequest<'_>, usages: &[String]) -> Option<String> {
        match self {
            Signer::Client => client_fault(usages),
            Signer::KubeletClient => kubelet_client_fault(&Subject::of(request), usages),
            Signer::KubeletServing => kubelet_serving_fault(&Subject::of(request), usages),
        }
    }
}

impl Subject {
    fn of(request: &X509CertificationRequest<'_>) -> Subject {
        let subject = &request.certification_request_info.subject;
        let text = |part: &x509_parser::x509::AttributeTypeAndValue<'_>| part.as_str().unwrap_or_default().to_owned();
        let mut read = Subject {
            common_name: subject.iter_common_name().last().map(text).unwrap_or_default(),
            organizations: subject.iter_organization().map(text).collect(),
            dns_names: 0,
            addresses: 0,
            emails: 0,
            uris: 0,
        };
        for name in alternative_names(request).map_or(&[][..], |names| &names.general_names) {
            match name {
                GeneralName::DNSName(_) => read.dns_names += 1,
                GeneralName::IPAddress(_) => read.addresses += 1,
                GeneralName::RFC822Name(_) => read.emails += 1,
                GeneralName::URI(_) => read.uris += 1,
                // The issued certificates have no names of other kinds.
                _ => {}
            }
        }
        read
    }

    fn is_of_nodes(&self) -> bool {
        self.organizations == [NODES]
    }

    fn is_node(&self) -> bool {
        self.common_name.starts_with(NODE)
    }
}

/// The alternative names that a request asks for. A request may have several lists of extensions; the first that has
/// names is used for the checks and for the certificate alike.
pub(crate) fn alternative_names<'a>(
    request: &'a X509CertificationRequest<'_>,
) -> Option<&'a SubjectAlternativeName<'a>> {
    request.certification_request_info.iter_attributes().find_map(|attribute| match attribute.parsed_attribute() {
        ParsedCriAttribute::ExtensionRequest(asked) => {
            asked.extensions.iter().find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) => Some(names),
                _ => None,
            })
        }
        _ => None,
    })
}

/// The common name of a request's subject.
pub(crate) fn common_name(request: &X509CertificationRequest<'_>) -> String {
    Subject::of(request).common_name
}

const NOT_OF_NODES: &str = "subject organization is not system:nodes";
const NOT_A_NODE: &str = "subject common name does not begin with system:node:";

fn client_fault(usages: &[String]) -> Option<String> {
    let wrong = usages.iter().find(|usage| ![CLIENT, ENCIPHERMENT, SIGNATURE].contains(&usage.as_str()));
    match wrong {
        Some(usage) => Some(format!("invalid usage for client certificate: {usage}")),
        None if usages.iter().any(|usage| usage == CLIENT) => None,
        None => Some(format!("missing required usage for client certificate: {CLIENT}")),
    }
}

fn kubelet_client_fault(subject: &Subject, usages: &[String]) -> Option<String> {
    let names =
        [(subject.dns_names, "DNS"), (subject.emails, "Email"), (subject.addresses, "IP"), (subject.uris, "URI")];
    if !subject.is_of_nodes() {
        return Some(NOT_OF_NODES.to_owned());
    }
    if let Some((_, kind)) = names.iter().find(|(count, _)| *count > 0) {
        return Some(format!("{kind} subjectAltNames are not allowed"));
    }
    if !subject.is_node() {
        return Some(NOT_A_NODE.to_owned());
    }
    usages_fault(usages, CLIENT)
}

fn kubelet_serving_fault(subject: &Subject, usages: &[String]) -> Option<String> {
    if !subject.is_of_nodes() {
        return Some(NOT_OF_NODES.to_owned());
    }
    if subject.dns_names + subject.addresses == 0 {
        return Some("DNS or IP subjectAltName is required".to_owned());
    }
    if subject.emails > 0 {
        return Some("Email subjectAltNames are not allowed".to_owned());
    }
    if subject.uris > 0 {
        return Some("URI subjectAltNames are not allowed".to_owned());
    }
    if let Some(fault) = usages_fault(usages, SERVER) {
        return Some(fault);
    }
    (!subject.is_node()).then(|| NOT_A_NODE.to_owned())
}

/// The usages must be exactly these; only RSA keys need key encipherment.
fn usages_fault(usages: &[String], purpose: &str) -> Option<String> {
    let given: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let (all, without) = ([SIGNATURE, ENCIPHERMENT, purpose], [SIGNATURE, purpose]);
    let is_good = given == BTreeSet::from(all) || given == BTreeSet::from(without);
    let wanted: Vec<&str> = BTreeSet::from(all).into_iter().collect();
    (!is_good).then(|| format!("usages did not match [{}]", wanted.join(" ")))
}

/// Makes requests for tests.
#[cfg(test)]
pub(crate) mod fixture {
    use k8s_openapi::ByteString;
    use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;

    /// A request of `user` for a certificate of the node `a` with these alternative names.
    pub(crate) fn spec(
        signer: &str,
        usage: &str,
        user: &str,
        organization: &str,
        names: &[&str],
    ) -> CertificateSigningRequestSpec {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, organization);
        params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:a");
        let request = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap();
        CertificateSigningRequestSpec {
            request: ByteString(request.pem().unwrap().into_bytes()),
            signer_name: signer.to_owned(),
            usages: Some(vec![usage.to_owned(), "digital signature".to_owned()]),
            username: Some(user.to_owned()),
            ..CertificateSigningRequestSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::access::certificates::der;

    fn usages(all: &[&str]) -> Vec<String> {
        all.iter().map(|usage| (*usage).to_owned()).collect()
    }

    fn node() -> Subject {
        let organizations = vec![NODES.to_owned()];
        let common_name = "system:node:a".to_owned();
        Subject { common_name, organizations, dns_names: 0, addresses: 0, emails: 0, uris: 0 }
    }

    #[test]
    fn a_client_asks_for_client_auth_and_little_else() {
        assert_eq!(client_fault(&usages(&[CLIENT, SIGNATURE])), None);
        assert_eq!(
            client_fault(&usages(&[CLIENT, SERVER])).as_deref(),
            Some("invalid usage for client certificate: server auth")
        );
        assert_eq!(
            client_fault(&usages(&[SIGNATURE])).as_deref(),
            Some("missing required usage for client certificate: client auth")
        );
    }

    #[test]
    fn a_kubelets_client_certificate_is_of_its_node_alone() {
        let good = usages(&[CLIENT, SIGNATURE, ENCIPHERMENT]);
        assert_eq!(kubelet_client_fault(&node(), &good), None);
        let fault = |subject: Subject| kubelet_client_fault(&subject, &good).unwrap();
        assert_eq!(fault(Subject { common_name: "a".to_owned(), ..node() }), NOT_A_NODE);
        assert_eq!(fault(Subject { organizations: vec![NODES.to_owned(), "b".to_owned()], ..node() }), NOT_OF_NODES);
        assert_eq!(fault(Subject { dns_names: 1, ..node() }), "DNS subjectAltNames are not allowed");
        assert_eq!(
            kubelet_client_fault(&node(), &usages(&[CLIENT])).unwrap(),
            "usages did not match [client auth digital signature key encipherment]"
        );
    }

    #[test]
    fn names_in_a_second_list_of_extensions_count() {
        const EXTENSION_REQUEST: &[u64] = &[1, 2, 840, 113549, 1, 9, 14];
        let mut params = rcgen::CertificateParams::default();
        params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        // The value of an extension request with one extension: the DNS name `a`.
        let names = der::sequence(&[&[0x06, 3, 0x55, 0x1d, 0x11], &der::octets(&der::sequence(&[&[0x82, 1, b'a']]))]);
        let values = der::value(0x31, &der::sequence(&[&names]));
        let attribute = rcgen::Attribute { oid: EXTENSION_REQUEST, values };
        let key = rcgen::KeyPair::generate().unwrap();
        let request = params.serialize_request_with_attributes(&key, vec![attribute]).unwrap();
        let (_, request) = X509CertificationRequest::from_der(request.der()).unwrap();
        assert_eq!(request.certification_request_info.iter_attributes().count(), 2);
        assert_eq!(Subject::of(&request).dns_names, 1);
    }

    #[test]
    fn a_kubelets_serving_certificate_names_a_host() {
        let good = usages(&[SERVER, SIGNATURE]);
        assert_eq!(kubelet_serving_fault(&Subject { addresses: 1, ..node() }, &good), None);
        let fault = |subject: Subject| kubelet_serving_fault(&subject, &good).unwrap();
        assert_eq!(fault(node()), "DNS or IP subjectAltName is required");
        assert_eq!(fault(Subject { dns_names: 1, uris: 1, ..node() }), "URI subjectAltNames are not allowed");
    }
}
