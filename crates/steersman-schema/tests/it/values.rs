//! Random values for property tests: small trees with names that schemas often know.

use proptest::prelude::*;
use steersman_machinery::Value;

/// Any JSON value.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z:./*=-]{0,6}".prop_map(Value::from),
        prop_oneof!["a", "1Gi", "2026-01-01T00:00:00Z", "x"].prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("status"),
        Just("name"),
        Just("data"),
        Just("containers"),
        Just("ports"),
        Just("labels"),
        Just("a"),
        Just("b"),
        Just("c"),
        Just("tags"),
        Just("parts"),
        Just("port"),
        Just("kind"),
        Just("apiVersion"),
        Just("type"),
        Just("items"),
        Just("properties"),
        Just("default"),
        Just("format"),
        Just("pattern"),
        Just("x/y~z"),
        Just(""),
    ]
    .prop_map(str::to_owned)
}
