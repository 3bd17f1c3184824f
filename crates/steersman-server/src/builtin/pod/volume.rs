//! The rules of volumes and of where containers mount them.

use crate::builtin::place::Place;
use crate::builtin::pod::volume_source;
use crate::builtin::rules;
use std::collections::{BTreeMap, BTreeSet};
use steersman_machinery::field::Error;
use steersman_machinery::name;

/// The volumes of a pod by name, each with the name of its source.
pub(crate) struct Volumes<'a> {
    sources: BTreeMap<&'a str, &'a str>,
}

/// Checks volumes and gives those that containers can mount.
pub(crate) fn validate<'a>(volumes: &Place<'a>, faults: &mut Vec<Error>) -> Volumes<'a> {
    let mut sources = BTreeMap::new();
    for volume in volumes.items() {
        let name = volume.field("name");
        let source = volume_source::validate(&volume, faults).unwrap_or_default();
        rules::required_name(&name, name::dns1123_label, faults);
        if !name.is_empty() && sources.insert(name.text(), source).is_some() {
            faults.push(name.duplicate());
        }
    }
    Volumes { sources }
}

impl Volumes<'_> {
    /// What one container mounts.
    pub(crate) fn validate_mounts(&self, container: &Place<'_>, faults: &mut Vec<Error>) {
        let mut paths = BTreeSet::new();
        for mount in container.field("volumeMounts").items() {
            self.name(&mount.field("name"), faults);
            let path = mount.field("mountPath");
            if path.is_empty() {
                faults.push(path.required(""));
            } else if !paths.insert(path.text()) {
                faults.push(path.invalid("must be unique"));
            }
            rules::local_path(&mount.field("subPath"), faults);
            let expression = mount.field("subPathExpr");
            if !expression.is_empty() && !mount.field("subPath").is_empty() {
                faults.push(expression.invalid("subPathExpr and subPath are mutually exclusive"));
            }
            rules::local_path(&expression, faults);
            let propagations = ["Bidirectional", "HostToContainer", "None"];
            rules::one_of_if_present(&mount.field("mountPropagation"), &propagations, faults);
            let modes = ["Disabled", "Enabled", "IfPossible"];
            rules::one_of_if_present(&mount.field("recursiveReadOnly"), &modes, faults);
        }
        for device in container.field("volumeDevices").items() {
            self.name(&device.field("name"), faults);
            let path = device.field("devicePath");
            if path.is_empty() {
                faults.push(path.required(""));
            } else if !paths.insert(path.text()) {
                faults.push(path.invalid("must not already exist in volumeMounts"));
            }
            let source = self.sources.get(device.field("name").text()).copied().unwrap_or("persistentVolumeClaim");
            if !matches!(source, "persistentVolumeClaim" | "ephemeral") {
                let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                faults.push(device.field("name").invalid(why));
            }
        }
    }

    fn name(&self, name: &Place<'_>, faults: &mut Vec<Error>) {
        if name.is_empty() {
            faults.push(name.required(""));
        } else if !self.sources.contains_key(name.text()) {
            faults.push(Error::not_found(&name.path, name.text()));
        }
    }
}
