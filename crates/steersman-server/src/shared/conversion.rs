//! Converts objects between the stored, the internal and the requested form.
//!
//! Every conversion goes through here, for many objects at once; it is async and may fail. Most are a pure function of
//! the kind's strategy. Where a definition has a conversion webhook, objects in another version are sent to it in that
//! version, pruned and defaulted by its schema; the results are pruned and defaulted by the schema of the requested
//! version.

pub(crate) mod webhook;

use crate::shared::status::Failure;
use parking_lot::Mutex;
use std::mem;
use std::sync::Arc;
use steersman_kinds::catalog::{Resource, Served, Version};
use steersman_kinds::converter::{Converter, Source};
use steersman_machinery::budget::{self, Budget};
use steersman_machinery::value::str_at;
use steersman_machinery::{Object, Value};

/// Converts stored objects to the requested form.
///
/// # Errors
/// When they cannot be converted to that version now.
pub(crate) async fn to_requested(served: &Served, stored: Vec<Value>) -> Result<Vec<Value>, Failure> {
    let (version, strategy) = (served.version(), &served.resource.strategy);
    let internal = load(&served.resource, version, stored).await?;
    Ok(internal.into_iter().map(|internal| strategy.present(version, internal)).collect())
}

/// Converts a stored object to the internal form.
///
/// # Errors
/// When it cannot be converted to that version now.
pub(crate) async fn to_internal(served: &Served, stored: Value) -> Result<Value, Failure> {
    one(load(&served.resource, served.version(), vec![stored]).await?)
}

/// Converts an object of the internal form to the stored form.
///
/// # Errors
/// When it cannot be converted to the storage version now.
pub(crate) async fn to_stored(served: &Served, internal: Value) -> Result<Value, Failure> {
    store(&served.resource, served.version(), internal).await
}

/// Converts an object from the internal form of one resource and version to the requested form of another resource with
/// the same objects.
///
/// # Errors
/// When it cannot be converted to that version now.
pub(crate) async fn from_internal(from: &Served, to: &Served, internal: Value) -> Result<Value, Failure> {
    let stored = to_stored(from, internal).await?;
    one(to_requested(to, vec![stored]).await?)
}

/// The most objects that are converted at a time, and the most bytes of them, although a single one may be larger.
pub(crate) const BATCH_OBJECTS: usize = 64;
pub(crate) const BATCH_BYTES: usize = 1024 * 1024;

/// Why objects could not be read within a budget.
#[derive(Debug)]
pub(crate) enum ReadError {
    Budget(budget::Error),
    Failed(Failure),
}

impl From<budget::Error> for ReadError {
    fn from(error: budget::Error) -> ReadError {
        ReadError::Budget(error)
    }
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> ReadError {
        ReadError::Failed(failure)
    }
}

/// Conversions by a webhook for a function that does no IO and needs them one after another: it is run again until all
/// of them are known.
#[derive(Debug, Default)]
pub(crate) struct OnDemand(Mutex<Conversions>);

#[derive(Debug, Default)]
struct Conversions {
    known: Vec<(Question, Result<Value, String>)>,
    wanted: Vec<Question>,
}

/// A conversion: an object in the requested form, and the name of the version to convert to.
#[derive(Clone, Debug, PartialEq)]
struct Question {
    object: Value,
    to: String,
}

impl OnDemand {
    /// The conversion of an object. If it is not known yet, it fails now and is known in the next run.
    ///
    /// # Errors
    /// When it is not known yet, or has failed.
    pub(crate) fn find(&self, object: &Value, to: &str) -> Result<Value, String> {
        let mut conversions = self.0.lock();
        let is_same = |question: &Question| question.to == to && question.object == *object;
        if let Some((_, outcome)) = conversions.known.iter().find(|(question, _)| is_same(question)) {
            return outcome.clone();
        }
        conversions.wanted.push(Question { object: object.clone(), to: to.to_owned() });
        Err(format!("not converted to {to} yet"))
    }

    /// Converts the requested objects. True if there were any: the function must run again.
    pub(crate) async fn supply(&self, resource: &Resource) -> bool {
        let wanted = mem::take(&mut self.0.lock().wanted);
        for question in &wanted {
            let Question { object, to } = question;
            let version = |name: &str| resource.versions.iter().find(|version| *version.name == *name);
            let from =
                str_at(object, &["apiVersion"]).and_then(|written| written.rsplit('/').next()).unwrap_or_default();
            let outcome = match (version(from), version(to)) {
                (Some(from), Some(to)) => between(resource, from, to, object.clone()).await,
                _ => Err(Failure::internal(format!("{from} or {to} is no version of {}", resource.plural))),
            };
            let outcome = outcome.map_err(|failure| failure.status.message.clone());
            self.0.lock().known.push((question.clone(), outcome));
        }
        !wanted.is_empty()
    }
}

/// The tree of a stored object.
///
/// # Errors
/// When its bytes are not JSON.
pub(crate) fn parse(object: &Object) -> Result<Value, Failure> {
    serde_json::from_slice(object.json()).map_err(|error| {
        tracing::error!(key = %object.key, %error, "a stored object is not readable");
        Failure::internal(format!("the stored object {} is not readable", object.key))
    })
}

/// Converts stored objects to the form in which they would be stored now.
///
/// # Errors
/// When one cannot be converted to the storage version now.
pub(crate) async fn to_stored_again(resource: &Resource, stored: Vec<Value>) -> Result<Vec<Value>, Failure> {
    let version = resource.storage_version();
    let internal = load(resource, version, stored).await?;
    internal.into_iter().map(|internal| Ok(resource.strategy.store(resource, version, internal)?)).collect()
}

