//! The plugin ValidatingAdmissionWebhook: calls all webhooks that match a write at once, and waits for all. Of several
//! refusals the first is returned, in the order of the names of their configurations. Follows apiserver's
//! `webhook/validating/dispatcher.go`, where the refusal that arrives first is returned.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::dynamic::matching;
use crate::write::admission::dynamic::webhook_plugins::call::{self, CallError, CallTarget};
use crate::write::admission::dynamic::webhook_plugins::response::Response;
use crate::write::admission::dynamic::webhooks::hook::Hook;
use crate::write::admission::dynamic::webhooks::registered::{Entry, Kind};
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, Unfinished};
use futures::future::{self, BoxFuture};
use std::sync::Arc;
use steersman_machinery::Value;
use tokio::time::Instant;

#[derive(Debug)]
pub(in crate::write::admission) struct Validating;

impl Plugin for Validating {
    fn unfinished(&self) -> Unfinished {
        Unfinished::Update
    }

    fn handles(&self, phase: Phase, _action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        phase == Phase::Validate && !matching::is_exempt_from_webhooks(attributes)
    }

    fn has_registered(&self, state: &State, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        !state.admission_webhooks.validating.index().find(action, attributes).is_empty()
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(validate(review, new))
    }
}

async fn validate(review: &mut Review<'_, '_>, new: Option<&Value>) -> Result<(), Failure> {
    if review.operation.is_of_system() {
        return Ok(());
    }
    let state = review.state;
    let index = arc_swap::Guard::into_inner(state.admission_webhooks.validating.index());
    let found = index.find(review.action, &review.operation.attributes);
    let answers = ask(review, found, new).await?;
    let mut first = None;
    for (position, (hook, answer)) in answers.into_iter().enumerate() {
        match answer {
            Ok(mut response) => {
                call::note(review.operation, hook, &mut response);
                first = first.or(response.refusal);
            }
            Err(CallError::Call { why, .. }) if hook.is_ignored_on_failure => {
                let why = call::calling(hook, &why);
                tracing::warn!(webhook = %hook.name, why, "a webhook failed, and the write goes on without it");
                // As upstream, the index among the webhooks that were called.
                let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{position}");
                review.operation.annotate(key, &*hook.name);
            }
            Err(error) => first = first.or(Some(call::failure(hook, error))),
        }
    }
    match first {
        Some(failure) => Err(failure),
        None => call::check_time(review.operation),
    }
}

/// The answers of the webhooks that match the write, in order.
async fn ask<'h>(
    review: &Review<'_, '_>,
    found: &'h [Arc<Entry>],
    new: Option<&Value>,
) -> Result<Vec<(&'h Hook, Result<Response, CallError>)>, Failure> {
    let (state, operation) = (review.state, review.action.as_str());
    let write = review.admitted_write(Phase::Validate, new).await?;
    let mut relevant = Vec::new();
    for entry in found {
        if let Some(call_target) = call::target(state, Kind::Validating, &entry.hook, &write).await? {
            relevant.push((&*entry.hook, call_target));
        }
    }
    call::check_time(write.operation)?;
    let write = &write;
    let calls = relevant.iter().map(|(hook, call_target): &(&'h Hook, CallTarget<'_>)| async move {
        let begun = Instant::now();
        let answer = call::call(state, Kind::Validating, hook, write, call_target).await;
        call::count(state, Kind::Validating, hook, operation, begun, answer.as_ref());
        (*hook, answer)
    });
    Ok(future::join_all(calls).await)
}
