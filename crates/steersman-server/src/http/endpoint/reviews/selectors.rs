//! The selectors that a review may have beside a resource: their validation errors, and the requirements that are
//! passed to the authorizer.
//! Unreadable requirements are left out, and the review's status names them: selectors only narrow a request, so the
//! authorizer decides on more than was requested, never on less. Follows kubernetes' `pkg/registry/authorization/util`
//! and `pkg/apis/authorization/validation`.

use steersman_kinds::builtin::rules;
use steersman_kinds::builtin::rules::field::Field;
use steersman_machinery::field::Error;
use steersman_machinery::selector::{FieldRequirement, Fields, Labels, Operator, Requirement};
use steersman_machinery::{Value, name};

/// The selectors of a review.
#[derive(Debug, Default)]
pub(super) struct Selectors {
    pub(super) fields: Option<Fields>,
    pub(super) labels: Option<Labels>,
    /// The reasons for requirements that were left out, for the status.
    pub(super) left_out: Vec<String>,
}

impl Selectors {
    /// Reads the selectors of a review's `spec`.
    pub(super) fn read(spec: &Value) -> Selectors {
        let attributes = Field::root(spec).field("resourceAttributes");
        let mut selectors = Selectors::default();
        let field_selector = attributes.field("fieldSelector");
        if field_selector.is_present() {
            let raw = field_selector.field("rawSelector").text();
            let (requirements, is_whole) = match Fields::parse(raw) {
                _ if raw.is_empty() => read_all(&field_selector, field_requirement),
                Ok(fields) => (fields.requirements, true),
                Err(_) => (Vec::new(), false),
            };
            selectors.leave_out("fieldSelector", requirements.len(), is_whole);
            selectors.fields = (!requirements.is_empty()).then_some(Fields { requirements });
        }
        let label_selector = attributes.field("labelSelector");
        if label_selector.is_present() {
            let raw = label_selector.field("rawSelector").text();
            let (requirements, is_whole) = match Labels::parse(raw) {
                _ if raw.is_empty() => read_all(&label_selector, label_requirement),
                Ok(labels) => (labels.requirements().to_vec(), true),
                Err(_) => (Vec::new(), false),
            };
            selectors.leave_out("labelSelector", requirements.len(), is_whole);
            selectors.labels = (!requirements.is_empty()).then(|| Labels::new(requirements));
        }
        selectors
    }

    fn leave_out(&mut self, name: &str, n_read: usize, is_whole: bool) {
        if !is_whole {
            let partially = if n_read == 0 { "" } else { "partially " };
            self.left_out.push(format!("spec.resourceAttributes.{name} {partially}ignored due to parse error"));
        }
    }
}

/// The readable requirements, and whether these are all.
fn read_all<T>(selector: &Field<'_>, read: impl Fn(&Field<'_>) -> Option<T>) -> (Vec<T>, bool) {
    let mut is_whole = true;
    let requirements = selector.field("requirements").items().filter_map(|requirement| {
        let read = read(&requirement);
        is_whole &= read.is_some();
        read
    });
    (requirements.collect(), is_whole)
}

fn texts(requirement: &Field<'_>) -> Vec<String> {
    requirement.field("values").items().map(|value| value.text().to_owned()).collect()
}

fn field_requirement(requirement: &Field<'_>) -> Option<FieldRequirement> {
    let equal = match requirement.field("operator").text() {
        "In" => true,
        "NotIn" => false,
        _ => return None,
    };
    let [value] = <[String; 1]>::try_from(texts(requirement)).ok()?;
    Some(FieldRequirement { field: requirement.field("key").text().to_owned(), value, equal })
}

fn label_requirement(requirement: &Field<'_>) -> Option<Requirement> {
    let operator = match requirement.field("operator").text() {
        "In" => Operator::In(texts(requirement)),
        "NotIn" => Operator::NotIn(texts(requirement)),
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return None,
    };
    Some(Requirement { key: requirement.field("key").text().to_owned(), operator })
}

