//! The plugin MutatingAdmissionWebhook: calls one webhook after the other, in the order of the names of their
//! configurations. Each gets the object as changed by the webhooks before it. Follows apiserver's
//! `webhook/mutating/dispatcher.go`.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::dynamic::matching;
use crate::write::admission::dynamic::webhook_plugins::call::{self, CallError};
use crate::write::admission::dynamic::webhook_plugins::patch::{self, Patched};
use crate::write::admission::dynamic::webhook_plugins::response::Response;
use crate::write::admission::dynamic::webhooks::registered::{Entry, Kind};
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, Unfinished};
use futures::future::BoxFuture;
use serde_json::json;
use steersman_machinery::Value;
use tokio::time::Instant;

#[derive(Debug)]
pub(in crate::write::admission) struct Mutating;

/// The answer of a webhook, and the result of its patch.
struct Called {
    response: Response,
    patched: Option<Patched>,
}

impl Plugin for Mutating {
    fn unfinished(&self) -> Unfinished {
        Unfinished::Update
    }

    fn handles(&self, phase: Phase, _action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        phase == Phase::Mutate && !matching::is_exempt_from_webhooks(attributes)
    }

    fn has_registered(&self, state: &State, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        !state.admission_webhooks.mutating.index().find(action, attributes).is_empty()
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(mutate(review, new))
    }
}

async fn mutate(review: &mut Review<'_, '_>, mut new: Option<&mut Value>) -> Result<(), Failure> {
    if review.operation.is_of_system() {
        return Ok(());
    }
    let state = review.state;
    let index = arc_swap::Guard::into_inner(state.admission_webhooks.mutating.index());
    if let (true, Some(object)) = (review.reinvocation.is_second(), new.as_deref()) {
        review.reinvocation.webhooks.compare(object);
    }
    for entry in index.find(review.action, &review.operation.attributes) {
        if let Some(object) = ask(review, entry, new.as_deref()).await?
            && let Some(new) = new.as_deref_mut()
        {
            *new = object;
        }
    }
    if let Some(object) = new.as_deref() {
        review.reinvocation.webhooks.keep(object);
    }
    Ok(())
}

/// Calls one webhook, if it matches the write. Returns the object if the webhook has changed it.
async fn ask(review: &mut Review<'_, '_>, entry: &Entry, new: Option<&Value>) -> Result<Option<Value>, Failure> {
    let (state, hook, operation) = (review.state, &*entry.hook, review.action.as_str());
    let write = review.admitted_write(Phase::Mutate, new).await?;
    let Some(call_target) = call::target(state, Kind::Mutating, hook, &write).await? else { return Ok(None) };
    if review.reinvocation.is_second() && !review.reinvocation.webhooks.is_required(&hook.id) {
        return Ok(None);
    }
    let begun = Instant::now();
    let called = async {
        let response = call::call(state, Kind::Mutating, hook, &write, &call_target).await?;
        let patched = match &response.patch {
            Some(patch) if response.refusal.is_none() => {
                let object = call_target.objects.new.as_deref();
                let patched = patch::apply(hook, &write, &call_target.target, object, patch).await;
                patched.map_err(CallError::Internal)?
            }
            Some(_) | None => None,
        };
        Ok(Called { response, patched })
    };
    let called = called.await;
    let round = Round { entry, is_second: review.reinvocation.is_second() };
    let is_changed = matches!(&called, Ok(Called { patched: Some(patched), .. }) if patched.is_changed);
    round.annotate(review, is_changed);
    call::count(state, Kind::Mutating, hook, operation, begun, called.as_ref().map(|called| &called.response));
    if is_changed {
        review.reinvocation.webhooks.require();
        review.reinvocation.want();
    }
    if hook.is_reinvoked {
        review.reinvocation.webhooks.add(hook.id.clone());
    }
    match called {
        Ok(Called { mut response, patched }) => {
            call::note(review.operation, hook, &mut response);
            if let Some(refusal) = response.refusal {
                return Err(refusal);
            }
            let Some(Patched { object, warning, .. }) = patched else { return Ok(None) };
            round.annotate_patch(review, &response);
            warning.into_iter().for_each(|warning| review.operation.warn(warning));
            Ok(Some(object))
        }
        Err(CallError::Call { why, .. }) if hook.is_ignored_on_failure => {
            let why = call::calling(hook, &why);
            tracing::warn!(webhook = %hook.name, why, "a webhook failed, and the write goes on without it");
            round.annotate_ignored(review);
            call::check_time(review.operation)?;
            Ok(None)
        }
        Err(error) => Err(call::failure(hook, error)),
    }
}

/// A call in the audit log.
struct Round<'a> {
    entry: &'a Entry,
    is_second: bool,
}

impl Round<'_> {
    fn place(&self) -> String {
        format!("round_{}_index_{}", u8::from(self.is_second), self.entry.position)
    }

    /// Adds the annotation that the webhook was called, and whether it changed the object.
    fn annotate(&self, review: &mut Review<'_, '_>, is_changed: bool) {
        let key = format!("mutation.webhook.admission.k8s.io/{}", self.place());
        let hook = &self.entry.hook;
        let value = json!({"configuration": hook.configuration, "webhook": hook.name, "mutated": is_changed});
        review.operation.annotate(key, value.to_string());
    }

    fn annotate_patch(&self, review: &mut Review<'_, '_>, response: &Response) {
        let patch: Option<Value> = response.patch.as_deref().and_then(|patch| serde_json::from_slice(patch).ok());
        let hook = &self.entry.hook;
        let value = json!({
            "configuration": hook.configuration, "webhook": hook.name, "patch": patch, "patchType": "JSONPatch",
        });
        let key = format!("patch.webhook.admission.k8s.io/{}", self.place());
        review.operation.annotate_body(key, value.to_string());
    }

    fn annotate_ignored(&self, review: &mut Review<'_, '_>) {
        let key = format!("failed-open.mutation.webhook.admission.k8s.io/{}", self.place());
        review.operation.annotate(key, &*self.entry.hook.name);
    }
}
