//! Waiting until an object meets a condition: for tests, command lines, and steps that must follow one another.
//!
//! [`await_condition`] makes a watch of that one object for as long as it waits; [`Informer::await_condition`] reads a
//! cache that the program has anyway. Both see every state of the object in the cache, and give up at a deadline with
//! an error that has the last state. Conditions are functions of the object, or of its absence; [`conditions`] has
//! some.
//!
//! A reconciler does not wait: it returns, and its key runs again when something changes.
//!
//! Follows kube-runtime's `wait`.

mod condition;
pub mod conditions;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::{Client, Resource};

use crate::cache::factory::InformerFactory;
use crate::cache::indexer::Found;
use crate::cache::informer::{Informer, ObjectStates};
use crate::shared::decode_error::DecodeError;
use crate::shared::key::ObjectKey;
use crate::shared::selection::{CachedResource, Scope, Selection};

pub use crate::wait::condition::Condition;

/// Why a wait for a condition ended without it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AwaitError {
    /// The object is outside the informer's scope, so its state is unknown.
    #[error("{key:?} cannot be awaited: {resource} are watched {scope}")]
    NotSelected {
        /// `plural.group` of the type.
        resource: String,
        /// The key of the object.
        key: ObjectKey,
        /// The scope of the informer.
        scope: Scope,
    },
    /// The informer has stopped: no more states come.
    #[error("the informer of {resource} has stopped, and {key:?} is not as awaited: {last}")]
    Stopped {
        /// `plural.group` of the type.
        resource: String,
        /// The key of the object.
        key: ObjectKey,
        /// The last state of the object.
        last: LastSeen,
    },
    /// The deadline has passed.
    #[error("{resource} {key:?} did not become as awaited within {waited:?}: {last}{}", watch_error(trouble.as_deref()))]
    TimedOut {
        /// `plural.group` of the type.
        resource: String,
        /// The key of the object.
        key: ObjectKey,
        /// How long the wait lasted.
        waited: Duration,
        /// The last state of the object.
        last: LastSeen,
        /// Why the watch is down, if it is: the object may have changed since the last state.
        trouble: Option<String>,
    },
}

/// The last state that a wait saw of its object.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LastSeen {
    /// The object did not exist.
    Absent,
    /// No state: the first list never came.
    Nothing {
        /// The reason, as far as it is known.
        why: String,
    },
    /// The object existed.
    Object {
        /// Its resource version.
        resource_version: String,
        /// The part of the state that the condition is about, in the condition's words.
        description: Option<String>,
    },
    /// The object existed, and its state could not be decoded.
    Undecodable {
        /// The error of decoding it.
        error: Arc<DecodeError>,
    },
}

/// Waits until the object at `key` meets `condition`, and returns that state; `None` where its absence meets the
/// condition. Makes a watch of this one object, which is tried again until it works or time is up.
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
/// Only waits. If the future is dropped, the watch ends.
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
    // Dropping this at the end stops the watch.
    let _running = factory.start();
    informer.await_condition(key, condition, deadline).await
}

impl<K: CachedResource> Informer<K> {
    /// Waits until the object at `key` in the cache meets `condition`, and returns that state; `None` where its absence
    /// meets the condition. See [`crate::wait`].
    ///
    /// # Errors
    /// [`AwaitError`].
    ///
    /// # Cancel safety
    /// Only waits.
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

/// Returns the state that meets `condition`; `None` if the states end without one. Leaves the last state in `last`.
async fn until_met<K: CachedResource>(
    states: &mut ObjectStates<K>,
    condition: &impl Condition<K>,
    last: &mut Option<Found<K>>,
) -> Option<Option<Arc<K>>> {
    while let Some(found) = states.next().await {
        match &found {
            Found::Absent if condition.is_met(None) => return Some(None),
            Found::Object(object) if condition.is_met(Some(object)) => return Some(Some(Arc::clone(object))),
            // An undecodable object can meet no condition: only its existence is known.
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
            Self::Undecodable { error } => write!(f, "{}", crate::shared::chain::Chain(&**error)),
        }
    }
}

fn watch_error(trouble: Option<&str>) -> String {
    trouble.map(|trouble| format!("; the watch is down: {trouble}")).unwrap_or_default()
}
