//! `cargo xtask walks`: the recorded answers of a real kube-apiserver, replayed against `steersman server`.
//!
//! `tests/walks/walk.py` replays and compares. This module starts a server for it, distributes the files over a few
//! concurrent replayers (every walk uses a namespace and names of its own), and compares the failures with
//! `tests/walks/known-failures.txt`. The walks of `loops` get a server of their own, with all control loops. Walks that
//! the list names as a whole wait for features that do not exist yet, many of them as long as walk.py waits at all, so
//! they are skipped by default.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use serde::Deserialize;

use crate::shared::known::{KnownFailures, Outcome};
use crate::shared::process::find_program;
use crate::shared::reference::Reference;
use crate::shared::replicas::Replicas;
use crate::shared::steersman::{Role, Steersman};
use crate::shared::tally::Tally;
use crate::shared::tools;
use crate::shared::workspace::{Profile, Workspace};

/// The directory of the walks, below the root of the workspace.
const DIRECTORY: &str = "tests/walks";
const KNOWN_FILE: &str = "known-failures.txt";
/// Walks that were recorded with kube-controller-manager beside the server.
const WITH_LOOPS: &str = "loops/";
/// Walks among those that count all Nodes, and the Pods of one on each: they are replayed one after another.
const ONE_AT_A_TIME: [&str; 2] = ["loops/daemon-sets.walk", "loops/nodes-and-their-pods.walk"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Use a debug build of the server
    #[arg(long)]
    debug: bool,
    /// How many walks are replayed at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    jobs: u8,
    /// Keep the objects of the servers there
    #[arg(long, value_enum, default_value = "embedded")]
    store: StoreChoice,
    /// Replay the walks at the kube-apiserver that is beside the servers of this tree
    #[arg(long, requires = "store")]
    at_upstream: bool,
    /// Replay walks too that are listed as known to fail as a whole; they take minutes
    #[arg(long)]
    all: bool,
    /// Rewrite the list of known failures from what this run shows, keeping the reasons
    #[arg(long)]
    update_known: bool,
    /// Walks to replay, as paths or as names below tests/walks; all of them if none is named
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Where a server keeps its objects.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum StoreChoice {
    /// The embedded store.
    Embedded,
    /// A real etcd, in the layout of kube-apiserver.
    Etcd,
    /// The same etcd as a real kube-apiserver, which runs beside the server.
    Shared,
    /// An etcd of three members, with three servers behind one address, of which one is killed each minute.
    Replicas,
}

/// The replay of a file: the results of walk.py, and its output.
struct Replay {
    outcome: Outcome,
    output: String,
}

/// One entry of walk.py's `--json` output.
#[derive(Deserialize)]
struct Counted {
    passed: usize,
    failed: BTreeSet<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let kubectl = tools::kubectl(workspace)?;
    let profile = if options.debug { Profile::Debug } else { Profile::Release };
    let mut known = known(workspace)?;
    let mut files = chosen(workspace, &options.files)?;
    if options.files.is_empty() && !options.all {
        leave_out(&known, &mut files);
    }
    let reference = match options.store {
        StoreChoice::Embedded => None,
        StoreChoice::Etcd | StoreChoice::Replicas => Some(Reference::of_etcd(workspace)?),
        StoreChoice::Shared => Some(Reference::build(workspace)?),
    };
    anyhow::ensure!(
        !options.at_upstream || options.store == StoreChoice::Shared,
        "no kube-apiserver runs with this store: add --store shared"
    );
    let stores = Stores { choice: options.store, reference, is_at_upstream: options.at_upstream };
    let outcomes = replay_all(workspace, &kubectl, profile, &stores, &known, &files, options.jobs)?;
    if options.update_known {
        known.update(&outcomes);
        let path = workspace.root.join(DIRECTORY).join(KNOWN_FILE);
        std::fs::write(&path, known.render()).with_context(|| format!("cannot write {}", path.display()))?;
        println!("rewrote {}", path.display());
    }
    let tally = verdict(&known, &outcomes);
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Replays the walks whose names contain `filter`, for `cargo xtask test`. Returns the numbers of steps that behaved as
/// expected and of those that did not.
pub(crate) fn test(workspace: &Workspace, kubectl: &Path, filter: &str) -> anyhow::Result<Tally> {
    let known = known(workspace)?;
    let mut files: Vec<String> = all(workspace)?.into_iter().filter(|file| file.contains(filter)).collect();
    leave_out(&known, &mut files);
    if files.is_empty() {
        println!("no walk is named like {filter:?}");
        return Ok(Tally::default());
    }
    let stores = Stores { choice: StoreChoice::Embedded, reference: None, is_at_upstream: false };
    let outcomes = replay_all(workspace, kubectl, Profile::Tested, &stores, &known, &files, 4)?;
    Ok(verdict(&known, &outcomes))
}

/// Removes from `files` the walks that are known to fail as a whole, and prints how many.
fn leave_out(known: &KnownFailures, files: &mut Vec<String>) {
    let n_before = files.len();
    files.retain(|file| !known.is_whole(file));
    if files.len() < n_before {
        println!("left out {} files that are known to fail as a whole (--all replays them)", n_before - files.len());
    }
}

/// Every walk, relative to the walks' directory, sorted.
fn all(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let base = workspace.root.join(DIRECTORY);
    let mut found = Vec::new();
    let mut open = vec![base.clone()];
    while let Some(directory) = open.pop() {
        let entries = std::fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("cannot list {}", directory.display()))?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "walk") {
                found.push(name(&base, &path));
            }
        }
    }
    found.sort();
    anyhow::ensure!(!found.is_empty(), "no walk below {}", base.display());
    Ok(found)
}

