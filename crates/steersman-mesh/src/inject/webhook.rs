//! The mutating webhook: a Pod that is being created, with the sidecar.

use std::sync::Arc;

use serde_json::Value;
use steersman::webhook::{Admission, Denial, Operation};

use crate::inject::injector::{Injector, Verdict};
use crate::inject::way::Way;

/// The path of the function.
pub const PATH: &str = "/inject";

/// Answers one call. Requests other than the creation of a Pod are admitted unchanged.
pub(crate) async fn mutate(pod: Value, request: &Admission<Value>, injector: &Arc<Injector>) -> Result<Value, Denial> {
    let is_pod = request.resource.group.is_empty() && request.resource.resource == "pods";
    if request.operation != Operation::Create || !is_pod || request.subresource.is_some() {
        return Ok(pod);
    }
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let judged = injector.judge(Way::Webhook, &pod, namespace).await?;
    // A dry run must have no side effects, so no Event is written.
    if !request.dry_run {
        injector.report(Way::Webhook, &pod, namespace, &judged);
    }
    for warning in judged.warnings {
        request.warn(warning);
    }
    match judged.verdict {
        Verdict::Inject { pod, .. } => Ok(pod),
        Verdict::Leave(skip) => {
            request.audit("left-alone", skip.reason());
            Ok(pod)
        }
        Verdict::Refuse(refusal) => Err(Denial::new(refusal.code, refusal.reason, refusal.message)),
    }
}
