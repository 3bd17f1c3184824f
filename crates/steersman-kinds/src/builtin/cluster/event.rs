//! Event: a report about an object. Two groups have the same objects with different field names; the core form is
//! stored.

use crate::builtin::kind::{Column, Conversion, Kind, RULES, SelectableField, Version};
use crate::strategy::Rules;
use steersman_machinery::name;

mod cells;
mod convert;
mod validate;

/// Events of the core group.
pub const CORE: Kind = Kind {
    versions: &[Version {
        definition: DEFINITION,
        columns: COLUMNS,
        cells: cells::of_core,
        fields: &[
            SelectableField::new("involvedObject.kind", ".involvedObject.kind"),
            SelectableField::new("involvedObject.namespace", ".involvedObject.namespace"),
            SelectableField::new("involvedObject.name", ".involvedObject.name"),
            SelectableField::new("involvedObject.uid", ".involvedObject.uid"),
            SelectableField::new("involvedObject.apiVersion", ".involvedObject.apiVersion"),
            SelectableField::new("involvedObject.resourceVersion", ".involvedObject.resourceVersion"),
            SelectableField::new("involvedObject.fieldPath", ".involvedObject.fieldPath"),
            SelectableField::new("reason", ".reason"),
            SelectableField::new("reportingComponent", ".reportingComponent"),
            SelectableField::new("source", ".source.component").or_at(".reportingComponent"),
            SelectableField::new("type", ".type"),
        ],
        ..Version::V1
    }],
    // Upstream checks no more than that it can be part of a path.
    name_faults: name::path_segment,
    validate: validate::CORE,
    ..EVENT
};

/// Events of `events.k8s.io`.
pub const EVENTS: Kind = Kind {
    group: "events.k8s.io",
    versions: &[Version {
        definition: "io.k8s.api.events.v1.Event",
        columns: COLUMNS,
        cells: cells::of_events,
        fields: &[
            SelectableField::new("regarding.kind", ".regarding.kind"),
            SelectableField::new("regarding.namespace", ".regarding.namespace"),
            SelectableField::new("regarding.name", ".regarding.name"),
            SelectableField::new("regarding.uid", ".regarding.uid"),
            SelectableField::new("regarding.apiVersion", ".regarding.apiVersion"),
            SelectableField::new("regarding.resourceVersion", ".regarding.resourceVersion"),
            SelectableField::new("regarding.fieldPath", ".regarding.fieldPath"),
            SelectableField::new("reason", ".reason"),
            SelectableField::new("reportingController", ".reportingController"),
            SelectableField::new("type", ".type"),
        ],
        conversion: Some(&Conversion {
            to_internal: convert::to_core,
            from_internal: convert::from_core,
            internal_api_version: "v1",
        }),
        ..Version::V1
    }],
    internal: DEFINITION,
    stored_in_group: Some(""),
    rules: Rules { requires_qualified_finalizers: true, ..EVENT.rules },
    validate: validate::EVENTS,
    ..EVENT
};

const DEFINITION: &str = "io.k8s.api.core.v1.Event";

const EVENT: Kind = Kind {
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    rules: Rules {
        creates_on_update: true,
        requires_qualified_finalizers: false,
        validates_generate_name_on_update: false,
        ..RULES
    },
    ..Kind::NAMESPACED
};

const COLUMNS: &[Column] = &[
    Column::text("Last Seen", "The time since it happened last."),
    Column::text("Type", "Normal or Warning."),
    Column::text("Reason", "Why it happened, in one word."),
    Column::text("Object", "What it happened to."),
    Column::text("Subobject", "Which part of the object it happened to.").wide(),
    Column::text("Source", "Who reports it.").wide(),
    Column::text("Message", "What happened."),
    Column::text("First Seen", "The time since it happened first.").wide(),
    Column::text("Count", "How often it happened.").wide(),
    Column::NAME.wide(),
];
