//! Authorization checks in expressions: `authorizer.group('apps').resource('deployments').check('create').allowed()`.
//!
//! The caller of an evaluation passes an [`Authorizer`]; an expression builds the check and reads the decision.

use std::sync::Arc;

/// Decides authorization checks.
pub trait Authorizer: Send + Sync {
    /// Whether the user of the request is allowed, or the service account that the check names.
    fn decide(&self, question: &Question<'_>) -> Decision;
}

/// An authorization check.
#[derive(Clone, Debug)]
pub struct Question<'q> {
    /// The service account that is checked instead of the user of the request.
    pub service_account: Option<&'q ServiceAccount>,
    pub verb: &'q str,
    pub target: Target<'q>,
}

/// The object of the checked action.
#[derive(Clone, Debug)]
pub enum Target<'q> {
    Path(&'q str),
    Resource(&'q Resource),
}

/// A resource, as far as an expression specifies it. Unspecified fields are empty.
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

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceAccount {
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

/// The authorizer, and the service account that is checked, if any.
#[derive(Clone)]
pub struct Caller<'a> {
    pub(crate) authorizer: &'a dyn Authorizer,
    pub(crate) service_account: Option<Arc<ServiceAccount>>,
}

/// A check of a path, before its verb.
pub struct PathCheck<'a> {
    pub(crate) caller: Caller<'a>,
    pub(crate) path: String,
}

/// A check of an API group, before its resource.
pub struct GroupCheck<'a> {
    pub(crate) caller: Caller<'a>,
    pub(crate) group: String,
}

/// A check of a resource, before its verb.
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
