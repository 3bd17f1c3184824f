//! Dumps of clusters: a file is recognized by its content, texts and tars are read, and paths say what is in a file.

use std::path::Path;
use steersman_archive::{LAYOUTS, Recognized, fuzz_documents, fuzz_tar, plain_place, recognize};

/// The directory of unpacked logs, which is missing, so that nothing is written.
const NOWHERE: &str = "/nonexistent/steersman";

pub fn run(bytes: &[u8]) {
    match recognize(bytes) {
        Recognized::Text => {
            let n_objects = fuzz_documents(bytes);
            assert!(n_objects <= bytes.len(), "an object has at least one byte");
        }
        Recognized::Tar => {
            let n_objects = fuzz_tar(bytes, Path::new(NOWHERE)).unwrap_or(0);
            assert!(n_objects <= bytes.len(), "an object has at least one byte");
        }
        _ => {}
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for line in text.lines().take(100) {
        let path: Vec<&str> = line.split('/').collect();
        for layout in LAYOUTS {
            let _place = layout.place(&path);
        }
        let _place = plain_place(&path);
    }
}
