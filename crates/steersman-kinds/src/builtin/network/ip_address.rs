//! IPAddress: an allocated address of the service range, and its parent. The server keeps one for each address of a
//! Service; an address of one created by hand is not allocated to any Service.

use crate::builtin::kind::{Alias, Column, Kind, Request, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::rules::field::Field;
use jiff::Timestamp;
use std::net::IpAddr;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{Value, name};

pub const KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "IPAddress",
    plural: "ipaddresses",
    singular: "ipaddress",
    short_names: &["ip"],
    versions: &[Version {
        definition: "io.k8s.api.networking.v1.IPAddress",
        columns: &[Column::NAME, Column::text("ParentRef", "What it is taken by.")],
        cells: |address, now| cells_of(address, now).to_vec(),
        fields: &[],
        ..Version::V1
    }],
    aliases: &[Alias {
        name: "v1beta1",
        definition: "io.k8s.api.networking.v1beta1.IPAddress",
        deprecation: "networking.k8s.io/v1beta1 IPAddress is deprecated in v1.34+, unavailable in v1.37+",
    }],
    name_faults,
    validate_create: validate,
    validate_update: |request, errors| {
        validate(request, errors);
        let parent = |object| Field::root(object).at(&["spec", "parentRef"]);
        rules::immutable(&parent(request.new), &parent(request.old), errors);
    },
    ..Kind::CLUSTER
};

/// The name must be the address in its canonical form.
fn name_faults(text: &str) -> Vec<String> {
    let value = Value::from(text);
    let mut errors = Vec::new();
    rules::ip(&Field::root(&value), &mut errors);
    if let (true, Ok(address)) = (errors.is_empty(), text.parse::<IpAddr>())
        && address.to_string() != text
    {
        return vec![format!("must be in canonical form (\"{address}\")")];
    }
    errors.into_iter().map(|error| error.detail).collect()
}

fn validate(request: &Request<'_>, errors: &mut Vec<Error>) {
    let parent = Field::root(request.new).at(&["spec", "parentRef"]);
    if parent.is_absent() {
        return errors.push(parent.required(""));
    }
    let group = parent.field("group");
    if !group.is_empty() {
        rules::named(&group, name::dns1123_subdomain, errors);
    }
    rules::required_name(&parent.field("resource"), name::path_segment, errors);
    rules::required_name(&parent.field("name"), name::path_segment, errors);
    rules::named(&parent.field("namespace"), name::path_segment, errors);
}

fn cells_of(address: &Value, _now: Timestamp) -> [Value; 2] {
    let parent = |field: &str| str_at(address, &["spec", "parentRef", field]).filter(|text| !text.is_empty());
    let text = match at(address, &["spec", "parentRef"]) {
        None | Some(Value::Null) => NONE.to_owned(),
        Some(_) => {
            let resource = [parent("resource"), parent("group")].into_iter().flatten().collect::<Vec<&str>>().join(".");
            let parts = [Some(&*resource.to_lowercase()), parent("namespace"), parent("name")];
            parts.into_iter().flatten().collect::<Vec<&str>>().join("/")
        }
    };
    [cells::name(address), Value::from(text)]
}
