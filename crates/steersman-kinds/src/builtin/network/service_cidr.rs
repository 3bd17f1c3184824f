//! ServiceCIDR: a range of addresses for Services. The server only makes its own one, `kubernetes`, ready; a control
//! loop does so for others.

use crate::builtin::kind::{Alias, Column, Kind, RULES, SPEC_AND_METADATA, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::strategy::Rules;
use ipnet::IpNet;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::at;

pub const KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "ServiceCIDR",
    plural: "servicecidrs",
    rules: Rules { validates_generate_name_on_update: false, ..RULES },
    singular: "servicecidr",
    versions: &[Version {
        definition: "io.k8s.api.networking.v1.ServiceCIDR",
        has_status: true,
        columns: &[Column::NAME, Column::text("CIDRs", "The ranges, one of each family."), Column::AGE],
        cells: |range, now| cells_of(range, now).to_vec(),
        ..Version::V1
    }],
    aliases: &[Alias {
        name: "v1beta1",
        definition: "io.k8s.api.networking.v1beta1.ServiceCIDR",
        deprecation: "networking.k8s.io/v1beta1 ServiceCIDR is deprecated in v1.34+, unavailable in v1.37+",
    }],
    status_leaves: SPEC_AND_METADATA,
    validate: &[
        Rule::new("spec.cidrs", Check::By(validate)).on_create(),
        Rule::new("spec.cidrs", Check::Change(update)).on_update(),
    ],
    ..Kind::CLUSTER
};

fn validate(ranges: &Field<'_>, errors: &mut Vec<Error>) {
    let all: Vec<Field<'_>> = ranges.items().collect();
    match all.as_slice() {
        [] => errors.push(ranges.required("at least one CIDR required")),
        [_] => {}
        [first, second] => {
            let is_v4 = |field: &Field<'_>| field.text().parse::<IpNet>().map(|range| matches!(range, IpNet::V4(_)));
            if matches!((is_v4(first), is_v4(second)), (Ok(first), Ok(second)) if first == second) {
                let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
                errors.push(ranges.invalid(why));
            }
        }
        _ => errors.push(ranges.invalid("may only hold up to 2 values")),
    }
    all.iter().for_each(|range| rules::cidr(range, errors));
}

/// Existing ranges must not change; one of the other family may be added.
fn update(Change { new, old }: &Change<'_>, errors: &mut Vec<Error>) {
    let changed = || new.items().zip(old.items()).filter(|(new, old)| new.value != old.value);
    match (old.items().count(), new.items().count()) {
        (1, 2) => {
            errors.extend(changed().map(|(new, _)| new.invalid(rules::IMMUTABLE)));
            validate(new, errors);
        }
        (before, after) if before == after => {
            errors.extend(changed().map(|(new, _)| new.invalid(rules::IMMUTABLE)));
        }
        _ => errors.push(new.invalid(rules::IMMUTABLE)),
    }
}

fn cells_of(range: &Value, now: Timestamp) -> [Value; 3] {
    let ranges = at(range, &["spec", "cidrs"]).and_then(Value::as_array).into_iter().flatten();
    let ranges = ranges.filter_map(Value::as_str).collect::<Vec<&str>>().join(",");
    [cells::name(range), Value::from(ranges), cells::age(range, now)]
}
