//! `MutatingAdmissionPolicy`: changes new objects with the CEL expressions of policies.
//!
//! The mutations of a policy are applied one after the other, each to the result of the previous one. A change of the
//! object makes all policies and webhooks that ask for reinvocation run once more in a second round. Follows
//! apiserver's `admission/plugin/policy/mutating`.

use crate::metrics::policies::{Figures, Outcome};
use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::admitted_write::{AdmittedWrite, Objects};
use crate::write::admission::dynamic::condition::{Inputs, Matched};
use crate::write::admission::dynamic::matching;
use crate::write::admission::dynamic::policy::definition::{Binding, Policy};
use crate::write::admission::dynamic::policy::dispatch::{self, Dispatch, Invocation, Step};
use crate::write::admission::dynamic::policy::mutating::{Mutating, Mutation};
use crate::write::admission::dynamic::policy::patch::{self, Patched};
use crate::write::admission::dynamic::questions::Questions;
use crate::write::admission::dynamic::reinvocation::Reinvocation;
use crate::write::admission::plugin::{self, Action, Phase, Review};
use futures::future::BoxFuture;
use steersman_kinds::catalog::Served;
use steersman_machinery::Value;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct MutatingAdmissionPolicy;

/// Why a policy could not be applied.
#[derive(Debug)]
struct Refusal {
    message: String,
    reason: &'static str,
}

/// The state of applying policies to one object.
struct PolicyApplication<'w> {
    write: &'w AdmittedWrite<'w>,
    questions: &'w Questions<'w>,
    state: &'w State,
    /// The current object, in the requested form.
    object: Value,
    rounds: &'w mut Reinvocation,
    refusals: Vec<Refusal>,
}

impl plugin::Plugin for MutatingAdmissionPolicy {
    fn unfinished(&self) -> plugin::Unfinished {
        plugin::Unfinished::Update
    }

    fn handles(&self, phase: Phase, action: Action, _attributes: &ResourceAttributes<'_>) -> bool {
        phase == Phase::Mutate && action != Action::Delete
    }

    fn has_registered(&self, state: &State, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        state.policies.mutating().may_concern(action, attributes) && !matching::is_exempt_from_policies(attributes)
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let Some(new) = new else { return Ok(()) };
            // No policy may keep the server from starting, or from renewing its lease.
            if review.operation.is_of_system() {
                return Ok(());
            }
            // Restored below; a failure ends the mutation.
            let mut rounds = std::mem::take(&mut review.reinvocation);
            let changed = apply(review, new, &mut rounds).await?;
            review.reinvocation = rounds;
            if let Some(object) = changed {
                *new = object;
            }
            Ok(())
        })
    }
}

/// Applies every policy that matches the write. Returns the object, if it has changed.
async fn apply(review: &Review<'_, '_>, new: &Value, rounds: &mut Reinvocation) -> Result<Option<Value>, Failure> {
    let state = review.state;
    let index = state.policies.mutating().index();
    let write = review.admitted_write(Phase::Mutate, Some(new)).await?;
    let dispatch = dispatch::find(state, &index, &write).await?;
    review.operation.load.expect_work(dispatch.n_evaluations().saturating_mul(dispatch::EVALUATION_BYTES)).await;
    let Dispatch { steps, targets } = dispatch;
    if steps.is_empty() {
        return Ok(None);
    }
    if rounds.is_second() {
        rounds.policies.compare(new);
    }
    let questions = Questions::new(&*state.authorizer, review.operation.user);
    let mut work = PolicyApplication {
        write: &write,
        questions: &questions,
        state,
        object: new.clone(),
        rounds,
        refusals: Vec::new(),
    };
    for step in &steps {
        match step {
            Step::Invoke(invocation) => {
                for (position, params) in invocation.params.iter().enumerate() {
                    review.operation.check_time()?;
                    tokio::task::coop::consume_budget().await;
                    work.invoke(invocation, &targets[invocation.target], params, position).await?;
                }
            }
            Step::Misconfigured { policy, binding, why } => {
                let what = if binding.is_some() { "binding" } else { "policy" };
                work.refuse(policy, *binding, &format!("failed to configure {what}: {why}"), "Forbidden");
            }
        }
    }
    work.rounds.policies.keep(&work.object);
    let PolicyApplication { object, refusals, .. } = work;
    if !refusals.is_empty() {
        let name = plugin::refused_name(review, Some(new));
        let reason = refusals[0].reason;
        let messages = refusals.into_iter().map(|refusal| refusal.message).collect();
        return Err(Failure::not_mutated(&review.operation.group_resource(), name, reason, messages));
    }
    Ok((object != *new).then_some(object))
}

