//! The front proxy: as what this server passes requests on to the servers behind APIServices, and whom these are told to
//! believe.

use crate::Failure;
use crate::access::client_certificate;
use crate::args::AggregationOptions;
use steersman_server::authn::{RequestHeader, TrustedProxies};
use steersman_server::webhook::Identity;

/// The common name of the certificate that is made where none is given.
pub(crate) const NAME: &str = "front-proxy-client";

/// The certificate that the options name.
pub(crate) fn given(options: &AggregationOptions) -> Result<Option<Identity>, Failure> {
    client_certificate::read(
        ("--proxy-client-cert-file", options.proxy_client_cert_file.as_ref()),
        ("--proxy-client-key-file", options.proxy_client_key_file.as_ref()),
    )
}

/// The proxies that other servers are to believe: those that this server believes itself (`ca`, `headers`), and this server
/// with a certificate of `own_ca`.
pub(crate) fn published(
    ca: Option<&str>,
    headers: Option<&RequestHeader>,
    own_ca: Option<&str>,
) -> Option<TrustedProxies> {
    let own = RequestHeader::of_proxy(NAME);
    let headers = match (headers, own_ca) {
        (None, None) => return None,
        (None, Some(_)) => own,
        (Some(given), None) => given.clone(),
        (Some(given), Some(_)) => {
            let mut headers = given.clone();
            // Without names every holder of a certificate of the CA is believed, this server among them.
            if !headers.allowed_names.is_empty() {
                add(&mut headers.allowed_names, own.allowed_names);
            }
            add(&mut headers.username_headers, own.username_headers);
            add(&mut headers.uid_headers, own.uid_headers);
            add(&mut headers.group_headers, own.group_headers);
            add(&mut headers.extra_prefixes, own.extra_prefixes);
            headers
        }
    };
    let bundle: Vec<&str> = ca.into_iter().chain(own_ca).map(str::trim_end).collect();
    Some(TrustedProxies { ca: format!("{}\n", bundle.join("\n")), headers })
}

fn add<T: PartialEq>(list: &mut Vec<T>, more: Vec<T>) {
    for one in more {
        if !list.contains(&one) {
            list.push(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_the_given_proxies_and_this_server_are_published() {
        assert!(published(None, None, None).is_none());
        let own = published(None, None, Some("OWN\n")).unwrap();
        assert_eq!((own.ca.as_str(), own.headers.allowed_names), ("OWN\n", vec![NAME.to_owned()]));
        let sso =
            RequestHeader { username_headers: vec!["x-sso-user".parse().unwrap()], ..RequestHeader::of_proxy("sso") };
        let both = published(Some("SSO\n"), Some(&sso), Some("OWN\n")).unwrap();
        assert_eq!(
            (both.ca.as_str(), &both.headers.allowed_names[..]),
            ("SSO\nOWN\n", &["sso".to_owned(), NAME.to_owned()][..])
        );
        assert_eq!(both.headers.username_headers, ["x-sso-user", "x-remote-user"]);
        let anyone = RequestHeader { allowed_names: Vec::new(), ..sso.clone() };
        assert!(published(Some("SSO"), Some(&anyone), Some("OWN")).unwrap().headers.allowed_names.is_empty());
        // The certificate that is given belongs to the CA that is given.
        assert_eq!(published(Some("SSO"), Some(&sso), None).unwrap().headers.allowed_names, ["sso"]);
    }
}
