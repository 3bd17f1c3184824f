//! Waiting until an object is as one wants it: for tests, command lines, and steps that must follow one another.
//!
//! [`await_condition`] makes a watch of that one object for as long as it waits; [`Informer::await_condition`] reads the
//! cache that the program has anyway. Both see every state that the cache shows, and give up at a deadline with an error that
//! says what was seen last. Conditions are functions of the object, or of its absence; there are some in [`conditions`].
//!
//! A reconciler does not wait: it returns, and its key runs again when something changes.
//!
//! After kube-runtime's `wait`.

mod condition;
pub mod conditions;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::{Client, Resource};

use crate::decode_error::DecodeError;
use crate::factory::InformerFactory;
use crate::indexer::Found;
use crate::informer::{Informer, ObjectStates};
use crate::key::ObjectKey;
use crate::selection::{CachedResource, Scope, Selection};

pub use crate::wait::condition::Condition;

/// Why a wait for a condition ended without it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AwaitError {
    /// The informer watches other namespaces, so nothing is known of the object.
    #[error("{key:?} cannot be awaited: {resource} are watched {scope}")]
    NotSelected {
        /// `plural.group` of the type.
        resource: String,
        /// The object to wait for.
        key: ObjectKey,
        /// What is watched.
        scope: Scope,
    },
    /// The informer has stopped: no more states come.
    #[error("the informer of {resource} has stopped, and {key:?} is not as awaited: {last}")]
    Stopped {
        /// `plural.group` of the type.
        resource: String,
        /// The object waited for.
        key: ObjectKey,
        /// What was seen of it last.
        last: LastSeen,
    },
    /// The deadline has passed.
    #[error("{resource} {key:?} did not become as awaited within {waited:?}: {last}{}", watch_error(trouble.as_deref()))]
    TimedOut {
        /// `plural.group` of the type.
        resource: String,
        /// The object waited for.
        key: ObjectKey,
        /// How long was waited.
        waited: Duration,
        /// What was seen of it last.
        last: LastSeen,
        /// Why the watch is down, if it is: then the object may be otherwise by now.
        trouble: Option<String>,
    },
}

/// What a wait saw of its object last.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LastSeen {
    /// It did not exist.
    Absent,
    /// Nothing: the first list never came.
    Nothing {
        /// Why, as far as that is known.
        why: String,
    },
    /// It existed.
    Object {
        /// Its version.
        resource_version: String,
        /// What of it the condition is about, in the condition's words.
        description: Option<String>,
    },
    /// It existed, and its state could not be decoded.
    Undecodable {
        /// What is wrong with it.
        error: Arc<DecodeError>,
    },
}

/// Waits until the object at `key` meets `condition`, and returns it as it was then; `None` where the condition is met by
/// its absence. The watch that this makes, of this one object, is tried again until it works or time is up.
///
/// Needs the verbs `list` and `watch`.
///
/// ```
/// # use std::time::Duration;
/// # use steersman::ObjectKey;
/// use steersman::wait::{Condition, await_condition, conditions};
///
/// # async fn run(client: kube::Client) -> Result<(), steersman::wait::AwaitError> {
/// let definition = ObjectKey::cluster("networks.samplecrd.k8s.io");
/// await_condition(&client, &definition, conditions::is_crd_established(), Duration::from_secs(10)).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`AwaitError::TimedOut`].
///
/// # Cancel safety
/// Waits only; cancelled, the watch ends.
pub async fn await_condition<K>(
    client: &Client,
    key: &ObjectKey,
    condition: impl Condition<K>,
    deadline: Duration,
) -> Result<Option<Arc<K>>, AwaitError>
where
    K: CachedResource,
    K::DynamicType: Default,
{
    await_condition_with(client, &K::DynamicType::default(), key, condition, deadline).await
}

