//! Validation of probes and lifecycle hooks.

use crate::builtin::pods::pod::environment::given;
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use steersman_machinery::field::Error;

pub(super) fn validate_probes(container: &Field<'_>, errors: &mut Vec<Error>) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.field(name);
        if probe.is_absent() {
            continue;
        }
        validate_handler(&probe, &["exec", "grpc", "httpGet", "tcpSocket"], errors);
        for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            rules::not_negative(&probe.field(field), errors);
        }
        let grace = probe.field("terminationGracePeriodSeconds");
        rules::positive(&grace, errors);
        let successes = probe.field("successThreshold");
        if name == "readinessProbe" && grace.is_present() {
            errors.push(grace.invalid("must not be set for readinessProbes"));
        }
        if name != "readinessProbe" && successes.number().is_some_and(|number| number != 1) {
            errors.push(successes.invalid("must be 1"));
        }
    }
}

/// Validates the lifecycle hooks of one container.
pub(super) fn validate_lifecycle(container: &Field<'_>, errors: &mut Vec<Error>) {
    for name in ["postStart", "preStop"] {
        let hook = container.at(&["lifecycle", name]);
        if hook.is_present() {
            validate_handler(&hook, &["exec", "httpGet", "sleep", "tcpSocket"], errors);
        }
    }
}

fn validate_handler(handler: &Field<'_>, kinds: &[&str], errors: &mut Vec<Error>) {
    let given = given(handler, kinds);
    let Some((first, more)) = given.split_first() else {
        errors.push(handler.required("must specify a handler type"));
        return;
    };
    errors.extend(more.iter().map(|one| one.forbidden("may not specify more than 1 handler type")));
    let kind = kinds.iter().find(|kind| handler.field(kind).is_present());
    match kind.copied().unwrap_or_default() {
        "exec" => rules::required(&first.field("command"), errors),
        "grpc" => rules::port(&first.field("port"), errors),
        "httpGet" => http(first, errors),
        "tcpSocket" => rules::port_or_name(&first.field("port"), errors),
        _ => rules::positive(&first.field("seconds"), errors),
    }
}

fn http(get: &Field<'_>, errors: &mut Vec<Error>) {
    rules::required(&get.field("path"), errors);
    rules::port_or_name(&get.field("port"), errors);
    rules::one_of(&get.field("scheme"), &["HTTP", "HTTPS"], errors);
    for header in get.field("httpHeaders").items() {
        let name = header.field("name");
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.text().is_empty() || !name.text().bytes().all(is_word) {
            errors.push(name.invalid(
                "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
            ));
        }
    }
}
