//! The client configuration of a webhook: a URL, or a service.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{self, Check, Rule};
use steersman_machinery::field::Error;
use steersman_machinery::name;

/// Validates a `clientConfig`.
pub(super) fn validate(config: &Field<'_>, errors: &mut Vec<Error>) {
    let (url, service) = (config.field("url"), config.field("service"));
    match (url.is_present(), service.is_present()) {
        (true, false) => validate_url(&url, errors),
        (false, true) => rule::check_field(SERVICE, &service, errors),
        _ => errors.push(config.required("exactly one of url or service is required")),
    }
}

fn validate_url(url: &Field<'_>, errors: &mut Vec<Error>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let text = url.text();
    let (head, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (head, query) = head.split_once('?').unwrap_or((head, ""));
    let Ok(uri) = head.parse::<http::Uri>() else {
        return errors.push(url.required(&format!("url must be a valid URL: {text:?} cannot be read{FORM}")));
    };
    let mut wrong = |value: &str, why: String| errors.push(Error::invalid(&url.path, value, why));
    let scheme = uri.scheme_str().unwrap_or_default();
    if scheme != "https" {
        wrong(scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() || uri.scheme().is_none() {
        wrong("", format!("host must be specified{FORM}"));
    }
    if authority.contains('@') {
        wrong(user, "user information is not permitted in the URL".to_owned());
    }
    if !fragment.is_empty() {
        wrong(fragment, "fragments are not permitted in the URL".to_owned());
    }
    if !query.is_empty() {
        wrong(query, "query parameters are not permitted in the URL".to_owned());
    }
}

pub(in crate::builtin) const SERVICE: &[Rule] = &[
    // Upstream passes the name as the namespace, and the namespace as the name.
    Rule::required("namespace", "").blaming("name"),
    Rule::required("name", "").blaming("namespace"),
    Rule::new("port", Check::By(rules::service_port)),
    Rule::new("path", Check::By(validate_path)),
];

fn validate_path(path: &Field<'_>, errors: &mut Vec<Error>) {
    let text = path.text();
    if matches!(text, "" | "/") {
        return;
    }
    if text == "//" {
        return errors.push(path.invalid("segment[0] may not be empty"));
    }
    if !text.starts_with('/') {
        errors.push(path.invalid("must start with a '/'"));
    }
    // As upstream, the first byte is taken for the slash, whatever it is.
    let rest = text.get(1..).unwrap_or_default();
    for (index, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            errors.push(path.invalid(format!("segment[{index}] may not be empty")));
            continue;
        }
        let wrong = name::dns1123_subdomain(step).into_iter();
        errors.extend(wrong.map(|detail| path.invalid(format!("segment[{index}]: {detail}"))));
    }
}