impl PolicyApplication<'_> {
    /// Applies the mutations of a policy with one parameter.
    async fn invoke(
        &mut self,
        invocation: &Invocation<'_, Mutating>,
        target: &Served,
        params: &Value,
        position: usize,
    ) -> Result<(), Failure> {
        let (policy, binding) = (invocation.policy, invocation.binding);
        let key = format!("{}/{}/{position}", policy.definition().name, binding.name);
        if self.rounds.is_second() && !self.rounds.policies.is_required(&key) {
            return Ok(());
        }
        let began = Instant::now();
        let before = self.object.clone();
        let n_before = self.refusals.len();
        let has_failed = self.mutate(policy, binding, target, params).await?;
        let action = if self.refusals.len() == n_before { "allow" } else { "deny" };
        let outcome = if has_failed { Outcome::Error } else { Outcome::Judged };
        let figures = Figures { policy: &policy.definition().name, binding: &binding.name, action, outcome };
        self.state.metrics.policies.mutated(&figures, began.elapsed());
        if self.object != before {
            self.rounds.policies.require();
            self.rounds.want();
        }
        if policy.is_reinvoked {
            self.rounds.policies.add(key);
        }
        Ok(())
    }

    /// Applies the mutations. Returns whether one has failed; a failure does not prevent the later ones.
    async fn mutate(
        &mut self,
        policy: &Mutating,
        binding: &Binding,
        target: &Served,
        params: &Value,
    ) -> Result<bool, Failure> {
        match self.conditions(policy, target, params).await {
            Matched::Yes => {}
            Matched::No => return Ok(false),
            Matched::Failed(why) => {
                self.refuse(policy, Some(binding), &why, "Invalid");
                return Ok(true);
            }
        }
        let mut has_failed = false;
        for mutation in &policy.mutations {
            match self.patched(policy, mutation, target, params).await {
                Ok(Patched::Same) => {}
                Ok(Patched::Changed(patched)) => {
                    self.object = self.write.returned(&self.object, target, patched).await?;
                }
                Err(patch::Error::Budget(error)) => return Err(Failure::of_budget(&error)),
                Err(patch::Error::Unfit(why)) => {
                    has_failed = true;
                    self.refuse(policy, Some(binding), &why, "Invalid");
                }
            }
        }
        Ok(has_failed)
    }

    /// Evaluates the conditions of a policy on the current object.
    async fn conditions(&self, policy: &Mutating, target: &Served, params: &Value) -> Matched {
        let definition = policy.definition();
        if definition.conditions.is_empty() {
            return Matched::Yes;
        }
        let objects = match self.objects(target).await {
            Ok(objects) => objects,
            Err(why) => return Matched::Failed(why),
        };
        match Inputs::new(self.write, target, &objects, self.questions) {
            Ok(inputs) => definition.conditions.judge(&inputs, params, definition.names).await,
            Err(failure) => Matched::Failed(dispatch::message(&failure)),
        }
    }

    /// Applies a mutation to the current object, in the version that the policy expects.
    async fn patched(
        &self,
        policy: &Mutating,
        mutation: &Mutation,
        target: &Served,
        params: &Value,
    ) -> Result<Patched, patch::Error> {
        let objects = self.objects(target).await.map_err(patch::Error::Unfit)?;
        let inputs = Inputs::new(self.write, target, &objects, self.questions);
        let inputs = inputs.map_err(|failure| patch::Error::Unfit(dispatch::message(&failure)))?;
        let patch = inputs.until_answered(|| policy.evaluate(mutation, &inputs, params)).await?;
        patch.apply(self.write, target, objects.new.as_deref().unwrap_or(&Value::Null))
    }

    /// The current objects, in the version that a policy expects.
    async fn objects(&self, target: &Served) -> Result<Objects<'_>, String> {
        let failed = |failure: Failure| format!("failed to convert object version: {}", dispatch::message(&failure));
        let new = self.write.other(&self.object, target).await.map_err(failed)?;
        let old = match self.write.old {
            Some(old) => Some(self.write.other(old, target).await.map_err(failed)?),
            None => None,
        };
        Ok(Objects { new: Some(new), old })
    }

    fn refuse(&mut self, policy: &Mutating, binding: Option<&Binding>, why: &str, reason: &'static str) {
        if policy.definition().ignores_failures {
            return;
        }
        let with = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
        let message = format!("policy '{}'{with} denied request: {why}", policy.definition().name);
        self.refusals.push(Refusal { message, reason });
    }
}
