//! Members of etcd, each a process with its data in a directory of the test, ended with it.

use crate::support::etcd_program;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use steersman_storage_etcd::Options;
use tempfile::TempDir;

/// How long a member may take to be ready. The machine may be busy.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    scratch: TempDir,
}

pub(crate) struct Member {
    arguments: Vec<String>,
    child: Child,
    directory: PathBuf,
    program: PathBuf,
    pub(crate) url: String,
}

impl Cluster {
    /// Ready members; `None`, with a message, if this machine has no etcd.
    pub(crate) fn start(n_members: usize) -> Option<Cluster> {
        Cluster::start_with(n_members, "http", &[])
    }

    /// Ready members whose clients use `scheme`, with further flags.
    pub(crate) fn start_with(n_members: usize, scheme: &str, flags: &[&str]) -> Option<Cluster> {
        let program = etcd_program()?;
        let scratch = tempfile::Builder::new().prefix("steersman-etcd-").tempdir().unwrap();
        // All are held until all are known, so that no two are the same.
        let ports: Vec<TcpListener> = (0..2 * n_members).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |n: usize| ports[n].local_addr().unwrap().port();
        let peer = |n: usize| format!("http://127.0.0.1:{}", port(n_members + n));
        let peers: Vec<String> = (0..n_members).map(|n| format!("m{n}={}", peer(n))).collect();
        let commands: Vec<(String, Vec<String>)> = (0..n_members)
            .map(|n| {
                let url = format!("{scheme}://127.0.0.1:{}", port(n));
                let mut arguments = vec!["--name".to_owned(), format!("m{n}"), "--unsafe-no-fsync".to_owned()];
                for (flag, value) in [
                    ("--listen-client-urls", url.clone()),
                    ("--advertise-client-urls", url.clone()),
                    ("--listen-peer-urls", peer(n)),
                    ("--initial-advertise-peer-urls", peer(n)),
                    ("--initial-cluster", peers.join(",")),
                ] {
                    arguments.extend([flag.to_owned(), value]);
                }
                arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
                (url, arguments)
            })
            .collect();
        drop(ports);
        let start = |(n, (url, arguments)): (usize, (String, Vec<String>))| {
            let directory = scratch.path().join(n.to_string());
            let child = spawn(&program, &directory, &arguments);
            Member { arguments, child, directory, program: program.clone(), url }
        };
        let mut members: Vec<Member> = commands.into_iter().enumerate().map(start).collect();
        members.iter_mut().for_each(Member::wait_ready);
        Some(Cluster { members, scratch })
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url.clone()).collect()
    }

    pub(crate) fn options(&self) -> Options {
        Options::new(self.urls())
    }

    /// A directory of the test.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }
}

fn spawn(program: &Path, directory: &Path, arguments: &[String]) -> Child {
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(directory).args(arguments).stderr(Stdio::piped()).stdin(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()))
}

impl Member {
    /// Waits until it serves clients. Its log is read on, so that it never waits for a reader.
    fn wait_ready(&mut self) {
        let log = BufReader::new(self.child.stderr.take().unwrap());
        let (ready, is_ready) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let mut last = String::new();
            for line in log.lines().map_while(Result::ok) {
                if line.contains("ready to serve client requests") {
                    let _known = ready.try_send(Ok(()));
                }
                last = line;
            }
            let _known = ready.try_send(Err(last));
        });
        match is_ready.recv_timeout(READY_TIMEOUT) {
            Ok(Ok(())) => {}
            Ok(Err(last)) => panic!("etcd ended: {last}"),
            Err(_) => panic!("etcd was not ready within {READY_TIMEOUT:?}"),
        }
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again with the data it has.
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(&self.program, &self.directory, &self.arguments);
        self.wait_ready();
    }

    /// Copies its data. It must not run.
    pub(crate) fn copy_data(&self, to: &Path) {
        copy(&self.directory, to);
    }

    /// Replaces its data with a copy. It must not run.
    pub(crate) fn replace_data(&self, from: &Path) {
        std::fs::remove_dir_all(&self.directory).unwrap();
        copy(from, &self.directory);
    }

    /// Holds it, as a machine that is suspended would.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        // The signal is on its way: until all threads have stopped, it may answer.
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).unwrap();
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}