/// The walks that `asked` selects.
fn chosen(workspace: &Workspace, asked: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    if asked.is_empty() {
        return all(workspace);
    }
    let base = workspace.root.join(DIRECTORY);
    asked
        .iter()
        .map(|path| {
            let found = [path.clone(), base.join(path)].into_iter().find(|candidate| candidate.is_file());
            let found = found.with_context(|| format!("no walk {}, here or below {DIRECTORY}", path.display()))?;
            let full = found.canonicalize().with_context(|| format!("cannot resolve {}", found.display()))?;
            let base = base.canonicalize().with_context(|| format!("cannot resolve {}", base.display()))?;
            anyhow::ensure!(full.starts_with(&base), "{} is not below {DIRECTORY}", path.display());
            Ok(name(&base, &full))
        })
        .collect()
}

fn name(base: &Path, path: &Path) -> String {
    path.strip_prefix(base).unwrap_or(path).to_string_lossy().into_owned()
}

fn known(workspace: &Workspace) -> anyhow::Result<KnownFailures> {
    let path = workspace.root.join(DIRECTORY).join(KNOWN_FILE);
    if !path.exists() {
        return Ok(KnownFailures::default());
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    KnownFailures::parse(&text).with_context(|| format!("cannot read {}", path.display()))
}

/// Starts a server and replays `files` against it. Prints the differences in steps that are not known to fail.
fn replay_all(
    workspace: &Workspace,
    kubectl: &Path,
    profile: Profile,
    stores: &Stores,
    known: &KnownFailures,
    files: &[String],
    jobs: u8,
) -> anyhow::Result<Vec<Outcome>> {
    anyhow::ensure!(find_program("python3").is_some(), "python3 is not on PATH; the walks are replayed with it");
    let binary = workspace.build_steersman(profile)?;
    let scratch = workspace.scratch("walks")?;
    let (with_loops, without): (Vec<&String>, Vec<&String>) =
        files.iter().partition(|file| file.starts_with(WITH_LOOPS));
    // The answers were recorded without any controller, but with the protection of claims and volumes.
    let bare = ["--controllers=-*", "--enable-admission-plugins=StorageObjectInUseProtection"];
    let replay = |name: &str, extra: &[&str], files: &[&String]| {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let scratch = scratch.join(name);
        std::fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
        let replayer = Replayer { workspace, kubectl, stores, known, scratch: &scratch };
        replayer.replay_at(&binary, extra, files, jobs)
    };
    // Walks with loops mostly wait, so they run beside the others.
    let (bare, with_loops) = std::thread::scope(|scope| {
        let with_loops = scope.spawn(|| replay("loops", &[], &with_loops));
        (replay("bare", &bare, &without), with_loops.join())
    });
    let with_loops = with_loops.map_err(|_| anyhow::anyhow!("the replay of {WITH_LOOPS} panicked"))?;
    let mut outcomes = bare?;
    outcomes.extend(with_loops?);
    outcomes.sort_by(|a, b| a.file.cmp(&b.file));
    std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    Ok(outcomes)
}

/// Where the servers keep their objects, and the programs for it.
struct Stores {
    choice: StoreChoice,
    reference: Option<Reference>,
    /// Whether the walks are replayed at the kube-apiserver beside them.
    is_at_upstream: bool,
}

/// The input that every replay at a server needs.
struct Replayer<'a> {
    workspace: &'a Workspace,
    kubectl: &'a Path,
    stores: &'a Stores,
    known: &'a KnownFailures,
    scratch: &'a Path,
}

