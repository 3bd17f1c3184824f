//! The engine below the store: in memory, a file of the data directory, or etcd.

use crate::Failure;
use crate::args::EtcdOptions;
use crate::data_dir::DataDir;
use std::sync::Arc;
use std::time::Duration;
use steersman_storage::kv::Kv;
use steersman_storage::{Disk, disk};
use steersman_storage_etcd::{ConnectError, Etcd};

/// How long a server must be silent before another one takes over its objects in etcd.
const TAKEOVER: Duration = Duration::from_secs(15);

/// Connects to etcd, if the options name one, and waits while another server works on the same objects.
pub(crate) async fn etcd(options: &EtcdOptions) -> Result<Option<Arc<dyn Kv>>, Failure> {
    let Some(options) = options.read()? else { return Ok(None) };
    match Etcd::connect(options.takeover(TAKEOVER)).await {
        Ok(etcd) => Ok(Some(Arc::new(etcd))),
        Err(error @ (ConnectError::Kv(_) | ConnectError::Unreachable { .. })) => {
            Err(Failure::Failed(anyhow::Error::new(error)))
        }
        Err(error) => Err(Failure::Refused(format!("{:#}", anyhow::Error::new(error)))),
    }
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

/// Closes the engine of a server that could not be started, so that another server does not wait for it.
pub(crate) async fn released(engine: Option<Arc<dyn Kv>>, failure: Failure) -> Failure {
    if let Some(engine) = engine
        && let Err(error) = engine.close().await
    {
        tracing::warn!(error = &error as &dyn std::error::Error, "the store could not be closed");
    }
    failure
}
