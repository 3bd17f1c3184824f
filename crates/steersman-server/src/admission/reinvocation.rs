//! The second round of mutation: when a policy or a webhook has changed an object, all plugins mutate it once more, and of the
//! policies and webhooks those that want to see what came after them.
//!
//! Follows apiserver's `admission/reinvocation.go` and the `reinvocationcontext.go` of its plugins.

use std::collections::BTreeSet;
use steersman_machinery::Value;

/// What is known of the rounds of one mutation.
#[derive(Debug, Default)]
pub(crate) struct Reinvocation {
    /// Something has changed the object, so there is to be a second round.
    is_wanted: bool,
    is_second: bool,
    pub(crate) policies: Invoked,
    pub(crate) webhooks: Invoked,
}

/// What one plugin has invoked.
#[derive(Debug, Default)]
pub(crate) struct Invoked {
    /// What wants to be invoked again if the object changes.
    previously: BTreeSet<String>,
    /// What is to be invoked in the second round.
    again: BTreeSet<String>,
    /// The object as the plugin left it in the first round.
    output: Option<Value>,
}

impl Reinvocation {
    /// The object has changed: asks for a second round.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    pub(crate) fn is_second(&self) -> bool {
        self.is_second
    }

    /// Begins the second round, if there is to be one and this was the first.
    pub(super) fn begin_second(&mut self) -> bool {
        let begins = self.is_wanted && !self.is_second;
        self.is_second |= begins;
        begins
    }
}

impl Invoked {
    /// Notes what wants to be invoked again if the object changes after it.
    pub(crate) fn add(&mut self, key: String) {
        self.previously.insert(key);
    }

    /// The object has changed: what was noted so far is to be invoked again.
    pub(crate) fn require(&mut self) {
        self.again.append(&mut self.previously);
    }

    /// Whether something is to be invoked in the second round.
    pub(crate) fn is_required(&self, key: &str) -> bool {
        self.again.contains(key)
    }

    /// At the begin of the second round: if other plugins have changed the object, all that was noted is to be invoked again.
    pub(crate) fn compare(&mut self, object: &Value) {
        if self.output.as_ref().is_none_or(|output| output != object) {
            self.require();
        }
    }

    /// At the end of a round: what other plugins may change. Kept only if something may have to be invoked again.
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
