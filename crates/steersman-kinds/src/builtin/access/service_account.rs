//! ServiceAccount: an identity for pods and other processes.

use crate::builtin::kind::{Column, Kind, RULES, Subresource, Version};
use crate::builtin::rules::cells;
use crate::catalog::{Handling, Verb};
use crate::strategy::Rules;
use serde_json::json;
use steersman_machinery::Value;

pub const KIND: Kind = Kind {
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    versions: &[Version {
        definition: "io.k8s.api.core.v1.ServiceAccount",
        subresources: &[Subresource {
            name: "token",
            group: "authentication.k8s.io",
            version: "v1",
            kind: "TokenRequest",
            verbs: &[Verb::Create],
            handling: Handling::Connect,
        }],
        columns: &[Column::NAME, Column::AGE],
        cells: |object, now| vec![cells::name(object), cells::age(object, now)],
        ..Version::V1
    }],
    rules: Rules { returns_deleted: true, ..RULES },
    prepare_create: keep_names_of_secrets,
    prepare_update: |account, _| keep_names_of_secrets(account),
    ..Kind::NAMESPACED
};

/// A reference to a Secret keeps the name alone.
fn keep_names_of_secrets(account: &mut Value) {
    for secret in account.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        *secret = match secret.get("name") {
            Some(name) => json!({ "name": name }),
            None => json!({}),
        };
    }
}
