//! The store that the options name, opened.

use crate::Failure;
use crate::args::{InEtcd, ServerOptions};
use crate::data_dir::DataDir;
use crate::plane::encryption::AtRest;
use crate::plane::engine;
use crate::plane::seen::Seen;
use crate::plane::shown::Shown;
use anyhow::Context as _;
use std::sync::Arc;
use std::time::Duration;
use steersman_server::RuntimeConfig;
use steersman_storage::{HistorySize, Memory, Options, Store};
use steersman_storage_kubernetes::{Layout, Values};

/// The age to which kube-apiserver keeps history.
const UPSTREAM_HISTORY: Duration = Duration::from_secs(300);

/// A store, and where its objects are.
pub(super) struct Opened {
    /// Where they are in etcd, unless they are in the data directory or in memory.
    pub(super) etcd: Option<InEtcd>,
    /// The newest revision that was seen in etcd.
    pub(super) seen: Option<Seen>,
    pub(super) store: Store,
}

impl Opened {
    /// Opens the store on the objects of a dump.
    pub(super) async fn shown(shown: &Shown) -> Result<Opened, Failure> {
        let store = Store::open(shown.kv.clone(), Options::default()).await.context("the dump cannot be read")?;
        Ok(Opened { etcd: None, seen: None, store })
    }

    /// Opens the store on etcd, if the options name one, or on an engine of its own, with encrypted values if they are asked for.
    pub(super) async fn open(
        options: &ServerOptions,
        data_dir: &DataDir,
        runtime_config: &RuntimeConfig,
        at_rest: Option<&AtRest>,
    ) -> Result<Opened, Failure> {
        let kv = engine::etcd(&options.etcd, options.serving.event_ttl).await?;
        let etcd = kv.is_some().then(|| options.etcd.place());
        let seen = match (&kv, &etcd) {
            (Some(kv), Some(place)) => {
                let found = kv.revision().await.context("etcd cannot be read")?;
                match Seen::check(data_dir, place, found) {
                    Ok(seen) => Some(seen),
                    Err(refused) => {
                        // An etcd that is refused has nothing of this server, so that one can restore into it.
                        if let Err(error) = kv.close().await {
                            tracing::debug!("the connection to etcd was not closed: {error}");
                        }
                        return Err(refused);
                    }
                }
            }
            _ => None,
        };
        let kv = match kv {
            Some(kv) => kv,
            None if options.in_memory => Arc::new(Memory::new()),
            None => engine::disk(data_dir)?,
        };
        let kv = match at_rest {
            Some(at_rest) => at_rest.over(kv),
            None => kv,
        };
        let kv = Values::new(options.etcd.layout(), runtime_config).over(kv);
        let history_size =
            options.history_size.map_or(HistorySize::DEFAULT, |bytes| HistorySize { at_least: bytes, times_live: 0 });
        let store_options = Options { history: history(options), history_size, ..Options::default() };
        let store = Store::open(kv, store_options).await.context("the store cannot be read")?;
        Ok(Opened { etcd, seen, store })
    }
}

/// The age to which history is kept. In the layout of kube-apiserver, clients of one that runs beside this server count on five minutes.
fn history(options: &ServerOptions) -> Duration {
    match options.etcd.layout() {
        Layout::Kubernetes if options.history < UPSTREAM_HISTORY => {
            tracing::warn!(
                "history is kept for five minutes and not less in etcd and the layout kubernetes, whatever --history says"
            );
            UPSTREAM_HISTORY
        }
        Layout::Kubernetes | Layout::Steersman => options.history,
    }
}
