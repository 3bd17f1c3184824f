//! Where etcd is and how it is spoken to.

use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use steersman_storage::kv::key_map::KeyMap;

/// The default prefix in the layout of Steersman.
pub const STEERSMAN_PREFIX: &str = "/steersman";
/// The default prefix of kube-apiserver.
pub const REGISTRY_PREFIX: &str = "/registry";

/// How etcd is reached, and what is expected of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The members' URLs: `http://HOST:PORT` or `https://HOST:PORT`. One is used at a time, another when it fails.
    pub endpoints: Vec<String>,
    /// The prefix of all keys. In the layout of Steersman nothing else may have keys below it.
    pub prefix: String,
    /// The keys below the prefix.
    pub keys: Keys,
    /// Entries that etcd deletes some time after they were written last.
    pub expiring: Vec<Expiry>,
    /// For `https` URLs.
    pub certificates: Certificates,
    /// The user, where etcd's authentication is on. A user whose name is in the client certificate needs none.
    pub login: Option<Login>,
    /// How long one member has to answer a read, and at first a write, before another is asked.
    pub read_timeout: Duration,
    /// How long one member has to answer a write at most. Writes are waited for longer than reads only where etcd is slow.
    pub write_timeout: Duration,
    /// How long an operation may take with all of its attempts.
    pub request_timeout: Duration,
    /// The value of etcd's flag `--max-request-bytes`. A larger transaction is refused before it is sent.
    pub request_bytes_max: usize,
}

/// How long entries last that are not written again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Expiry {
    /// Their keys, in the contract, begin with this.
    pub prefix: Bytes,
    /// They are deleted after this time at the earliest, and a twentieth or a minute later at the latest, plus what a new leader of etcd adds.
    pub after: Duration,
}

/// The keys that entries have below the prefix.
#[derive(Clone, Debug)]
pub enum Keys {
    /// The keys of kube-apiserver, which may use the same prefix at the same time. Revisions are etcd's.
    Registry(Arc<dyn KeyMap>),
    /// The keys of Steersman.
    Steersman,
}

/// Certificates as PEM. `rustls` checks them.
#[derive(Clone, Default)]
pub struct Certificates {
    /// The authorities that may have issued the members' certificates.
    pub authorities: Vec<u8>,
    /// The certificate that this process shows, and its key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

/// A user of etcd.
#[derive(Clone)]
pub struct Login {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl Options {
    /// The options for members at these URLs, all others at their defaults.
    pub fn new(endpoints: Vec<String>) -> Options {
        Options {
            endpoints,
            prefix: STEERSMAN_PREFIX.to_owned(),
            keys: Keys::Steersman,
            expiring: Vec::new(),
            certificates: Certificates::default(),
            login: None,
            read_timeout: Duration::from_secs(2),
            write_timeout: Duration::from_secs(8),
            request_timeout: Duration::from_secs(20),
            request_bytes_max: 1_536 * 1_024,
        }
    }

    /// With another prefix.
    pub fn prefix(self, prefix: impl Into<String>) -> Options {
        Options { prefix: prefix.into(), ..self }
    }

    /// With other keys below the prefix.
    pub fn keys(self, keys: Keys) -> Options {
        Options { keys, ..self }
    }

    /// With entries that do not stay.
    pub fn expiring(self, expiring: Vec<Expiry>) -> Options {
        Options { expiring, ..self }
    }

    /// With certificates.
    pub fn certificates(self, certificates: Certificates) -> Options {
        Options { certificates, ..self }
    }

    /// As a user.
    pub fn login(self, login: Login) -> Options {
        Options { login: Some(login), ..self }
    }

    /// With other deadlines: of a read and of a write at one member, and of an operation as a whole.
    pub fn timeouts(self, read: Duration, write: Duration, request: Duration) -> Options {
        Options { read_timeout: read, write_timeout: write, request_timeout: request, ..self }
    }

    /// With another value of etcd's `--max-request-bytes`.
    pub fn request_bytes_max(self, request_bytes_max: usize) -> Options {
        Options { request_bytes_max, ..self }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("has_client", &self.client.is_some()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}
