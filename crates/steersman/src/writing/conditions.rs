//! Conditions as the API conventions require: one per type, and a transition time that moves only with the status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The status of a condition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// The condition does not hold.
    False,
    /// The condition holds.
    True,
    /// It is not known whether the condition holds.
    Unknown,
}

impl Status {
    /// The value of the field `status` in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::False => "False",
            Self::True => "True",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition that begins to hold now.
///
/// `reason` is one word in CamelCase, `message` a sentence for people, `observed_generation` the generation of the
/// object that was observed.
pub fn condition(
    type_: &str,
    status: Status,
    reason: &str,
    message: &str,
    observed_generation: Option<i64>,
) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.as_str().to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation,
        last_transition_time: Time(now()),
    }
}

/// Replaces the condition of the same type, or adds `condition`. Returns whether anything changed.
///
/// While the status stays the same, so does the transition time; a new time alone is not a change.
pub fn set(conditions: &mut Vec<Condition>, mut condition: Condition) -> bool {
    let Some(known) = conditions.iter_mut().find(|known| known.type_ == condition.type_) else {
        conditions.push(condition);
        return true;
    };
    if known.status == condition.status {
        condition.last_transition_time = known.last_transition_time.clone();
    }
    if *known == condition {
        return false;
    }
    *known = condition;
    true
}

/// Removes the condition of a type. Returns whether it was there.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() < before
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of a type exists and holds.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == Status::True.as_str())
}

/// Whether the condition of a type exists and was observed at this generation or a later one. A condition of an earlier
/// generation says nothing about the current one.
pub fn is_current(conditions: &[Condition], type_: &str, generation: Option<i64>) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.observed_generation >= generation)
}

/// The current time in whole seconds: the API keeps no more, and a time read back must equal the time sent.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let at = |second, status, reason: &str| Condition {
            last_transition_time: Time(Timestamp::from_second(second).unwrap()),
            ..condition("Ready", status, reason, "", Some(1))
        };
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, at(1, Status::False, "Creating")));
        assert!(set(&mut conditions, at(2, Status::False, "Waiting")));
        assert_eq!(conditions, [at(1, Status::False, "Waiting")]);
        assert!(!set(&mut conditions, at(3, Status::False, "Waiting")));
        assert!(set(&mut conditions, at(4, Status::True, "Done")));
        assert_eq!(conditions, [at(4, Status::True, "Done")]);
        assert!(is_true(&conditions, "Ready"));
        assert_eq!(find(&conditions, "Other"), None);
    }

    #[test]
    fn a_condition_is_current_for_the_generation_it_was_found_out_about() {
        let mut conditions = vec![
            condition("Ready", Status::True, "Done", "", Some(2)),
            condition("Old", Status::True, "Done", "", None),
        ];
        assert!(is_current(&conditions, "Ready", Some(2)) && !is_current(&conditions, "Ready", Some(3)));
        assert!(!is_current(&conditions, "Old", Some(1)) && is_current(&conditions, "Old", None));
        assert_eq!((remove(&mut conditions, "Ready"), remove(&mut conditions, "Ready")), (true, false));
        assert!(!is_current(&conditions, "Ready", Some(1)));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn a_new_generation_or_message_is_a_change_without_a_transition() {
        let mut conditions = Vec::new();
        set(&mut conditions, condition("Ready", Status::True, "Done", "", Some(1)));
        conditions[0].last_transition_time = Time(Timestamp::from_second(1).unwrap());
        assert!(set(&mut conditions, condition("Ready", Status::True, "Done", "", Some(2))));
        assert!(set(&mut conditions, condition("Ready", Status::True, "Done", "all of it", Some(2))));
        assert_eq!(conditions[0].last_transition_time, Time(Timestamp::from_second(1).unwrap()));
        assert_eq!(conditions[0].observed_generation, Some(2));
    }
}
