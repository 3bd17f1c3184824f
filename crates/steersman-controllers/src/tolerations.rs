//! Which taints a Pod tolerates. Follows upstream's `ToleratesTaint`; the numeric operators `Lt` and `Gt`, which are off by default there,
//! tolerate nothing.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether a toleration is for a taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let (effect, key) =
        (toleration.effect.as_deref().unwrap_or_default(), toleration.key.as_deref().unwrap_or_default());
    if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default(),
        "Exists" => true,
        _ => false,
    }
}

/// The first toleration for each taint. `None` if there is none for one of them.
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
