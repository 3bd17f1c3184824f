//! A Secret through years of renewals, with clients and replicas that lag behind.

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{ServerName, UnixTime};
use std::sync::Arc;

use super::*;
use crate::webhook::certificates::plan::due;

const START: i64 = 1_900_000_000;
const DAY: i64 = 24 * 3_600;
const OVERLAP: i64 = 300;

fn wanted() -> CertificateSpec {
    CertificateSpec {
        name: "hook".to_owned(),
        names: vec!["hook.ops.svc".to_owned(), "127.0.0.1".to_owned()],
        certificate_lasts: Duration::from_secs(9 * DAY.cast_unsigned()),
        authority_lasts: Duration::from_secs(90 * DAY.cast_unsigned()),
    }
}

/// Whether a client that trusts `bundle` accepts a server with `certificate`.
fn is_trusted(certificate: &str, bundle: &str, now: i64) -> bool {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let leaf = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.cast_unsigned()));
    ["hook.ops.svc", "127.0.0.1"].iter().all(|name| {
        let name = ServerName::try_from(*name).unwrap();
        verifier.verify_server_cert(&leaf, &[], &name, &[], now).is_ok()
    })
}

/// One pass over a Secret, as a replica makes it.
fn step(secret: &mut Secret, wanted: &CertificateSpec, now: i64) -> Step {
    let stored = Stored::read(secret).unwrap();
    let facts = stored.as_ref().map(|stored| stored.facts(&wanted.names).unwrap());
    let step = due(facts.as_ref(), now, OVERLAP);
    if let Some(new) = Stored::after(stored.as_ref(), step, wanted, now).unwrap() {
        new.write(secret);
    }
    step
}

#[test]
fn through_years_of_renewals_every_client_trusts_every_replica() {
    let (mut secret, wanted) = (Secret::default(), wanted());
    assert_eq!(step(&mut secret, &wanted, START), Step::Begin);
    let mut now = START;
    let mut steps = Vec::new();
    // The bundle of an API server that is a minute behind, and the certificate of a replica that is an hour behind.
    let mut late_bundle = Stored::read(&secret).unwrap().unwrap().bundle();
    let mut late_certificate = Stored::read(&secret).unwrap().unwrap().certificate().certificate.clone();
    let mut serials = std::collections::BTreeSet::new();
    while now < START + 400 * DAY {
        let step = step(&mut secret, &wanted, now);
        let stored = Stored::read(&secret).unwrap().unwrap();
        if let Some(published) = stored.published(now) {
            published.write(&mut secret);
        }
        let certificate = &stored.certificate().certificate;
        assert!(is_trusted(certificate, &late_bundle, now), "a late API server at {now} after {step:?}");
        assert!(is_trusted(&late_certificate, &stored.bundle(), now), "a late replica at {now} after {step:?}");
        late_bundle = stored.bundle();
        late_certificate.clone_from(certificate);
        serials.insert(certificate.clone());
        assert!(blocks(&stored.bundle()).len() <= 3, "former authorities go when they expire");
        match step {
            Step::Wait { until } => {
                assert!(until > now);
                // Somewhat after the due time, as timers are.
                now = until + 1;
            }
            step => {
                steps.push(step);
                now += 60;
            }
        }
    }
    let n = |wanted| steps.iter().filter(|step| **step == wanted).count();
    assert_eq!((n(Step::Begin), n(Step::Introduce), n(Step::Promote)), (0, 6, 6));
    assert!(n(Step::Renew) > 50 && serials.len() > 60, "{} {}", n(Step::Renew), serials.len());
}

#[test]
fn a_new_name_renews_the_certificate_with_the_authority_that_is_trusted() {
    let (mut secret, mut wanted) = (Secret::default(), wanted());
    step(&mut secret, &wanted, START);
    let bundle = Stored::read(&secret).unwrap().unwrap().bundle();
    wanted.names.push("other.ops.svc".to_owned());
    assert_eq!(step(&mut secret, &wanted, START + 1), Step::Renew);
    let stored = Stored::read(&secret).unwrap().unwrap();
    assert_eq!(stored.bundle(), bundle);
    assert!(is_trusted(&stored.certificate().certificate, &bundle, START + 1));
    assert!(matches!(step(&mut secret, &wanted, START + 2), Step::Wait { .. }));
}

#[test]
fn a_secret_of_somebody_else_is_not_touched_and_an_empty_one_is_filled() {
    let mut secret = Secret::default();
    secret.data.get_or_insert_default().insert("password".to_owned(), ByteString(b"x".to_vec()));
    assert_eq!(Stored::read(&secret).unwrap_err().to_string(), "it has no ca.crt");
    secret.data = Some([("tls.crt".to_owned(), ByteString::default())].into());
    secret.metadata.labels = Some([("app".to_owned(), "a".to_owned())].into());
    assert_eq!(step(&mut secret, &wanted(), START), Step::Begin);
    assert_eq!(secret.metadata.labels.unwrap()["app"], "a");
}

#[test]
fn what_was_written_is_read() {
    let (mut secret, wanted) = (Secret::default(), wanted());
    step(&mut secret, &wanted, START);
    assert_eq!(step(&mut secret, &wanted, START + 61 * DAY), Step::Introduce);
    let stored = Stored::read(&secret).unwrap().unwrap();
    assert_eq!(blocks(&stored.bundle()).len(), 2);
    let published = stored.published(7).unwrap();
    published.write(&mut secret);
    assert_eq!(secret.metadata.annotations.as_ref().unwrap()[PUBLISHED], "7");
    assert_eq!(Stored::read(&secret).unwrap().unwrap(), published);
    assert_eq!(published.published(8), None);
    stored.write(&mut secret);
    assert_eq!(Stored::read(&secret).unwrap().unwrap(), stored);
}
