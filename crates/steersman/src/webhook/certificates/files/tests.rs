//! Files that change while they are served, in a directory of the test's own.

use std::sync::Arc;

use super::*;
use crate::webhook::certificates::issue::{self, Pair as Issued, Validity};
use crate::webhook::stats::Stats;

fn issue() -> Issued {
    let validity = Validity::from(1_900_000_000, Duration::from_secs(3_600));
    let authority = issue::authority("test", validity).unwrap();
    issue::certificate(&authority, &["localhost".to_owned()], validity).unwrap()
}

fn write(directory: &Path, pair: &Issued) {
    std::fs::write(directory.join("tls.crt"), &pair.certificate).unwrap();
    std::fs::write(directory.join("tls.key"), &pair.key).unwrap();
}

fn files(directory: &Path) -> Files {
    Files { certificate: directory.join("tls.crt"), key: directory.join("tls.key") }
}

/// All have the same expiry; the keys differ.
fn served(pair: &Issued) -> Served {
    Served::of_pem(pair.certificate.as_bytes(), pair.key.as_bytes(), "test").unwrap()
}

#[tokio::test(start_paused = true)]
async fn new_files_are_served_and_a_half_written_pair_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (issue(), issue());
    write(directory.path(), &first);
    let publisher = Arc::new(Publisher::new(Arc::new(Stats::default())));
    let mut watched = publisher.served();
    let keeping = Arc::clone(&publisher);
    let path = directory.path().to_owned();
    let keeper = tokio::spawn(async move { files(&path).keep(&keeping).await });
    watched.changed().await.unwrap();
    assert!(watched.borrow_and_update().as_ref().unwrap().is_same(&served(&first)));
    // The new certificate is written, its key is not.
    std::fs::write(directory.path().join("tls.crt"), &second.certificate).unwrap();
    let unchanged = tokio::time::timeout(INTERVAL * 3, watched.changed()).await;
    assert!(unchanged.is_err() && !keeper.is_finished());
    std::fs::write(directory.path().join("tls.key"), &second.key).unwrap();
    watched.changed().await.unwrap();
    assert!(watched.borrow().as_ref().unwrap().is_same(&served(&second)));
    keeper.abort();
}

#[tokio::test]
async fn a_first_pair_that_cannot_be_used_is_an_error_that_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let publisher = Publisher::new(Arc::new(Stats::default()));
    let path = directory.path().join("tls.crt");
    let missing = files(directory.path()).keep(&publisher).await;
    assert_eq!(missing.to_string(), format!("cannot read {}", path.display()));
    let (one, other) = (issue(), issue());
    write(directory.path(), &Issued { key: other.key, ..one });
    let mixed = files(directory.path()).keep(&publisher).await;
    assert!(mixed.to_string().starts_with(&format!("the key of {} cannot be used: ", path.display())), "{mixed}");
}
