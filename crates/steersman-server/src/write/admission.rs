//! Admission: plugins that change or refuse writes, beyond the rules of their kinds.
//!
//! Every write passes the plugins of one table, in upstream's order: first all mutate, then, when the object is
//! complete and valid by its kind's rules, all validate. Deletions pass them too, each object of a collection by
//! itself, and so do bodies of connecting subresources. Mutation works on the requested form, after `managedFields` are
//! recorded, so that fields set by a plugin have no owner. Validation sees the internal form.
//!
//! A plugin is one file in `plugins` and one row of the table there. The plugins of a server are its [`Plugins`].
//! `handles` and `has_registered` are called first and do not allocate, so a write that no plugin handles costs almost
//! nothing.
//!
//! Webhooks and policies are in `dynamic`, with their common parts: the writes that they match (`matching`), the data
//! that they get (`subject`, here), their conditions in CEL (`condition`, `questions`), and the second round of mutation
//! (`reinvocation`).

mod action;
pub(crate) mod classes;
/// Dynamic admission: the webhooks and policies that users register.
pub(crate) mod dynamic {
    pub(crate) mod condition;
    pub(crate) mod matching;
    pub(crate) mod mutating_policy;
    pub(crate) mod policy;
    pub(crate) mod questions;
    pub(crate) mod reinvocation;
    pub(crate) mod validating_policy;
    pub(crate) mod webhook_plugins;
    pub(crate) mod webhooks;
}
pub(crate) mod admitted_write;
pub(crate) mod plugin;
mod plugins;

#[cfg(feature = "fuzzing")]
pub(crate) use self::dynamic::webhook_plugins::patch_of_answer;
pub(crate) use self::plugin::{Action, Phase, Review};
pub use self::plugins::{Plugins, PluginsError};

use crate::shared::operation::{Operation, ResourceAttributes};
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::plugin::Plugin;
use crate::write::admission::plugins::limits::resource_quota;
use crate::write::initializers::field;
use steersman_machinery::Value;

/// Lets every plugin that handles the write change it.
///
/// # Errors
/// With the first refusal.
pub(crate) async fn mutate(mut review: Review<'_, '_>, mut new: Option<&mut Value>) -> Result<(), Failure> {
    let (state, old) = (review.state, review.old);
    let is_unfinished = is_unfinished(&review);
    loop {
        for plugin in &state.admission {
            if is_unfinished {
                (review.action, review.old) = plugin.unfinished().shown(old);
            }
            if is_asked(*plugin, state, Phase::Mutate, review.action, &review.operation.attributes) {
                plugin.mutate(&mut review, new.as_deref_mut()).await?;
            }
        }
        if !review.reinvocation.begin_second() {
            return Ok(());
        }
    }
}

/// Lets every plugin that handles the write accept or refuse it.
///
/// # Errors
/// With the first refusal.
pub(crate) async fn validate(mut review: Review<'_, '_>, new: Option<&Value>) -> Result<(), Failure> {
    let (state, old) = (review.state, review.old);
    let is_unfinished = is_unfinished(&review);
    for plugin in &state.admission {
        if is_unfinished {
            (review.action, review.old) = plugin.unfinished().shown(old);
        }
        if is_asked(*plugin, state, Phase::Validate, review.action, &review.operation.attributes) {
            plugin.validate(&mut review, new).await?;
        }
    }
    Ok(())
}

/// Whether a write changes an object that is still being created, because it waits for initializers.
fn is_unfinished(review: &Review<'_, '_>) -> bool {
    let is_whole = review.action == Action::Update && review.operation.attributes.subresource.is_none();
    review.state.initializers.is_some() && is_whole && review.old.is_some_and(field::is_given)
}

/// Mutates and validates an object that is not stored: a review, or the body of a connecting subresource.
///
/// # Errors
/// With the first refusal.
pub(crate) async fn admit(state: &State, operation: &mut Operation<'_>, object: &mut Value) -> Result<(), Failure> {
    let action = Action::Create;
    mutate(Review::new(action, state, operation, None), Some(object)).await?;
    validate(Review::new(action, state, operation, None), Some(object)).await
}

/// Mutates and validates the options of a connection to the process that an object represents.
///
/// # Errors
/// With the first refusal.
pub(crate) async fn connect(state: &State, operation: &mut Operation<'_>, options: &mut Value) -> Result<(), Failure> {
    let action = Action::Connect;
    mutate(Review::new(action, state, operation, None), Some(options)).await?;
    validate(Review::new(action, state, operation, None), Some(options)).await
}

/// Undoes the effects of plugins elsewhere for a write that has failed: gives back quota usage.
pub(crate) async fn undo(state: &State, operation: &mut Operation<'_>) {
    if !operation.charges.is_empty() {
        resource_quota::refund(state, operation).await;
    }
}

/// Whether any plugin handles such a write in a phase. If not, the object need not be parsed for admission.
pub(crate) fn is_handled(state: &State, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
    state.admission.iter().any(|plugin| is_asked(*plugin, state, phase, action, attributes))
}

fn is_asked(
    plugin: &dyn Plugin,
    state: &State,
    phase: Phase,
    action: Action,
    attributes: &ResourceAttributes<'_>,
) -> bool {
    plugin.handles(phase, action, attributes) && plugin.has_registered(state, action, attributes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authn;
    use crate::access::authz::Authorization;
    use crate::background::definitions;
    use jiff::Timestamp;
    use std::sync::Arc;
    use steersman_kinds::runtime_config::RuntimeConfig;
    use steersman_storage::{Memory, Options, Store};

    #[tokio::test]
    async fn plugins_are_asked_in_order_and_only_about_what_concerns_them() {
        let store = Store::open(Arc::new(Memory::new()), Options::default()).await.unwrap();
        let catalog = definitions::configured(&RuntimeConfig::default());
        let (authentication, authorization) = (authn::Options::default(), Authorization::default());
        let plugins = Plugins::default().asked();
        let state = State::new(store, authentication, authorization, plugins, catalog, || Timestamp::UNIX_EPOCH);
        // No webhook and no policy is registered, so their plugins are not called.
        let handled = |phase: Phase, action: Action, attributes: &ResourceAttributes<'_>| -> Vec<String> {
            let asked = state.admission.iter().filter(|plugin| is_asked(**plugin, &state, phase, action, attributes));
            asked.map(|plugin| format!("{plugin:?}")).collect()
        };
        let pods = ResourceAttributes { resource: "pods", namespace: Some("a"), ..ResourceAttributes::default() };
        let all = [
            "NamespaceLifecycle",
            "AppArmor",
            "LimitRanger",
            "Priority",
            "DefaultTolerationSeconds",
            "RuntimeClass",
            "TopologyLabels",
        ];
        assert_eq!(handled(Phase::Mutate, Action::Create, &pods), all);
        assert_eq!(handled(Phase::Mutate, Action::Update, &pods), all[3..5]);
        let evictions = ResourceAttributes { subresource: Some("eviction"), ..pods };
        assert_eq!(handled(Phase::Mutate, Action::Create, &evictions), all[..1]);
        let of =
            |name| ResourceAttributes { resource: "namespaces", name: Some(name), ..ResourceAttributes::default() };
        assert_eq!(handled(Phase::Mutate, Action::Delete, &of("default")), all[..1]);
        assert!(handled(Phase::Mutate, Action::Delete, &of("a")).is_empty());
        assert!(handled(Phase::Validate, Action::Delete, &of("a")).is_empty());
    }
}
