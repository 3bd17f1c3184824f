//! A certificate in files that another program renews.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::shared::chain::Chain;
use crate::webhook::certificates::{CertificateError, Publisher, Served};

/// The interval between two reads of the files. A mounted Secret lags by a minute anyway.
const INTERVAL: Duration = Duration::from_secs(10);

/// The paths of the files.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// The bytes of both files.
#[derive(Eq, PartialEq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    /// Publishes the certificate again whenever the files change. Ends when the first pair cannot be used.
    pub(crate) async fn keep(self, publisher: &Publisher) -> CertificateError {
        let what = self.certificate.display().to_string();
        let mut known: Option<Pair> = None;
        // Logged once, not every ten seconds.
        let mut reported = String::new();
        loop {
            let next = match self.read().await {
                Ok(pair) if known.as_ref() == Some(&pair) => Ok(None),
                Ok(pair) => Served::of_pem(&pair.certificate, &pair.key, &what).map(|served| Some((pair, served))),
                Err(error) => Err(error),
            };
            match next {
                Ok(next) => {
                    if let Some((pair, served)) = next {
                        tracing::info!(certificate = what, "webhooks are served with this certificate from now on");
                        publisher.publish(served);
                        known = Some(pair);
                    }
                    reported.clear();
                }
                Err(error) if known.is_none() => return error,
                Err(error) => {
                    let text = Chain(&error).to_string();
                    if text != reported {
                        tracing::warn!(error = text, "webhooks are served with their earlier certificate");
                        reported = text;
                    }
                }
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn read(&self) -> Result<Pair, CertificateError> {
        Ok(Pair { certificate: read(&self.certificate).await?, key: read(&self.key).await? })
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    tokio::fs::read(path).await.map_err(|source| CertificateError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
