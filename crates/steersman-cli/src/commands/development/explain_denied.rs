//! `steersman explain-denied`: the permissions that would allow refused requests.
//!
//! Reads refusals from an access log, or from any text that quotes them, and prints for each user the smallest Role or
//! ClusterRole that allows them, with its binding. Refusals for other reasons are ignored: a role would not help.

mod denial;
mod grant;

use crate::Failure;
use crate::args::ExplainOptions;
use crate::commands::development::explain_denied::denial::Denial;
use crate::commands::development::explain_denied::grant::Grants;
use anyhow::Context as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::Path;

/// Prints the permissions for the refused requests of the input.
pub(crate) fn run(options: &ExplainOptions) -> Result<(), Failure> {
    let (input, name): (Box<dyn BufRead>, String) = match options.file.as_deref().filter(|path| *path != Path::new("-"))
    {
        None => (Box::new(io::stdin().lock()), "standard input".to_owned()),
        Some(path) => {
            let file = File::open(path).map_err(|error| {
                Failure::Refused(format!(
                    "cannot read {}: {error}; name an access log, or - for standard input",
                    path.display()
                ))
            })?;
            (Box::new(BufReader::new(file)), path.display().to_string())
        }
    };
    let mut grants = Grants::default();
    for line in input.split(b'\n') {
        let line = line.with_context(|| format!("{name} cannot be read to its end"))?;
        if let Some(denial) = Denial::find(&String::from_utf8_lossy(&line)) {
            grants.add(if options.any_name { denial.without_name() } else { denial });
        }
    }
    if grants.is_empty() {
        eprintln!("steersman: {name} has no request that authorization refused");
        return Ok(());
    }
    let text = grants.to_yaml().context("the roles cannot be printed")?;
    io::stdout().write_all(text.as_bytes()).context("standard output cannot be written")?;
    Ok(())
}
