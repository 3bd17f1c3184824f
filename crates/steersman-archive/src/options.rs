//! How a dump is opened.

use crate::limits::Limits;
use steersman_kinds::runtime_config::RuntimeConfig;
use steersman_machinery::Revision;

/// How a dump is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The revision whose state is wanted; without it the newest. Only snapshots of etcd have others.
    pub at: Option<Revision>,
    /// The bounds of what is read.
    pub limits: Limits,
    /// Whether the values of Secrets stay.
    pub redaction: Redaction,
    /// The built-in kinds that there are for the objects.
    pub runtime_config: RuntimeConfig,
}

/// The fate of the values of Secrets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Redaction {
    /// They stay.
    Keep,
    /// They are replaced.
    Redact,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            at: None,
            limits: Limits::default(),
            redaction: Redaction::Keep,
            runtime_config: RuntimeConfig::default(),
        }
    }
}
