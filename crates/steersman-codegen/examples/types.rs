//! Writes the Rust types of manifests into a directory:
//! `cargo run -p steersman-codegen --example types -- [--no-docs] DIRECTORY MANIFEST..`

use std::process::ExitCode;

use steersman_codegen::Builder;

fn main() -> ExitCode {
    let mut builder = Builder::new();
    let mut paths = Vec::new();
    for argument in std::env::args().skip(1) {
        if argument == "--no-docs" {
            builder = builder.docs(false);
        } else {
            paths.push(argument);
        }
    }
    let Some((directory, manifests)) = paths.split_first() else {
        eprintln!("say into which directory, and from which manifests");
        return ExitCode::FAILURE;
    };
    for manifest in manifests {
        builder = builder.manifest(manifest);
    }
    match builder.write_to(directory) {
        Ok(written) => {
            println!("{} files written", written.len());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
