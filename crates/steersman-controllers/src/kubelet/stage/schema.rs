//! The parts of the schema of `Stage` that do not follow from its types: validation rules and their messages.

use crate::kubelet::stage::api::Container;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// The longest text and list, so that the cost of a rule is bounded.
const LENGTH_MAX: u32 = 64;
const ITEMS_MAX: u32 = 64;
const NAMESPACES_MAX: u32 = 256;

/// A duration, or a range with the shorter one first.
const DURATION: &str = r"self.matches('^(0|([0-9]{1,9}([.][0-9]{1,9})?(ns|us|ms|s|m|h))+)([.][.](0|([0-9]{1,9}([.][0-9]{1,9})?(ns|us|ms|s|m|h))+))?$') && (!self.contains('..') || duration(self.split('..')[0]) <= duration(self.split('..')[1]))";
const QUANTITY: &str =
    "type(self) == int ? self >= 0 : type(self) == string && isQuantity(self) && sign(quantity(self)) >= 0";
const ENDS: &str =
    "[has(self.succeedAfter), has(self.failAfter), has(self.crashLoop) && self.crashLoop].filter(is, is).size() <= 1";
const EXIT_CODE: &str = "!has(self.exitCode) || has(self.failAfter) || (has(self.crashLoop) && self.crashLoop)";
const NAMESPACES: &str = "!(has(self.namespaces) && has(self.namespaceSelector))";
const GOES_AWAY: &str = "!has(self.goesAway) || has(self.nodeSelector)";
const GOES_AWAY_ALONE: &str =
    "!has(self.goesAway) || !(has(self.podSelector) || has(self.namespaces) || has(self.namespaceSelector))";
const VALUES: &str = "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)";

fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

pub(crate) fn rules_of_behavior() -> Vec<Value> {
    vec![
        rule(ENDS, "only one of succeedAfter, failAfter and crashLoop can be said of a container"),
        rule(EXIT_CODE, "an exitCode needs failAfter or crashLoop: containers that do not fail end with 0"),
    ]
}

pub(crate) fn rules_of_spec() -> Vec<Value> {
    let mut rules = rules_of_behavior();
    rules.extend([
        rule(NAMESPACES, "either namespaces or a namespaceSelector says which namespaces are meant, not both"),
        rule(GOES_AWAY, "goesAway needs a nodeSelector that says which Nodes; {} selects all"),
        rule(
            GOES_AWAY_ALONE,
            "goesAway is about Nodes: it does not go with podSelector, namespaces or namespaceSelector",
        ),
    ]);
    rules
}

pub(crate) fn rules_of_requirement() -> Vec<Value> {
    vec![rule(VALUES, "In and NotIn need values, Exists and DoesNotExist have none")]
}

pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    let message = "must be a duration such as 500ms or 1m30s, or a range such as 1s..3s with the shorter one first";
    json_schema!({"type": "string", "maxLength": LENGTH_MAX, "x-kubernetes-validations": [rule(DURATION, message)]})
}

pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    let message = "must be a quantity of at least 0, such as 250m or 64Mi";
    json_schema!({
        "x-kubernetes-int-or-string": true, "maxLength": LENGTH_MAX, "x-kubernetes-validations": [rule(QUANTITY, message)],
    })
}

pub(crate) fn exit_code(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "minimum": 0, "maximum": 255})
}

pub(crate) fn operator(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]})
}

pub(crate) fn name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 63})
}

pub(crate) fn namespaces(_: &mut SchemaGenerator) -> Schema {
    let item = json!({"type": "string", "minLength": 1, "maxLength": 63});
    json_schema!({"type": "array", "items": item, "minItems": 1, "maxItems": NAMESPACES_MAX, "x-kubernetes-list-type": "set"})
}

pub(crate) fn containers(generator: &mut SchemaGenerator) -> Schema {
    let item = Container::json_schema(generator);
    json_schema!({
        "type": "array", "items": item, "maxItems": ITEMS_MAX,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
    })
}
