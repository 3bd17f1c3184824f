//! Authorization checks in expressions.
//!
//! Expressions are evaluated without waiting, but an authorizer may have to wait. A check that it cannot decide at once
//! ends the evaluation; the check is then awaited, and the expression evaluated again with its decision.

use crate::access::authz::{self, Attributes, Authorizer, ResourceAttributes, Verdict};
use parking_lot::Mutex;
use std::fmt;
use steersman_cel as cel;
use steersman_cel::{Question, ServiceAccount, Target};
use steersman_kinds::user::User;
use steersman_machinery::selector::{Fields, Labels};

/// The maximum number of awaited checks for one write; further ones get an error as their decision.
const WAITING_MAX: usize = 64;

/// The authorizer for the expressions about one write.
pub(crate) struct Questions<'a> {
    authorizer: &'a dyn Authorizer,
    user: &'a User,
    waited: Mutex<Waited>,
}

#[derive(Default)]
struct Waited {
    answers: Vec<(Check, cel::Decision)>,
    /// The check that ended the evaluation.
    pending: Option<Check>,
}

/// A check, without borrowed data.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Check {
    service_account: Option<ServiceAccount>,
    verb: String,
    about: About,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum About {
    Path(String),
    Resource(cel::Resource),
}

impl<'a> Questions<'a> {
    /// Checks for a user.
    pub(crate) fn new(authorizer: &'a dyn Authorizer, user: &'a User) -> Questions<'a> {
        Questions { authorizer, user, waited: Mutex::default() }
    }

    /// Evaluates until no check is pending. `evaluate` must only depend on the decisions.
    pub(crate) async fn until_answered<T>(&self, mut evaluate: impl FnMut() -> T) -> T {
        loop {
            let value = evaluate();
            let Some(asked) = self.waited.lock().pending.take() else { return value };
            let user = asked.user();
            let user = user.as_ref().unwrap_or(self.user);
            let selectors = asked.selectors();
            let verdict = authz::verdict(self.authorizer, user, &asked.attributes(&selectors)).await;
            self.waited.lock().answers.push((asked, decision(&verdict)));
        }
    }
}

impl fmt::Debug for Questions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Questions").finish_non_exhaustive()
    }
}

impl cel::Authorizer for Questions<'_> {
    fn decide(&self, question: &Question<'_>) -> cel::Decision {
        let asked = Check::new(question);
        let mut waited = self.waited.lock();
        if let Some((_, decision)) = waited.answers.iter().find(|(known, _)| *known == asked) {
            return decision.clone();
        }
        let user = asked.user();
        let selectors = asked.selectors();
        let user = user.as_ref().unwrap_or(self.user);
        match self.authorizer.authorize_now(user, &asked.attributes(&selectors)) {
            Some(verdict) => decision(&verdict),
            None if waited.answers.len() >= WAITING_MAX => {
                let error = format!("the authorizer was asked more than {WAITING_MAX} times for one request");
                cel::Decision { error: Some(error), ..cel::Decision::default() }
            }
            None => {
                waited.pending.get_or_insert(asked);
                // This decision is never used: the evaluation is repeated.
                cel::Decision::default()
            }
        }
    }
}

fn decision(verdict: &Verdict) -> cel::Decision {
    cel::Decision { allowed: verdict.is_allowed(), reason: verdict.reason.to_string(), error: verdict.error.clone() }
}

impl Check {
    fn new(question: &Question<'_>) -> Check {
        Check {
            service_account: question.service_account.cloned(),
            verb: question.verb.to_owned(),
            about: match question.target {
                Target::Path(path) => About::Path(path.to_owned()),
                Target::Resource(resource) => About::Resource(resource.clone()),
            },
        }
    }

    /// The service account that is checked.
    fn user(&self) -> Option<User> {
        let ServiceAccount { namespace, name } = self.service_account.as_ref()?;
        let groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        Some(User { name: format!("system:serviceaccount:{namespace}:{name}"), groups, ..User::default() })
    }

    /// The selectors of the check. An invalid selector counts as absent.
    fn selectors(&self) -> (Option<Fields>, Option<Labels>) {
        let About::Resource(resource) = &self.about else { return (None, None) };
        let fields = resource.field_selector.as_deref().and_then(|text| Fields::parse(text).ok());
        let labels = resource.label_selector.as_deref().and_then(|text| Labels::parse(text).ok());
        (fields, labels)
    }

    fn attributes<'q>(&'q self, selectors: &'q (Option<Fields>, Option<Labels>)) -> Attributes<'q> {
        let given = |text: &'q String| (!text.is_empty()).then_some(text.as_str());
        match &self.about {
            About::Path(path) => Attributes::NonResource { verb: &self.verb, path },
            About::Resource(resource) => Attributes::Resource(ResourceAttributes {
                verb: &self.verb,
                group: &resource.group,
                version: "*",
                resource: &resource.resource,
                subresource: given(&resource.subresource),
                namespace: given(&resource.namespace),
                name: given(&resource.name),
                field_selector: selectors.0.as_ref(),
                label_selector: selectors.1.as_ref(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authz::Rules;
    use futures::future::{self, BoxFuture, FutureExt as _};
    use steersman_cel::{Activation, Environment, Meter, PER_CALL_LIMIT, Value};

    /// Decides after a wait: allows users whose name is the verb.
    #[derive(Debug)]
    struct Slow;

    impl Authorizer for Slow {
        fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
            let is_allowed = match attributes {
                Attributes::NonResource { verb, .. } => **verb == *user.name,
                Attributes::Resource(_) => false,
            };
            Box::pin(async move {
                tokio::task::yield_now().await;
                if is_allowed { Verdict::ALLOW } else { Verdict::NO_OPINION }
            })
        }

        fn rules_for<'a>(&'a self, _user: &'a User, _namespace: &'a str) -> BoxFuture<'a, Rules> {
            future::ready(Rules::default()).boxed()
        }
    }

    #[tokio::test]
    async fn an_authorizer_that_waits_is_asked_and_the_expression_is_evaluated_again() {
        let environment = Environment::new().with_authorizer();
        let text = "authorizer.path('/a').check('me').allowed() && !authorizer.path('/b').check('you').allowed()";
        let program = environment.compile(text).unwrap();
        let user = User { name: "me".to_owned(), ..User::default() };
        let questions = Questions::new(&Slow, &user);
        let mut rounds = 0;
        let found = questions
            .until_answered(|| {
                rounds += 1;
                let mut activation = Activation::new().with("authorizer", Value::authorizer(&questions));
                let value = program.evaluate(&mut activation, &mut Meter::new(PER_CALL_LIMIT));
                value.map(|value| value.as_bool())
            })
            .await;
        assert_eq!(found, Ok(Some(true)));
        assert_eq!(rounds, 3, "each question is asked once");
    }
}
