//! Generation from a `build.rs`, or from a program that keeps checked-in code up to date.

use std::path::{Path, PathBuf};

use crate::crd::{self, Definition, ReadError};
use crate::output::{self, Files};
use crate::types::{self, Enums, Layout, Options};

/// Generates Rust types of CustomResourceDefinitions.
///
/// In a `build.rs`:
///
/// ```no_run
/// fn main() -> Result<(), steersman_codegen::Error> {
///     steersman_codegen::Builder::new().manifest("crds/networks.yaml").compile()
/// }
/// ```
///
/// and in the crate:
///
/// ```ignore
/// pub mod apis {
///     include!(concat!(env!("OUT_DIR"), "/apis.rs"));
/// }
/// ```
///
/// Checked-in code is written by [`write_to`](Builder::write_to), and compared in CI by [`check`](Builder::check).
#[derive(Clone, Debug, Default)]
pub struct Builder {
    manifests: Vec<PathBuf>,
    definitions: Vec<Definition>,
    options: Options,
}

/// Why code could not be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Generate(#[from] types::Error),
    /// Neither a manifest nor a definition was given.
    #[error("nothing to generate from: name a manifest")]
    NoInput,
    #[error("$OUT_DIR is not set: `compile` is for a build.rs; elsewhere, name a directory with `write_to`")]
    NoOutDir,
    #[error(transparent)]
    Output(#[from] output::Error),
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Builder {
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Adds a manifest file, or a directory with all its files that end in `.yaml`, `.yml` or `.json`.
    pub fn manifest(mut self, path: impl Into<PathBuf>) -> Builder {
        self.manifests.push(path.into());
        self
    }

    /// Adds definitions that were read already, for example from a server.
    pub fn definitions(mut self, definitions: impl IntoIterator<Item = Definition>) -> Builder {
        self.definitions.extend(definitions);
        self
    }

    /// Adds a derive, as a path, to every type.
    pub fn derive(mut self, path: impl Into<String>) -> Builder {
        self.options.derives.push(path.into());
        self
    }

    /// Whether descriptions become doc comments.
    pub fn docs(mut self, docs: bool) -> Builder {
        self.options.docs = docs;
        self
    }

    /// Sets how strings with an `enum` are represented.
    pub fn enums(mut self, enums: Enums) -> Builder {
        self.options.enums = enums;
        self
    }

    /// Replaces all options but the layout's.
    pub fn options(mut self, options: Options) -> Builder {
        self.options = Options { layout: self.options.layout, ..options };
        self
    }

    /// Derives `schemars::JsonSchema` for every type.
    pub fn schemars(mut self, schemars: bool) -> Builder {
        self.options.schemars = schemars;
        self
    }

    /// Sets the name of the module that contains all types; the default is `apis`.
    pub fn module(mut self, name: impl Into<String>) -> Builder {
        self.options.layout = Layout::Tree(name.into());
        self
    }

    /// The generated files, in memory.
    ///
    /// # Errors
    ///
    /// If a manifest cannot be read, or its definitions contradict each other.
    pub fn generate(&self) -> Result<Files, Error> {
        let (definitions, _) = self.read()?;
        Ok(types::generate(&definitions, &self.options)?)
    }

    /// Writes one file into `$OUT_DIR`, named after the module, and tells cargo which files it depends on. Other files
    /// there are left alone, so that a build script may write several modules.
    ///
    /// # Errors
    ///
    /// As [`generate`](Builder::generate), and if this is not a build script.
    pub fn compile(&self) -> Result<(), Error> {
        let directory = std::env::var_os("OUT_DIR").map(PathBuf::from).ok_or(Error::NoOutDir)?;
        let (definitions, read) = self.read()?;
        for path in read {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        let name = match &self.options.layout {
            Layout::Tree(name) => format!("{name}.rs"),
            Layout::SingleFile(name) => name.clone(),
        };
        let options = Options { layout: Layout::SingleFile(name), ..self.options.clone() };
        types::generate(&definitions, &options)?.write(&directory)?;
        Ok(())
    }

    /// Writes a directory of sources: a file for each module. Returns the files that were not up to date. In the
    /// module's own directory, files that were generated from a source that is gone are removed; elsewhere, none is.
    ///
    /// # Errors
    ///
    /// As [`generate`](Builder::generate), and if the file system refuses.
    pub fn write_to(&self, directory: impl AsRef<Path>) -> Result<Vec<PathBuf>, Error> {
        Ok(self.generate()?.write(directory.as_ref())?)
    }

    /// Compares a directory of sources with the generated ones.
    ///
    /// # Errors
    ///
    /// As [`generate`](Builder::generate), and if a file is not up to date: the error names it, and `command`.
    pub fn check(&self, directory: impl AsRef<Path>, command: &str) -> Result<(), Error> {
        Ok(self.generate()?.verify(directory.as_ref(), command)?)
    }

    /// All definitions, and the files and directories that they depend on.
    fn read(&self) -> Result<(Vec<Definition>, Vec<PathBuf>), Error> {
        let mut definitions = self.definitions.clone();
        let mut read = Vec::new();
        for path in &self.manifests {
            read.push(path.clone());
            if path.is_dir() {
                definitions.extend(crd::read_directory(path)?);
            } else {
                definitions.extend(crd::read_file(path)?);
            }
        }
        if definitions.is_empty() {
            return Err(Error::NoInput);
        }
        Ok((definitions, read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/crd/network-v1.yaml");

    #[test]
    fn types_that_are_written_leave_other_generated_code_alone() {
        let directory = tempfile::tempdir().unwrap();
        let client = directory.path().join("client.rs");
        std::fs::write(&client, format!("//! {}: do not edit.\n", output::MARK)).unwrap();
        let builder = Builder::new().manifest(NETWORK);
        builder.write_to(directory.path()).unwrap();
        assert!(client.exists());
        builder.check(directory.path(), "make").unwrap();
        let old = directory.path().join("apis/old.rs");
        std::fs::write(&old, format!("//! {}: do not edit.\n", output::MARK)).unwrap();
        assert_eq!(builder.write_to(directory.path()).unwrap(), [PathBuf::from("apis/old.rs")]);
        assert!(!old.exists(), "the directory of the module is its own");
    }

    #[test]
    fn single_files_of_different_names_stand_side_by_side() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["first.rs", "second.rs"] {
            let options = Options { layout: Layout::SingleFile(name.to_owned()), ..Options::default() };
            let definitions = crd::read_file(Path::new(NETWORK)).unwrap();
            types::generate(&definitions, &options).unwrap().write(directory.path()).unwrap();
        }
        assert!(directory.path().join("first.rs").exists());
        assert!(directory.path().join("second.rs").exists());
    }
}
