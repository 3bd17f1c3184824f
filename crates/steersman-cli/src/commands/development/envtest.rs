//! `steersman envtest`: a folder with `kube-apiserver`, `etcd` and `kubectl` for `KUBEBUILDER_ASSETS` of
//! controller-runtime's envtest. The first two are this binary by other names ([`crate::commands::drop_in`]).

use crate::Failure;
use crate::args::EnvtestOptions;
use crate::commands::drop_in::Program;
use anyhow::Context as _;
use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const KUBECTL: &str = "kubectl";
/// The remedy if the folder cannot be made.
const ANOTHER: &str = "name another directory, as in steersman envtest DIR";

/// Makes the folder or its missing parts, and prints its path.
pub(crate) fn run(options: &EnvtestOptions) -> Result<(), Failure> {
    let dir = match &options.dir {
        Some(dir) => dir.clone(),
        None => cache_dir()?,
    };
    let made = fs::create_dir_all(&dir).and_then(|()| dir.canonicalize());
    let dir = made.map_err(|error| {
        Failure::Refused(format!("cannot make the directory {}: {error}; {ANOTHER}", dir.display()))
    })?;
    let own = env::current_exe().context("the path of this program is unknown")?;
    for program in Program::ALL {
        let path = dir.join(program.name());
        if is_program(&path) {
            let path = path.display();
            return Err(Failure::Refused(format!(
                "{path} is there already and is another program: remove it, or {ANOTHER}"
            )));
        }
        link(&own, &path)?;
    }
    match found(KUBECTL, &dir) {
        Some(_) if is_program(&dir.join(KUBECTL)) => {}
        Some(kubectl) => link(&kubectl, &dir.join(KUBECTL))?,
        None if dir.join(KUBECTL).exists() => {}
        None => eprintln!(
            "steersman: there is no kubectl on PATH, so {} has none: suites that call it need one from https://kubernetes.io/docs/tasks/tools/",
            dir.display()
        ),
    }
    // A closed standard output is not an error.
    let _ = writeln!(io::stdout(), "{}", dir.display());
    Ok(())
}

/// The default of the folder.
fn cache_dir() -> Result<PathBuf, Failure> {
    let of = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
    let cache = cache.ok_or_else(|| {
        Failure::Refused(
            "there is no home directory to make the folder in: name one, as in steersman envtest DIR".to_owned(),
        )
    })?;
    Ok(cache.join("steersman").join("envtest"))
}

/// A program on PATH, except in this directory.
fn found(name: &str, other_than: &Path) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let candidates = env::split_paths(&path).filter(|dir| dir.canonicalize().is_ok_and(|dir| dir != other_than));
    candidates
        .map(|dir| dir.join(name))
        .find_map(|candidate| candidate.canonicalize().ok().filter(|path| path.is_file()))
}

/// Whether the path is a program itself, as setup-envtest downloads them. This command only makes links.
fn is_program(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| !metadata.is_symlink())
}

/// Puts a link in place atomically: suites that start at the same time each find the old one or the new one.
fn link(target: &Path, path: &Path) -> Result<(), Failure> {
    if fs::read_link(path).is_ok_and(|current| current == target) {
        return Ok(());
    }
    let new = path.with_added_extension(std::process::id().to_string());
    let linked = symlink(target, &new).and_then(|()| fs::rename(&new, path));
    linked.map_err(|error| Failure::Refused(format!("cannot make the link {}: {error}; {ANOTHER}", path.display())))
}
