//! Objects that outlive kills, damage and full disks.

pub(crate) mod backup;
pub(crate) mod crash;
pub(crate) mod encryption;
pub(crate) mod etcd;
mod open;
pub(crate) mod recovery;
pub(crate) mod store;
