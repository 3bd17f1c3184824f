//! The second round of mutation: when a policy or a webhook has changed an object, all plugins mutate it once more, and
//! so do the policies and webhooks whose reinvocation policy asks for it.
//!
//! Follows apiserver's `admission/reinvocation.go` and the `reinvocationcontext.go` of its plugins.

use std::collections::BTreeSet;
use steersman_machinery::Value;

/// The state of the rounds of one mutation.
#[derive(Debug, Default)]
pub(crate) struct Reinvocation {
    /// Whether a policy or a webhook has changed the object, so that a second round follows.
    is_wanted: bool,
    is_second: bool,
    pub(crate) policies: Invoked,
    pub(crate) webhooks: Invoked,
}

/// The invocations of one plugin.
#[derive(Debug, Default)]
pub(crate) struct Invoked {
    /// The policies or webhooks to invoke again if the object changes.
    previously: BTreeSet<String>,
    /// The policies or webhooks to invoke in the second round.
    again: BTreeSet<String>,
    /// The object after the plugin's first round.
    output: Option<Value>,
}

impl Reinvocation {
    /// Requests a second round, because the object has changed.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    pub(crate) fn is_second(&self) -> bool {
        self.is_second
    }

    /// Begins the second round, if one is requested and this was the first.
    pub(crate) fn begin_second(&mut self) -> bool {
        let begins = self.is_wanted && !self.is_second;
        self.is_second |= begins;
        begins
    }
}

impl Invoked {
    /// Records a policy or webhook that is invoked again if the object changes later.
    pub(crate) fn add(&mut self, key: String) {
        self.previously.insert(key);
    }

    /// Requires that everything recorded so far is invoked again, because the object has changed.
    pub(crate) fn require(&mut self) {
        self.again.append(&mut self.previously);
    }

    /// Whether the policy or webhook is invoked in the second round.
    pub(crate) fn is_required(&self, key: &str) -> bool {
        self.again.contains(key)
    }

    /// Called at the start of the second round: if other plugins have changed the object, everything recorded is
    /// invoked again.
    pub(crate) fn compare(&mut self, object: &Value) {
        if self.output.as_ref().is_none_or(|output| output != object) {
            self.require();
        }
    }

    /// Called at the end of a round: stores the object for [`Invoked::compare`], if anything may have to be invoked
    /// again.
    pub(crate) fn keep(&mut self, object: &Value) {
        self.output = (!self.previously.is_empty()).then(|| object.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn there_is_one_second_round_if_something_changed() {
        let mut rounds = Reinvocation::default();
        assert!(!rounds.begin_second());
        rounds.want();
        assert!(rounds.begin_second() && rounds.is_second());
        rounds.want();
        assert!(!rounds.begin_second());
    }

    #[test]
    fn what_came_before_a_change_is_invoked_again() {
        let mut invoked = Invoked::default();
        invoked.add("a".to_owned());
        invoked.require();
        invoked.add("b".to_owned());
        assert!(invoked.is_required("a") && !invoked.is_required("b"));
        invoked.keep(&json!(1));
        invoked.compare(&json!(1));
        assert!(!invoked.is_required("b"));
        invoked.compare(&json!(2));
        assert!(invoked.is_required("b"));
    }
}
