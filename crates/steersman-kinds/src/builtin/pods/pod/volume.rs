//! Validation of volumes and of their mounts in containers.

use crate::builtin::pods::pod::volume_source;
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use std::collections::{BTreeMap, BTreeSet};
use steersman_machinery::field::Error;
use steersman_machinery::name;

/// The volumes of a pod by name, each with the name of its source.
pub struct Volumes<'a> {
    sources: BTreeMap<&'a str, &'a str>,
}

/// Validates volumes, and returns those that containers can mount.
pub(super) fn validate<'a>(volumes: &Field<'a>, errors: &mut Vec<Error>) -> Volumes<'a> {
    let mut sources = BTreeMap::new();
    for volume in volumes.items() {
        let name = volume.field("name");
        let mut wrong = Vec::new();
        let source = volume_source::validate(&volume, &mut wrong).unwrap_or_default();
        rules::required_name(&name, name::dns1123_label, &mut wrong);
        if sources.contains_key(name.text()) {
            wrong.push(name.duplicate());
        }
        // An invalid volume cannot be mounted.
        if wrong.is_empty() {
            sources.insert(name.text(), source);
        }
        errors.extend(wrong);
    }
    Volumes { sources }
}

impl<'a> Volumes<'a> {
    pub fn validate_mounts(&self, container: &Field<'a>, errors: &mut Vec<Error>) {
        let (mounts, devices) = (container.field("volumeMounts"), container.field("volumeDevices"));
        let texts = |list: &Field<'a>, field: &str| -> BTreeSet<&'a str> {
            list.items().map(|item| item.field(field).text()).filter(|text| !text.is_empty()).collect()
        };
        let mut paths = BTreeSet::new();
        let (device_names, device_paths) = (texts(&devices, "name"), texts(&devices, "devicePath"));
        for mount in mounts.items() {
            let (name, path) = (mount.field("name"), mount.field("mountPath"));
            self.name(&name, errors);
            rules::required(&path, errors);
            if !paths.insert(path.text()) {
                errors.push(path.invalid("must be unique"));
            }
            if device_names.contains(name.text()) {
                errors.push(name.invalid("must not already exist in volumeDevices"));
            }
            if device_paths.contains(path.text()) {
                errors.push(path.invalid("must not already exist as a path in volumeDevices"));
            }
            mount_options(&mounts, &mount, container, errors);
        }
        let (mount_names, mount_paths) = (texts(&mounts, "name"), texts(&mounts, "mountPath"));
        let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
        for device in devices.items() {
            let (name, path) = (device.field("name"), device.field("devicePath"));
            self.name(&name, errors);
            if !name.is_empty() && !names.insert(name.text()) {
                errors.push(name.invalid("must be unique"));
            }
            rules::required(&path, errors);
            if !paths.insert(path.text()) {
                errors.push(path.invalid("must be unique"));
            }
            if path.text().split('/').any(|part| part == "..") {
                errors.push(path.invalid("can not contain backsteps ('..')"));
            }
            if mount_names.contains(name.text()) {
                errors.push(name.invalid("must not already exist in volumeMounts"));
            }
            if mount_paths.contains(path.text()) {
                errors.push(path.invalid("must not already exist as a path in volumeMounts"));
            }
            let source = self.sources.get(device.field("name").text()).copied().unwrap_or("persistentVolumeClaim");
            if !matches!(source, "persistentVolumeClaim" | "ephemeral") {
                let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(device.field("name").invalid(why));
            }
        }
    }

    fn name(&self, name: &Field<'_>, errors: &mut Vec<Error>) {
        rules::required(name, errors);
        if !self.sources.contains_key(name.text()) {
            errors.push(Error::not_found(&name.path, name.text()));
        }
    }
}

/// Validates the other fields of a volume mount. These errors name the list and not the mount, as upstream's do.
fn mount_options(mounts: &Field<'_>, mount: &Field<'_>, container: &Field<'_>, errors: &mut Vec<Error>) {
    let field = |name: &str| Field { path: mounts.path.child(name), ..mount.field(name) };
    let (sub_path, expression) = (field("subPath"), field("subPathExpr"));
    rules::local_path(&sub_path, errors);
    if !expression.is_empty() && !sub_path.is_empty() {
        errors.push(mount.field("subPathExpr").invalid("subPathExpr and subPath are mutually exclusive"));
    }
    rules::local_path(&expression, errors);
    let propagation = field("mountPropagation");
    rules::one_of_if_present(&propagation, &["Bidirectional", "HostToContainer", "None"], errors);
    if propagation.text() == "Bidirectional" && !container.at(&["securityContext", "privileged"]).flag() {
        let why = "Bidirectional mount propagation is available only to privileged containers";
        errors.push(propagation.forbidden(why));
    }
    rules::one_of_if_present(&field("recursiveReadOnly"), &["Disabled", "Enabled", "IfPossible"], errors);
}
