//! The fragment in force, from the ConfigMap.
//!
//! The cached ConfigMap is looked at for each Pod, and parsed again only when it is another version. A fragment that cannot
//! be used is reported once, and the last good one stays in force; so it does where the ConfigMap goes. After a restart
//! there is no last good one, and Pods are refused until the ConfigMap is mended.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use steersman::events::{EventRecorder, EventType};
use steersman::{Lister, LookupError, ObjectKey};

use crate::inject::fragment::Fragment;
use crate::inject::metrics::Counts;

/// The key of the ConfigMap's data that has the fragment.
pub const DATA_KEY: &str = "config";

/// The fragment of one ConfigMap.
pub(crate) struct Source {
    key: ObjectKey,
    configs: Lister<ConfigMap>,
    /// `None`: nothing was read yet.
    read: Mutex<Option<Read>>,
    events: EventRecorder,
    counts: Counts,
}

/// The version that was read last, and what is in force since.
struct Read {
    /// `None`: the ConfigMap did not exist.
    version: Option<String>,
    in_force: InForce,
}

enum InForce {
    /// There never was a good one: a sentence that says what is wrong.
    Bad(String),
    /// It stays, whatever is wrong with later versions.
    Good(Arc<Fragment>),
}

/// Why there is no fragment.
#[derive(Debug)]
pub(crate) enum Missing {
    /// There never was a good one: a sentence that says what is wrong.
    Bad(String),
    /// It is not known yet.
    NotRead(LookupError),
}

impl Source {
    pub(crate) fn new(key: ObjectKey, configs: Lister<ConfigMap>, events: EventRecorder, counts: Counts) -> Source {
        Source { key, configs, read: Mutex::new(None), events, counts }
    }

    /// The fragment in force.
    pub(crate) fn current(&self) -> Result<Arc<Fragment>, Missing> {
        let mut read = self.read.lock();
        match self.configs.find(&self.key) {
            Ok(found) => match self.read(&mut read, found.as_deref()) {
                InForce::Good(fragment) => Ok(Arc::clone(fragment)),
                InForce::Bad(fault) => Err(Missing::Bad(fault.clone())),
            },
            Err(error) => match &*read {
                // It stays in force while the cache cannot be read.
                Some(Read { in_force: InForce::Good(fragment), .. }) => Ok(Arc::clone(fragment)),
                _ => Err(Missing::NotRead(error)),
            },
        }
    }

    /// Reads the ConfigMap, if it is another version than the last one.
    fn read<'r>(&self, last: &'r mut Option<Read>, config: Option<&ConfigMap>) -> &'r InForce {
        let version = config.map(|config| config.metadata.resource_version.clone().unwrap_or_default());
        let read = match last.take() {
            Some(read) if read.version == version => read,
            former => Read { version, in_force: self.in_force(former.map(|former| former.in_force), config) },
        };
        &last.insert(read).in_force
    }

    fn in_force(&self, former: Option<InForce>, config: Option<&ConfigMap>) -> InForce {
        let good = match former {
            Some(InForce::Good(good)) => Some(good),
            Some(InForce::Bad(_)) | None => None,
        };
        match self.parse(config) {
            Ok(fragment) => {
                self.counts.fragment_is_good();
                if let Some(good) = good.filter(|good| good.hash() == fragment.hash()) {
                    return InForce::Good(good);
                }
                tracing::info!(fragment = fragment.hash(), config_map = self.key.as_str(), "a fragment is in force");
                self.counts.fragment_in_force(fragment.hash());
                InForce::Good(Arc::new(fragment))
            }
            Err(fault) => {
                let kept = good.as_ref().map_or_else(
                    || "Pods that are to get the sidecar are refused".to_owned(),
                    |good| format!("the fragment {} stays in force", good.hash()),
                );
                let message = format!("{fault}; {kept}");
                tracing::error!("{message}");
                if let Some(config) = config {
                    self.events.event(config, EventType::Warning, "FragmentInvalid", &message);
                }
                self.counts.fragment_is_bad();
                good.map_or(InForce::Bad(fault), InForce::Good)
            }
        }
    }

    fn parse(&self, config: Option<&ConfigMap>) -> Result<Fragment, String> {
        let name = self.key.as_str();
        let config = config.ok_or_else(|| format!("the ConfigMap {name}, which has the sidecar, does not exist"))?;
        let text = config.data.as_ref().and_then(|data| data.get(DATA_KEY));
        let text = text.ok_or_else(|| format!("the ConfigMap {name} has no data {DATA_KEY:?} with the sidecar"))?;
        Fragment::parse(text).map_err(|error| format!("the ConfigMap {name} cannot be used: {error}"))
    }
}
