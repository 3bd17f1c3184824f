//! Owner references: they name the owners of an object, so that it is deleted with them, and so that its changes run
//! the key of its controller ([`crate::Controller::owns`]).

use std::any::TypeId;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::core::Resource;

use crate::control::reconcile::ReconcileError;
use crate::shared::key::ObjectKey;

/// Why an object cannot get an owner reference.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// The object has a controller already, and it can have only one.
    #[error("{child:?} is controlled by {kind} {name:?} already")]
    AlreadyOwned {
        /// The object.
        child: ObjectKey,
        /// Kind of its controller.
        kind: String,
        /// Name of its controller.
        name: String,
    },
    /// An owner in a namespace can own only objects in the same namespace; the garbage collector would delete others.
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

/// Not terminal: the other controller may release the object, and no event need tell this one.
impl ReconcileError for OwnerError {}

/// The owners of an object that count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OwnedBy {
    /// All owners.
    Any,
    /// Only the controller.
    Controller,
}

/// Makes `owner` the controller of `child`, in memory. Returns whether that changed anything; write `child` then.
///
/// `owner` is not removed in foreground deletion before `child` is (`blockOwnerDeletion`). An existing reference to an
/// owner of the same group, kind and name is updated: its version, and its uid if the owner was created again.
///
/// # Errors
/// [`OwnerError`]; `child` is unchanged.
pub fn set_controller<O, C>(owner: &O, child: &mut C) -> Result<bool, OwnerError>
where
    O: Resource,
    O::DynamicType: Default,
    C: Resource,
{
    set_controller_with(owner, &O::DynamicType::default(), child)
}

/// As [`set_controller`], for an owner whose type is known at run time, such as a `DynamicObject` with its `ApiResource`.
///
/// # Errors
/// As for [`set_controller`].
pub fn set_controller_with<O, C>(owner: &O, dynamic: &O::DynamicType, child: &mut C) -> Result<bool, OwnerError>
where
    O: Resource,
    C: Resource,
{
    let mut reference = checked(owner, dynamic, child)?;
    reference.controller = Some(true);
    reference.block_owner_deletion = Some(true);
    if let Some(other) = controller_of(child).filter(|known| !is_same(known, &reference)) {
        let (kind, name) = (other.kind.clone(), other.name.clone());
        return Err(OwnerError::AlreadyOwned { child: ObjectKey::of(child), kind, name });
    }
    Ok(put(child, reference))
}

/// Makes `owner` one of the owners of `child`, in memory, so that `child` is deleted with the last of them. Returns
/// whether that changed anything. An owner that is its controller stays so.
///
/// # Errors
/// [`OwnerError`], but never [`OwnerError::AlreadyOwned`]; `child` is unchanged.
pub fn set_owner<O, C>(owner: &O, child: &mut C) -> Result<bool, OwnerError>
where
    O: Resource,
    O::DynamicType: Default,
    C: Resource,
{
    set_owner_with(owner, &O::DynamicType::default(), child)
}

/// As [`set_owner`], for an owner whose type is known at run time, such as a `DynamicObject` with its `ApiResource`.
///
/// # Errors
/// As for [`set_owner`].
pub fn set_owner_with<O, C>(owner: &O, dynamic: &O::DynamicType, child: &mut C) -> Result<bool, OwnerError>
where
    O: Resource,
    C: Resource,
{
    let mut reference = checked(owner, dynamic, child)?;
    let known = child.meta().owner_references.iter().flatten().find(|known| is_same(known, &reference));
    reference.controller = known.and_then(|known| known.controller);
    reference.block_owner_deletion = known.and_then(|known| known.block_owner_deletion);
    Ok(put(child, reference))
}

/// Removes the reference to `owner` from `child`, controller or not, in memory. Returns whether that changed anything.
pub fn remove_owner<O, C>(owner: &O, child: &mut C) -> bool
where
    O: Resource,
    O::DynamicType: Default,
    C: Resource,
{
    remove_owner_with(owner, &O::DynamicType::default(), child)
}

