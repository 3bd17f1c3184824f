//! Whether a Pod tolerates a taint. Follows upstream's `ToleratesTaint`; the numeric operators `Lt` and `Gt`, which are
//! off by default there, tolerate nothing.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// The fields of a taint that tolerations match: all but its time.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct NodeTaint {
    pub(crate) effect: String,
    key: String,
    value: String,
}

impl NodeTaint {
    pub(crate) fn of(Taint { effect, key, value, .. }: &Taint) -> NodeTaint {
        NodeTaint { effect: effect.clone(), key: key.clone(), value: value.clone().unwrap_or_default() }
    }

    /// Whether one of these tolerations matches the taint.
    pub(crate) fn is_tolerated(&self, tolerations: &[Toleration]) -> bool {
        tolerations.iter().any(|toleration| is_for(toleration, &self.effect, &self.key, &self.value))
    }
}

/// Whether a toleration matches a taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    is_for(toleration, &taint.effect, &taint.key, taint.value.as_deref().unwrap_or_default())
}

fn is_for(toleration: &Toleration, effect: &str, key: &str, value: &str) -> bool {
    let is = |wanted: &Option<String>, present: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == present)
    };
    is(&toleration.effect, effect)
        && is(&toleration.key, key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => toleration.value.as_deref().unwrap_or_default() == value,
            "Exists" => true,
            _ => false,
        }
}

/// The first toleration for each taint. `None` if a taint has none.
pub(crate) fn matching<'a>(taints: &[Taint], tolerations: &'a [Toleration]) -> Option<Vec<&'a Toleration>> {
    let find = |taint: &Taint| tolerations.iter().find(|toleration| tolerates(toleration, taint));
    taints.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(toleration: [&str; 4], want: bool) {
        let [key, operator, value, effect] = toleration.map(|text| (!text.is_empty()).then(|| text.to_owned()));
        let toleration = Toleration { effect, key, operator, toleration_seconds: None, value };
        let taint = Taint {
            effect: "NoExecute".to_owned(),
            key: "a".to_owned(),
            time_added: None,
            value: Some("1".to_owned()),
        };
        assert_eq!(tolerates(&toleration, &taint), want, "{toleration:?}");
        assert_eq!(matching(&[taint], &[toleration]).is_some(), want);
    }

    #[test]
    fn key_value_and_effect_match_or_are_left_out() {
        check(["a", "Equal", "1", "NoExecute"], true);
        check(["a", "", "1", ""], true);
        check(["a", "", "2", ""], false);
        check(["b", "Exists", "", ""], false);
        check(["", "Exists", "", ""], true);
        check(["a", "Exists", "", "NoSchedule"], false);
        check(["a", "Gt", "0", ""], false);
    }
}
