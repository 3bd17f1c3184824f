//! The modules that several commands use.

pub(crate) mod etcd;
pub(crate) mod known;
pub(crate) mod metadata;
pub(crate) mod process;
pub(crate) mod reference;
pub(crate) mod replicas;
pub(crate) mod report;
pub(crate) mod steersman;
pub(crate) mod tally;
pub(crate) mod tools;
pub(crate) mod workspace;
