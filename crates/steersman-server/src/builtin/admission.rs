//! What admission adds to built-in kinds after ownership of fields has been settled: nobody manages these fields.
//!
//! Upstream's plugins `Priority` and `DefaultTolerationSeconds`.

use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::{at, object_at, str_at};

/// What a pod gets from a PriorityClass.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PriorityClass {
    /// Its name.
    pub name: String,
    /// The priority of its pods.
    pub value: i64,
    /// Whether its pods may make room for themselves; `PreemptLowerPriority` if it does not say.
    pub preemption_policy: Option<String>,
}

impl PriorityClass {
    /// What a stored PriorityClass gives to its pods.
    pub fn read(object: &Value) -> PriorityClass {
        PriorityClass {
            name: str_at(object, &["metadata", "name"]).unwrap_or_default().to_owned(),
            value: at(object, &["value"]).and_then(Value::as_i64).unwrap_or(0),
            preemption_policy: str_at(object, &["preemptionPolicy"]).map(str::to_owned),
        }
    }

    /// The one of pods that name none: of those that are marked so, the lowest.
    pub fn global_default<'a>(classes: impl IntoIterator<Item = &'a Value>) -> Option<PriorityClass> {
        let marked = classes.into_iter().filter(|class| at(class, &["globalDefault"]) == Some(&Value::Bool(true)));
        marked.map(PriorityClass::read).min_by_key(|class| class.value)
    }
}

/// A pod that cannot be; the text follows `pods "x" is forbidden: `.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The preemption policy of the pod is not that of its class.
    #[error(
        "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
    )]
    PreemptionPolicy {
        /// What the client said.
        given: String,
        /// What it is.
        computed: String,
    },
    /// The priority of the pod is not that of its class.
    #[error(
        "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
    )]
    Priority {
        /// What the client said.
        given: i64,
        /// What it is.
        computed: i64,
    },
    /// There is no such class.
    #[error("no PriorityClass with name {name} was found")]
    UnknownPriorityClass {
        /// The name that was given.
        name: String,
    },
}

/// Gives a pod, new or changed, its priority and the tolerations every pod has.
///
/// `class` finds a PriorityClass by name, and the global default where no name is given.
///
/// # Errors
/// When the pod names a class that does not exist, or contradicts the one it names.
pub fn mutate_pod(
    pod: &mut Value,
    old: Option<&Value>,
    class: impl FnOnce(Option<&str>) -> Option<PriorityClass>,
) -> Result<(), Refusal> {
    match old {
        None => set_priority(pod, class)?,
        Some(old) => keep_priority(pod, old),
    }
    tolerate(pod);
    Ok(())
}

/// The classes that every cluster has, for the parts of the cluster itself.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

fn set_priority(pod: &mut Value, class: impl FnOnce(Option<&str>) -> Option<PriorityClass>) -> Result<(), Refusal> {
    let name = str_at(pod, &["spec", "priorityClassName"]).filter(|name| !name.is_empty());
    let system = SYSTEM_CLASSES.iter().find(|(system, _)| Some(*system) == name);
    let found = match system {
        Some((name, value)) => Some(PriorityClass { name: (*name).to_owned(), value: *value, preemption_policy: None }),
        None => class(name),
    };
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

/// A client that writes a pod as it once wrote it does not take its priority away.
fn keep_priority(pod: &mut Value, old: &Value) {
    let Some(spec) = object_at(pod, &["spec"]) else { return };
    for field in ["preemptionPolicy", "priority"] {
        if let Some(before) = at(old, &["spec", field]).filter(|_| !spec.contains_key(field)) {
            spec.insert(field.to_owned(), before.clone());
        }
    }
}

/// A pod stays for a while on a node that does not answer, unless it says otherwise.
fn tolerate(pod: &mut Value) {
    const SECONDS: i64 = 300;
    let Some(spec) = object_at(pod, &["spec"]) else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        let Some(tolerations) = tolerations.as_array_mut() else { return };
        let speaks_of_it = |toleration: &Value| {
            let text = |field| str_at(toleration, &[field]).unwrap_or_default();
            (text("key") == key || text("key").is_empty()) && matches!(text("effect"), "NoExecute" | "")
        };
        if !tolerations.iter().any(speaks_of_it) {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: Option<&str>) -> Option<PriorityClass> {
        None
    }

    #[test]
    fn a_plain_pod_gets_no_priority_and_two_tolerations() {
        let mut pod = json!({"spec": {}});
        mutate_pod(&mut pod, None, none).unwrap();
        assert_eq!(pod["spec"]["priority"], 0);
        assert_eq!(pod["spec"]["preemptionPolicy"], "PreemptLowerPriority");
        assert_eq!(pod["spec"]["tolerations"][0]["key"], "node.kubernetes.io/not-ready");
        assert_eq!(pod["spec"]["tolerations"][1]["tolerationSeconds"], 300);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_pod_that_tolerates_all_gets_nothing_more() {
        let mut pod = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        mutate_pod(&mut pod, None, none).unwrap();
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_class_must_exist_and_agree() {
        let mut pod = json!({"spec": {"priorityClassName": "absent"}});
        let refusal = mutate_pod(&mut pod, None, none).unwrap_err();
        assert_eq!(refusal.to_string(), "no PriorityClass with name absent was found");
        let class = |name: Option<&str>| {
            let name = name.unwrap_or("default").to_owned();
            Some(PriorityClass { name, value: 10, preemption_policy: None })
        };
        let mut pod = json!({"spec": {"priorityClassName": "ten", "priority": 5}});
        assert_eq!(mutate_pod(&mut pod, None, class).unwrap_err(), Refusal::Priority { given: 5, computed: 10 });
        let mut pod = json!({"spec": {"priorityClassName": "ten"}});
        mutate_pod(&mut pod, None, class).unwrap();
        assert_eq!(pod["spec"]["priority"], 10);
    }

    #[test]
    fn an_update_keeps_the_priority() {
        let old = json!({"spec": {"priority": 7, "preemptionPolicy": "Never"}});
        let mut pod = json!({"spec": {}});
        mutate_pod(&mut pod, Some(&old), none).unwrap();
        assert_eq!((&pod["spec"]["priority"], &pod["spec"]["preemptionPolicy"]), (&json!(7), &json!("Never")));
    }
}
