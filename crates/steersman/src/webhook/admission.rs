//! The request to admit a write, and the functions that decide on it.
//!
//! [`MutateFn`] and [`ValidateFn`] are the public, generic shapes; the server calls a [`Function`].

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::{GroupVersionKind, GroupVersionResource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::webhook::denial::Denial;
use crate::webhook::patch::{self, Change};

/// The operation that a client asks the API server for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// A connection to an object: `exec`, a proxy, a port. Its options are the object to admit.
    Connect,
    /// A new object.
    Create,
    /// The deletion of an object. The API server asks before it sets a deletion timestamp.
    Delete,
    /// A change of an object, including by patch and apply.
    Update,
}

/// A write, for a validating function.
#[derive(Debug)]
pub enum Write<'a, K> {
    /// A connection with these options.
    Connect(&'a K),
    /// The creation of this object.
    Create(&'a K),
    /// The deletion of this object.
    Delete(&'a K),
    /// The change of the first object to the second.
    Update(&'a K, &'a K),
}

/// A request for admission, with objects of type `K`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Admission<K> {
    /// Identifies this call. A webhook that is called twice for one write gets two of them.
    pub uid: String,
    /// The operation that the client asks for.
    pub operation: Operation,
    /// The new object. `None` when it is deleted, and in a mutating function, which gets it as its first argument.
    pub object: Option<K>,
    /// The existing object: when it is updated or deleted.
    pub old: Option<K>,
    /// The name; empty where the API server has yet to make one from `generateName`.
    pub name: String,
    /// The namespace, for a namespaced object.
    pub namespace: Option<String>,
    /// The kind of `object` and `old`.
    pub kind: GroupVersionKind,
    /// The resource under which the object is served, in the version of `kind`.
    pub resource: GroupVersionResource,
    /// The subresource, for instance `status`.
    pub subresource: Option<String>,
    /// The kind that the client sent. Differs from `kind` where the API server converted the object for the webhook.
    pub requested_kind: Option<GroupVersionKind>,
    /// The user who sent the request.
    pub user: UserInfo,
    /// Nothing will be stored: a function must not have effects elsewhere.
    pub dry_run: bool,
    /// The options of the request: `CreateOptions`, `UpdateOptions`, `DeleteOptions` and so on.
    pub options: Option<Value>,
    notes: Mutex<Notes>,
}

/// Warnings and audit annotations of a function, beside its verdict.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    pub(crate) warnings: Vec<String>,
    pub(crate) audit_annotations: BTreeMap<String, String>,
}

/// A request with objects that are not decoded yet.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) uid: String,
    pub(crate) kind: GroupVersionKind,
    resource: GroupVersionResource,
    sub_resource: Option<String>,
    request_kind: Option<GroupVersionKind>,
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    operation: Operation,
    #[serde(default)]
    user_info: UserInfo,
    object: Option<Box<RawValue>>,
    old_object: Option<Box<RawValue>>,
    dry_run: Option<bool>,
    options: Option<Value>,
}

/// The answer of a function.
pub(crate) struct Verdict {
    /// The changes of a function that admits, or its denial.
    pub(crate) changes: Result<Vec<Change>, Denial>,
    pub(crate) notes: Notes,
}

/// A function of any type.
pub(crate) trait Function: Send + Sync {
    fn call(&self, request: Request) -> BoxFuture<'_, Verdict>;
}

/// An asynchronous function that changes an object. Implemented for every
/// `async fn change(object: K, request: &Admission<K>, cx: &Context) -> Result<K, Denial>`; never implement it by hand.
pub trait MutateFn<'a, K, C>: Send + Sync {
    /// Calls the function.
    fn call(&self, object: K, request: &'a Admission<K>, context: &'a C) -> BoxFuture<'a, Result<K, Denial>>;
}

/// An asynchronous function that judges a write. Implemented for every
/// `async fn check(request: &Admission<K>, cx: &Context) -> Result<(), Denial>`; never implement it by hand.
pub trait ValidateFn<'a, K, C>: Send + Sync {
    /// Calls the function.
    fn call(&self, request: &'a Admission<K>, context: &'a C) -> BoxFuture<'a, Result<(), Denial>>;
}

/// A type whose objects can be admitted: any that can be decoded, `serde_json::Value` and `kube::core::DynamicObject`
/// included.
///
/// Implemented for every such type; never implement it by hand.
pub trait Admissible: DeserializeOwned + Send + Sync + 'static {}

impl<K: DeserializeOwned + Send + Sync + 'static> Admissible for K {}

