//! Deletes bootstrap tokens that have expired.
//!
//! Follows kube-controller-manager's tokencleaner controller.

use crate::loops::access::bootstrap_tokens::{expiration, selection};
use crate::settings::Parts;
use crate::shared::refusal::{self, Refused};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use std::time::Duration;
use steersman::{Action, BoxError, Controller, Lister, Manager, ObjectKey};
use steersman_machinery::bootstrap_token::Expiration;

/// The name of the loop in logs.
const NAME: &str = "token-cleaner-controller";
/// The longest pause before a token is checked again, because the clock may be set meanwhile.
const LOOK_MAX: Duration = Duration::from_secs(3_600);

struct Context {
    client: Client,
    clock: fn() -> Timestamp,
    tokens: Lister<Secret>,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let tokens = manager.informers().informer::<Secret>(selection());
    let context = Context { client, clock: settings.clock, tokens: tokens.lister() };
    manager.controller(Controller::<Secret>::of(&tokens, reconcile, context).name(NAME))
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let token = cx.tokens.get(&key)?;
    let (now, expiration) = ((cx.clock)(), expiration(&token));
    if !expiration.is_past(now) {
        let Expiration::At(time) = expiration else { return Ok(Action::AwaitChange) };
        let left = Duration::try_from(time.duration_since(now)).unwrap_or_default();
        return Ok(Action::RequeueAfter(left.clamp(Duration::from_millis(1), LOOK_MAX)));
    }
    let preconditions = Preconditions { uid: token.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams::default().preconditions(preconditions);
    let api = Api::<Secret>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
    match api.delete(key.name(), &params).await {
        Ok(_) => {
            tracing::info!(token = key.name(), "the bootstrap token has expired: it goes");
            Ok(Action::AwaitChange)
        }
        Err(error) if refusal::is_outdated(&error) => Ok(Action::AwaitChange),
        Err(error) => Err(Refused::to("delete the bootstrap token")(error).into()),
    }
}
