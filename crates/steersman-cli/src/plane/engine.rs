//! The engine below the store: in memory, a file of the data directory, or etcd.

use crate::Failure;
use crate::args::EtcdOptions;
use crate::data_dir::DataDir;
use std::sync::Arc;
use std::time::Duration;
use steersman_storage::kv::Kv;
use steersman_storage::{Disk, disk};
use steersman_storage_etcd::{ConnectError, Etcd, Expiry};

/// How long the address of a server stays in etcd after it was written last, as in kube-apiserver.
const MASTER_LEASE: Duration = Duration::from_secs(15);

/// Connects to etcd, if the options name one. Events go away after `event_ttl`, and never if it is zero.
pub(crate) async fn etcd(options: &EtcdOptions, event_ttl: Duration) -> Result<Option<Arc<dyn Kv>>, Failure> {
    let Some(options) = options.read()? else { return Ok(None) };
    match Etcd::connect(options.expiring(expiring(event_ttl))).await {
        Ok(etcd) => Ok(Some(Arc::new(etcd))),
        Err(error @ (ConnectError::Kv(_) | ConnectError::Unreachable { .. })) => {
            Err(Failure::Failed(anyhow::Error::new(error)))
        }
        Err(error) => Err(Failure::Refused(format!("{:#}", anyhow::Error::new(error)))),
    }
}

/// The entries that etcd deletes by itself; no Events if `event_ttl` is zero.
pub(crate) fn expiring(event_ttl: Duration) -> Vec<Expiry> {
    let expiring = [("/events/", event_ttl), ("/masterleases/", MASTER_LEASE)].into_iter();
    let expiring = expiring.filter(|(_, after)| !after.is_zero());
    expiring.map(|(prefix, after)| Expiry { prefix: prefix.into(), after }).collect()
}

/// Opens the file of a data directory.
pub(crate) fn disk(data_dir: &DataDir) -> Result<Arc<dyn Kv>, Failure> {
    match Disk::open(&data_dir.store()) {
        Ok(disk) => Ok(Arc::new(disk)),
        Err(
            error @ (disk::OpenError::Behind { .. }
            | disk::OpenError::Damaged { .. }
            | disk::OpenError::Format { .. }
            | disk::OpenError::Held { .. }
            | disk::OpenError::Incomplete { .. }
            | disk::OpenError::Rebuild { .. }
            | disk::OpenError::Unsynced { .. }),
        ) => Err(Failure::Refused(format!("{:#}", anyhow::Error::new(error)))),
        Err(error) => Err(Failure::Failed(anyhow::Error::new(error))),
    }
}
