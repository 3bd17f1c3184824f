//! `steersman backup --verify`: reads a backup and names what is damaged.

use crate::Failure;
use crate::commands::store::input::{Contents, Input};
use crate::commands::store::name;
use jiff::Timestamp;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use steersman_storage::backup::Header;

pub(crate) fn run(file: &Path) -> Result<ExitCode, Failure> {
    let contents = Input::open(file)?.contents(|_| {})?;
    // A closed standard output is no reason to fail.
    let _ = io::stdout().lock().write_all(report(&contents, file).as_bytes());
    Ok(if contents.n_faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(contents: &Contents, file: &Path) -> String {
    let Contents { faults, header, lost, n_entries, n_faults } = contents;
    let mut text = String::new();
    if let Some(Header { engine, format, revision, seconds, .. }) = header {
        let time = seconds.and_then(|seconds| Timestamp::from_second(i64::try_from(seconds).ok()?).ok());
        let time = time.map_or_else(|| "at an unknown time".to_owned(), |time| time.to_string());
        text += &format!(
            "{}: format {format}, {}, revision {revision}, {n_entries} objects, {time}\n",
            file.display(),
            engine.escape_debug()
        );
    }
    for lost in lost {
        text += &format!("not in it, because the store had lost it: {}\n", name(&lost.key));
    }
    for fault in faults {
        text += &format!("damaged: {fault}\n");
    }
    if 0 < contents.n_more_faults() {
        text += &format!("damaged: {} more places\n", contents.n_more_faults());
    }
    text + match (n_faults, header) {
        (0, _) => "everything is as it was written\n",
        (_, Some(_)) => "use another backup, or restore what is whole with `steersman restore --skip-damaged`\n",
        (_, None) => "use another backup\n",
    }
}