/// As [`remove_owner`], for an owner whose type is known at run time, such as a `DynamicObject` with its `ApiResource`.
pub fn remove_owner_with<O, C>(owner: &O, dynamic: &O::DynamicType, child: &mut C) -> bool
where
    O: Resource,
    C: Resource,
{
    let Some(reference) = owner.owner_ref(dynamic) else { return false };
    let Some(owners) = &mut child.meta_mut().owner_references else { return false };
    let before = owners.len();
    owners.retain(|known| !is_same(known, &reference));
    let is_changed = owners.len() < before;
    if owners.is_empty() {
        child.meta_mut().owner_references = None;
    }
    is_changed
}

/// Whether `owner`, and not an earlier object of its name, owns `child`, as its controller or otherwise.
pub fn is_owned_by<O, C>(owner: &O, child: &C) -> bool
where
    O: Resource,
    C: Resource,
{
    let uid = owner.meta().uid.as_deref();
    uid.is_some() && child.meta().owner_references.iter().flatten().any(|known| Some(known.uid.as_str()) == uid)
}

/// The reference to `owner`, if it may own `child`.
fn checked<O, C>(owner: &O, dynamic: &O::DynamicType, child: &C) -> Result<OwnerReference, OwnerError>
where
    O: Resource,
    C: Resource,
{
    let (owner_key, child_key) = (ObjectKey::of(owner), ObjectKey::of(child));
    let Some(reference) = owner.owner_ref(dynamic) else {
        return Err(OwnerError::Unsaved { owner: owner_key });
    };
    if owner_key.namespace().is_some() && owner_key.namespace() != child_key.namespace() {
        return Err(OwnerError::OtherNamespace { owner: owner_key, child: child_key });
    }
    Ok(reference)
}

/// Whether two references name one object, in any version.
fn is_same(a: &OwnerReference, b: &OwnerReference) -> bool {
    a.kind == b.kind && a.name == b.name && group_of(&a.api_version) == group_of(&b.api_version)
}

fn put<C: Resource>(child: &mut C, reference: OwnerReference) -> bool {
    let owners = child.meta_mut().owner_references.get_or_insert_default();
    match owners.iter_mut().find(|known| is_same(known, &reference)) {
        Some(known) if *known == reference => return false,
        Some(known) => *known = reference,
        None => owners.push(reference),
    }
    true
}

