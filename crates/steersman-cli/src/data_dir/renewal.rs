//! Renews certificates before they expire while the server runs, and uses the new ones at once.
//!
//! The directory is checked every hour, so certificates that an administrator puts there are used as well. The CA is
//! never renewed, because every distributed kubeconfig would become invalid.

use crate::Failure;
use crate::connections::serving::ServingCertificate;
use crate::data_dir::files;
use crate::data_dir::kubeconfig;
use crate::data_dir::pki::{self, Pki};
use anyhow::Context as _;
use jiff::Timestamp;
use rustls::pki_types::ServerName;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The time between two checks. Certificates are renewed a month before they expire, so hundreds of checks follow a
/// failed one.
const INTERVAL: Duration = Duration::from_secs(3600);

/// The location of the certificates, and their users.
pub(crate) struct Renewal {
    /// The directory of the certificates.
    pub(crate) dir: PathBuf,
    /// The names and addresses for which the server's certificate must be valid.
    pub(crate) names: Vec<ServerName<'static>>,
    /// The path of the kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    /// The server's address in the kubeconfig.
    pub(crate) address: String,
    pub(crate) serving: Arc<ServingCertificate>,
    /// The certificates in use.
    pub(crate) pki: Pki,
}

impl Renewal {
    /// Checks the certificates: those that expire soon are renewed, and new ones are put in use. Blocks for some
    /// milliseconds.
    pub(crate) fn check(&mut self, now: Timestamp) -> anyhow::Result<()> {
        let ca = pki::read_ca(&self.dir).map_err(Failure::into_error)?;
        let ca = ca.filter(|ca| ca.certificate == self.pki.ca).with_context(|| {
            format!("the CA in {} is not the one with which the server was started", self.dir.display())
        })?;
        let pki = pki::prepare(&self.dir, Some(ca), &self.names, now)?;
        if pki.server.certificate != self.pki.server.certificate {
            self.serving.replace(&pki.server)?;
            tracing::info!("the server has a new certificate");
        }
        if pki.admin.certificate != self.pki.admin.certificate {
            write_kubeconfig(&self.kubeconfig, &self.address, &pki)?;
            tracing::info!(kubeconfig = %self.kubeconfig.display(), "the administrator has a new certificate");
        }
        self.pki = pki;
        Ok(())
    }

    /// Checks every hour, until it is stopped.
    pub(crate) async fn run(mut self, clock: fn() -> Timestamp, stop: CancellationToken) {
        loop {
            if stop.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_none() {
                return;
            }
            let checked = tokio::task::spawn_blocking(move || {
                let outcome = self.check(clock());
                (self, outcome)
            });
            let Ok((renewal, outcome)) = checked.await else {
                return tracing::error!("certificates are no longer renewed: restart the server before they end");
            };
            self = renewal;
            if let Err(error) = outcome {
                tracing::error!(error = crate::chain(&*error), "the certificates cannot be renewed");
            }
        }
    }
}

/// Writes the kubeconfig of the administrator.
pub(crate) fn write_kubeconfig(path: &Path, address: &str, pki: &Pki) -> anyhow::Result<()> {
    let text = kubeconfig::render(address, pki)?;
    files::write(path, text.as_bytes(), files::Rights::Secret)
        .with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::tls_policy::TlsPolicy;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use jiff::ToSpan as _;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use std::fs;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    /// The certificate that a server shows to a client that verifies it and shows its own.
    async fn shown(server: &Arc<ServerConfig>, pki: &Pki) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pki.ca.as_bytes()).unwrap()).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(pki.admin.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(pki.admin.key.as_bytes()).unwrap();
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
        let (near, far) = tokio::io::duplex(1 << 16);
        let name = ServerName::try_from("localhost").unwrap();
        let (accepted, connected) = tokio::join!(
            TlsAcceptor::from(server.clone()).accept(near),
            TlsConnector::from(Arc::new(client)).connect(name, far),
        );
        assert!(accepted.unwrap().get_ref().1.peer_certificates().is_some());
        connected.unwrap().get_ref().1.peer_certificates().unwrap()[0].to_vec()
    }

    #[tokio::test]
    async fn a_server_that_runs_for_a_year_shows_a_new_certificate_and_has_a_new_kubeconfig() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::now();
        let started = now - (340 * 24).hours();
        let pki = pki::prepare(dir.path(), None, &[], started).unwrap();
        let pki::Tls { config, serving, .. } = pki.server_config(None, &TlsPolicy::default()).unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        fs::write(&kubeconfig, "{\"kind\": \"Config\"}").unwrap();
        let mut renewal = Renewal {
            dir: dir.path().to_owned(),
            names: Vec::new(),
            kubeconfig: kubeconfig.clone(),
            address: "127.0.0.1:6443".to_owned(),
            serving,
            pki,
        };
        let first = shown(&config, &renewal.pki).await;
        renewal.check(started + (300 * 24).hours()).unwrap();
        assert_eq!(shown(&config, &renewal.pki).await, first, "made anew too early");
        assert_eq!(fs::read_to_string(&kubeconfig).unwrap(), "{\"kind\": \"Config\"}");

        let (ca, admin) = (renewal.pki.ca.clone(), renewal.pki.admin.certificate.clone());
        renewal.check(now).unwrap();
        let second = shown(&config, &renewal.pki).await;
        assert_ne!(second, first);
        assert!(renewal.pki.ca == ca && renewal.pki.admin.certificate != admin);
        let written = fs::read_to_string(&kubeconfig).unwrap();
        assert!(written.contains(&STANDARD.encode(&renewal.pki.admin.certificate)), "{written}");
        renewal.check(now).unwrap();
        assert_eq!(shown(&config, &renewal.pki).await, second, "made anew twice");
    }

    #[test]
    fn a_ca_is_never_made_anew_while_the_server_runs() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::now();
        let pki = pki::prepare(dir.path(), None, &[], now).unwrap();
        let serving = pki.server_config(None, &TlsPolicy::default()).unwrap().serving;
        let mut renewal = Renewal {
            dir: dir.path().to_owned(),
            names: Vec::new(),
            kubeconfig: dir.path().join("kubeconfig"),
            address: String::new(),
            serving,
            pki,
        };
        for file in ["ca.crt", "ca.key"] {
            fs::remove_file(dir.path().join(file)).unwrap();
        }
        let error = renewal.check(now).unwrap_err();
        assert!(error.to_string().contains("CA"), "{error:#}");
        assert!(!dir.path().join("ca.crt").exists());
    }
}
