//! Mounts the files of an account in the directory where pods have them, for one command only.
//!
//! Where the system allows it, an unprivileged user may make a mount namespace in a new user namespace. `unshare` of
//! util-linux makes them (the system calls are not safe in a process with threads) and runs this program again, which
//! mounts the files and then becomes the command. `/run` usually has no `secrets` and only root may create it, so an
//! empty file system is mounted there, in which all previous entries are mounted again.

use crate::commands::development::run_as::command_of;
use anyhow::Context as _;
use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The directory where pods have the files.
const STANDARD_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The hidden subcommand.
pub(crate) const SUBCOMMAND: &str = "run-as-mounted";

/// The command in a new mount namespace if that is possible, else the unchanged command.
pub(super) fn command(dir: &Path, words: &[OsString]) -> Command {
    let flags: &[&str] = if rustix::process::geteuid().is_root() {
        &["--mount"]
    } else {
        // The user stays the same, and may mount until the command begins.
        &["--map-current-user", "--mount", "--keep-caps"]
    };
    let unshare = || {
        let mut unshare = Command::new("unshare");
        unshare.args(flags).arg("--");
        unshare
    };
    let quiet = |command: &mut Command| {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let own = std::env::current_exe();
    let Ok(own) = own else { return command_of(words) };
    if !quiet(unshare().arg("true")) {
        tracing::warn!(
            "this system lets nobody make a mount namespace, so {STANDARD_DIR} is not there: programs that look nowhere else find no account, others find it by KUBECONFIG"
        );
        return command_of(words);
    }
    let mut command = unshare();
    command.arg(own).arg(SUBCOMMAND).arg(dir).arg("--").args(words);
    command
}

/// Mounts the directory where pods have it, and becomes the command. Returns only if that fails.
pub(crate) fn become_command(dir: &Path, words: &[OsString]) -> ExitCode {
    if let Err(error) = mount_at_standard(dir) {
        eprintln!("steersman: {STANDARD_DIR} cannot be mounted, and is not there: {}", crate::chain(&*error));
    }
    // The capabilities were only for mounting: the command gets no additional rights.
    let _ = rustix::thread::clear_ambient_capability_set();
    let error = command_of(words).exec();
    let program = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    eprintln!("steersman: cannot run {program:?}: {error}");
    // The exit codes of shells for a command that cannot be run.
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}

fn mount_at_standard(dir: &Path) -> anyhow::Result<()> {
    let standard = Path::new(STANDARD_DIR);
    if !standard.is_dir() {
        make_room(standard)?;
    }
    mount_bind(dir, standard).with_context(|| format!("{} cannot be bound", dir.display()))
}

/// Creates the directory, even below directories of other users.
fn make_room(standard: &Path) -> anyhow::Result<()> {
    let base = standard.ancestors().skip(1).find_map(|parent| parent.canonicalize().ok()).unwrap_or(PathBuf::from("/"));
    let missing: Vec<_> = {
        let found = standard.ancestors().skip(1).position(|parent| parent.exists()).unwrap_or(0);
        let mut parts: Vec<_> = standard.components().rev().take(found + 1).collect();
        parts.reverse();
        parts
    };
    let before = File::open(&base).with_context(|| format!("{} cannot be read", base.display()))?;
    // The old directory can still be reached by its descriptor.
    let before_path = PathBuf::from(format!("/proc/self/fd/{}", before.as_raw_fd()));
    let entries: Vec<_> = fs::read_dir(&before_path)?.collect::<Result<_, _>>()?;
    mount("tmpfs", &base, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=755"))
        .with_context(|| format!("no file system can be mounted at {}", base.display()))?;
    for entry in entries {
        let (old, new) = (before_path.join(entry.file_name()), base.join(entry.file_name()));
        let kind = entry.file_type()?;
        let shown = if kind.is_symlink() {
            fs::read_link(&old).and_then(|target| symlink(target, &new))
        } else if kind.is_dir() {
            fs::create_dir(&new).and_then(|()| mount_bind_recursive(&old, &new).map_err(Into::into))
        } else {
            File::create(&new).and_then(|_| mount_bind(&old, &new).map_err(Into::into))
        };
        // An entry that cannot be mounted is missing for the command, which can run nevertheless.
        if let Err(error) = shown {
            tracing::debug!(path = %new.display(), %error, "not visible to the command");
        }
    }
    let path = missing.iter().fold(base.clone(), |path, part| path.join(part));
    fs::create_dir_all(&path).with_context(|| format!("{} cannot be made", path.display()))
}
