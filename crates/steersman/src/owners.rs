//! Owner references: who an object belongs to, so that it goes when its owner goes, and so that its changes run the
//! key of its controller ([`crate::Controller::owns`]).

use std::any::TypeId;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::Resource;

use crate::key::ObjectKey;

/// Why an object cannot be made the property of another.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OwnerError {
    /// It has a controller already, and there can be only one.
    #[error("{child:?} is controlled by {kind} {name:?} already")]
    AlreadyOwned {
        /// The object.
        child: ObjectKey,
        /// Kind of its controller.
        kind: String,
        /// Name of its controller.
        name: String,
    },
    /// An owner in a namespace can own only what is in that namespace; the garbage collector would delete the rest.
    #[error("{owner:?} cannot own {child:?}: a namespaced owner owns objects of its own namespace only")]
    OtherNamespace {
        /// The would-be owner.
        owner: ObjectKey,
        /// The object.
        child: ObjectKey,
    },
    /// The owner was not read from a server: it has no name or no uid.
    #[error("{owner:?} cannot own anything before it exists on the server (it has no uid)")]
    Unsaved {
        /// The would-be owner.
        owner: ObjectKey,
    },
}

/// Makes `owner` the controller of `child`, in memory. Returns whether that changed anything; write `child` then.
///
/// A reference to the same owner that is there already is brought up to date.
///
/// # Errors
/// [`OwnerError`]; `child` is as it was.
pub fn set_controller<O, C>(owner: &O, child: &mut C) -> Result<bool, OwnerError>
where
    O: Resource<DynamicType = ()> + 'static,
    C: Resource,
{
    let (owner_key, child_key) = (ObjectKey::of(owner), ObjectKey::of(child));
    let Some(reference) = owner.controller_owner_ref(&()) else {
        return Err(OwnerError::Unsaved { owner: owner_key });
    };
    if is_namespaced::<O>() && owner_key.namespace() != child_key.namespace() {
        return Err(OwnerError::OtherNamespace { owner: owner_key, child: child_key });
    }
    let owners = child.meta_mut().owner_references.get_or_insert_default();
    let other = owners.iter().find(|known| known.controller == Some(true) && known.uid != reference.uid);
    if let Some(other) = other {
        let (kind, name) = (other.kind.clone(), other.name.clone());
        return Err(OwnerError::AlreadyOwned { child: child_key, kind, name });
    }
    match owners.iter_mut().find(|known| known.uid == reference.uid) {
        Some(known) if *known == reference => Ok(false),
        Some(known) => {
            *known = reference;
            Ok(true)
        }
        None => {
            owners.push(reference);
            Ok(true)
        }
    }
}

/// The controller of `object`, if it has one.
pub fn controller_of<C: Resource>(object: &C) -> Option<&OwnerReference> {
    object.meta().owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The key of the `O` that controls `object`, if its controller is an `O`, in whatever version the reference says.
pub fn controller_key<O, C>(object: &C) -> Option<ObjectKey>
where
    O: Resource<DynamicType = ()> + 'static,
    C: Resource,
{
    let owner = controller_of(object)?;
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    if owner.kind != O::kind(&()) || group != O::group(&()) {
        return None;
    }
    // Whether the owner lives in the namespace of the object or in none, only its type knows.
    let namespace = if is_namespaced::<O>() { object.meta().namespace.as_deref() } else { None };
    Some(ObjectKey::namespaced(namespace.unwrap_or_default(), &owner.name))
}

/// Whether the type is not known to be cluster-scoped.
fn is_namespaced<K: Resource + 'static>() -> bool {
    TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};

    use super::*;

    fn object<K: Resource + Default>(namespace: Option<&str>, name: &str, uid: &str) -> K {
        let mut object = K::default();
        object.meta_mut().namespace = namespace.map(str::to_owned);
        object.meta_mut().name = Some(name.to_owned());
        object.meta_mut().uid = (!uid.is_empty()).then(|| uid.to_owned());
        object
    }

    #[test]
    fn a_child_has_one_controller_and_its_key_is_found() {
        let mut child: ConfigMap = object(Some("a"), "child", "");
        let (one, two) = (object::<Deployment>(Some("a"), "one", "1"), object::<Deployment>(Some("a"), "two", "2"));
        assert_eq!(controller_key::<Deployment, _>(&child), None);
        assert_eq!(set_controller(&one, &mut child), Ok(true));
        assert_eq!(set_controller(&one, &mut child), Ok(false));
        let error = set_controller(&two, &mut child).unwrap_err();
        assert_eq!(error.to_string(), r#""a/child" is controlled by Deployment "one" already"#);
        assert_eq!(controller_key::<Deployment, _>(&child), Some(ObjectKey::namespaced("a", "one")));
        assert_eq!(controller_key::<ConfigMap, _>(&child), None);
    }

    #[test]
    fn an_owner_must_exist_and_share_the_namespace_unless_it_has_none() {
        let mut child: ConfigMap = object(Some("a"), "child", "");
        let elsewhere: Deployment = object(Some("b"), "x", "1");
        assert!(matches!(set_controller(&elsewhere, &mut child), Err(OwnerError::OtherNamespace { .. })));
        let unsaved: Deployment = object(Some("a"), "x", "");
        assert!(matches!(set_controller(&unsaved, &mut child), Err(OwnerError::Unsaved { .. })));
        let cluster: Namespace = object(None, "a", "3");
        assert_eq!(set_controller(&cluster, &mut child), Ok(true));
        assert_eq!(controller_key::<Namespace, _>(&child), Some(ObjectKey::cluster("a")));
    }
}
