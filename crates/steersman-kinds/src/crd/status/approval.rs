//! The policy for the protected groups `k8s.io` and `kubernetes.io`: a definition there must name its approval.

use crate::crd::text;
use steersman_machinery::{Value, field};

const ANNOTATION: &str = "api-approved.kubernetes.io";

/// The state of the approval annotation, whatever its text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::crd) enum Approval {
    Approved,
    Bypassed,
    Invalid,
    Missing,
}

/// The state of a definition, with a sentence about it; `None` if its group is not protected.
pub(in crate::crd) fn of(definition: &Value) -> Option<(Approval, String)> {
    let group = text(definition, &["spec", "group"]);
    let is_under =
        |domain: &str| group.strip_suffix(domain).is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('.'));
    if !is_under("k8s.io") && !is_under("kubernetes.io") {
        return None;
    }
    let annotation = text(definition, &["metadata", "annotations", ANNOTATION]);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let rule = format!("protected groups must have approval annotation {ANNOTATION:?}");
    let is_url = annotation.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some());
    Some(match annotation {
        "" => (Approval::Missing, format!("{rule}, {see}")),
        _ if annotation.starts_with("unapproved") => (Approval::Bypassed, format!("not approved: {annotation:?}")),
        _ if is_url => (Approval::Approved, format!("approved in {annotation}")),
        _ => {
            let forms = r#"with either a URL or a reason starting with "unapproved""#;
            (Approval::Invalid, format!("{rule} {forms}, {see}"))
        }
    })
}

/// The error of a definition whose approval is missing or invalid, unless the old one is in the same state.
pub(in crate::crd) fn fault(new: &Value, old: Option<&Value>) -> Option<field::Error> {
    let (state, reason) = of(new)?;
    if old.and_then(of).is_some_and(|(before, _)| before == state) {
        return None;
    }
    let path = field::Path::new("metadata.annotations").key(ANNOTATION);
    match state {
        Approval::Approved | Approval::Bypassed => None,
        Approval::Missing => Some(field::Error::required(&path, reason)),
        Approval::Invalid => {
            Some(field::Error::invalid(&path, text(new, &["metadata", "annotations", ANNOTATION]), reason))
        }
    }
}