/// As [`await_condition`], for a type that is known at run time, such as `DynamicObject` with its `ApiResource`.
///
/// # Errors
/// [`AwaitError::TimedOut`].
pub async fn await_condition_with<K: CachedResource>(
    client: &Client,
    dynamic: &K::DynamicType,
    key: &ObjectKey,
    condition: impl Condition<K>,
    deadline: Duration,
) -> Result<Option<Arc<K>>, AwaitError> {
    let factory = InformerFactory::new(client.clone());
    let scope = key.namespace().map_or(Scope::All, |namespace| Scope::Namespace(namespace.to_owned()));
    let only = Selection::new(scope).fields(format!("metadata.name={}", key.name()));
    let informer = factory.informer_with::<K>(dynamic, only);
    // Dropped at the end, it stops the watch.
    let _running = factory.start();
    informer.await_condition(key, condition, deadline).await
}

impl<K: CachedResource> Informer<K> {
    /// Waits until the cache shows the object at `key` as `condition` wants it, and returns it as it was then; `None` where
    /// the condition is met by its absence. See [`crate::wait`].
    ///
    /// # Errors
    /// [`AwaitError`].
    ///
    /// # Cancel safety
    /// Waits only.
    pub async fn await_condition(
        &self,
        key: &ObjectKey,
        condition: impl Condition<K>,
        deadline: Duration,
    ) -> Result<Option<Arc<K>>, AwaitError> {
        if !self.lister().selects(key.namespace()) {
            let (resource, scope) = (self.resource().to_owned(), self.selection().scope.clone());
            return Err(AwaitError::NotSelected { resource, key: key.clone(), scope });
        }
        let (mut states, mut last) = (self.watch_object(key), None);
        let met = tokio::time::timeout(deadline, until_met(&mut states, &condition, &mut last)).await;
        let last = || match &last {
            None => LastSeen::Nothing { why: self.shared().describe_unfilled() },
            Some(found) => LastSeen::of(found, &condition),
        };
        let (resource, key) = (self.resource().to_owned(), key.clone());
        match met {
            Ok(Some(object)) => Ok(object),
            Ok(None) => Err(AwaitError::Stopped { last: last(), resource, key }),
            Err(_) => {
                let trouble = self.last_error().filter(|_| self.has_synced());
                Err(AwaitError::TimedOut { last: last(), resource, key, waited: deadline, trouble })
            }
        }
    }
}

/// The state that meets `condition`; `None` if the states end without one. Leaves in `last` what was seen last.
async fn until_met<K: CachedResource>(
    states: &mut ObjectStates<K>,
    condition: &impl Condition<K>,
    last: &mut Option<Found<K>>,
) -> Option<Option<Arc<K>>> {
    while let Some(found) = states.next().await {
        match &found {
            Found::Absent if condition.is_met(None) => return Some(None),
            Found::Object(object) if condition.is_met(Some(object)) => return Some(Some(Arc::clone(object))),
            // Of what cannot be decoded nothing is known but that it exists.
            Found::Absent | Found::Object(_) | Found::Undecodable(_) => *last = Some(found),
        }
    }
    None
}

impl LastSeen {
    fn of<K: Resource>(found: &Found<K>, condition: &impl Condition<K>) -> Self {
        match found {
            Found::Absent => Self::Absent,
            Found::Object(object) => Self::Object {
                resource_version: object.meta().resource_version.clone().unwrap_or_default(),
                description: condition.describe(object),
            },
            Found::Undecodable(error) => Self::Undecodable { error: Arc::clone(error) },
        }
    }
}

impl fmt::Display for LastSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("it does not exist"),
            Self::Nothing { why } => write!(f, "nothing is known of it, because the list did not come: {why}"),
            Self::Object { resource_version, description: None } => {
                write!(f, "last seen at version {resource_version}")
            }
            Self::Object { resource_version, description: Some(description) } => {
                write!(f, "last seen at version {resource_version}, {description}")
            }
            Self::Undecodable { error } => write!(f, "{}", crate::chain::Chain(&**error)),
        }
    }
}

fn watch_error(trouble: Option<&str>) -> String {
    trouble.map(|trouble| format!("; the watch is down: {trouble}")).unwrap_or_default()
}
