//! The file that kube-scheduler reads with `--config`, a KubeSchedulerConfiguration, as the [`Profile`]s of this scheduler.
//!
//! Follows `kubescheduler.config.k8s.io/v1`: its defaults, its validation (`pkg/scheduler/apis/config/validation`), and
//! the way in which lists of plugins are merged with the default ones (`apis/config/v1/default_plugins.go`). A field
//! that is unknown is refused. The caller passes the parsed document; of files, only those with the certificates of
//! extenders are read here.

mod arguments;
mod extenders;
mod field;
mod fit;
mod plugins;
mod profile;
mod spread;

#[cfg(test)]
mod tests;

pub(crate) use crate::scheduler::configuration::extenders::{Extender, NodeForm, OnFailure, Verb};
pub use crate::scheduler::configuration::field::ConfigurationError;
pub(crate) use crate::scheduler::configuration::fit::{Fit, ShapePoint, Strategy};
#[cfg(test)]
pub(crate) use crate::scheduler::configuration::plugins::Weights;
pub(crate) use crate::scheduler::configuration::profile::{Candidates, NAME, Profile, SpreadDefaults};
pub(crate) use crate::scheduler::configuration::spread::Spread;

use crate::scheduler::configuration::arguments::API_VERSION;
use crate::scheduler::configuration::extenders::{extenders, ignored_resources};
use crate::scheduler::configuration::field::{Path, seconds};
use crate::scheduler::configuration::profile::{ProfileDocument, percent};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

const KIND: &str = "KubeSchedulerConfiguration";

const BACKOFF_FIRST_SECONDS: i64 = 1;
const BACKOFF_MAX_SECONDS: i64 = 10;

/// Fields about the process of kube-scheduler, which this scheduler shares with the server and other loops.
const OF_PROCESS: [&str; 8] = [
    "clientConnection",
    "delayCacheUntilActive",
    "enableContentionProfiling",
    "enableProfiling",
    "healthzBindAddress",
    "leaderElection",
    "metricsBindAddress",
    "parallelism",
];

/// The configuration of a scheduler: its profiles, its extenders, and how long Pods wait between attempts.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// At least one; names differ.
    profiles: Vec<Arc<Profile>>,
    /// The extenders of all profiles, in the order in which they are asked.
    extenders: Arc<[Arc<Extender>]>,
    backoff: Backoff,
    without_effect: Vec<&'static str>,
}

/// How long a Pod waits after an attempt: twice as long after each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) max: Duration,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    extenders: Option<Vec<Value>>,
    percentage_of_nodes_to_score: Option<i32>,
    pod_initial_backoff_seconds: Option<i64>,
    pod_max_backoff_seconds: Option<i64>,
    profiles: Option<Vec<Value>>,
}

// === impl Configuration ===

impl Configuration {
    /// Reads a KubeSchedulerConfiguration of `kubescheduler.config.k8s.io/v1`, and the files that the `tlsConfig` of its
    /// extenders names.
    ///
    /// # Errors
    /// Names the first field that kube-scheduler would refuse, or that this scheduler does not support: plugins that it
    /// does not have, and plugins that are on where they decide and off where they prepare for that.
    pub fn read(document: &Value) -> Result<Configuration, ConfigurationError> {
        let root = Path::default();
        let Value::Object(fields) = document else {
            return Err(root.field("kind").wrong(format!("the document is not an object of the kind {KIND}")));
        };
        for (field, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            let found = fields.get(field).and_then(Value::as_str).unwrap_or_default();
            if found != wanted {
                return Err(root.field(field).wrong(format!("{found:?} is not supported: it must be {wanted:?}")));
            }
        }
        let mut fields = fields.clone();
        fields.remove("apiVersion");
        fields.remove("kind");
        let mut without_effect = OF_PROCESS.to_vec();
        without_effect.retain(|field| fields.remove(*field).is_some());
        let document: Document = root.decode(&Value::Object(fields))?;
        let extenders = extenders(&document.extenders.unwrap_or_default(), &root.field("extenders"))?;
        let percent = percent(document.percentage_of_nodes_to_score, &root)?;
        let mut profiles = profiles(&document.profiles.unwrap_or_default(), percent.unwrap_or_default(), &root)?;
        let ignored = ignored_resources(&extenders);
        for profile in &mut profiles {
            profile.extenders = Arc::clone(&extenders);
            // As in kube-scheduler, these take the place of the resources in the plugin's settings.
            if !ignored.is_empty() {
                profile.fit.ignored.clone_from(&ignored);
            }
        }
        Ok(Configuration {
            profiles: profiles.into_iter().map(Arc::new).collect(),
            extenders,
            backoff: Backoff::read(document.pod_initial_backoff_seconds, document.pod_max_backoff_seconds, &root)?,
            without_effect,
        })
    }

