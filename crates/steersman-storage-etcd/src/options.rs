//! Where etcd is and how it is spoken to.

use std::fmt;
use std::time::Duration;

/// How etcd is reached, and what is expected of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The members' URLs: `http://HOST:PORT` or `https://HOST:PORT`. One is used at a time, another when it fails.
    pub endpoints: Vec<String>,
    /// The prefix of all keys. Nothing else may have keys below it.
    pub prefix: String,
    /// For `https` URLs.
    pub certificates: Certificates,
    /// The user, where etcd's authentication is on. A user whose name is in the client certificate needs none.
    pub login: Option<Login>,
    /// How long one member has to answer a read before another is asked.
    pub read_timeout: Duration,
    /// How long one member has to answer a write. Longer than etcd's own limit, which is 7 s by default, so that etcd
    /// says what became of the write.
    pub write_timeout: Duration,
    /// How long an operation may take with all of its attempts.
    pub request_timeout: Duration,
    /// The time after which another process takes over from one that gives no sign of life, where only one at a time may work below the
    /// prefix; `None` where several may.
    pub takeover: Option<Duration>,
    /// The value of etcd's flag `--max-request-bytes`. A larger transaction is refused before it is sent.
    pub request_bytes_max: usize,
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
            prefix: "/steersman".to_owned(),
            certificates: Certificates::default(),
            login: None,
            read_timeout: Duration::from_secs(2),
            write_timeout: Duration::from_secs(8),
            request_timeout: Duration::from_secs(20),
            takeover: None,
            request_bytes_max: 1_536 * 1_024,
        }
    }

    /// With another prefix.
    pub fn prefix(self, prefix: impl Into<String>) -> Options {
        Options { prefix: prefix.into(), ..self }
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

    /// With one process at a time below the prefix: others wait in [`Etcd::connect`](crate::Etcd::connect), and one of them takes over
    /// when it has ended, or has given no sign of life for this long.
    pub fn takeover(self, takeover: Duration) -> Options {
        Options { takeover: Some(takeover), ..self }
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