impl Replayer<'_> {
    /// Starts a server and replays `files` against it.
    fn replay_at(&self, binary: &Path, extra: &[&str], files: &[&String], jobs: u8) -> anyhow::Result<Vec<Outcome>> {
        let (tokens_file, data) = (self.workspace.root.join(DIRECTORY).join("tokens.csv"), self.scratch.join("data"));
        let tokens = tokens_file.to_string_lossy();
        let reference = self.stores.reference.as_ref();
        let tokens_flag = ["--token-auth-file", &*tokens];
        if let (StoreChoice::Replicas, Some(reference)) = (self.stores.choice, reference) {
            let replicas = Replicas::start(binary, &reference.etcd, self.scratch, &[&tokens_flag, extra].concat())?;
            let outcomes = self.replay_files(&replicas.kubeconfig, files, jobs)?;
            println!("{} servers were killed", replicas.stop()?);
            return Ok(outcomes);
        }
        let etcd = reference.map(|reference| reference.start_etcd(self.scratch)).transpose()?;
        let in_etcd: Vec<&str> = etcd.iter().flat_map(|etcd| ["--etcd-servers", &*etcd.url]).collect();
        let extra = [&tokens_flag, &*in_etcd, extra].concat();
        let log = self.scratch.join("server.log");
        let server = Steersman::start(binary, Role::Server, &data, &extra, &log)?;
        let upstream = match (reference, &etcd) {
            (Some(reference), Some(etcd)) if self.stores.choice == StoreChoice::Shared => {
                Some(reference.start_on(etcd, self.scratch, &tokens_file, &data.join("pki"))?)
            }
            _ => None,
        };
        let of_upstream = self.scratch.join("upstream.kubeconfig");
        if let Some(upstream) = &upstream {
            upstream.kubeconfig(&server.ready, &of_upstream)?;
        }
        let kubeconfig = if self.stores.is_at_upstream { &of_upstream } else { &server.ready.kubeconfig };
        let outcomes = self.replay_files(kubeconfig, files, jobs);
        let outcomes = outcomes.with_context(|| format!("the server's log is {}", log.display()))?;
        let status = server.stop()?;
        anyhow::ensure!(
            status.success(),
            "steersman server ended with {status} after SIGTERM; its log is {}",
            log.display()
        );
        Ok(outcomes)
    }

    /// Replays `files` where `kubeconfig` leads.
    fn replay_files(&self, kubeconfig: &Path, files: &[&String], jobs: u8) -> anyhow::Result<Vec<Outcome>> {
        let (alone, together): (Vec<&String>, Vec<&String>) =
            files.iter().partition(|file| ONE_AT_A_TIME.contains(&file.as_str()));
        let mut replays = Vec::new();
        std::thread::scope(|scope| {
            let alone = scope.spawn(|| at_once(&alone, 1, |file| self.replay(kubeconfig, file)));
            replays.extend(at_once(&together, jobs, |file| self.replay(kubeconfig, file)));
            // A panic there has been printed; the missing replays are noticed below.
            replays.extend(alone.join().unwrap_or_default());
        });
        anyhow::ensure!(replays.len() == files.len(), "not all walks were replayed");
        // Some recordings have races of their own: one reads a log that the process it starts has yet to create. A file
        // with unexpected differences is replayed once more, with nothing else running, and that result counts.
        for replayed in &mut replays {
            let surprising = match replayed {
                Ok(Replay { outcome, .. }) => {
                    let is_known = |title: &String| self.known.contains(&outcome.file, title);
                    (!outcome.failed.iter().all(is_known)).then(|| outcome.file.clone())
                }
                Err(_) => None,
            };
            if let Some(file) = surprising {
                println!("REPLAYED ONCE MORE, ALONE  {file}");
                *replayed = self.replay(kubeconfig, &file);
            }
        }
        replays.into_iter().map(|replay| replay.map(|replay| replay.outcome)).collect()
    }

    /// Replays a file, and prints the differences in steps that are not known to fail.
    fn replay(&self, kubeconfig: &Path, file: &str) -> anyhow::Result<Replay> {
        let replay = replay(self.workspace, self.kubectl, kubeconfig, self.scratch, file);
        if let Ok(replay) = &replay {
            print_replay(self.known, replay);
        }
        replay
    }
}

