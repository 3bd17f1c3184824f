//! Runs every file of every corpus through its target as an ordinary test: an input that once crashed stays a
//! regression test.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use steersman_fuzz::targets;

/// The size of all corpora and seeds together is bounded, because they are in the repository.
const BYTES_MAX: u64 = 2 << 20;

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry of the directory").path()).collect();
    files.sort();
    files
}

#[test]
fn every_file_of_every_corpus_holds() {
    let mut failed = Vec::new();
    for target in targets::ALL {
        for file in files(&corpora().join(target.name)) {
            let data = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            if catch_unwind(AssertUnwindSafe(|| (target.run)(&data))).is_err() {
                failed.push(file);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let names: Vec<PathBuf> = targets::ALL.iter().map(|target| corpora().join(target.name)).collect();
    assert_eq!(files(&corpora()), names);
    for directory in names {
        assert!(!files(&directory).is_empty(), "{} is empty", directory.display());
    }
}

#[test]
fn the_corpora_are_small() {
    let size = |file: &PathBuf| fs::metadata(file).map_or(0, |metadata| metadata.len());
    let bytes: u64 = files(&corpora()).iter().flat_map(|directory| files(directory)).map(|file| size(&file)).sum();
    assert!(bytes <= BYTES_MAX, "{bytes} bytes");
}
