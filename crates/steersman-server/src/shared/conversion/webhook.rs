//! The webhook that converts the objects of a definition between its versions.
//!
//! [`Webhook::convert`] sends many objects in one call, and refuses invalid answers (`review`). Recent conversions are
//! cached for a few seconds (`recent`), so that the many watches of a kind, and a list after an event, cost one call
//! for each stored object. A failure affects only requests that need a conversion; its error names the kind, the
//! object, and the webhook that failed.
//!
//! The module `conversion` decides which objects are converted, and processes them before and after.

mod durations;
mod recent;
pub(crate) mod review;

pub(crate) use self::durations::{Durations, Labels};

use crate::shared::conversion::webhook::recent::{Lookup, Recent};
use crate::shared::conversion::webhook::review::ReviewVersion;
use crate::shared::webhook::{ClientConfig, Clients};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::converter::{ConversionError, Converter, Converting, Source};
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};
use tokio::time::Instant;

/// The timeout of a call, as upstream.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of objects in a call, and of their bytes unless one alone is larger: the answer, which may be
/// larger than the request, has a limit too.
const BATCH_OBJECTS: usize = 256;
const BATCH_BYTES: usize = 1024 * 1024;

/// The connections that conversions use, and the record of their durations.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) clients: Arc<Clients>,
    pub(crate) durations: Durations,
}

impl Caller {
    pub(crate) fn new(clients: Arc<Clients>) -> Caller {
        Caller { clients, durations: Durations::default() }
    }
}

/// The conversion webhook of one definition.
#[derive(Debug)]
pub(crate) struct Webhook {
    definition: Box<str>,
    /// The error says why the webhook cannot be called.
    config: Result<ClientConfig, String>,
    review: Option<ReviewVersion>,
    caller: Arc<Caller>,
    recent: Recent,
}

impl Webhook {
    /// The webhook of a definition in the internal form; none if it needs none. Without a caller nothing can be
    /// converted, which is for code that reads definitions without serving them.
    pub(crate) fn of(definition: &Value, caller: Arc<Caller>) -> Option<Webhook> {
        let conversion = at(definition, &["spec", "conversion"])?;
        if str_at(conversion, &["strategy"]) != Some("Webhook") {
            return None;
        }
        let nothing = Value::Null;
        let webhook = conversion.get("webhook").unwrap_or(&nothing);
        let config = ClientConfig::read(webhook.get("clientConfig").unwrap_or(&nothing));
        let versions = webhook.get("conversionReviewVersions").and_then(Value::as_array);
        Some(Webhook {
            definition: str_at(definition, &["metadata", "name"]).unwrap_or_default().into(),
            config: config.map_err(|error| error.to_string()),
            review: versions.into_iter().flatten().find_map(|version| ReviewVersion::of(version.as_str()?)),
            caller,
            recent: Recent::default(),
        })
    }