    /// The fields of the document that have no effect, because they are about the process of a kube-scheduler.
    pub fn without_effect(&self) -> &[&'static str] {
        &self.without_effect
    }

    /// The names of the profiles, which Pods choose from with `spec.schedulerName`.
    pub fn profile_names(&self) -> impl Iterator<Item = &str> {
        self.profiles.iter().map(|profile| &*profile.name)
    }

    /// The profile for Pods with this `schedulerName`; `None` if another scheduler is responsible for them.
    pub(crate) fn profile(&self, name: &str) -> Option<&Arc<Profile>> {
        self.profiles.iter().find(|profile| &*profile.name == name)
    }

    /// The extenders of all profiles, in the order in which they are asked.
    pub(crate) fn extenders(&self) -> &[Arc<Extender>] {
        &self.extenders
    }

    pub(crate) fn backoff(&self) -> Backoff {
        self.backoff
    }
}

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration {
            profiles: vec![Arc::new(Profile::new(NAME))],
            extenders: Arc::default(),
            backoff: Backoff::default(),
            without_effect: Vec::new(),
        }
    }
}

fn profiles(documents: &[Value], percent: usize, root: &Path) -> Result<Vec<Profile>, ConfigurationError> {
    if documents.is_empty() {
        return Ok(vec![Profile { feasible_percent: percent, ..Profile::new(NAME) }]);
    }
    let path = root.field("profiles");
    let mut profiles: Vec<Profile> = Vec::new();
    for (at, document) in documents.iter().enumerate() {
        let path = path.index(at);
        let document: ProfileDocument = path.decode(document)?;
        // A name is needed only to tell several profiles apart.
        let default_name = (documents.len() == 1).then_some(NAME);
        let profile = document.profile(default_name, percent, &path)?;
        if let Some(other) = profiles.iter().position(|other| other.name == profile.name) {
            let why = format!("{:?} is the name of profiles[{other}] already", profile.name);
            return Err(path.field("schedulerName").wrong(why));
        }
        profiles.push(profile);
    }
    Ok(profiles)
}

// === impl Backoff ===

impl Backoff {
    fn read(first: Option<i64>, max: Option<i64>, root: &Path) -> Result<Backoff, ConfigurationError> {
        let (first, max) = (first.unwrap_or(BACKOFF_FIRST_SECONDS), max.unwrap_or(BACKOFF_MAX_SECONDS));
        if first < 1 {
            let why = format!("{first} is not greater than 0");
            return Err(root.field("podInitialBackoffSeconds").wrong(why));
        }
        if max < first {
            let why = format!("{max} is less than podInitialBackoffSeconds, which is {first}");
            return Err(root.field("podMaxBackoffSeconds").wrong(why));
        }
        Ok(Backoff { first: seconds(first), max: seconds(max) })
    }

    /// The time to wait after this number of failed attempts in a row.
    pub(crate) fn after(self, n_attempts: u32) -> Duration {
        match n_attempts.checked_sub(1) {
            None => Duration::ZERO,
            Some(shift) => self.first.saturating_mul(1_u32.checked_shl(shift).unwrap_or(u32::MAX)).min(self.max),
        }
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { first: seconds(BACKOFF_FIRST_SECONDS), max: seconds(BACKOFF_MAX_SECONDS) }
    }
}
