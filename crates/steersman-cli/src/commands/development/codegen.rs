//! `steersman codegen`: code and manifests out of CustomResourceDefinitions.
//!
//! `steersman_codegen` generates the text; here are files, servers and the command line. A failed check names the files
//! and the command that updates them.

mod definitions;
pub(crate) mod new;

use crate::Failure;
use crate::args::{ClientsOptions, CodegenCommand, CrdOptions, DefinitionsOptions, Enums, TypesOptions};
use anyhow::Context as _;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use steersman_codegen::output::Files;
use steersman_codegen::{clients, crd, manifest, types};

/// Generates the files, or checks the existing ones.
pub(crate) async fn run(command: CodegenCommand) -> Result<(), Failure> {
    match command {
        CodegenCommand::Clients(options) => clients(&options).await,
        CodegenCommand::Crd(options) => crds(&options).await,
        CodegenCommand::Types(options) => types(&options).await,
    }
}

async fn clients(options: &ClientsOptions) -> Result<(), Failure> {
    let (directory, module) = place(&options.out)?;
    let definitions = definitions::read(&options.definitions).await?;
    let definitions = crd::from_list("the definitions", definitions.into()).map_err(|error| refused(&error))?;
    let mut command = command("clients", &options.definitions);
    _ = write!(command, " --types {} --out {}", options.types, options.out.display());
    let clients = clients::Options { module, types: options.types.clone(), command: command.clone() };
    let files = clients::generate(&definitions, &clients).map_err(|error| refused(&error))?;
    put(&files, &directory, options.check, &command)
}

async fn types(options: &TypesOptions) -> Result<(), Failure> {
    let (directory, module) = place(&options.out)?;
    let definitions = definitions::read(&options.definitions).await?;
    let definitions = crd::from_list("the definitions", definitions.into()).map_err(|error| refused(&error))?;
    let mut types = types::Options::default();
    types.layout = types::Layout::Tree(module);
    types.enums = match options.enums {
        Enums::Closed => types::Enums::Closed,
        Enums::Open => types::Enums::Open,
        Enums::Strings => types::Enums::Strings,
    };
    types.schemars = options.schemars;
    types.unserved_versions = options.unserved;
    types.derives.clone_from(&options.derive);
    let files = types::generate(&definitions, &types).map_err(|error| refused(&error))?;
    let mut command = command("types", &options.definitions);
    _ = write!(command, " --out {}", options.out.display());
    if options.enums != Enums::Open {
        _ = write!(command, " --enums {}", format!("{:?}", options.enums).to_lowercase());
    }
    for (flag, is_set) in [("--schemars", options.schemars), ("--unserved", options.unserved)] {
        if is_set {
            _ = write!(command, " {flag}");
        }
    }
    for path in &options.derive {
        _ = write!(command, " --derive {path}");
    }
    put(&files, &directory, options.check, &command)
}

/// The directory of a module's file, and the name of the module.
fn place(out: &Path) -> Result<(PathBuf, String), Failure> {
    let is_rust = out.extension().is_some_and(|extension| extension == "rs");
    let module = out.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_rust);
    let Some(module) = module else {
        let out = out.display();
        return Err(Failure::Refused(format!(
            "{out} is no file of a Rust module: want --out src/client.rs or the like"
        )));
    };
    let directory = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((directory.to_owned(), module.to_owned()))
}

async fn crds(options: &CrdOptions) -> Result<(), Failure> {
    let definitions = definitions::read(&options.definitions).await?;
    let mut files = Files::default();
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or("unnamed").to_owned();
        let yaml = manifest::definition(&definition).map_err(|error| refused(&error))?;
        if files.text(format!("{name}.yaml")).is_some() {
            return Err(Failure::Refused(format!("there are two definitions of {name}: leave one out")));
        }
        files.insert(format!("{name}.yaml"), yaml);
    }
    let Some(directory) = &options.out else {
        let documents: Vec<&str> = files.iter().map(|(_, text)| text).collect();
        let text = documents.join("---\n");
        std::io::stdout().write_all(text.as_bytes()).context("standard output cannot be written")?;
        return Ok(());
    };
    let mut command = command("crd", &options.definitions);
    _ = write!(command, " --out {}", directory.display());
    put(&files, directory, options.check, &command)
}

/// Writes or compares the files, and prints the names of those that were written.
fn put(files: &Files, directory: &Path, check: bool, command: &str) -> Result<(), Failure> {
    if check {
        return files.verify(directory, command).map_err(|error| Failure::Failed(error.into()));
    }
    for path in files.write(directory).map_err(anyhow::Error::from)? {
        // A closed standard output is no reason to fail.
        _ = writeln!(std::io::stdout(), "{}", directory.join(path).display());
    }
    Ok(())
}

/// The command that generates the same again, for readers of the files.
fn command(what: &str, definitions: &DefinitionsOptions) -> String {
    let mut command = format!("steersman codegen {what}");
    for path in &definitions.paths {
        _ = write!(command, " {}", path.display());
    }
    if definitions.from_server {
        command.push_str(" --from-server");
    }
    for group in &definitions.group {
        _ = write!(command, " --group {group}");
    }
    command
}

fn refused(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::Refused(crate::chain(error))
}
