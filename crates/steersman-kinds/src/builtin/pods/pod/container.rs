//! Validation of containers, init containers and ephemeral containers.

use crate::builtin::pods::pod::volume::Volumes;
pub(in crate::builtin) mod environment;
pub(in crate::builtin) mod handler;
pub mod resources;
pub(in crate::builtin) mod status;

use crate::builtin::pods::pod::{ephemeral, security};
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::{Value, name};

/// Validates all containers of a pod spec.
pub fn validate_all(spec: &Field<'_>, volumes: &Volumes<'_>, errors: &mut Vec<Error>) {
    let (main, init) = (spec.field("containers"), spec.field("initContainers"));
    if main.is_empty() {
        errors.push(main.required(""));
    }
    for container in spec.field("ephemeralContainers").items() {
        common(&container, volumes, errors);
    }
    ephemeral::validate_all(spec, errors);
    let mut names = BTreeSet::new();
    let n_main = main.items().count();
    for (index, container) in main.items().chain(init.items()).enumerate() {
        let name = container.field("name");
        if !name.is_empty() && !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
        common(&container, volumes, errors);
        // The rules of an init container are looked at only if it has a policy.
        if n_main <= index && container.field("restartPolicy").is_absent() {
            restart_policy(&container, errors);
        } else {
            check_field(RESTART, &container, errors);
        }
        resize_policy(&container, spec.field("restartPolicy").text(), errors);
    }
    let grace = spec.field("terminationGracePeriodSeconds").number();
    for container in main.items() {
        handler::validate_probes(&container, errors);
        handler::validate_lifecycle(&container, grace, errors);
    }
    for container in init.items() {
        validate_init(&container, grace, errors);
    }
}

/// The rules of containers of every sort, before those of their volumes.
pub(in crate::builtin) const CONTAINER: &[Rule] = &[
    Rule::new("name", Check::Format(name::dns1123_label)).and_required(""),
    Rule::required("image", ""),
    Rule::new("imagePullPolicy", Check::OneOf(&["Always", "IfNotPresent", "Never"])),
    Rule::new("terminationMessagePolicy", Check::OneOf(&["FallbackToLogsOnError", "File"])),
    Rule::new("ports", Check::By(ports)),
    Rule::new("env[]", Check::Rules(environment::VARIABLE)),
    Rule::new("envFrom", Check::By(environment::sources)),
];

/// The rules of when a container restarts independently of its Pod.
pub(in crate::builtin) const RESTART: &[Rule] = &[
    Rule::new("restartPolicy", Check::OneOf(&["Always", "Never", "OnFailure"])).if_present(),
    Rule::new("", Check::By(restart_policy)),
    Rule::new(
        "restartPolicyRules[]",
        Check::Rules(&[
            Rule::new("action", Check::OneOf(&["Restart", "RestartAllContainers"])),
            Rule::new("exitCodes", Check::Rules(EXIT_CODES)).and_present("must be specified"),
        ]),
    )
    .up_to(20),
];

const EXIT_CODES: &[Rule] =
    &[Rule::new("operator", Check::OneOf(&["In", "NotIn"])), Rule::new("values", Check::ItemsMax(255))];

fn restart_policy(container: &Field<'_>, errors: &mut Vec<Error>) {
    let policy = container.field("restartPolicy");
    if policy.is_absent() && !container.field("restartPolicyRules").is_empty() {
        errors.push(policy.required("must specify restartPolicy when restart rules are used"));
    }
}

fn common(container: &Field<'_>, volumes: &Volumes<'_>, errors: &mut Vec<Error>) {
    check_field(CONTAINER, container, errors);
    volumes.validate_mounts(container, errors);
    resources::validate(&container.field("resources"), errors);
    check_field(security::CONTAINER, &container.field("securityContext"), errors);
}

/// The rules of the resize policy. Upstream reports errors for the whole list.
fn resize_policy(container: &Field<'_>, pod_restarts: &str, errors: &mut Vec<Error>) {
    let policies = container.field("resizePolicy");
    let mut seen = BTreeSet::new();
    for policy in policies.items() {
        let at_list = |name: &str| Field { path: policies.path.clone(), ..policy.field(name) };
        let (resource, restart) = (at_list("resourceName"), at_list("restartPolicy"));
        if !seen.insert(resource.text()) {
            errors.push(Error::duplicate(&policy.path, Value::from(resource.text())));
        }
        for (field, words) in [(&resource, ["cpu", "memory"]), (&restart, ["NotRequired", "RestartContainer"])] {
            rules::required_one_of(field, &words, errors);
        }
        if pod_restarts == "Never" && restart.text() != "NotRequired" {
            errors.push(restart.invalid("must be 'NotRequired' when pod `restartPolicy` is 'Never'"));
        }
    }
}

/// An init container ends before the containers start, unless it always restarts: then it may have the same fields as
/// they.
fn validate_init(container: &Field<'_>, grace: Option<i64>, errors: &mut Vec<Error>) {
    let policy = container.field("restartPolicy");
    if policy.text() == "Always" {
        handler::validate_probes(container, errors);
        handler::validate_lifecycle(container, grace, errors);
        return;
    }
    for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        let field = container.field(name);
        if field.is_present() {
            errors.push(field.forbidden("may not be set for init containers without restartPolicy=Always"));
        }
    }
}

/// The rules of images that Pods have and templates do not.
pub(super) const IMAGES: &[Rule] =
    &[Rule::new("containers[].image", NOT_PADDED), Rule::new("initContainers[].image", NOT_PADDED)];

const NOT_PADDED: Check = Check::Text(|image| image.trim() == image, "must not have leading or trailing whitespace");

fn ports(ports: &Field<'_>, errors: &mut Vec<Error>) {
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let name = port.field("name");
        if !name.is_empty() {
            let wrong = rules::port_name(name.text());
            if wrong.is_empty() && !names.insert(name.text()) {
                errors.push(name.duplicate());
            }
            errors.extend(wrong.into_iter().map(|detail| name.invalid(detail)));
        }
        match port.field("containerPort").number() {
            None | Some(0) => errors.push(port.field("containerPort").required("")),
            Some(_) => Check::Port.of(&port.field("containerPort"), errors),
        }
        if port.field("hostPort").number().is_some_and(|number| number != 0) {
            Check::Port.of(&port.field("hostPort"), errors);
        }
        rules::one_of(&port.field("protocol"), &["SCTP", "TCP", "UDP"], errors);
    }
}
