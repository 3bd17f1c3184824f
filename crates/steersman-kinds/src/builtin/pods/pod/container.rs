//! Validation of containers, init containers and ephemeral containers.

use crate::builtin::pods::pod::volume::Volumes;
use crate::builtin::pods::pod::{environment, ephemeral, handler, resources, security};
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
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
    for container in main.items().chain(init.items()) {
        let name = container.field("name");
        if !name.is_empty() && !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
        common(&container, volumes, errors);
        restart_rules(&container, errors);
        resize_policy(&container, spec.field("restartPolicy").text(), errors);
    }
    for container in main.items() {
        handler::validate_probes(&container, errors);
        handler::validate_lifecycle(&container, errors);
    }
    for container in init.items() {
        validate_init(&container, errors);
    }
}

fn common(container: &Field<'_>, volumes: &Volumes<'_>, errors: &mut Vec<Error>) {
    rules::required_name(&container.field("name"), name::dns1123_label, errors);
    image(&container.field("image"), errors);
    rules::one_of(&container.field("imagePullPolicy"), &["Always", "IfNotPresent", "Never"], errors);
    let policies = ["FallbackToLogsOnError", "File"];
    rules::one_of(&container.field("terminationMessagePolicy"), &policies, errors);
    ports(&container.field("ports"), errors);
    environment::validate(container, errors);
    volumes.validate_mounts(container, errors);
    resources::validate(&container.field("resources"), errors);
    security::validate_container(&container.field("securityContext"), errors);
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
            match field.is_empty() {
                true => errors.push(field.required("")),
                false => rules::one_of(field, &words, errors),
            }
        }
        if pod_restarts == "Never" && restart.text() != "NotRequired" {
            errors.push(restart.invalid("must be 'NotRequired' when pod `restartPolicy` is 'Never'"));
        }
    }
}

/// The rules of when a container restarts independently of its Pod.
fn restart_rules(container: &Field<'_>, errors: &mut Vec<Error>) {
    const RULES_MAX: usize = 20;
    const VALUES_MAX: usize = 255;
    let (policy, restarts) = (container.field("restartPolicy"), container.field("restartPolicyRules"));
    if policy.is_present() {
        rules::one_of(&policy, &["Always", "Never", "OnFailure"], errors);
    } else if !restarts.is_empty() {
        errors.push(policy.required("must specify restartPolicy when restart rules are used"));
    }
    if !rules::at_most(&restarts, RULES_MAX, errors) {
        return;
    }
    for rule in restarts.items() {
        rules::one_of(&rule.field("action"), &["Restart", "RestartAllContainers"], errors);
        let codes = rule.field("exitCodes");
        if codes.is_absent() {
            errors.push(codes.required("must be specified"));
        } else {
            rules::one_of(&codes.field("operator"), &["In", "NotIn"], errors);
            rules::at_most(&codes.field("values"), VALUES_MAX, errors);
        }
    }
}

/// An init container ends before the containers start, unless it always restarts: then it may have the same fields as
/// they.
fn validate_init(container: &Field<'_>, errors: &mut Vec<Error>) {
    let policy = container.field("restartPolicy");
    if policy.text() == "Always" {
        handler::validate_probes(container, errors);
        handler::validate_lifecycle(container, errors);
        return;
    }
    for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        let field = container.field(name);
        if field.is_present() {
            errors.push(field.forbidden("may not be set for init containers without restartPolicy=Always"));
        }
    }
}

fn image(image: &Field<'_>, errors: &mut Vec<Error>) {
    if image.is_empty() {
        errors.push(image.required(""));
    }
}

/// The rule of images that pods have and templates do not.
pub(super) fn image_of_pod(container: &Field<'_>, errors: &mut Vec<Error>) {
    let image = container.field("image");
    if image.text().trim() != image.text() {
        errors.push(image.invalid("must not have leading or trailing whitespace"));
    }
}

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
            Some(_) => rules::port(&port.field("containerPort"), errors),
        }
        if port.field("hostPort").number().is_some_and(|number| number != 0) {
            rules::port(&port.field("hostPort"), errors);
        }
        rules::one_of(&port.field("protocol"), &["SCTP", "TCP", "UDP"], errors);
    }
}
