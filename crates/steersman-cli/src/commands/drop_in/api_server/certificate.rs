//! The server's certificate: from the flags, from the certificate directory, or newly made.

use crate::Failure;
use crate::commands::drop_in::flags::Given;
use crate::connections::serving::ServingCertificate;
use crate::data_dir::files::{self, Rights};
use crate::data_dir::pki::{self, Pair};
use anyhow::Context as _;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

/// The file names of upstream's certificate and key.
const CERTIFICATE: &str = "apiserver.crt";
const KEY: &str = "apiserver.key";

pub(super) fn find(given: &Given, dir: Option<&Path>, addresses: &[IpAddr]) -> Result<ServingCertificate, Failure> {
    let pair = match (given.one("tls-cert-file"), given.one("tls-private-key-file"), dir) {
        (Some(certificate), Some(key), _) => read(Path::new(certificate), Path::new(key))?,
        (Some(_), None, _) | (None, Some(_), _) => {
            let text = "--tls-cert-file and --tls-private-key-file go together: give both or neither";
            return Err(Failure::Refused(text.to_owned()));
        }
        (None, None, Some(dir)) if dir.join(CERTIFICATE).exists() => read(&dir.join(CERTIFICATE), &dir.join(KEY))?,
        (None, None, dir) => {
            let pair = pki::self_signed(addresses).context("no certificate can be made for the server")?;
            if let Some(dir) = dir {
                keep(&pair, dir)?;
            }
            pair
        }
    };
    Ok(ServingCertificate::new(&pair, pki::provider())?)
}

fn read(certificate: &Path, key: &Path) -> Result<Pair, Failure> {
    let read = |path: &Path| {
        let refused =
            |error| Failure::Refused(format!("failed to load the serving certificate {}: {error}", path.display()));
        fs::read_to_string(path).map_err(refused)
    };
    Ok(Pair { certificate: read(certificate)?, key: read(key)? })
}

fn keep(pair: &Pair, dir: &Path) -> Result<(), Failure> {
    let written = fs::create_dir_all(dir)
        .and_then(|()| files::write(&dir.join(KEY), pair.key.as_bytes(), Rights::Secret))
        .and_then(|()| files::write(&dir.join(CERTIFICATE), pair.certificate.as_bytes(), Rights::Public));
    written.map_err(|error| {
        Failure::Refused(format!("cannot keep the certificate in --cert-dir {}: {error}", dir.display()))
    })
}
