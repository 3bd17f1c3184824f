//! Deletes token Secrets that older versions created automatically for ServiceAccounts and that nobody has used for a
//! year.
//!
//! Follows kube-controller-manager's legacy ServiceAccount token cleaner. The server records on each Secret when its
//! token was last used, and in a ConfigMap since when it has done so. A Secret that is old, unused, listed by its
//! account and mounted by no Pod is labeled as invalid, after which the server refuses its token. A year later the
//! Secret is deleted. Upstream checks all Secrets once a day; here each Secret has a timer.

mod mounts;

use crate::settings::Parts;
use crate::shared::refusal::{self, Refused};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, civil};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use std::time::Duration;
use steersman::cache::Selection;
use steersman::{Action, BoxError, Controller, Lister, LookupError, Manager, ObjectKey, Scope};

/// The name of the loop in logs.
const NAME: &str = "legacy-serviceaccount-token-cleaner-controller";
/// How long a token must have been unused, and then invalid.
const UNUSED: SignedDuration = SignedDuration::from_hours(365 * 24);
/// How often a Secret is checked that may be deleted one day.
const INTERVAL: Duration = Duration::from_secs(24 * 3_600);
const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The namespace, name and key of the ConfigMap that says since when the server records the use of tokens.
const TRACKING: (&str, &str, &str) = ("kube-system", "kube-apiserver-legacy-service-account-token-tracking", "since");

struct Context {
    accounts: Lister<ServiceAccount>,
    client: Client,
    clock: fn() -> Timestamp,
    pods: Lister<Pod>,
    secrets: Lister<Secret>,
}

/// The action due for a Secret that its account lists and no Pod mounts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Delete,
    /// Label the Secret as invalid since today.
    Invalidate,
    /// Its token is in use, or has not been invalid for long enough.
    Wait,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let secrets = informers.informer::<Secret>(Selection::new(Scope::All).fields(format!("type={TYPE}")));
    let context = Context {
        accounts: informers.informer::<ServiceAccount>(Scope::All).lister(),
        client,
        clock: settings.clock,
        pods: informers.informer::<Pod>(Scope::All).lister(),
        secrets: secrets.lister(),
    };
    manager.controller(Controller::<Secret>::of(&secrets, reconcile, context).name(NAME))
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let secret = cx.secrets.get(&key)?;
    let (now, later) = ((cx.clock)(), Action::RequeueAfter(INTERVAL).jittered(0.1));
    let step = step(&secret, now);
    if step == Step::Wait || !is_listed(&secret, cx)? || is_mounted(&secret, cx)? || !is_tracked(now, cx).await? {
        return Ok(later);
    }
    let api = Api::<Secret>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
    let outcome = if step == Step::Delete {
        let resource_version = secret.metadata.resource_version.clone();
        let preconditions = Preconditions { uid: secret.metadata.uid.clone(), resource_version };
        tracing::info!(secret = %key, "nobody has used the token for a year: its secret goes");
        api.delete(key.name(), &DeleteParams::default().preconditions(preconditions)).await.map(drop)
    } else {
        let labels = json!({INVALID_SINCE: day(now).to_string()});
        let patch = Patch::Merge(json!({"metadata": {"uid": secret.metadata.uid, "labels": labels}}));
        tracing::info!(secret = %key, "nobody has used the token for a year: it is marked as invalid");
        api.patch_metadata(key.name(), &PatchParams::default(), &patch).await.map(drop)
    };
    match outcome {
        Ok(()) => Ok(later),
        Err(error) if refusal::is_outdated(&error) => Ok(later),
        Err(error) => Err(Refused::to("clean up a legacy token")(error).into()),
    }
}

/// The action due for a Secret, as far as the Secret itself determines it.
fn step(secret: &Secret, now: Timestamp) -> Step {
    let Ok(limit) = now.checked_sub(UNUSED) else { return Step::Wait };
    let is_old = secret.metadata.creation_timestamp.as_ref().is_some_and(|created| created.0 < limit);
    if secret.type_.as_deref() != Some(TYPE) || !is_old || secret.metadata.deletion_timestamp.is_some() {
        return Step::Wait;
    }
    // A token without the label has not been used since use is recorded. If the label is not a day, the last use is
    // unknown.
    let is_unused = match secret.labels().get(LAST_USED).map(|text| read_day(text)) {
        None => true,
        Some(None) => false,
        Some(Some(used)) => used < day(limit),
    };
    if !is_unused {
        return Step::Wait;
    }
    match secret.labels().get(INVALID_SINCE).and_then(|text| read_day(text)) {
        None => Step::Invalidate,
        Some(since) if since < day(limit) => Step::Delete,
        Some(_) => Step::Wait,
    }
}

