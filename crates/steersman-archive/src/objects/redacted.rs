//! Secrets without their values: the keys stay, so that it can be seen which there are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use steersman_machinery::Value;

/// The text in the place of each value.
const REDACTED: &str = "redacted";
/// The annotation in which kubectl keeps the whole object once more.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Replaces the values of a Secret.
pub(super) fn redact(secret: &mut Value) {
    for (field, text) in [("data", STANDARD.encode(REDACTED)), ("stringData", REDACTED.to_owned())] {
        match secret.get_mut(field) {
            Some(Value::Object(values)) => values.values_mut().for_each(|value| *value = text.as_str().into()),
            // Anything else that stands there is no map, and may be a value as well.
            Some(other) if !other.is_null() => *other = Value::Object(Default::default()),
            Some(_) | None => {}
        }
    }
    if let Some(applied) =
        secret.pointer_mut("/metadata/annotations").and_then(|annotations| annotations.get_mut(APPLIED))
    {
        *applied = REDACTED.into();
    }
}

#[cfg(test)]
mod tests {
    use super::redact;
    use serde_json::json;

    #[test]
    fn the_values_of_a_secret_go_and_its_keys_stay() {
        let mut secret = json!({
            "kind": "Secret", "type": "Opaque", "data": {"a": "c2VjcmV0", "b": ""}, "stringData": {"c": "secret"},
            "metadata": {"name": "x", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{secret}", "k": "v"}},
        });
        redact(&mut secret);
        assert_eq!(
            secret,
            json!({
                "kind": "Secret", "type": "Opaque", "data": {"a": "cmVkYWN0ZWQ=", "b": "cmVkYWN0ZWQ="}, "stringData": {"c": "redacted"},
                "metadata": {"name": "x", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "redacted", "k": "v"}},
            })
        );
        let mut odd = json!({"data": "c2VjcmV0", "stringData": null});
        redact(&mut odd);
        assert_eq!(odd, json!({"data": {}, "stringData": null}));
    }
}
