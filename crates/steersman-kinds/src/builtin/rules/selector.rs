//! Label selectors as objects (`matchLabels`, `matchExpressions`): validation, matching and text form.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::name;
use steersman_machinery::selector::{Labels, Operator, Requirement};

/// The selector of an object, with its requirements sorted by key.
///
/// `None` if one of them is invalid.
pub fn parse(selector: &Value) -> Option<Labels> {
    let mut requirements = Vec::new();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        requirements.push(Requirement { key: key.clone(), operator: Operator::In(vec![value.as_str()?.to_owned()]) });
    }
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let values = || expression.get("values").and_then(Value::as_array).into_iter().flatten();
        let values = || values().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<String>>();
        let operator = match expression.get("operator")?.as_str()? {
            "In" => Operator::In(values()),
            "NotIn" => Operator::NotIn(values()),
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => return None,
        };
        requirements.push(Requirement { key: expression.get("key")?.as_str()?.to_owned(), operator });
    }
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    Some(Labels::new(requirements))
}

/// Whether labels, an object or null, satisfy a selector.
pub fn matches(selector: &Labels, labels: &Value) -> bool {
    selector.matches(|key| labels.get(key)?.as_str())
}

/// The text of a selector in tables. Expressions keep their operators there, even with a single value.
pub fn text(selector: &Value) -> String {
    if parse(selector).is_none() {
        return "<error>".to_owned();
    }
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let mut requirements: Vec<(&str, String)> =
        labels.map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default()))).collect();
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
        let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
        let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
        values.sort_unstable();
        let (key, values) = (text("key"), values.join(","));
        let requirement = match text("operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        requirements.push((key, requirement));
    }
    if requirements.is_empty() {
        return "<none>".to_owned();
    }
    requirements.sort_by_key(|(key, _)| *key);
    let texts: Vec<String> = requirements.into_iter().map(|(_, text)| text).collect();
    texts.join(",")
}

/// The text of labels in tables.
pub fn labels_text(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// Whether a selector is valid. Some kinds report an invalid one a second time, for the whole field.
pub fn is_valid(selector: &Field<'_>) -> bool {
    let mut errors = Vec::new();
    validate(selector, &mut errors);
    errors.is_empty()
}

pub fn validate(selector: &Field<'_>, errors: &mut Vec<Error>) {
    rules::labels(&selector.field("matchLabels"), errors);
    for expression in selector.field("matchExpressions").items() {
        let (operator, values) = (expression.field("operator"), expression.field("values"));
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => {
                errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
            "Exists" | "DoesNotExist" => {}
            _ => errors.push(operator.invalid("not a valid selector operator")),
        }
        rules::named(&expression.field("key"), name::qualified, errors);
        for value in values.items() {
            rules::named(&value, name::label_value, errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_requirement_must_hold() {
        let selector = json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        });
        let parsed = parse(&selector).unwrap();
        assert!(matches(&parsed, &json!({"app": "web", "tier": "b"})));
        assert!(!matches(&parsed, &json!({"app": "web", "tier": "c"})));
        assert!(!matches(&parsed, &json!({"app": "web", "tier": "b", "old": "x"})));
        assert_eq!(text(&selector), "app=web,!old,tier in (a,b)");
        assert_eq!(text(&json!({})), "<none>");
    }

    #[test]
    fn operators_need_or_forbid_values() {
        let selector = json!({"matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "b", "operator": "Exists", "values": ["x"]},
            {"key": "c", "operator": "Like"},
        ]});
        let mut errors = Vec::new();
        validate(&Field::root(&selector), &mut errors);
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(
            fields,
            ["matchExpressions[0].values", "matchExpressions[1].values", "matchExpressions[2].operator"]
        );
    }
}