/// Whether the account of a Secret lists it, as older versions did for the Secrets that they created.
fn is_listed(secret: &Secret, cx: &Context) -> Result<bool, LookupError> {
    let Some(name) = secret.annotations().get(ACCOUNT_NAME).filter(|name| !name.is_empty()) else { return Ok(false) };
    let Some(account) = cx.accounts.find(&ObjectKey::namespaced(&secret.namespace().unwrap_or_default(), name))? else {
        return Ok(false);
    };
    let uid = secret.annotations().get(ACCOUNT_UID).filter(|uid| !uid.is_empty());
    let mut listed = account.secrets.iter().flatten();
    Ok(uid.is_none_or(|uid| account.metadata.uid.as_ref() == Some(uid))
        && listed.any(|reference| reference.name == secret.metadata.name))
}

fn is_mounted(secret: &Secret, cx: &Context) -> Result<bool, LookupError> {
    let name = secret.name_any();
    let pods = cx.pods.list_in(&secret.namespace().unwrap_or_default())?;
    Ok(pods.iter().any(|pod| mounts::has_secret(pod, &name)))
}

/// Whether the use of tokens has been recorded for long enough to know that a token was not used.
async fn is_tracked(now: Timestamp, cx: &Context) -> Result<bool, Refused> {
    let (namespace, name, key) = TRACKING;
    let config = Api::<ConfigMap>::namespaced(cx.client.clone(), namespace).get_opt(name).await;
    let config = config.map_err(Refused::to("read since when the use of tokens is noted"))?;
    let since = config.and_then(|config| read_day(config.data?.get(key)?));
    // Counted from the day after, the first whole day that was recorded.
    let since = since.and_then(|day| day.tomorrow().ok()?.to_zoned(TimeZone::UTC).ok());
    Ok(since.is_some_and(|since| since.timestamp().checked_add(UNUSED).is_ok_and(|enough| now >= enough)))
}

fn day(time: Timestamp) -> civil::Date {
    time.to_zoned(TimeZone::UTC).date()
}

/// A day in the form `2006-01-02` only.
fn read_day(text: &str) -> Option<civil::Date> {
    let day: civil::Date = text.parse().ok()?;
    (day.to_string() == text).then_some(day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[track_caller]
    fn check(created: &str, labels: &[(&str, &str)], want: Step) {
        let mut secret = Secret { type_: Some(TYPE.to_owned()), ..Secret::default() };
        secret.metadata.creation_timestamp = Some(Time(created.parse().unwrap()));
        for (key, value) in labels {
            secret.labels_mut().insert((*key).to_owned(), (*value).to_owned());
        }
        assert_eq!(step(&secret, "2026-06-01T12:00:00Z".parse().unwrap()), want, "{labels:?}");
    }

    #[test]
    fn an_old_token_that_nobody_uses_is_invalid_first_and_goes_a_year_later() {
        let old = "2020-01-01T00:00:00Z";
        check(old, &[], Step::Invalidate);
        check(old, &[(LAST_USED, "2025-05-31")], Step::Invalidate);
        check(old, &[(LAST_USED, "2025-06-01")], Step::Wait);
        check(old, &[(LAST_USED, "yesterday")], Step::Wait);
        check(old, &[(INVALID_SINCE, "never")], Step::Invalidate);
        check(old, &[(INVALID_SINCE, "2025-06-01")], Step::Wait);
        check(old, &[(INVALID_SINCE, "2025-05-31")], Step::Delete);
        check(old, &[(INVALID_SINCE, "2025-05-31"), (LAST_USED, "2026-01-01")], Step::Wait);
        check("2026-01-01T00:00:00Z", &[(INVALID_SINCE, "2020-01-01")], Step::Wait);
    }
}
