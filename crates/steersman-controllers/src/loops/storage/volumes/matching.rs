//! Decides which volume fits a claim. Sends no requests.
//!
//! Follows upstream's `component-helpers/storage/volume` and the binder's `checkVolumeSatisfyClaim`: sizes, classes, modes and selectors.

use crate::loops::storage::volumes::{class_of_claim, class_of_volume};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::core::{Selector, SelectorExt as _};
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman_machinery::quantity::Quantity;

const STORAGE: &str = "storage";
const DEFAULT_MODE: &str = "Filesystem";

/// Whether the binder may choose a volume, or only one that is reserved for the claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Choice {
    Any,
    /// The claim waits for its first consumer: unreserved volumes are the scheduler's choice.
    ReservedOnly,
}

/// Whether a volume is reserved for a claim, or bound to it.
pub(super) fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return false };
    let uid = reference.uid.as_deref().unwrap_or_default();
    reference.name == claim.metadata.name
        && reference.namespace == claim.metadata.namespace
        && (uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
}

/// The volume to bind to a claim: a reserved one, otherwise, among the fitting ones with the fewest access modes, the
/// smallest.
pub(super) fn find<'a>(
    claim: &PersistentVolumeClaim,
    volumes: &'a [Arc<PersistentVolume>],
    choice: Choice,
) -> Option<&'a Arc<PersistentVolume>> {
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.clone());
    let selector = selector.map(Selector::try_from);
    // An invalid selector matches nothing.
    let selector = selector.transpose().ok()?;
    let fitting = volumes.iter().filter(|volume| {
        let is_free = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none());
        (is_free || is_bound_to(volume, claim))
            && size(volume) >= requested(claim)
            && !modes_differ(volume, claim)
            && attributes_class(volume) == requested_attributes_class(claim)
            && volume.metadata.deletion_timestamp.is_none()
            && has_access_modes(volume, claim)
    });
    let (reserved, free): (Vec<_>, Vec<_>) = fitting.partition(|volume| is_bound_to(volume, claim));
    if let Some(reserved) = reserved.into_iter().next() {
        return Some(reserved);
    }
    if choice == Choice::ReservedOnly {
        return None;
    }
    let nothing = BTreeMap::new();
    let free = free.into_iter().filter(|volume| {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let labels = volume.metadata.labels.as_ref().unwrap_or(&nothing);
        phase == Some("Available")
            && selector.as_ref().is_none_or(|selector| selector.matches(labels))
            && class_of_volume(volume) == class_of_claim(claim)
    });
    free.min_by(|a, b| {
        let order = |volume: &PersistentVolume| (n_access_modes(volume), size(volume), volume.metadata.name.clone());
        order(a).cmp(&order(b))
    })
}

/// Why a volume that a claim names cannot be bound to it, with upstream's text.
pub(super) fn fault(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let fault = if volume.metadata.deletion_timestamp.is_some() {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        return Some(format!("the volume is marked for deletion {name:?}"));
    } else if size(volume).to_whole() < requested(claim).to_whole() {
        "requested PV is too small"
    } else if class_of_volume(volume) != class_of_claim(claim) {
        "storageClassName does not match"
    } else if attributes_class(volume) != requested_attributes_class(claim) {
        "volumeAttributesClassName does not match"
    } else if modes_differ(volume, claim) {
        "incompatible volumeMode"
    } else if !has_access_modes(volume, claim) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(fault.to_owned())
}

/// Whether one is a block device and the other a file system.
pub(super) fn modes_differ(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let of_volume = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or(DEFAULT_MODE);
    let of_claim = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or(DEFAULT_MODE);
    of_volume != of_claim
}

fn has_access_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let offered: Vec<&String> = volume.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten()).collect();
    let mut wanted = claim.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten());
    wanted.all(|mode| offered.contains(&mode))
}

fn n_access_modes(volume: &PersistentVolume) -> usize {
    volume.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten()).count()
}

fn attributes_class(volume: &PersistentVolume) -> &str {
    volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()).unwrap_or_default()
}

fn requested_attributes_class(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()).unwrap_or_default()
}

fn size(volume: &PersistentVolume) -> Quantity {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    amount(capacity.and_then(|capacity| capacity.get(STORAGE)))
}

fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()).and_then(|all| all.requests.as_ref());
    amount(requests.and_then(|requests| requests.get(STORAGE)))
}

