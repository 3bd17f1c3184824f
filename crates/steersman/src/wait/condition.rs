//! Conditions of a wait: functions of an object, or of its absence, and their combinations.

/// A condition on an object. Every `Fn(Option<&K>) -> bool` is one; `None` means that the object does not exist.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// use steersman::wait::{Condition, conditions};
///
/// let on_a_node = |pod: Option<&Pod>| pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_ref()).is_some();
/// let awaited = conditions::is_pod_running().and(on_a_node);
/// # assert!(!awaited.is_met(Some(&Pod::default())));
/// ```
pub trait Condition<K>: Send + Sync {
    /// Whether the object meets the condition. `None`: it does not exist.
    fn is_met(&self, object: Option<&K>) -> bool;

    /// The part of `object` that the condition is about, in few words, for the error of a wait that ended without it.
    fn describe(&self, _object: &K) -> Option<String> {
        None
    }

    /// Met when both conditions are.
    fn and<C: Condition<K>>(self, other: C) -> impl Condition<K>
    where
        Self: Sized,
    {
        And(self, other)
    }

    /// Met when either condition is.
    fn or<C: Condition<K>>(self, other: C) -> impl Condition<K>
    where
        Self: Sized,
    {
        Or(self, other)
    }

    /// Met when this condition is not.
    fn not(self) -> impl Condition<K>
    where
        Self: Sized,
    {
        Not(self)
    }

    /// The same condition with a function for [`Condition::describe`].
    fn described_by(self, describe: impl Fn(&K) -> String + Send + Sync) -> impl Condition<K>
    where
        Self: Sized,
    {
        Described(self, describe)
    }
}

struct And<A, B>(A, B);
struct Or<A, B>(A, B);
struct Not<A>(A);
struct Described<A, D>(A, D);

// === impl Condition ===

impl<K, F: Fn(Option<&K>) -> bool + Send + Sync> Condition<K> for F {
    fn is_met(&self, object: Option<&K>) -> bool {
        self(object)
    }
}

impl<K, A: Condition<K>, B: Condition<K>> Condition<K> for And<A, B> {
    fn is_met(&self, object: Option<&K>) -> bool {
        self.0.is_met(object) && self.1.is_met(object)
    }

    /// Describes a part that is not met yet.
    fn describe(&self, object: &K) -> Option<String> {
        let first = if self.0.is_met(Some(object)) { None } else { self.0.describe(object) };
        let second = if self.1.is_met(Some(object)) { None } else { self.1.describe(object) };
        both(first, second)
    }
}

impl<K, A: Condition<K>, B: Condition<K>> Condition<K> for Or<A, B> {
    fn is_met(&self, object: Option<&K>) -> bool {
        self.0.is_met(object) || self.1.is_met(object)
    }

    fn describe(&self, object: &K) -> Option<String> {
        both(self.0.describe(object), self.1.describe(object))
    }
}

impl<K, A: Condition<K>> Condition<K> for Not<A> {
    fn is_met(&self, object: Option<&K>) -> bool {
        !self.0.is_met(object)
    }

    fn describe(&self, object: &K) -> Option<String> {
        self.0.describe(object)
    }
}

impl<K, A: Condition<K>, D: Fn(&K) -> String + Send + Sync> Condition<K> for Described<A, D> {
    fn is_met(&self, object: Option<&K>) -> bool {
        self.0.is_met(object)
    }

    fn describe(&self, object: &K) -> Option<String> {
        Some((self.1)(object))
    }
}

fn both(first: Option<String>, second: Option<String>) -> Option<String> {
    match (first, second) {
        (Some(first), Some(second)) if first != second => Some(format!("{first}, {second}")),
        (first, second) => first.or(second),
    }
}