    /// Converts the objects that have no result yet, by a call or by waiting for another request that converts them.
    /// Some may be left over when the other request was canceled.
    async fn convert_stored(
        &self,
        objects: &[Value],
        api_version: &str,
        results: &mut [Option<Value>],
    ) -> Result<(), ConversionError> {
        let (mut own, mut waiting) = (Vec::new(), Vec::new());
        for (place, object) in objects.iter().enumerate() {
            if results[place].is_some() {
                continue;
            }
            match self.recent.lookup(object, api_version) {
                Lookup::Known(value) => results[place] = Some(Value::clone(&value)),
                Lookup::UnderWay(receiver) => waiting.push((place, receiver)),
                Lookup::Yours(in_flight) => own.push((place, in_flight)),
            }
        }
        // The own objects are converted first, because other requests may wait for them while this one waits for
        // others.
        if !own.is_empty() {
            let mine: Vec<&Value> = own.iter().map(|(place, _)| &objects[*place]).collect();
            match self.call_for_all(&mine, api_version).await {
                Ok(converted) => {
                    for ((place, in_flight), value) in own.into_iter().zip(converted) {
                        in_flight.complete(&value);
                        results[place] = Some(value);
                    }
                }
                Err(error) => {
                    own.into_iter().for_each(|(_, in_flight)| in_flight.fail(&error));
                    return Err(error);
                }
            }
        }
        for (place, mut receiver) in waiting {
            // An error means that the other request was canceled.
            if let Ok(outcome) = receiver.wait_for(Option::is_some).await {
                match &*outcome {
                    Some(Ok(value)) => results[place] = Some(Value::clone(value)),
                    Some(Err(error)) => return Err(error.clone()),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Sends objects in as few calls as the bounds allow.
    async fn call_for_all(&self, objects: &[&Value], api_version: &str) -> Result<Vec<Value>, ConversionError> {
        let mut converted = Vec::with_capacity(objects.len());
        let mut rest = objects;
        while !rest.is_empty() {
            let (uid, body, taken) = review::request(rest, api_version, self.review, BATCH_OBJECTS, BATCH_BYTES);
            let (batch, behind) = rest.split_at(taken);
            rest = behind;
            converted.extend(self.call(batch, api_version, &uid, body).await?);
        }
        Ok(converted)
    }

    async fn call(
        &self,
        batch: &[&Value],
        api_version: &str,
        uid: &str,
        body: Bytes,
    ) -> Result<Vec<Value>, ConversionError> {
        let fail = |what: &str| ConversionError(failure(batch, what).into());
        let (config, review) = match (&self.config, self.review) {
            (Ok(config), Some(review)) => (config, review),
            (Err(why), _) => return Err(fail(&format!("failed: {why}"))),
            (_, None) => return Err(fail("failed: no supported conversion review versions: want v1 or v1beta1")),
        };
        let begun = Instant::now();
        let answer = self.caller.clients.post(config, body, TIMEOUT).await;
        let judged = match answer {
            Ok(answer) => {
                let converted = review::answer(&answer, review, uid, batch, api_version);
                converted.map_err(|fault| fail(&format!("{fault} (answered by {})", config.url())))
            }
            Err(error) => Err(fail(&format!("failed: {error}"))),
        };
        let from = version_of(batch.first().copied().unwrap_or(&Value::Null));
        let to = api_version.rsplit('/').next().unwrap_or_default();
        let labels = Labels {
            definition: self.definition.clone(),
            from: from.into(),
            to: to.into(),
            has_succeeded: judged.is_ok(),
        };
        self.caller.durations.observe(labels, begun.elapsed());
        judged
    }
}

impl Converter for Webhook {
    fn convert<'a>(&'a self, objects: Vec<Value>, api_version: &'a str, source: Source) -> Converting<'a> {
        Box::pin(async move {
            if source == Source::Draft {
                let objects: Vec<&Value> = objects.iter().collect();
                return self.call_for_all(&objects, api_version).await;
            }
            let mut results: Vec<Option<Value>> = vec![None; objects.len()];
            while results.iter().any(Option::is_none) {
                self.convert_stored(&objects, api_version, &mut results).await?;
            }
            Ok(results.into_iter().flatten().collect())
        })
    }
}

/// The message of a failure: `conversion webhook for example.com/v1, Kind=Hat failed: why: converting default/a and 3
/// more`.
fn failure(batch: &[&Value], what: &str) -> String {
    let Some(first) = batch.first() else { return format!("conversion webhook {what}") };
    let said = |path: &[&str]| str_at(first, path).unwrap_or_default();
    let object = match (said(&["metadata", "namespace"]), said(&["metadata", "name"])) {
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    let more = match batch.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let (api_version, kind) = (said(&["apiVersion"]), said(&["kind"]));
    format!("conversion webhook for {api_version}, Kind={kind} {what}: converting {object}{more}")
}

fn version_of(object: &Value) -> &str {
    str_at(object, &["apiVersion"]).and_then(|api_version| api_version.rsplit('/').next()).unwrap_or_default()
}