fn amount(quantity: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity>) -> Quantity {
    quantity.and_then(|quantity| Quantity::parse(&quantity.0).ok()).unwrap_or(Quantity::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn volume(name: &str, size: &str, modes: &[&str], more: Value) -> Arc<PersistentVolume> {
        let mut volume = json!({
            "metadata": {"name": name},
            "spec": {"capacity": {"storage": size}, "accessModes": modes},
            "status": {"phase": "Available"},
        });
        json_patch::merge(&mut volume, &more);
        Arc::new(serde_json::from_value(volume).unwrap())
    }

    fn claim(size: &str, modes: &[&str], more: Value) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "1"},
            "spec": {"resources": {"requests": {"storage": size}}, "accessModes": modes},
        });
        json_patch::merge(&mut claim, &more);
        serde_json::from_value(claim).unwrap()
    }

    #[track_caller]
    fn check(claim: &PersistentVolumeClaim, volumes: &[Arc<PersistentVolume>], choice: Choice, want: Option<&str>) {
        let found = find(claim, volumes, choice).and_then(|volume| volume.metadata.name.as_deref());
        assert_eq!(found, want);
    }

    #[test]
    fn the_smallest_that_is_large_enough_is_bound() {
        let volumes =
            [volume("l", "3Gi", &["ReadWriteOnce"], json!({})), volume("m", "2Gi", &["ReadWriteOnce"], json!({}))];
        check(&claim("1Gi", &["ReadWriteOnce"], json!({})), &volumes, Choice::Any, Some("m"));
        check(&claim("2049Mi", &["ReadWriteOnce"], json!({})), &volumes, Choice::Any, Some("l"));
        check(&claim("4Gi", &["ReadWriteOnce"], json!({})), &volumes, Choice::Any, None);
        check(&claim("1Gi", &["ReadWriteMany"], json!({})), &volumes, Choice::Any, None);
        check(&claim("1Gi", &["ReadWriteOnce"], json!({})), &volumes, Choice::ReservedOnly, None);
    }

    #[test]
    fn one_with_more_access_modes_comes_after_a_larger_one_with_just_those() {
        let modes = ["ReadWriteOnce", "ReadOnlyMany"];
        let volumes = [volume("more", "1Gi", &modes, json!({})), volume("just", "5Gi", &modes[..1], json!({}))];
        check(&claim("1Gi", &modes[..1], json!({})), &volumes, Choice::Any, Some("just"));
        check(&claim("1Gi", &modes, json!({})), &volumes, Choice::Any, Some("more"));
    }

    #[test]
    fn one_that_is_reserved_for_the_claim_is_bound_whatever_its_class_and_another_s_never() {
        let reserved = json!({"spec": {"storageClassName": "x", "claimRef": {"namespace": "n", "name": "c"}}});
        let taken = json!({"spec": {"claimRef": {"namespace": "n", "name": "c", "uid": "2"}}});
        let volumes = [
            volume("free", "1Gi", &["ReadWriteOnce"], json!({})),
            volume("taken", "1Gi", &["ReadWriteOnce"], taken),
            volume("reserved", "9Gi", &["ReadWriteOnce"], reserved),
        ];
        check(&claim("1Gi", &["ReadWriteOnce"], json!({})), &volumes, Choice::ReservedOnly, Some("reserved"));
        check(&claim("1Gi", &["ReadWriteOnce"], json!({})), &volumes[..2], Choice::Any, Some("free"));
        check(&claim("1Gi", &["ReadWriteOnce"], json!({})), &volumes[1..2], Choice::Any, None);
    }

    #[test]
    fn class_selector_mode_and_phase_must_fit() {
        let of = |more: Value| [volume("v", "1Gi", &["ReadWriteOnce"], more)];
        let plain = claim("1Gi", &["ReadWriteOnce"], json!({}));
        check(&plain, &of(json!({"spec": {"storageClassName": "fast"}})), Choice::Any, None);
        check(&plain, &of(json!({"spec": {"volumeMode": "Block"}})), Choice::Any, None);
        check(&plain, &of(json!({"status": {"phase": "Released"}})), Choice::Any, None);
        let selecting =
            claim("1Gi", &["ReadWriteOnce"], json!({"spec": {"selector": {"matchLabels": {"disk": "ssd"}}}}));
        check(&selecting, &of(json!({})), Choice::Any, None);
        check(&selecting, &of(json!({"metadata": {"labels": {"disk": "ssd"}}})), Choice::Any, Some("v"));
    }

    #[test]
    fn faults_of_a_volume_that_is_asked_for_are_upstreams() {
        let plain = claim("2Gi", &["ReadWriteOnce"], json!({}));
        let fault = |size: &str, modes: &[&str], more: Value| fault(&volume("v", size, modes, more), &plain);
        assert_eq!(fault("2Gi", &["ReadWriteOnce"], json!({})), None);
        assert_eq!(fault("1Gi", &["ReadWriteOnce"], json!({})).as_deref(), Some("requested PV is too small"));
        assert_eq!(fault("2Gi", &["ReadOnlyMany"], json!({})).as_deref(), Some("incompatible accessMode"));
        let classed = json!({"spec": {"storageClassName": "fast"}});
        assert_eq!(fault("2Gi", &["ReadWriteOnce"], classed).as_deref(), Some("storageClassName does not match"));
    }
}
