//! `Priority`: sets the priority and the preemption policy of a pod from its PriorityClass.

use crate::shared::compute::text_bytes;
use crate::shared::conversion;
use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::classes::{self, Class};
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, is_about_pod};
use futures::future::BoxFuture;
use steersman_machinery::value::{at, object_at, str_at};
use steersman_machinery::{ObjectKey, Value};

#[derive(Debug)]
pub(crate) struct Priority;

impl Plugin for Priority {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        phase == Phase::Mutate && matches!(action, Action::Create | Action::Update) && is_about_pod(attributes)
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            match (new, review.old) {
                (Some(pod), None) => {
                    let class = priority_class(review, pod).await?;
                    set_priority(pod, class).map_err(|refusal| {
                        let name = str_at(pod, &["metadata", "name"]).unwrap_or_default();
                        Failure::forbidden(&review.operation.group_resource(), name, &refusal.to_string())
                    })
                }
                (Some(pod), Some(old)) => {
                    keep_priority(pod, old);
                    Ok(())
                }
                (None, _) => Ok(()),
            }
        })
    }
}

/// The PriorityClass that a pod names, or the default if it names none.
async fn priority_class(review: &Review<'_, '_>, pod: &Value) -> Result<Option<Class>, Failure> {
    let Some(name) = named(pod) else { return Ok(review.state.classes.default_of(classes::Kind::Priority)) };
    let key = ObjectKey::cluster(name);
    let Some(found) = review.state.store.get_cached(&classes::Kind::Priority.resource(), &key) else {
        return Ok(None);
    };
    review.operation.load.expect(text_bytes(found.json())).await;
    conversion::charge_reading(&found, &review.operation.budget)?;
    Ok(conversion::parse(&found).ok().map(|class| Class::read(&class)))
}

/// The class that a pod names.
fn named(pod: &Value) -> Option<&str> {
    str_at(pod, &["spec", "priorityClassName"]).filter(|name| !name.is_empty())
}

/// Why a pod is refused; the text follows `pods "x" is forbidden: `.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
enum Refusal {
    /// The preemption policy of the pod is not that of its class.
    #[error(
        "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
    )]
    PreemptionPolicy {
        /// The policy that the client gave.
        given: String,
        /// The policy of the class.
        computed: String,
    },
    /// The priority of the pod is not that of its class.
    #[error(
        "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
    )]
    Priority {
        /// The priority that the client gave.
        given: i64,
        /// The priority of the class.
        computed: i64,
    },
    /// There is no such class.
    #[error("no PriorityClass with name {name} was found")]
    UnknownPriorityClass {
        /// The name that the pod gives.
        name: String,
    },
}

/// Sets the priority of a new pod from its class: the one that it names, or the default.
fn set_priority(pod: &mut Value, found: Option<Class>) -> Result<(), Refusal> {
    if let (Some(name), None) = (named(pod), &found) {
        return Err(Refusal::UnknownPriorityClass { name: name.to_owned() });
    }
    let computed = found.as_ref().map_or(0, |class| class.value);
    let policy = found.as_ref().and_then(|class| class.preemption_policy.clone());
    let policy = policy.map_or_else(|| "PreemptLowerPriority".to_owned(), String::from);
    if let Some(given) = at(pod, &["spec", "priority"]).and_then(Value::as_i64).filter(|given| *given != computed) {
        return Err(Refusal::Priority { given, computed });
    }
    if let Some(given) = str_at(pod, &["spec", "preemptionPolicy"]).filter(|given| *given != policy) {
        return Err(Refusal::PreemptionPolicy { given: given.to_owned(), computed: policy });
    }
    if let Some(spec) = object_at(pod, &["spec"]) {
        if let Some(class) = found {
            spec.insert("priorityClassName".to_owned(), Value::from(String::from(class.name)));
        }
        spec.insert("priority".to_owned(), Value::from(computed));
        spec.insert("preemptionPolicy".to_owned(), Value::from(policy));
    }
    Ok(())
}

/// Keeps the priority of a pod on an update by a client that does not send it.
fn keep_priority(pod: &mut Value, old: &Value) {
    let Some(spec) = object_at(pod, &["spec"]) else { return };
    for field in ["preemptionPolicy", "priority"] {
        if let Some(before) = at(old, &["spec", field]).filter(|_| !spec.contains_key(field)) {
            spec.insert(field.to_owned(), before.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plain_pod_gets_no_priority() {
        let mut pod = json!({"spec": {}});
        set_priority(&mut pod, None).unwrap();
        assert_eq!(pod["spec"], json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}));
    }

    #[test]
    fn a_class_must_exist_and_agree() {
        let mut pod = json!({"spec": {"priorityClassName": "absent"}});
        let refusal = set_priority(&mut pod, None).unwrap_err();
        assert_eq!(refusal.to_string(), "no PriorityClass with name absent was found");
        let class = || Some(Class { name: "ten".into(), value: 10, preemption_policy: None });
        let mut pod = json!({"spec": {"priorityClassName": "ten", "priority": 5}});
        assert_eq!(set_priority(&mut pod, class()).unwrap_err(), Refusal::Priority { given: 5, computed: 10 });
        let mut pod = json!({"spec": {"priorityClassName": "ten"}});
        set_priority(&mut pod, class()).unwrap();
        assert_eq!(pod["spec"]["priority"], 10);
    }

    #[test]
    fn an_update_keeps_the_priority() {
        let old = json!({"spec": {"priority": 7, "preemptionPolicy": "Never"}});
        let mut pod = json!({"spec": {}});
        keep_priority(&mut pod, &old);
        assert_eq!((&pod["spec"]["priority"], &pod["spec"]["preemptionPolicy"]), (&json!(7), &json!("Never")));
    }
}