/// Replays `files`, at most `jobs` of them concurrently.
fn at_once<T: Send>(files: &[&String], jobs: u8, replay: impl Fn(&str) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let replays = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let replay = replay(file);
                    // The lock is held only for a push, which cannot panic half-way.
                    replays.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(replay);
                }
            });
        }
    });
    replays.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn replay(
    workspace: &Workspace,
    kubectl: &Path,
    kubeconfig: &Path,
    scratch: &Path,
    file: &str,
) -> anyhow::Result<Replay> {
    let json = scratch.join(format!("{}.json", file.replace('/', "-")));
    let output = Command::new("python3")
        .arg(workspace.root.join(DIRECTORY).join("walk.py"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--kubectl")
        .arg(kubectl)
        .arg("--json")
        .arg(&json)
        .arg(file)
        .current_dir(workspace.root.join(DIRECTORY))
        .output()
        .context("cannot run python3")?;
    let text = std::fs::read_to_string(&json).with_context(|| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        format!("walk.py did not finish {file}: {}", stderr.trim())
    })?;
    let counted: Vec<Counted> = serde_json::from_str(&text).context("cannot read what walk.py counted")?;
    let [counted] = <[Counted; 1]>::try_from(counted).ok().context("walk.py counted another number of files")?;
    Ok(Replay {
        outcome: Outcome { file: file.to_owned(), passed: counted.passed, failed: counted.failed },
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
    })
}

/// Prints a line for the file, and walk.py's output for every unexpected failure.
fn print_replay(known: &KnownFailures, replay: &Replay) {
    let Outcome { file, passed, failed } = &replay.outcome;
    let n_known = failed.iter().filter(|title| known.contains(file, title)).count();
    let mut text = format!("{file}: {passed} passed, {} failed", failed.len());
    if n_known > 0 {
        text += &format!(", {n_known} of them known");
    }
    for block in replay.output.split("\n  === ").skip(1) {
        let title = block.lines().next().unwrap_or_default();
        if failed.contains(title) && !known.contains(file, title) {
            // The last block is followed by walk.py's own closing line.
            let lines = block.lines().skip(1).filter(|line| line.starts_with("      "));
            text += &format!("\n  === {title}");
            for line in lines {
                text += &format!("\n{line}");
            }
        }
    }
    println!("{text}");
}

/// Prints the unexpected results, and counts the steps that behaved as expected as passed.
fn verdict(known: &KnownFailures, outcomes: &[Outcome]) -> Tally {
    let passed: usize = outcomes.iter().map(|outcome| outcome.passed).sum();
    let failed: usize = outcomes.iter().map(|outcome| outcome.failed.len()).sum();
    let surprises = known.compare(outcomes);
    for id in &surprises.failed {
        println!("NOT EXPECTED TO FAIL  {id}");
    }
    for id in &surprises.passed {
        println!("LISTED, BUT DID NOT FAIL  {id}");
    }
    for file in &surprises.passed_files {
        println!("LISTED AS A WHOLE, BUT NOTHING FAILED  {file}");
    }
    let n_known = failed - surprises.failed.len();
    println!("walks: {passed} passed, {failed} failed, {n_known} of them known, in {} files", outcomes.len());
    Tally { passed: passed - surprises.passed.len().min(passed), failed: surprises.count() }
}
