//! Questions to the authorizer: `authorizer.group('apps').resource('deployments').check('create').allowed()`.
//!
//! Who evaluates such expressions passes an [`Authorizer`] in; an expression builds the question and reads the answer.

use std::sync::Arc;

/// Who says what a user may do.
pub trait Authorizer: Send + Sync {
    /// Whether the user of the request may do it, or the service account that the question names.
    fn decide(&self, question: &Question<'_>) -> Decision;
}

/// What an expression asks.
#[derive(Clone, Debug)]
pub struct Question<'q> {
    /// Instead of the user of the request.
    pub service_account: Option<&'q ServiceAccount>,
    pub verb: &'q str,
    pub target: Target<'q>,
}

/// What would be done something to.
#[derive(Clone, Debug)]
pub enum Target<'q> {
    Path(&'q str),
    Resource(&'q Resource),
}

/// A resource, as far as an expression has said. What it has not is empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Resource {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: Option<String>,
    pub label_selector: Option<String>,
}

/// A service account.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceAccount {
    pub namespace: String,
    pub name: String,
}

/// The answer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

/// The authorizer, and who is asked about.
#[derive(Clone)]
pub struct Caller<'a> {
    pub(crate) authorizer: &'a dyn Authorizer,
    pub(crate) service_account: Option<Arc<ServiceAccount>>,
}

/// A path that is asked about.
pub struct PathCheck<'a> {
    pub(crate) caller: Caller<'a>,
    pub(crate) path: String,
}

/// A group a resource of which is asked about.
pub struct GroupCheck<'a> {
    pub(crate) caller: Caller<'a>,
    pub(crate) group: String,
}

/// A resource that is asked about.
#[derive(Clone)]
pub struct ResourceCheck<'a> {
    pub(crate) caller: Caller<'a>,
    pub(crate) resource: Resource,
}

impl Caller<'_> {
    pub(crate) fn is_same(&self, other: &Caller<'_>) -> bool {
        std::ptr::addr_eq(self.authorizer, other.authorizer) && self.service_account == other.service_account
    }

    pub(crate) fn ask(&self, verb: &str, target: Target<'_>) -> Arc<Decision> {
        let question = Question { service_account: self.service_account.as_deref(), verb, target };
        Arc::new(self.authorizer.decide(&question))
    }
}