pub(crate) struct Mutating<K, C, F> {
    function: F,
    context: C,
    kind: PhantomData<fn(K)>,
}

pub(crate) struct Validating<K, C, F> {
    function: F,
    context: C,
    kind: PhantomData<fn(K)>,
}

/// A closure for a kind whose rules need only the object.
pub(crate) struct Defaulting<K, F> {
    pub(crate) function: F,
    pub(crate) kind: PhantomData<fn(K)>,
}

pub(crate) struct Checking<K, F> {
    pub(crate) function: F,
    pub(crate) kind: PhantomData<fn(K)>,
}

// === impl Admission ===

impl<K> Admission<K> {
    /// Adds a warning for the client: kubectl prints it, whether the write is admitted or not. Keep it short: the API
    /// server cuts off a warning after 256 characters, and drops warnings of all webhooks beyond 4 KB.
    pub fn warn(&self, text: impl Into<String>) {
        self.notes.lock().warnings.push(text.into());
    }

    /// Adds an annotation to the request's event in the audit log, under the name of the webhook.
    pub fn audit(&self, key: impl Into<String>, value: impl Into<String>) {
        self.notes.lock().audit_annotations.insert(key.into(), value.into());
    }

    /// The write; `None` in a mutating function.
    pub fn write(&self) -> Option<Write<'_, K>> {
        match (self.operation, &self.old, &self.object) {
            (Operation::Connect, _, Some(options)) => Some(Write::Connect(options)),
            (Operation::Create, _, Some(object)) => Some(Write::Create(object)),
            (Operation::Delete, Some(old), _) => Some(Write::Delete(old)),
            (Operation::Update, Some(old), Some(object)) => Some(Write::Update(old, object)),
            _ => None,
        }
    }
}

impl<K> Write<'_, K> {
    /// The new object; `None` when it is deleted.
    pub fn object(&self) -> Option<&K> {
        match self {
            Self::Connect(object) | Self::Create(object) | Self::Update(_, object) => Some(object),
            Self::Delete(_) => None,
        }
    }

    /// The existing object.
    pub fn old(&self) -> Option<&K> {
        match self {
            Self::Delete(old) | Self::Update(old, _) => Some(old),
            Self::Connect(_) | Self::Create(_) => None,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "CONNECT",
            Self::Create => "CREATE",
            Self::Delete => "DELETE",
            Self::Update => "UPDATE",
        })
    }
}

// === impl Request ===

impl Request {
    fn decode<K: DeserializeOwned>(&self, raw: Option<&RawValue>, which: &str) -> Result<Option<K>, Denial> {
        let decoded = raw.map(|raw| serde_json::from_str(raw.get())).transpose();
        decoded.map_err(|error| self.undecodable(which, &error))
    }

    fn undecodable(&self, which: &str, error: &serde_json::Error) -> Denial {
        let message = format!("{which} {} {:?} cannot be read: {error}", self.kind.kind, self.name);
        Denial::new(400, "BadRequest", message)
    }

    fn into_admission<K>(self, object: Option<K>, old: Option<K>) -> Admission<K> {
        Admission {
            uid: self.uid,
            operation: self.operation,
            object,
            old,
            name: self.name,
            namespace: self.namespace,
            kind: self.kind,
            resource: self.resource,
            subresource: self.sub_resource,
            requested_kind: self.request_kind,
            user: self.user_info,
            dry_run: self.dry_run.unwrap_or(false),
            options: self.options,
            notes: Mutex::default(),
        }
    }
}

// === impl Verdict ===

impl Verdict {
    fn quiet(changes: Result<Vec<Change>, Denial>) -> Self {
        Self { changes, notes: Notes::default() }
    }

    fn new<K>(changes: Result<Vec<Change>, Denial>, admission: Admission<K>) -> Self {
        Self { changes, notes: admission.notes.into_inner() }
    }
}

// === functions ===

impl<'a, K, C, F, Fut> MutateFn<'a, K, C> for F
where
    K: 'a,
    C: 'a,
    F: Fn(K, &'a Admission<K>, &'a C) -> Fut + Send + Sync,
    Fut: Future<Output = Result<K, Denial>> + Send + 'a,
{
    fn call(&self, object: K, request: &'a Admission<K>, context: &'a C) -> BoxFuture<'a, Result<K, Denial>> {
        Box::pin(self(object, request, context))
    }
}

impl<'a, K, C, F, Fut> ValidateFn<'a, K, C> for F
where
    K: 'a,
    C: 'a,
    F: Fn(&'a Admission<K>, &'a C) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(), Denial>> + Send + 'a,
{
    fn call(&self, request: &'a Admission<K>, context: &'a C) -> BoxFuture<'a, Result<(), Denial>> {
        Box::pin(self(request, context))
    }
}

