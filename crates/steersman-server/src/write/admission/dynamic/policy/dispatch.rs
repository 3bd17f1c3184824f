//! Finds the policies and bindings that match a write, with their parameters and the versions in which they expect the
//! objects.
//!
//! Follows apiserver's `admission/plugin/policy/generic/policy_dispatcher.go`.

use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::admitted_write::AdmittedWrite;
use crate::write::admission::dynamic::matching::Index;
use crate::write::admission::dynamic::policy::definition::{Binding, Definition, Policy};
use crate::write::admission::dynamic::policy::params;
use crate::write::admission::dynamic::policy::registered::Bound;
use std::sync::Arc;
use steersman_kinds::catalog::Served;
use steersman_machinery::Value;
use steersman_machinery::budget;

/// The cost of evaluating a policy on a small object, as the number of bytes of objects that are read in the same time.
pub(in crate::write::admission) const EVALUATION_BYTES: usize = 1024;

/// The steps for a write, sorted by the policies' names and then by the bindings' names.
#[derive(Debug)]
pub(in crate::write::admission) struct Dispatch<'i, P> {
    pub(in crate::write::admission) steps: Vec<Step<'i, P>>,
    /// The versions in which objects are expected.
    pub(in crate::write::admission) targets: Vec<Served>,
}

#[derive(Debug)]
pub(in crate::write::admission) enum Step<'i, P> {
    Invoke(Invocation<'i, P>),
    /// The policy, or the binding if there is one, cannot be used.
    Misconfigured {
        policy: &'i P,
        binding: Option<&'i Binding>,
        why: String,
    },
}

/// The evaluations of a policy for a binding, one for each parameter.
#[derive(Debug)]
pub(in crate::write::admission) struct Invocation<'i, P> {
    pub(in crate::write::admission) policy: &'i P,
    pub(in crate::write::admission) binding: &'i Binding,
    pub(in crate::write::admission) params: Vec<Value>,
    /// The index of the expected version in the targets.
    pub(in crate::write::admission) target: usize,
}

/// Finds the policies and bindings that match a write.
///
/// # Errors
/// When the parameters of all of them together need more than the request may, or it was canceled.
pub(in crate::write::admission) async fn find<'i, P: Policy>(
    state: &State,
    index: &'i Index<Bound<P>>,
    write: &AdmittedWrite<'_>,
) -> Result<Dispatch<'i, P>, Failure> {
    let trees = write.operation.budget.renewed();
    let mut dispatch = Dispatch { steps: Vec::new(), targets: Vec::new() };
    for bound in index.find(write.action, &write.attributes) {
        let policy = &*bound.policy;
        let definition = policy.definition();
        let misconfigured = |binding, why| Step::Misconfigured { policy, binding, why };
        let target = match definition.criteria.find(write) {
            Ok(None) => continue,
            Ok(Some(target)) => target,
            Err(failure) => {
                dispatch.steps.push(misconfigured(None, message(&failure)));
                continue;
            }
        };
        let param_resource = definition.param_kind.as_ref().map(|kind| params::resource(state, kind)).transpose();
        let param_resource = match param_resource {
            Ok(found) => found,
            Err(why) => {
                dispatch.steps.push(misconfigured(None, why));
                continue;
            }
        };
        for binding in &bound.bindings {
            let binding = &**binding;
            match binding.criteria.find(write) {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                Err(failure) => {
                    dispatch.steps.push(misconfigured(Some(binding), message(&failure)));
                    continue;
                }
            }
            let found =
                params::collect(state, definition, param_resource.as_ref(), binding, write.operation, &trees).await;
            let step = match found {
                Ok(params) => {
                    let target = dispatch.target(&target);
                    Step::Invoke(Invocation { policy, binding, params, target })
                }
                Err(params::Error::Unusable(why)) => misconfigured(Some(binding), why),
                Err(params::Error::Budget(error)) => return Err(too_many(definition, binding, &error)),
            };
            dispatch.steps.push(step);
        }
    }
    Ok(dispatch)
}

/// The parameters of a binding need too much, or the request was canceled.
fn too_many(definition: &Definition, binding: &Binding, error: &budget::Error) -> Failure {
    let (binding, policy) = (&binding.name, &definition.name);
    let what = format!("the parameters that the binding {binding:?} selects for the policy {policy:?}");
    Failure::of_reading(&what, "let its paramRef select fewer or smaller ones", error)
}

impl<P> Dispatch<'_, P> {
    /// The number of evaluations.
    pub(in crate::write::admission) fn n_evaluations(&self) -> usize {
        let of_step = |step: &Step<'_, P>| match step {
            Step::Invoke(invocation) => invocation.params.len(),
            Step::Misconfigured { .. } => 0,
        };
        self.steps.iter().map(of_step).sum()
    }

    fn target(&mut self, wanted: &Served) -> usize {
        let is_same =
            |served: &Served| Arc::ptr_eq(&served.resource, &wanted.resource) && served.index() == wanted.index();
        self.targets.iter().position(is_same).unwrap_or_else(|| {
            self.targets.push(wanted.clone());
            self.targets.len() - 1
        })
    }
}

pub(in crate::write::admission) fn message(failure: &Failure) -> String {
    failure.status.message.clone()
}