/// Reads stored objects in the requested form, a few at a time. The budget is charged for the reading of each before it begins, and `trees` for
/// the memory of all of them.
///
/// # Errors
/// When a budget is exceeded, or an object is not readable or cannot be converted to that version now.
pub(crate) async fn read_within(
    served: &Served,
    objects: &[Arc<Object>],
    budget: &Budget,
    trees: &Budget,
) -> Result<Vec<Value>, ReadError> {
    let mut read = Vec::with_capacity(objects.len());
    let mut rest = objects;
    while !rest.is_empty() {
        // Only a webhook converts many objects faster than one after the other.
        let n_objects = if served.resource.strategy.converter().is_some() { batch_len(rest) } else { 1 };
        let few;
        (few, rest) = rest.split_at(n_objects);
        let mut stored = Vec::with_capacity(few.len());
        for object in few {
            charge_reading(object, budget)?;
            stored.push(parse(object)?);
        }
        for requested in to_requested(served, stored).await? {
            trees.copy(&requested)?;
            read.push(requested);
        }
    }
    Ok(read)
}

/// The number of the next objects that are converted at a time; at least one, if there are any.
pub(crate) fn batch_len(objects: &[Arc<Object>]) -> usize {
    let mut bytes = 0;
    let fitting = objects.iter().take(BATCH_OBJECTS).take_while(|object| {
        let has_room = bytes == 0 || bytes + object.json().len() <= BATCH_BYTES;
        bytes += object.json().len();
        has_room
    });
    fitting.count()
}

/// Charges the parsing of a stored object: a tree has many times the bytes of its object, each of which is looked at more than once.
///
/// # Errors
/// When the budget is exceeded.
pub(crate) fn charge_reading(object: &Object, budget: &Budget) -> Result<(), budget::Error> {
    budget.work(object.json().len())
}

/// Converts an object in the requested form of one version to another version of the same kind.
///
/// # Errors
/// When it cannot be converted to that version now.
async fn between(resource: &Resource, from: &Version, to: &Version, requested: Value) -> Result<Value, Failure> {
    let strategy = &resource.strategy;
    let Some(webhook) = strategy.converter().filter(|_| from.name != to.name) else {
        return Ok(without_webhook(resource, from, to, requested)?);
    };
    let converted = convert(webhook, vec![requested], resource, to, Source::Stored).await?;
    Ok(strategy.decode_converted(to, one(converted)?)?)
}

/// The same where no webhook is needed between the versions.
///
/// # Errors
/// When the object's defaults make it too large.
pub(crate) fn without_webhook(
    resource: &Resource,
    from: &Version,
    to: &Version,
    requested: Value,
) -> Result<Value, budget::Error> {
    let strategy = &resource.strategy;
    let stored = strategy.store(resource, from, strategy.internal(from, requested))?;
    Ok(strategy.present(to, strategy.load(resource, to, stored)?))
}

/// Converts stored objects to the internal form.
async fn load(resource: &Resource, version: &Version, stored: Vec<Value>) -> Result<Vec<Value>, Failure> {
    let strategy = &resource.strategy;
    let Some(webhook) = strategy.converter() else {
        return stored.into_iter().map(|stored| Ok(strategy.load(resource, version, stored)?)).collect();
    };
    let mut internal = Vec::with_capacity(stored.len());
    let (mut waiting, mut places) = (Vec::new(), Vec::new());
    for (place, stored) in stored.into_iter().enumerate() {
        let written = str_at(&stored, &["apiVersion"]).and_then(|written| written.rsplit('/').next());
        if written == Some(&*version.name) {
            internal.push(strategy.load(resource, version, stored)?);
            continue;
        }
        let own = resource.versions.iter().find(|own| written == Some(&*own.name));
        waiting.push(match own {
            Some(own) => strategy.load(resource, own, stored)?,
            // The version is no longer defined: an object that was stored in it is sent unchanged.
            None => stored,
        });
        places.push(place);
        internal.push(Value::Null);
    }
    if !waiting.is_empty() {
        let converted = convert(webhook, waiting, resource, version, Source::Stored).await?;
        for (place, converted) in places.into_iter().zip(converted) {
            internal[place] = strategy.decode_converted(version, converted)?;
        }
    }
    Ok(internal)
}

async fn store(resource: &Resource, version: &Version, internal: Value) -> Result<Value, Failure> {
    let (strategy, storage) = (&resource.strategy, resource.storage_version());
    let Some(webhook) = strategy.converter().filter(|_| storage.name != version.name) else {
        return Ok(strategy.store(resource, version, internal)?);
    };
    let converted = convert(webhook, vec![internal], resource, storage, Source::Draft).await?;
    Ok(strategy.decode_converted(storage, one(converted)?)?)
}

async fn convert(
    webhook: &dyn Converter,
    objects: Vec<Value>,
    resource: &Resource,
    to: &Version,
    source: Source,
) -> Result<Vec<Value>, Failure> {
    let api_version = format!("{}/{}", resource.group, to.name);
    let converted = webhook.convert(objects, &api_version, source).await;
    converted.map_err(|error| Failure::unclassified(error.to_string()))
}

fn one(mut converted: Vec<Value>) -> Result<Value, Failure> {
    converted.pop().ok_or_else(|| Failure::internal("a conversion gave no object"))
}
