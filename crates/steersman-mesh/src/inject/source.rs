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
    state: Mutex<State>,
    events: EventRecorder,
    counts: Counts,
}

struct State {
    seen: Seen,
    good: Option<Arc<Fragment>>,
    /// The mistake in the version that was read last.
    fault: Option<String>,
}

/// The version that was read last.
#[derive(Debug, Eq, PartialEq)]
enum Seen {
    Absent,
    Nothing,
    Version(String),
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
        let state = State { seen: Seen::Nothing, good: None, fault: None };
        Source { key, configs, state: Mutex::new(state), events, counts }
    }

    /// The fragment in force.
    pub(crate) fn current(&self) -> Result<Arc<Fragment>, Missing> {
        let mut state = self.state.lock();
        match self.configs.find(&self.key) {
            Ok(found) => self.read(&mut state, found.as_deref()),
            // A good fragment stays in force while the cache cannot be read.
            Err(error) if state.good.is_none() => return Err(Missing::NotRead(error)),
            Err(_) => {}
        }
        match (&state.good, &state.fault) {
            (Some(good), _) => Ok(Arc::clone(good)),
            (None, Some(fault)) => Err(Missing::Bad(fault.clone())),
            (None, None) => Err(Missing::Bad(format!("the ConfigMap {} was not read", self.key.as_str()))),
        }
    }

    fn read(&self, state: &mut State, config: Option<&ConfigMap>) {
        let seen = match config {
            None => Seen::Absent,
            Some(config) => Seen::Version(config.metadata.resource_version.clone().unwrap_or_default()),
        };
        if state.seen == seen {
            return;
        }
        state.seen = seen;
        match self.parse(config) {
            Ok(fragment) => {
                state.fault = None;
                if state.good.as_ref().is_none_or(|good| good.hash() != fragment.hash()) {
                    tracing::info!(
                        fragment = fragment.hash(),
                        config_map = self.key.as_str(),
                        "a fragment is in force"
                    );
                    self.counts.fragment_in_force(fragment.hash());
                    state.good = Some(Arc::new(fragment));
                }
                self.counts.fragment_is_good();
            }
            Err(fault) => {
                let kept = state.good.as_ref().map_or_else(
                    || "Pods that want the sidecar are refused".to_owned(),
                    |good| format!("the fragment {} stays in force", good.hash()),
                );
                tracing::error!("{fault}; {kept}");
                if let Some(config) = config {
                    let message = format!("{fault}; {kept}");
                    self.events.event(config, EventType::Warning, "FragmentInvalid", &message);
                }
                self.counts.fragment_is_bad();
                state.fault = Some(fault);
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
