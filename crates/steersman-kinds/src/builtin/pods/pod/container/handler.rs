//! Validation of probes and lifecycle hooks.

use crate::builtin::pods::pod::container::environment::given;
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use steersman_machinery::field::Error;

/// The rules of the numbers of a probe.
pub(in crate::builtin) const PROBE: &[Rule] = &[
    Rule::new("initialDelaySeconds", Check::NotNegative),
    Rule::new("timeoutSeconds", Check::NotNegative),
    Rule::new("periodSeconds", Check::NotNegative),
    Rule::new("successThreshold", Check::NotNegative),
    Rule::new("failureThreshold", Check::NotNegative),
    Rule::new("terminationGracePeriodSeconds", Check::Positive),
];

/// The rules of a request over HTTP.
pub(in crate::builtin) const HTTP_GET: &[Rule] = &[
    Rule::required("path", ""),
    Rule::new("port", Check::By(rules::port_or_name)),
    Rule::new("scheme", Check::OneOf(&["HTTP", "HTTPS"])),
    // Upstream blames the list.
    Rule::new("httpHeaders[].name", Check::Text(is_header_name, NO_HEADER_NAME)).blaming("httpHeaders"),
];

pub(in crate::builtin::pods::pod) fn validate_probes(container: &Field<'_>, errors: &mut Vec<Error>) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.field(name);
        if probe.is_absent() {
            continue;
        }
        validate_handler(&probe, None, errors);
        check_field(PROBE, &probe, errors);
        let grace = probe.field("terminationGracePeriodSeconds");
        let successes = probe.field("successThreshold");
        if name == "readinessProbe" && grace.is_present() {
            errors.push(grace.invalid("must not be set for readinessProbes"));
        }
        if name != "readinessProbe" && successes.number().is_some_and(|number| number != 1) {
            errors.push(successes.invalid("must be 1"));
        }
    }
}

/// Validates the lifecycle hooks of one container, whose pod has this grace period.
pub(in crate::builtin::pods::pod) fn validate_lifecycle(
    container: &Field<'_>,
    grace: Option<i64>,
    errors: &mut Vec<Error>,
) {
    for name in ["postStart", "preStop"] {
        let hook = container.at(&["lifecycle", name]);
        if hook.is_present() {
            validate_handler(&hook, grace, errors);
        }
    }
}

/// The handlers of probes and hooks, in the order in which upstream looks for one.
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

fn validate_handler(handler: &Field<'_>, grace: Option<i64>, errors: &mut Vec<Error>) {
    let given = given(handler, &HANDLERS);
    let Some((first, more)) = given.split_first() else {
        errors.push(handler.required("must specify a handler type"));
        return;
    };
    errors.extend(more.iter().map(|one| one.forbidden("may not specify more than 1 handler type")));
    let kind = HANDLERS.iter().find(|kind| handler.field(kind).is_present());
    match kind.copied().unwrap_or_default() {
        "exec" => rules::required(&first.field("command"), errors),
        "grpc" => Check::Port.of(&first.field("port"), errors),
        "httpGet" => check_field(HTTP_GET, first, errors),
        "tcpSocket" => rules::port_or_name(&first.field("port"), errors),
        _ => sleep(first, grace, errors),
    }
}

/// A hook sleeps no longer than the pod takes to end.
fn sleep(sleep: &Field<'_>, grace: Option<i64>, errors: &mut Vec<Error>) {
    let seconds = sleep.field("seconds").number().unwrap_or(0);
    if let Some(grace) = grace.filter(|grace| seconds < 0 || *grace < seconds) {
        let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.push(Error::invalid(&sleep.path, seconds, why));
    }
}

const NO_HEADER_NAME: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";

fn is_header_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}
