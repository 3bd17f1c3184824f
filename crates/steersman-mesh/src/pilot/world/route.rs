//! Rules as the mesh carries them out: what a request must look like, and what happens to it. Both kinds of routes end
//! up here.

use std::sync::Arc;
use std::time::Duration;

use crate::pilot::world::names::{PortName, RouteName};

/// The rules at a port of a Service, for a group of clients.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Table {
    /// No route: the endpoints of the port get everything.
    Forward,
    /// The rules of all routes, the first that matches first. A request that none matches is answered with 404.
    Rules(Vec<Entry>),
}

/// A match of a rule. A rule with several matches has several entries.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The requests.
    pub matching: Match,
    /// The rule.
    pub rule: Arc<Rule>,
}

/// Which requests: all parts must hold.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Match {
    /// The path.
    pub path: PathMatch,
    /// The method of HTTP.
    pub method: Option<String>,
    /// Headers by name, in lower case; each name once.
    pub headers: Vec<(String, TextMatch)>,
    /// Parameters of the query by name; each name once.
    pub query: Vec<(String, TextMatch)>,
}

/// Which paths.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum PathMatch {
    /// All.
    #[default]
    Any,
    /// This one.
    Exact(String),
    /// This one and those below it; without a slash at its end.
    Prefix(String),
    /// All that match the expression as a whole.
    Regex(String),
}

/// Which values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TextMatch {
    /// This one.
    Exact(String),
    /// All that match the expression as a whole.
    Regex(String),
}

/// The treatment of the requests that match.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// The route that has it.
    pub route: RouteName,
    /// Its position in the route, from 0.
    pub index: usize,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Where the requests go.
    pub action: Action,
    /// Changes of the headers of requests.
    pub request: HeaderChanges,
    /// Changes of the headers of responses.
    pub response: HeaderChanges,
    /// Changes of host and path of what is forwarded.
    pub rewrite: Option<Rewrite>,
    /// Further backends that get copies.
    pub mirrors: Vec<Mirror>,
    /// How long a request may take with all attempts; none is no limit.
    pub timeout: Option<Duration>,
    /// How often and when it is tried again.
    pub retry: Retry,
}

/// Where requests go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// They are answered with this status.
    Fail(u16),
    /// They go to one of these, by weight. The sum of the weights is more than 0.
    Forward(Vec<Target>),
    /// The client is sent elsewhere.
    Redirect(Redirect),
}

/// A share of the requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// Where it goes; none if that is invalid: such a share is answered with an error.
    pub backend: Option<PortName>,
    /// Its size, in parts of the sum.
    pub weight: u32,
    /// Changes of the headers of its requests.
    pub request: HeaderChanges,
    /// Changes of the headers of its responses.
    pub response: HeaderChanges,
    /// The host that its requests are for.
    pub hostname: Option<String>,
}

/// Changes of headers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HeaderChanges {
    /// Headers that get this value in place of others.
    pub set: Vec<(String, String)>,
    /// Headers that get this value besides others.
    pub add: Vec<(String, String)>,
    /// Headers that go.
    pub remove: Vec<String>,
}

/// Changes of host and path.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rewrite {
    /// The new host.
    pub hostname: Option<String>,
    /// The new path.
    pub path: Option<PathChange>,
}

/// A new path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PathChange {
    /// In place of all of it.
    Full(String),
    /// In place of the prefix that matched.
    Prefix(String),
}

/// Where a client is sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Redirect {
    /// The new scheme.
    pub scheme: Option<String>,
    /// The new host.
    pub hostname: Option<String>,
    /// The new path.
    pub path: Option<PathChange>,
    /// The new port.
    pub port: Option<u16>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// A copy of requests, whose answers nobody reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mirror {
    /// Where it goes.
    pub backend: PortName,
    /// How many requests of a million are copied.
    pub parts_per_million: u32,
}

/// When requests are tried again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Retry {
    /// How often at most.
    pub attempts: u32,
    /// The statuses of responses that count as failures, besides connections that fail.
    pub codes: Vec<u32>,
    /// The least pause before another attempt.
    pub backoff: Option<Duration>,
    /// How long one attempt may take.
    pub attempt_timeout: Option<Duration>,
}

/// Two more attempts, at other endpoints, when a connection failed or nothing of the request was processed.
impl Default for Retry {
    fn default() -> Retry {
        Retry { attempts: 2, codes: Vec::new(), backoff: None, attempt_timeout: None }
    }
}

impl Table {
    /// Every backend that a request or a copy of one can reach, with those of weight 0; not the port's own.
    pub fn backends(&self) -> impl Iterator<Item = &PortName> {
        let entries = match self {
            Table::Forward => &[],
            Table::Rules(entries) => entries.as_slice(),
        };
        entries.iter().flat_map(|entry| entry.rule.backends())
    }
}

impl Rule {
    /// As [`Table::backends`].
    pub fn backends(&self) -> impl Iterator<Item = &PortName> {
        let targets = match &self.action {
            Action::Forward(targets) => targets.as_slice(),
            Action::Fail(_) | Action::Redirect(_) => &[],
        };
        let targets = targets.iter().filter_map(|target| target.backend.as_ref());
        targets.chain(self.mirrors.iter().map(|mirror| &mirror.backend))
    }
}

impl HeaderChanges {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }
}
