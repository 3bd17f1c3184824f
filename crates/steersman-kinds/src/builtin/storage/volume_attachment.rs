//! VolumeAttachment: a volume to be attached to a node.

use crate::builtin::kind::{Column, Kind, RULES, Request, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::storage::csi::driver_name;
use crate::builtin::storage::persistent_volume;
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::{Value, name};

const METADATA_BYTES_MAX: usize = 256 * 1024;
const MESSAGE_LENGTH_MAX: usize = 1024;

pub const KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "VolumeAttachment",
    plural: "volumeattachments",
    singular: "volumeattachment",
    versions: &[Version {
        definition: "io.k8s.api.storage.v1.VolumeAttachment",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::name("Attacher", "The driver that attaches it."),
            Column::text("PV", "The volume."),
            Column::text("Node", "The node it is to be attached to."),
            Column::boolean("Attached", "Whether it is attached."),
            Column::AGE,
        ],
        cells,
        ..Version::V1
    }],
    status_leaves: &[
        &["spec"],
        &["metadata", "annotations"],
        &["metadata", "finalizers"],
        &["metadata", "labels"],
        &["metadata", "ownerReferences"],
    ],
    rules: Rules { updates_unconditionally: false, returns_deleted: true, ..RULES },
    validate_create: |request, errors| validate(&Field::root(request.new), errors),
    validate_update,
    validate_status: validate_update,
    ..Kind::CLUSTER
};

fn validate(attachment: &Field<'_>, errors: &mut Vec<Error>) {
    let spec = attachment.field("spec");
    driver_name(&spec.field("attacher"), errors);
    source(&spec.field("source"), errors);
    let node = spec.field("nodeName");
    let wrong = name::dns1123_subdomain(node.text()).into_iter();
    errors.extend(wrong.map(|detail| Error::invalid(&node.path, node.text(), detail)));
    status(&attachment.field("status"), errors);
}

fn source(source: &Field<'_>, errors: &mut Vec<Error>) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let (name, inline) = (source.field("persistentVolumeName"), source.field("inlineVolumeSpec"));
    match (name.is_present(), inline.is_present()) {
        (false, false) => errors.push(source.required(ONE)),
        (true, true) => errors.push(source.forbidden(ONE)),
        (true, false) if name.is_empty() => {
            errors.push(name.required("must specify non empty persistentVolumeName"));
        }
        (true, false) => {}
        (false, true) => persistent_volume::validate_inline(&inline, errors),
    }
    if name.is_present() {
        rules::named(&name, name::dns1123_subdomain, errors);
    }
}

fn status(status: &Field<'_>, errors: &mut Vec<Error>) {
    let metadata = status.field("attachmentMetadata");
    let bytes: usize = metadata.entries().map(|(key, value)| key.len() + value.text().len()).sum();
    if bytes > METADATA_BYTES_MAX {
        errors.push(Error::too_long(&metadata.path, METADATA_BYTES_MAX));
    }
    for error in [status.field("attachError"), status.field("detachError")] {
        let (message, code) = (error.field("message"), error.field("errorCode"));
        if message.text().len() > MESSAGE_LENGTH_MAX {
            // Upstream names the limit of the metadata here.
            errors.push(Error::too_long(&message.path, METADATA_BYTES_MAX));
        }
        rules::within(&code, 0, i64::from(i32::MAX), errors);
    }
}

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (new, old) = (Field::root(request.new), Field::root(request.old));
    validate(&new, errors);
    rules::immutable(&new.field("spec"), &old.field("spec"), errors);
}

fn cells(attachment: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cells::name(attachment),
        cells::text(attachment, &["spec", "attacher"]),
        cells::text(attachment, &["spec", "source", "persistentVolumeName"]),
        cells::text(attachment, &["spec", "nodeName"]),
        Value::from(Field::root(attachment).at(&["status", "attached"]).flag()),
        cells::age(attachment, now),
    ]
}
