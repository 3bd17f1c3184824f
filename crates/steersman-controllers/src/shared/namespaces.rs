//! Which namespaces are being deleted, according to the cache: nothing can be created in them, so loops need not try.
//!
//! The cache may lag behind. If it does not show the deletion yet, the server refuses creations with that cause
//! ([`crate::shared::refusal::is_namespace_ending`]).

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use steersman::{InformerFactory, Lister, ObjectKey, Scope};

#[derive(Clone)]
pub(crate) struct Namespaces(Lister<Namespace>);

impl Namespaces {
    pub(crate) fn of(informers: &InformerFactory) -> Namespaces {
        Namespaces(informers.informer::<Namespace>(Scope::All).lister())
    }

    /// Whether the namespace that an object is in is being deleted.
    pub(crate) fn is_ending(&self, object: &ObjectMeta) -> bool {
        let name = object.namespace.as_deref().unwrap_or_default();
        let namespace = self.0.find(&ObjectKey::cluster(name)).ok().flatten();
        namespace.is_some_and(|namespace| is_ending(&namespace.metadata, object))
    }
}

/// An object that was created after the deletion began is in a new namespace of the same name, which the cache does not
/// show yet.
fn is_ending(namespace: &ObjectMeta, object: &ObjectMeta) -> bool {
    let deleted = namespace.deletion_timestamp.as_ref().map(|time| time.0);
    let created = object.creation_timestamp.as_ref().map(|time| time.0);
    deleted.zip(created).is_some_and(|(deleted, created)| created < deleted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[test]
    fn what_is_younger_than_the_deletion_of_a_namespace_is_in_the_next_one_of_the_name() {
        let at = |second: i64| jiff::Timestamp::from_second(second).ok().map(Time);
        let ends = |deleted: Option<i64>, created: i64| {
            let namespace = ObjectMeta { deletion_timestamp: deleted.and_then(at), ..ObjectMeta::default() };
            is_ending(&namespace, &ObjectMeta { creation_timestamp: at(created), ..ObjectMeta::default() })
        };
        assert!(ends(Some(5), 4));
        assert!(!ends(Some(5), 5) && !ends(Some(5), 6) && !ends(None, 4));
    }
}
