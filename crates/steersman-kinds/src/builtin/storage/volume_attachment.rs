//! VolumeAttachment: a volume to be attached to a node.

use crate::builtin::kind::{Column, Kind, RULES, SPEC_AND_METADATA, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::quantity::round_up;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use crate::builtin::storage::csi::driver_name;
use crate::builtin::storage::{persistent_volume, volume_source};
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
        default,
        ..Version::V1
    }],
    status_leaves: SPEC_AND_METADATA,
    rules: Rules { updates_unconditionally: false, returns_deleted: true, ..RULES },
    validate: ATTACHMENT,
    validate_status: ATTACHMENT,
    ..Kind::CLUSTER
};

const ATTACHMENT: &[Rule] = &[
    Rule::new("spec.attacher", Check::By(driver_name)),
    Rule::new("spec.source", Check::By(source)),
    Rule::new("spec.nodeName", Check::Format(name::dns1123_subdomain)),
    Rule::new("status.attachmentMetadata", Check::By(metadata)),
    Rule::new("status.attachError", Check::Rules(VOLUME_ERROR)),
    Rule::new("status.detachError", Check::Rules(VOLUME_ERROR)),
    Rule::new("spec", Check::Immutable),
];

const VOLUME_ERROR: &[Rule] =
    &[Rule::new("message", Check::By(message)), Rule::new("errorCode", Check::Within(0, i32::MAX as i64))];

fn default(attachment: &mut Value) {
    let inline = attachment.pointer_mut("/spec/source/inlineVolumeSpec");
    if let Some(spec) = inline.and_then(Value::as_object_mut) {
        round_up(spec, &["capacity"]);
        volume_source::default(spec);
    }
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
        (false, true) => check_field(persistent_volume::INLINE, &inline, errors),
    }
    if name.is_present() {
        rules::named(&name, name::dns1123_subdomain, errors);
    }
}

fn metadata(metadata: &Field<'_>, errors: &mut Vec<Error>) {
    let bytes: usize = metadata.entries().map(|(key, value)| key.len() + value.text().len()).sum();
    if bytes > METADATA_BYTES_MAX {
        errors.push(Error::too_long(&metadata.path, METADATA_BYTES_MAX));
    }
}

fn message(message: &Field<'_>, errors: &mut Vec<Error>) {
    if message.text().len() > MESSAGE_LENGTH_MAX {
        // Upstream names the limit of the metadata here.
        errors.push(Error::too_long(&message.path, METADATA_BYTES_MAX));
    }
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
