//! A recorded corpus: requests that were sent to a kube-apiserver, and its answers, so that another server can be compared with it where none
//! can be built.
//!
//! A file has a line of JSON for each case, compressed with gzip. It names no seed object: those are made from `seeds` before the cases are
//! sent, so a corpus belongs to the seeds with which it was recorded.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;

use anyhow::Context as _;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::server::Request;

/// A case with the kube-apiserver's answer.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Recorded {
    pub(crate) number: usize,
    /// The beginning of the signature of a difference, after its class.
    pub(crate) subject: String,
    /// The path of the object whose version and uid the request names.
    pub(crate) object: String,
    pub(crate) request: Request,
    pub(crate) answer: Answer,
}

pub(crate) fn write(path: &Path, cases: &[Recorded]) -> anyhow::Result<()> {
    let write = || -> anyhow::Result<()> {
        let mut file = GzEncoder::new(BufWriter::new(File::create(path)?), Compression::best());
        for case in cases {
            serde_json::to_writer(&mut file, case)?;
            file.write_all(b"\n")?;
        }
        file.finish()?.flush()?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Recorded>> {
    let read = || -> anyhow::Result<Vec<Recorded>> {
        let lines = BufReader::new(GzDecoder::new(File::open(path)?)).lines();
        lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
    };
    read().with_context(|| format!("cannot read {}", path.display()))
}
