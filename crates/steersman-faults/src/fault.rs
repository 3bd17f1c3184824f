//! The faults: what breaks, for how long, drawn by a seed.

use crate::cluster::Cluster;
use crate::link::Mode;
use rand::Rng as _;
use rand::rngs::StdRng;
use std::fmt;
use std::time::Duration;
use tokio::time::sleep;

/// Something that breaks for a while.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// The link of a server to a member, or to all members.
    Link {
        server: usize,
        member: Option<usize>,
        mode: Mode,
    },
    MemberKilled(usize),
    MemberPaused(usize),
    /// The link to a member from the other members.
    Peer {
        member: usize,
        mode: Mode,
    },
    ServerKilled(usize),
    ServerPaused(usize),
}

/// A fault, and how long it lasts.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) fault: Fault,
    pub(crate) lasts: Duration,
}

/// A kind of faults.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Kind {
    Link,
    MemberKilled,
    MemberPaused,
    Peer,
    ServerKilled,
    ServerPaused,
}

/// Draws a fault of a kind.
pub(crate) fn draw_kind(random: &mut StdRng, n_members: usize, n_servers: usize, kind: Kind) -> Event {
    loop {
        let event = draw(random, n_members, n_servers);
        if event.fault.kind() == kind {
            return event;
        }
    }
}

/// Draws a fault.
pub(crate) fn draw(random: &mut StdRng, n_members: usize, n_servers: usize) -> Event {
    let (member, server) = (random.random_range(0..n_members), random.random_range(0..n_servers));
    let mode = [Mode::Cut, Mode::Silent, Mode::SilentBack][random.random_range(0..3)];
    let fault = match random.random_range(0..10) {
        0 | 1 => Fault::MemberKilled(member),
        2 | 3 => Fault::MemberPaused(member),
        4 => Fault::ServerKilled(server),
        5 => Fault::ServerPaused(server),
        6 => Fault::Peer { member, mode },
        7 => Fault::Link { server, member: None, mode },
        _ => Fault::Link { server, member: Some(member), mode },
    };
    // Most faults are short, and some are longer than every time limit.
    let lasts = match random.random_range(0..20) {
        0 => random.random_range(8_000..15_000),
        1..=4 => random.random_range(2_000..6_000),
        _ => random.random_range(100..2_000),
    };
    Event { fault, lasts: Duration::from_millis(lasts) }
}

impl Fault {
    fn kind(&self) -> Kind {
        match self {
            Fault::Link { .. } => Kind::Link,
            Fault::MemberKilled(_) => Kind::MemberKilled,
            Fault::MemberPaused(_) => Kind::MemberPaused,
            Fault::Peer { .. } => Kind::Peer,
            Fault::ServerKilled(_) => Kind::ServerKilled,
            Fault::ServerPaused(_) => Kind::ServerPaused,
        }
    }
}

impl Event {
    /// Breaks it, waits, and mends it.
    pub(crate) async fn happen(&self, cluster: &mut Cluster) -> anyhow::Result<()> {
        match &self.fault {
            Fault::Link { server, member, mode } => {
                let links = &cluster.links[*server];
                let broken: Vec<_> = match member {
                    Some(member) => vec![&links[*member]],
                    None => links.iter().collect(),
                };
                broken.iter().for_each(|link| link.set(*mode));
                sleep(self.lasts).await;
                broken.iter().for_each(|link| link.set(Mode::Open));
            }
            Fault::MemberKilled(n) => {
                cluster.members[*n].kill().await?;
                sleep(self.lasts).await;
                cluster.members[*n].start()?;
                cluster.wait_for_member(*n).await?;
            }
            Fault::MemberPaused(n) => {
                cluster.members[*n].pause()?;
                sleep(self.lasts).await;
                cluster.members[*n].go_on()?;
            }
            Fault::Peer { member, mode } => {
                cluster.peers[*member].set(*mode);
                sleep(self.lasts).await;
                cluster.peers[*member].set(Mode::Open);
            }
            Fault::ServerKilled(n) => {
                cluster.servers[*n].kill().await?;
                sleep(self.lasts).await;
                cluster.servers[*n].start()?;
                cluster.servers[*n].wait_for_line().await?;
            }
            Fault::ServerPaused(n) => {
                cluster.servers[*n].pause()?;
                sleep(self.lasts).await;
                cluster.servers[*n].go_on()?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} for {:.1} s", self.fault, self.lasts.as_secs_f64())
    }
}
