//! `cargo xtask twins`: a server of this tree opens the etcd that a real kube-apiserver has filled, and both go on beside each other.
//!
//! The kube-apiserver makes objects of all kinds, then the server is started on the same etcd, and every object must be the same at
//! both. Then each of them makes more while the other runs. The program of `crates/steersman-differential` makes and compares.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::shared::reference::Reference;
use crate::shared::steersman::{Role, Steersman};
use crate::shared::workspace::{Profile, Workspace};

const PROGRAM: &str = "steersman-differential";
/// The users of both servers, below the root of the workspace, and the token of the administrator among them.
const TOKENS: &str = "tests/walks/tokens.csv";
const TOKEN: &str = "admin-token";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Use debug builds
    #[arg(long)]
    debug: bool,
    /// The seed of the objects
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many objects the kube-apiserver is sent, some of which it refuses; half as many are sent to each server later
    #[arg(long, default_value_t = 12_000)]
    objects: usize,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let profile = if options.debug { Profile::Debug } else { Profile::Release };
    let (binary, program) = (workspace.build_steersman(profile)?, workspace.build_program(PROGRAM, profile)?);
    let reference = Reference::build(workspace)?;
    let scratch = workspace.scratch("twins")?;
    let (data, tokens) = (scratch.join("data"), workspace.root.join(TOKENS));
    let tokens_text = tokens.to_string_lossy();
    let flags = ["--controllers=-*", "--token-auth-file", &*tokens_text];
    let start = |more: &[&str], log: &str| {
        Steersman::start(&binary, Role::Server, &data, &[&flags[..], more].concat(), &scratch.join(log))
    };
    // Both have the certificates that the first start makes.
    start(&["--in-memory"], "first.log")?.stop()?;
    let etcd = reference.start_etcd(&scratch)?;
    let upstream = reference.start_on(&etcd, &scratch, &tokens, &data.join("pki"))?;
    let asker = Asker { program: &program, ca: &data.join("pki/ca.crt") };
    println!("the kube-apiserver alone:");
    asker.fill(&upstream.address, options.seed, options.objects)?;
    let server = start(&["--etcd-servers", &etcd.url], "server.log")?;
    let address = server.ready.address()?;
    println!("opened in {:.1} s:", server.took.as_secs_f64());
    let mut is_same = asker.is_same(&upstream.address, &address)?;
    for (who, there, seed) in
        [("steersman", &address, options.seed + 1), ("the kube-apiserver", &upstream.address, options.seed + 2)]
    {
        println!("{who} beside the other:");
        asker.fill(there, seed, options.objects / 2)?;
        is_same &= asker.is_same(&upstream.address, &address)?;
    }
    server.stop()?;
    drop(upstream);
    if !is_same {
        println!("logs: {}", scratch.display());
        return Ok(ExitCode::FAILURE);
    }
    std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The program, with what all its commands need.
struct Asker<'a> {
    program: &'a Path,
    ca: &'a Path,
}

impl Asker<'_> {
    fn command(&self, name: &str, server: &str) -> Command {
        let mut command = Command::new(self.program);
        command.args([name, "--token", TOKEN, "--server", server, "--server-ca"]).arg(self.ca);
        command
    }

    fn fill(&self, server: &str, seed: u64, objects: usize) -> anyhow::Result<()> {
        let mut fill = self.command("fill", server);
        fill.args(["--seed", &seed.to_string(), "--objects", &objects.to_string()]);
        let status = fill.status().context("cannot run the generator")?;
        anyhow::ensure!(status.success(), "the objects could not be made");
        Ok(())
    }

    fn is_same(&self, upstream: &str, server: &str) -> anyhow::Result<bool> {
        let mut same = self.command("same", server);
        let status = same.args(["--upstream", upstream, "--upstream-ca"]).arg(self.ca).status();
        Ok(status.context("cannot run the generator")?.success())
    }
}
