//! `Priority`: sets the priority and the preemption policy of a pod from its PriorityClass.

use crate::shared::conversion;
use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, is_about_pod};
use futures::future::{self, BoxFuture};
use steersman_machinery::value::{at, object_at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value};
use steersman_storage::{At, Page, Scope};

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
        let admitted = match (new, review.old) {
            (Some(pod), None) => set_priority(pod, |name| priority_class(review.state, name)).map_err(|refusal| {
                let name = str_at(pod, &["metadata", "name"]).unwrap_or_default();
                Failure::forbidden(&review.operation.group_resource(), name, &refusal.to_string())
            }),
            (Some(pod), Some(old)) => {
                keep_priority(pod, old);
                Ok(())
            }
            (None, _) => Ok(()),
        };
        Box::pin(future::ready(admitted))
    }
}

/// The PriorityClass of this name, or the default for pods that name none.
fn priority_class(state: &State, name: Option<&str>) -> Option<PriorityClass> {
    let classes = GroupResource::new("scheduling.k8s.io", "priorityclasses");
    match name {
        Some(name) => {
            let found = state.store.get_cached(&classes, &ObjectKey::cluster(name))?;
            conversion::parse(&found).ok().map(|class| PriorityClass::read(&class))
        }
        None => {
            let all = state.store.list(&classes, &Scope::All, At::Latest, Page::ALL).ok()?;
            let trees: Vec<Value> = all.objects.iter().filter_map(|class| conversion::parse(class).ok()).collect();
            PriorityClass::global_default(&trees)
        }
    }
}

/// The fields of a PriorityClass that its pods inherit.
#[derive(Clone, Debug, Eq, PartialEq)]
struct PriorityClass {
    name: String,
    /// The priority of its pods.
    value: i64,
    /// The preemption policy of its pods; `PreemptLowerPriority` if the class has none.
    preemption_policy: Option<String>,
}

impl PriorityClass {
    /// Reads a stored PriorityClass.
    fn read(object: &Value) -> PriorityClass {
        PriorityClass {
            name: str_at(object, &["metadata", "name"]).unwrap_or_default().to_owned(),
            value: at(object, &["value"]).and_then(Value::as_i64).unwrap_or(0),
            preemption_policy: str_at(object, &["preemptionPolicy"]).map(str::to_owned),
        }
    }

    /// The default for pods without a class: of the classes with `globalDefault`, the one with the lowest value.
    fn global_default<'a>(classes: impl IntoIterator<Item = &'a Value>) -> Option<PriorityClass> {
        let defaults = classes.into_iter().filter(|class| at(class, &["globalDefault"]) == Some(&Value::Bool(true)));
        defaults.map(PriorityClass::read).min_by_key(|class| class.value)
    }
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

/// Sets the priority of a new pod. `class` finds a PriorityClass by name, and the global default where no name is
/// given.
fn set_priority(pod: &mut Value, class: impl FnOnce(Option<&str>) -> Option<PriorityClass>) -> Result<(), Refusal> {
    let name = str_at(pod, &["spec", "priorityClassName"]).filter(|name| !name.is_empty());
    let found = class(name);
    if let (Some(name), None) = (name, &found) {
        return Err(Refusal::UnknownPriorityClass { name: name.to_owned() });
    }
    let computed = found.as_ref().map_or(0, |class| class.value);
    let policy = found.as_ref().and_then(|class| class.preemption_policy.clone());
    let policy = policy.unwrap_or_else(|| "PreemptLowerPriority".to_owned());
    if let Some(given) = at(pod, &["spec", "priority"]).and_then(Value::as_i64).filter(|given| *given != computed) {
        return Err(Refusal::Priority { given, computed });
    }
    if let Some(given) = str_at(pod, &["spec", "preemptionPolicy"]).filter(|given| *given != policy) {
        return Err(Refusal::PreemptionPolicy { given: given.to_owned(), computed: policy });
    }
    if let Some(spec) = object_at(pod, &["spec"]) {
        if let Some(class) = found {
            spec.insert("priorityClassName".to_owned(), Value::from(class.name));
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

    fn none(_: Option<&str>) -> Option<PriorityClass> {
        None
    }

    #[test]
    fn a_plain_pod_gets_no_priority() {
        let mut pod = json!({"spec": {}});
        set_priority(&mut pod, none).unwrap();
        assert_eq!(pod["spec"], json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}));
    }

    #[test]
    fn a_class_must_exist_and_agree() {
        let mut pod = json!({"spec": {"priorityClassName": "absent"}});
        let refusal = set_priority(&mut pod, none).unwrap_err();
        assert_eq!(refusal.to_string(), "no PriorityClass with name absent was found");
        let class = |name: Option<&str>| {
            let name = name.unwrap_or("default").to_owned();
            Some(PriorityClass { name, value: 10, preemption_policy: None })
        };
        let mut pod = json!({"spec": {"priorityClassName": "ten", "priority": 5}});
        assert_eq!(set_priority(&mut pod, class).unwrap_err(), Refusal::Priority { given: 5, computed: 10 });
        let mut pod = json!({"spec": {"priorityClassName": "ten"}});
        set_priority(&mut pod, class).unwrap();
        assert_eq!(pod["spec"]["priority"], 10);
    }

    #[test]
    fn the_class_of_pods_that_name_none_is_the_one_that_says_so() {
        let class = json!({"metadata": {"name": "pc"}, "value": 10});
        let default = json!({"metadata": {"name": "d"}, "value": 3, "globalDefault": true});
        assert_eq!(PriorityClass::global_default([&class, &default]).unwrap().name, "d");
    }

    #[test]
    fn an_update_keeps_the_priority() {
        let old = json!({"spec": {"priority": 7, "preemptionPolicy": "Never"}});
        let mut pod = json!({"spec": {}});
        keep_priority(&mut pod, &old);
        assert_eq!((&pod["spec"]["priority"], &pod["spec"]["preemptionPolicy"]), (&json!(7), &json!("Never")));
    }
}
