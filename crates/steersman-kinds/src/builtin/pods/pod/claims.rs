//! Validation of the ResourceClaims of a pod, and of their use by containers.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::name;

/// Validates the claims of a pod spec.
pub(super) fn validate(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let mut names = BTreeSet::new();
    for claim in spec.field("resourceClaims").items() {
        let claim_name = claim.field("name");
        if claim_name.is_empty() {
            errors.push(claim_name.required(""));
        } else if names.insert(claim_name.text()) {
            rules::named(&claim_name, name::dns1123_label, errors);
        } else {
            errors.push(claim_name.duplicate());
        }
        let (direct, template) = (claim.field("resourceClaimName"), claim.field("resourceClaimTemplateName"));
        match (direct.is_present(), template.is_present()) {
            (true, true) => errors.push(
                claim.invalid("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"),
            ),
            (false, false) => {
                errors.push(claim.invalid("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"));
            }
            _ => {}
        }
        for reference in [&direct, &template].into_iter().filter(|reference| reference.is_present()) {
            rules::named(reference, name::dns1123_subdomain, errors);
        }
    }
    of_container(&spec.at(&["resources", "claims"]), &names, errors);
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in spec.field(list).items() {
            of_container(&container.at(&["resources", "claims"]), &names, errors);
        }
    }
}

/// Validates the claims that a container uses, as a whole or one of their requests. `names` are the claims of the pod.
fn of_container(claims: &Field<'_>, names: &BTreeSet<&str>, errors: &mut Vec<Error>) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for claim in claims.items() {
        let (claim_name, request) = (claim.field("name").text(), claim.field("request"));
        if claim_name.is_empty() {
            errors.push(claim.required(""));
            continue;
        }
        // Using the whole claim includes each of its requests.
        let overlaps = |(name, part): &&(&str, &str)| {
            *name == claim_name && (part.is_empty() || request.is_empty() || *part == request.text())
        };
        if let Some((_, part)) = seen.iter().find(overlaps) {
            let is_request = !part.is_empty() && !request.is_empty();
            let key = if is_request { format!("{claim_name}/{part}") } else { claim_name.to_owned() };
            errors.push(Error::duplicate(&claim.path, key.into()));
        }
        if !request.is_empty() {
            rules::named(&request, name::dns1123_label, errors);
        }
        seen.push((claim_name, request.text()));
        if !names.contains(claim_name) {
            let mut error = Error::not_found(&claim.path, claim_name);
            let known = names.iter().copied().collect::<Vec<&str>>().join(", ");
            let end = if known.is_empty() { " which is empty".to_owned() } else { format!(": {known}") };
            error.detail = format!("must be one of the names in pod.spec.resourceClaims{end}");
            errors.push(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(used: Value, want: &[&str]) {
        let spec = json!({
            "resourceClaims": [{"name": "a", "resourceClaimName": "x"}],
            "containers": [{"resources": {"claims": used}}],
        });
        let mut errors = Vec::new();
        validate(&Field::root(&spec), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn a_container_uses_claims_of_its_pod_each_once() {
        check(json!([{"name": "a", "request": "r"}, {"name": "a", "request": "s"}]), &[]);
        check(
            json!([{"name": "a"}, {"name": "a", "request": "r"}]),
            &[r#"containers[0].resources.claims[1]: Duplicate value: "a""#],
        );
        check(
            json!([{"name": "b"}]),
            &[
                r#"containers[0].resources.claims[0]: Not found: "b": must be one of the names in pod.spec.resourceClaims: a"#,
            ],
        );
    }

    #[test]
    fn a_claim_of_a_pod_is_a_claim_or_a_template() {
        let spec = json!({"resourceClaims": [
            {"name": "a"}, {"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"},
        ]});
        let mut errors = Vec::new();
        validate(&Field::root(&spec), &mut errors);
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["resourceClaims[0]", "resourceClaims[1].name", "resourceClaims[1]"]);
    }
}