/// The controller of `object`, if it has one.
pub fn controller_of<C: Resource>(object: &C) -> Option<&OwnerReference> {
    object.meta().owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The key of the `O` that controls `object`, if its controller is an `O`, whatever version the reference has.
pub fn controller_key<O, C>(object: &C) -> Option<ObjectKey>
where
    O: Resource + 'static,
    O::DynamicType: Default,
    C: Resource,
{
    let owner = OwnerType::of::<O>(&O::DynamicType::default());
    owner.keys(object.meta(), OwnedBy::Controller, |_| true).pop()
}

/// As [`controller_key`], for an owner whose type is known at run time, such as `DynamicObject` with its `ApiResource`.
/// Such a type does not say whether its objects are namespaced: of the two possible keys, the one for which `is_known`
/// returns true is returned, for instance because a lister has it.
pub fn controller_key_with<O, C>(
    object: &C,
    dynamic: &O::DynamicType,
    is_known: impl Fn(&ObjectKey) -> bool,
) -> Option<ObjectKey>
where
    O: Resource + 'static,
    C: Resource,
{
    OwnerType::of::<O>(dynamic).keys(object.meta(), OwnedBy::Controller, is_known).pop()
}

/// A type as owner references name it, and whether its objects are namespaced.
#[derive(Clone, Debug)]
pub(crate) struct OwnerType {
    kind: String,
    group: String,
    place: OwnerScope,
}

#[derive(Clone, Copy, Debug)]
enum OwnerScope {
    Cluster,
    Namespace,
    /// The type is known at run time only, so this is unknown.
    Unknown,
}

impl OwnerType {
    pub(crate) fn of<O: Resource + 'static>(dynamic: &O::DynamicType) -> Self {
        let scope = TypeId::of::<O::Scope>();
        let place = if scope == TypeId::of::<ClusterResourceScope>() {
            OwnerScope::Cluster
        } else if scope == TypeId::of::<NamespaceResourceScope>() {
            OwnerScope::Namespace
        } else {
            OwnerScope::Unknown
        };
        Self { kind: O::kind(dynamic).into_owned(), group: O::group(dynamic).into_owned(), place }
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// The keys of the owners of this type in `metadata`. `is_known` says whether an owner exists; it is called only
    /// where the type does not say whether its objects are namespaced.
    pub(crate) fn keys(
        &self,
        metadata: &ObjectMeta,
        owned_by: OwnedBy,
        is_known: impl Fn(&ObjectKey) -> bool,
    ) -> Vec<ObjectKey> {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let mut keys = Vec::new();
        for owner in metadata.owner_references.iter().flatten() {
            let counts = owned_by == OwnedBy::Any || owner.controller == Some(true);
            if !counts || owner.kind != self.kind || group_of(&owner.api_version) != self.group {
                continue;
            }
            match self.place {
                OwnerScope::Cluster => keys.push(ObjectKey::cluster(&owner.name)),
                OwnerScope::Namespace => keys.push(ObjectKey::namespaced(namespace, &owner.name)),
                OwnerScope::Unknown => {
                    let candidates = [ObjectKey::namespaced(namespace, &owner.name), ObjectKey::cluster(&owner.name)];
                    keys.extend(candidates.into_iter().find(&is_known));
                }
            }
        }
        keys
    }
}

/// The group in `group/version`; empty for the core group.
fn group_of(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
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

    #[test]
    fn an_owner_that_was_made_anew_or_is_known_in_another_version_has_one_reference() {
        let mut child: ConfigMap = object(Some("a"), "child", "");
        let (before, after) = (object::<Deployment>(Some("a"), "x", "1"), object::<Deployment>(Some("a"), "x", "2"));
        assert_eq!(set_controller(&before, &mut child), Ok(true));
        child.metadata.owner_references.as_mut().unwrap()[0].api_version = "apps/v1beta1".to_owned();
        assert!(is_owned_by(&before, &child) && !is_owned_by(&after, &child));
        assert_eq!(set_controller(&after, &mut child), Ok(true));
        let owners = child.metadata.owner_references.clone().unwrap();
        assert_eq!((owners.len(), owners[0].uid.as_str(), owners[0].api_version.as_str()), (1, "2", "apps/v1"));
        assert_eq!((owners[0].controller, owners[0].block_owner_deletion), (Some(true), Some(true)));
    }

    #[test]
    fn owners_beside_the_controller_come_and_go() {
        let mut child: ConfigMap = object(Some("a"), "child", "");
        let (one, two) = (object::<Deployment>(Some("a"), "one", "1"), object::<ConfigMap>(Some("a"), "one", "2"));
        set_controller(&one, &mut child).unwrap();
        assert_eq!((set_owner(&two, &mut child), set_owner(&two, &mut child)), (Ok(true), Ok(false)));
        assert_eq!(set_owner(&one, &mut child), Ok(false), "it stays the controller");
        assert_eq!(controller_of(&child).map(|owner| owner.uid.as_str()), Some("1"));
        let elsewhere: Deployment = object(Some("b"), "x", "3");
        assert!(matches!(set_owner(&elsewhere, &mut child), Err(OwnerError::OtherNamespace { .. })));
        let mut node: Namespace = object(None, "n", "");
        assert!(matches!(set_owner(&one, &mut node), Err(OwnerError::OtherNamespace { .. })));
        assert_eq!(node.metadata.owner_references, None);
        assert_eq!((remove_owner(&one, &mut child), remove_owner(&one, &mut child)), (true, false));
        assert!(!is_owned_by(&one, &child) && is_owned_by(&two, &child));
        assert!(remove_owner(&two, &mut child));
        assert_eq!(child.metadata.owner_references, None);
    }
}
