//! The TLS versions and cipher suites that the server accepts.
//!
//! By default all that rustls has, which are the secure ones of TLS 1.2 and 1.3. The flags are named as kube-apiserver
//! names them, which accepts more: insecure suites are never accepted here.

use crate::Failure;
use crate::args::ServingOptions;
use crate::data_dir::pki;
use rustls::crypto::CryptoProvider;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};
use std::sync::Arc;

const VERSION_12: [&str; 3] = ["VersionTLS10", "VersionTLS11", "VersionTLS12"];
const VERSION_13: &str = "VersionTLS13";
const BOTH: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
const NEWEST: &[&SupportedProtocolVersion] = &[&version::TLS13];

/// The cipher suites that Go has and rustls does not.
const NOT_SPOKEN: [&str; 17] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_FALLBACK_SCSV",
];

/// The accepted versions and cipher suites.
#[derive(Clone, Debug)]
pub(crate) struct TlsPolicy {
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) versions: &'static [&'static SupportedProtocolVersion],
    /// Whether HTTP/2 is offered beside HTTP/1.1.
    pub(crate) has_http2: bool,
}

impl Default for TlsPolicy {
    fn default() -> TlsPolicy {
        TlsPolicy { provider: pki::provider(), versions: BOTH, has_http2: true }
    }
}

impl TlsPolicy {
    /// Reads the flags.
    pub(crate) fn read(options: &ServingOptions) -> Result<TlsPolicy, Failure> {
        let mut policy = TlsPolicy::default();
        match options.tls_min_version.as_deref() {
            None => {}
            Some(version) if VERSION_12.contains(&version) => {}
            Some(VERSION_13) => policy.versions = NEWEST,
            Some(other) => {
                return Err(Failure::Refused(format!(
                    "unknown tls version {other:?} of --tls-min-version: want VersionTLS12 or VersionTLS13"
                )));
            }
        }
        if options.tls_cipher_suites.is_empty() {
            return Ok(policy);
        }
        for name in &options.tls_cipher_suites {
            if !NOT_SPOKEN.contains(&name.as_str())
                && !policy.provider.cipher_suites.iter().any(|suite| is(suite, name))
            {
                return Err(Failure::Refused(format!(
                    "Cipher suite {name} of --tls-cipher-suites not supported or doesn't exist"
                )));
            }
        }
        let mut provider = CryptoProvider::clone(&policy.provider);
        provider
            .cipher_suites
            .retain(|suite| suite.tls13().is_some() || options.tls_cipher_suites.iter().any(|name| is(suite, name)));
        if provider.cipher_suites.iter().all(|suite| suite.tls13().is_some()) {
            // TLS 1.2 is not offered unless it has a suite.
            policy.versions = NEWEST;
        }
        policy.provider = Arc::new(provider);
        Ok(policy)
    }

    /// The ALPN protocols that the server offers.
    pub(crate) fn protocols(&self) -> Vec<Vec<u8>> {
        let (http2, http1) = (b"h2".to_vec(), b"http/1.1".to_vec());
        if self.has_http2 { vec![http2, http1] } else { vec![http1] }
    }
}

/// Whether this is the name of a cipher suite. Go has short names for some, and rustls has its own for those of TLS
/// 1.3.
fn is(suite: &SupportedCipherSuite, name: &str) -> bool {
    let Some(known) = suite.suite().as_str() else { return false };
    let known = known.replacen("TLS13_", "TLS_", 1);
    known == name || known.strip_suffix("_SHA256").is_some_and(|short| short == name && short.ends_with("POLY1305"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        serving: ServingOptions,
    }

    /// The accepted suites, without those of TLS 1.3.
    fn read(flags: &[&str]) -> Result<(usize, Vec<String>), String> {
        let only = Only::try_parse_from(std::iter::once(&"server").chain(flags)).unwrap();
        match TlsPolicy::read(&only.serving) {
            Ok(policy) => {
                let suites = policy.provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none());
                Ok((policy.versions.len(), suites.map(|suite| format!("{:?}", suite.suite())).collect()))
            }
            Err(Failure::Refused(text)) => Err(text),
            Err(Failure::Failed(error)) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_suite_goes_by_either_of_its_names_and_what_is_unsafe_is_never_spoken() {
        let wanted = "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305,TLS_RSA_WITH_AES_128_CBC_SHA,TLS_AES_128_GCM_SHA256";
        let spoken = vec!["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256".to_owned()];
        assert_eq!(read(&[wanted]), Ok((2, spoken)));
        assert_eq!(read(&["--tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA"]), Ok((1, Vec::new())));
        assert!(read(&["--tls-cipher-suites=TLS_NO_SUCH"]).unwrap_err().contains("TLS_NO_SUCH"));
    }

    #[test]
    fn the_lowest_version_is_one_that_exists() {
        assert_eq!(read(&["--tls-min-version=VersionTLS13"]).unwrap().0, 1);
        assert_eq!(read(&["--tls-min-version=VersionTLS10"]).unwrap().0, 2);
        assert!(read(&["--tls-min-version=VersionTLS14"]).unwrap_err().contains("VersionTLS14"));
    }
}
