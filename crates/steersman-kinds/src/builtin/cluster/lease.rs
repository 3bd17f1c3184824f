//! Lease: a lock with a holder and a duration, for leader election and heartbeats.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, remove_at};

pub const KIND: Kind = Kind {
    group: "coordination.k8s.io",
    kind: "Lease",
    plural: "leases",
    singular: "lease",
    versions: &[Version {
        definition: "io.k8s.api.coordination.v1.Lease",
        columns: &[Column::NAME, Column::text("Holder", "Who holds it."), Column::AGE],
        cells,
        ..Version::V1
    }],
    rules: Rules {
        creates_on_update: true,
        updates_unconditionally: false,
        requires_qualified_finalizers: false,
        validates_generate_name_on_update: false,
        ..RULES
    },
    prepare_create: |lease| drop_coordination(lease, &Value::Null),
    prepare_update: drop_coordination,
    validate: &[
        Rule::new("spec.leaseDurationSeconds", Check::Positive),
        Rule::new("spec.leaseTransitions", Check::NotNegative),
        Rule::new("spec.strategy", Check::OneOf(&["OldestEmulationVersion"])).if_present(),
        Rule::new("spec", Check::By(preferred_holder)),
    ],
    ..Kind::NAMESPACED
};

/// Coordinated leader election is off upstream by default: its fields are dropped, unless the old object has them.
fn drop_coordination(lease: &mut Value, old: &Value) {
    for field in ["strategy", "preferredHolder"] {
        if at(old, &["spec", field]).is_none_or(Value::is_null) {
            remove_at(lease, &["spec", field]);
        }
    }
}

fn preferred_holder(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let preferred = spec.field("preferredHolder");
    if preferred.is_present() && spec.field("strategy").is_empty() {
        errors.push(preferred.forbidden("may only be specified when `strategy` is defined"));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cells::name(object), cells::text(object, &["spec", "holderIdentity"]), cells::age(object, now)]
}
