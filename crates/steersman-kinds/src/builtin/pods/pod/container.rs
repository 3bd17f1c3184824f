//! Validation of containers, init containers and ephemeral containers.

use crate::builtin::pods::pod::volume::Volumes;
use crate::builtin::pods::pod::{environment, ephemeral, handler, resources, security};
use crate::builtin::rules;
use crate::builtin::rules::place::Place;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::{Value, name};

/// Validates all containers of a pod spec.
pub fn validate_all(spec: &Place<'_>, volumes: &Volumes<'_>, faults: &mut Vec<Error>) {
    let (main, init) = (spec.field("containers"), spec.field("initContainers"));
    if main.is_empty() {
        faults.push(main.required(""));
    }
    for container in spec.field("ephemeralContainers").items() {
        common(&container, volumes, faults);
    }
    ephemeral::validate_all(spec, faults);
    let mut names = BTreeSet::new();
    for container in main.items().chain(init.items()) {
        let name = container.field("name");
        if !name.is_empty() && !names.insert(name.text()) {
            faults.push(name.duplicate());
        }
        common(&container, volumes, faults);
        restart_rules(&container, faults);
        resize_policy(&container, spec.field("restartPolicy").text(), faults);
    }
    for container in main.items() {
        handler::validate_probes(&container, faults);
        handler::validate_lifecycle(&container, faults);
    }
    for container in init.items() {
        validate_init(&container, faults);
    }
}

fn common(container: &Place<'_>, volumes: &Volumes<'_>, faults: &mut Vec<Error>) {
    rules::required_name(&container.field("name"), name::dns1123_label, faults);
    image(&container.field("image"), faults);
    rules::one_of(&container.field("imagePullPolicy"), &["Always", "IfNotPresent", "Never"], faults);
    let policies = ["FallbackToLogsOnError", "File"];
    rules::one_of(&container.field("terminationMessagePolicy"), &policies, faults);
    ports(&container.field("ports"), faults);
    environment::validate(container, faults);
    volumes.validate_mounts(container, faults);
    resources::validate(&container.field("resources"), faults);
    security::validate_container(&container.field("securityContext"), faults);
}

/// The rules of the resize policy. Upstream reports errors for the whole list.
fn resize_policy(container: &Place<'_>, pod_restarts: &str, faults: &mut Vec<Error>) {
    let policies = container.field("resizePolicy");
    let mut seen = BTreeSet::new();
    for policy in policies.items() {
        let at_list = |field: &str| Place { path: policies.path.clone(), ..policy.field(field) };
        let (resource, restart) = (at_list("resourceName"), at_list("restartPolicy"));
        if !seen.insert(resource.text()) {
            faults.push(Error::duplicate(&policy.path, Value::from(resource.text())));
        }
        for (place, words) in [(&resource, ["cpu", "memory"]), (&restart, ["NotRequired", "RestartContainer"])] {
            match place.is_empty() {
                true => faults.push(place.required("")),
                false => rules::one_of(place, &words, faults),
            }
        }
        if pod_restarts == "Never" && restart.text() != "NotRequired" {
            faults.push(restart.invalid("must be 'NotRequired' when pod `restartPolicy` is 'Never'"));
        }
    }
}

/// The rules of when a container restarts independently of its Pod.
fn restart_rules(container: &Place<'_>, faults: &mut Vec<Error>) {
    const RULES_MAX: usize = 20;
    const VALUES_MAX: usize = 255;
    let (policy, restarts) = (container.field("restartPolicy"), container.field("restartPolicyRules"));
    if policy.is_present() {
        rules::one_of(&policy, &["Always", "Never", "OnFailure"], faults);
    } else if !restarts.is_empty() {
        faults.push(policy.required("must specify restartPolicy when restart rules are used"));
    }
    if !rules::at_most(&restarts, RULES_MAX, faults) {
        return;
    }
    for rule in restarts.items() {
        rules::one_of(&rule.field("action"), &["Restart", "RestartAllContainers"], faults);
        let codes = rule.field("exitCodes");
        if codes.is_absent() {
            faults.push(codes.required("must be specified"));
        } else {
            rules::one_of(&codes.field("operator"), &["In", "NotIn"], faults);
            rules::at_most(&codes.field("values"), VALUES_MAX, faults);
        }
    }
}

/// An init container ends before the containers start, unless it always restarts: then it may have the same fields as
/// they.
fn validate_init(container: &Place<'_>, faults: &mut Vec<Error>) {
    let policy = container.field("restartPolicy");
    if policy.text() == "Always" {
        handler::validate_probes(container, faults);
        handler::validate_lifecycle(container, faults);
        return;
    }
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        let place = container.field(field);
        if place.is_present() {
            faults.push(place.forbidden("may not be set for init containers without restartPolicy=Always"));
        }
    }
}

pub fn image(image: &Place<'_>, faults: &mut Vec<Error>) {
    if image.is_empty() {
        faults.push(image.required(""));
    } else if image.text().trim() != image.text() {
        faults.push(image.invalid("must not have leading or trailing whitespace"));
    }
}

fn ports(ports: &Place<'_>, faults: &mut Vec<Error>) {
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let name = port.field("name");
        if !name.is_empty() {
            let wrong = rules::port_name(name.text());
            if wrong.is_empty() && !names.insert(name.text()) {
                faults.push(name.duplicate());
            }
            faults.extend(wrong.into_iter().map(|fault| name.invalid(fault)));
        }
        match port.field("containerPort").number() {
            None | Some(0) => faults.push(port.field("containerPort").required("")),
            Some(_) => rules::port(&port.field("containerPort"), faults),
        }
        if port.field("hostPort").number().is_some_and(|number| number != 0) {
            rules::port(&port.field("hostPort"), faults);
        }
        if !port.field("hostIP").is_empty() {
            rules::ip(&port.field("hostIP"), faults);
        }
        rules::one_of(&port.field("protocol"), &["SCTP", "TCP", "UDP"], faults);
    }
}