impl<K, C, F> Mutating<K, C, F> {
    pub(crate) fn new(function: F, context: C) -> Self {
        Self { function, context, kind: PhantomData }
    }
}

impl<K, C, F> Validating<K, C, F> {
    pub(crate) fn new(function: F, context: C) -> Self {
        Self { function, context, kind: PhantomData }
    }
}

/// An object in a mutating function: as sent, and as the type encodes it again.
struct Sent {
    sent: Value,
    before: Value,
}

impl Sent {
    /// Decodes the object. `None` where there is nothing to change: a deletion and a connection cannot be changed by a
    /// patch.
    fn read<K: Admissible + Serialize>(request: &Request) -> Result<Option<(Self, K)>, Denial> {
        let is_write = matches!(request.operation, Operation::Create | Operation::Update);
        let Some(raw) = request.object.as_deref().filter(|_| is_write) else { return Ok(None) };
        let undecodable = |error| request.undecodable("the", &error);
        let sent: Value = serde_json::from_str(raw.get()).map_err(undecodable)?;
        let object = K::deserialize(&sent).map_err(undecodable)?;
        let before = serde_json::to_value(&object).map_err(undecodable)?;
        Ok(Some((Self { sent, before }, object)))
    }

    fn changes<K: Serialize>(self, object: &K) -> Result<Vec<Change>, Denial> {
        let after = serde_json::to_value(object)?;
        if after == self.before {
            return Ok(Vec::new());
        }
        let new = patch::carry(self.sent.clone(), &self.before, after);
        Ok(patch::diff(&self.sent, &new))
    }
}

impl<K, C, F> Function for Mutating<K, C, F>
where
    K: Admissible + Serialize,
    C: Send + Sync + 'static,
    F: for<'a> MutateFn<'a, K, C>,
{
    fn call(&self, request: Request) -> BoxFuture<'_, Verdict> {
        async move {
            let read = Sent::read::<K>(&request).and_then(|sent| {
                let old = request.decode(request.old_object.as_deref(), "the stored")?;
                Ok(sent.map(|sent| (sent, old)))
            });
            let ((sent, object), old) = match read {
                Ok(Some(read)) => read,
                Ok(None) => return Verdict::quiet(Ok(Vec::new())),
                Err(denial) => return Verdict::quiet(Err(denial)),
            };
            let admission = request.into_admission(None, old);
            let changed = self.function.call(object, &admission, &self.context).await;
            Verdict::new(changed.and_then(|object| sent.changes(&object)), admission)
        }
        .boxed()
    }
}

impl<K, C, F> Function for Validating<K, C, F>
where
    K: Admissible,
    C: Send + Sync + 'static,
    F: for<'a> ValidateFn<'a, K, C>,
{
    fn call(&self, request: Request) -> BoxFuture<'_, Verdict> {
        async move {
            let admission = match admission::<K>(request) {
                Ok(admission) => admission,
                Err(denial) => return Verdict::quiet(Err(denial)),
            };
            let judged = self.function.call(&admission, &self.context).await;
            Verdict::new(judged.map(|()| Vec::new()), admission)
        }
        .boxed()
    }
}

impl<K, F> Function for Defaulting<K, F>
where
    K: Admissible + Serialize,
    F: Fn(&mut K) + Send + Sync,
{
    fn call(&self, request: Request) -> BoxFuture<'_, Verdict> {
        async move {
            Verdict::quiet(Sent::read::<K>(&request).and_then(|sent| match sent {
                None => Ok(Vec::new()),
                Some((sent, mut object)) => {
                    (self.function)(&mut object);
                    sent.changes(&object)
                }
            }))
        }
        .boxed()
    }
}

impl<K, F> Function for Checking<K, F>
where
    K: Admissible,
    F: Fn(Write<'_, K>) -> Result<(), Denial> + Send + Sync,
{
    fn call(&self, request: Request) -> BoxFuture<'_, Verdict> {
        async move {
            let judged = admission::<K>(request).and_then(|admission| match admission.write() {
                None => Ok(()),
                Some(write) => (self.function)(write),
            });
            Verdict::quiet(judged.map(|()| Vec::new()))
        }
        .boxed()
    }
}

fn admission<K: Admissible>(request: Request) -> Result<Admission<K>, Denial> {
    let object = request.decode(request.object.as_deref(), "the")?;
    let old = request.decode(request.old_object.as_deref(), "the stored")?;
    Ok(request.into_admission(object, old))
}