/// The validation errors of a review's selectors. Unknown operators are not errors: newer clients may have more of
/// them.
pub(super) fn faults(review: &Value) -> Vec<Error> {
    let mut faults = Vec::new();
    let attributes = Field::root(review).field("spec").field("resourceAttributes");
    for name in ["fieldSelector", "labelSelector"] {
        let selector = attributes.field(name);
        if selector.is_absent() {
            continue;
        }
        let (raw, requirements) = (selector.field("rawSelector"), selector.field("requirements"));
        match (raw.is_empty(), requirements.is_empty()) {
            (false, false) => faults.push(raw.invalid("may not specified at the same time as requirements")),
            (true, true) => {
                let path = selector.path.as_str();
                let why = format!("when {path} is specified, requirements or rawSelector is required");
                faults.push(requirements.required(&why));
            }
            (true, false) | (false, true) => {}
        }
        requirements.items().for_each(|requirement| requirement_faults(name, &requirement, &mut faults));
    }
    faults
}

fn requirement_faults(selector: &str, requirement: &Field<'_>, faults: &mut Vec<Error>) {
    let (key, values) = (requirement.field("key"), requirement.field("values"));
    let is_label = selector == "labelSelector";
    if !is_label && key.is_empty() {
        faults.push(key.required("must be specified"));
    }
    match requirement.field("operator").text() {
        "In" | "NotIn" if values.is_empty() => {
            faults.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            faults.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
        }
        _ => {}
    }
    if is_label {
        rules::named(&key, name::qualified, faults);
        values.items().for_each(|value| rules::named(&value, name::label_value, faults));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(field_selector: Value, label_selector: Value) -> Value {
        json!({"resourceAttributes": {"fieldSelector": field_selector, "labelSelector": label_selector}})
    }

    #[test]
    fn what_can_be_read_counts_and_what_cannot_is_said() {
        let read =
            Selectors::read(&spec(json!({"rawSelector": "metadata.name=a"}), json!({"rawSelector": "a in (b,c)"})));
        assert_eq!(read.fields.unwrap().exact("metadata.name"), Some("a"));
        assert_eq!((read.labels.unwrap().to_string().as_str(), read.left_out.len()), ("a in (b,c)", 0));
        let fields = json!({"requirements": [
            {"key": "a", "operator": "In", "values": ["b"]}, {"key": "c", "operator": "In", "values": ["d", "e"]},
        ]});
        let read = Selectors::read(&spec(fields, json!({"requirements": [{"key": "a", "operator": "Newer"}]})));
        assert_eq!((read.fields.unwrap().requirements.len(), read.labels), (1, None));
        assert_eq!(
            read.left_out,
            [
                "spec.resourceAttributes.fieldSelector partially ignored due to parse error",
                "spec.resourceAttributes.labelSelector ignored due to parse error"
            ]
        );
        let read = Selectors::read(&spec(json!({"rawSelector": "!"}), Value::Null));
        assert_eq!((read.fields, read.left_out.len()), (None, 1));
    }

    #[track_caller]
    fn check_faults(field_selector: Value, label_selector: Value, want: &[&str]) {
        let faults = faults(&json!({"spec": spec(field_selector, label_selector)}));
        assert_eq!(faults.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
    }

    #[test]
    fn a_selector_is_text_or_requirements_and_these_are_complete() {
        let good = json!({"requirements": [{"key": "a", "operator": "Newer"}]});
        check_faults(good.clone(), good, &[]);
        check_faults(
            json!({}),
            json!({"rawSelector": "a", "requirements": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
            &[
                "spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required",
                "spec.resourceAttributes.labelSelector.rawSelector: Invalid value: \"a\": may not specified at the same time as requirements",
                "spec.resourceAttributes.labelSelector.requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ],
        );
        check_faults(
            json!({"requirements": [{"key": "", "operator": "In"}]}),
            Value::Null,
            &[
                "spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified",
                "spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ],
        );
    }
}
