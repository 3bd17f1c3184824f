//! Validation of HorizontalPodAutoscalers, as in kubernetes' `pkg/apis/autoscaling/validation`.

use crate::builtin::kind::Request;
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::resource_name;
use crate::builtin::workloads::autoscaler::convert;
use steersman_machinery::field::Error;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::{GroupVersion, name};

/// The longest period of a policy, in seconds.
const PERIOD_SECONDS_MAX: i64 = 1_800;
/// The longest stabilization window, in seconds.
const WINDOW_SECONDS_MAX: i64 = 3_600;
/// The sources of a metric, in the order in which upstream looks for one.
const SOURCES: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];

const DESCRIBED_VERSION: [&str; 3] = ["object", "describedObject", "apiVersion"];

/// The values that the `apiVersion` of a reference may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Versions {
    Any,
    /// Any valid version, also of the core group.
    Valid,
    OfGroup,
}

pub(super) fn spec(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (spec, old) = (Field::root(request.new).field("spec"), Field::root(request.old).field("spec"));
    let (least, most) = (spec.field("minReplicas"), spec.field("maxReplicas"));
    // An autoscaler that already had zero replicas as its minimum may keep it.
    let bound = if old.field("minReplicas").number() == Some(0) { 0 } else { 1 };
    if least.number().is_some_and(|number| number < bound) {
        errors.push(least.invalid(format!("must be greater than or equal to {bound}")));
    }
    let number = most.number().unwrap_or(0);
    if number == 0 {
        errors.push(most.required("must be set and greater than 0"));
    } else if number < 0 {
        errors.push(most.invalid("must be greater than or equal to 1"));
    }
    if least.number().is_some_and(|least| number < least) {
        errors.push(Error::invalid(&most.path, number, "must be greater than or equal to `minReplicas`"));
    }
    let (target, target_before) = (spec.field("scaleTargetRef"), old.field("scaleTargetRef"));
    let is_same =
        ["apiVersion", "kind"].iter().all(|field| target.field(field).text() == target_before.field(field).text());
    let versions = match target.field("kind").text() {
        _ if is_same && old.is_present() => Versions::Any,
        "ReplicationController" => Versions::Valid,
        _ => Versions::OfGroup,
    };
    reference(&target, versions, errors);
    metrics(&spec, &old, errors);
    for direction in ["scaleUp", "scaleDown"] {
        scaling(&spec.at(&["behavior", direction]), errors);
    }
}

pub(super) fn status(request: &Request<'_>, errors: &mut Vec<Error>) {
    let status = Field::root(request.new).field("status");
    rules::not_negative(&status.field("currentReplicas"), errors);
    rules::not_negative(&status.field("desiredReplicas"), errors);
}

fn reference(reference: &Field<'_>, versions: Versions, errors: &mut Vec<Error>) {
    rules::required_name(&reference.field("kind"), name::path_segment, errors);
    rules::required_name(&reference.field("name"), name::path_segment, errors);
    errors.extend(version_error(&reference.field("apiVersion"), versions));
}

fn version_error(version: &Field<'_>, versions: Versions) -> Option<Error> {
    let text = version.text();
    let why = match GroupVersion::parse(text) {
        _ if versions == Versions::Any => return None,
        // The empty string is a version of the core group.
        None if !text.is_empty() => format!("unexpected GroupVersion string: {text}"),
        Some(read) if !read.group.is_empty() => return None,
        _ if versions == Versions::Valid => return None,
        _ => "apiVersion must specify API group".to_owned(),
    };
    Some(Error::invalid(&version.path, text, why))
}

fn metrics(spec: &Field<'_>, old: &Field<'_>, errors: &mut Vec<Error>) {
    // An autoscaler that already has an invalid version may keep it.
    let mut known = old.field("metrics").items().filter(|metric| metric.field("object").is_present());
    let was_wrong = known.any(|metric| version_error(&metric.at(&DESCRIBED_VERSION), Versions::Valid).is_some());
    let versions = if was_wrong { Versions::Any } else { Versions::Valid };
    let metrics = spec.field("metrics");
    metrics.items().for_each(|one| metric(&one, versions, errors));
    let is_of_others = |metric: Field<'_>| matches!(metric.field("type").text(), "External" | "Object");
    if spec.field("minReplicas").number() == Some(0) && !metrics.items().any(is_of_others) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(metrics.forbidden(why));
    }
}

fn metric(metric: &Field<'_>, versions: Versions, errors: &mut Vec<Error>) {
    const KINDS: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    let kind = metric.field("type");
    if kind.is_empty() {
        errors.push(kind.required("must specify a metric source type"));
    }
    rules::one_of(&kind, &KINDS, errors);
    let given: Vec<&str> = SOURCES.into_iter().filter(|source| metric.field(source).is_present()).collect();
    // Upstream validates only the first of several sources.
    if let Some(first) = given.first() {
        source(first, &metric.field(first), versions, errors);
    }
    let wanted = if KINDS.contains(&kind.text()) { convert::source_of(kind.text()) } else { "" };
    if !wanted.is_empty() && metric.field(wanted).is_absent() {
        errors.push(metric.field(wanted).required("must populate information for the given metric source"));
    }
    if given.len() != 1 {
        let others = given.iter().filter(|given| **given != wanted);
        errors.extend(others.map(|other| metric.field(other).forbidden("must populate the given metric source only")));
    }
}

fn source(kind: &str, source: &Field<'_>, versions: Versions, errors: &mut Vec<Error>) {
    let target = source.field("target");
    let [value, average, utilization] =
        ["value", "averageValue", "averageUtilization"].map(|field| target.field(field));
    match kind {
        "object" => {
            reference(&source.field("describedObject"), versions, errors);
            identifier(&source.field("metric"), errors);
        }
        "external" | "pods" => identifier(&source.field("metric"), errors),
        _ => {
            let name = source.field("name");
            if name.is_empty() {
                errors.push(name.required("must specify a resource name"));
            } else if kind == "containerResource" {
                resource_name::of_container(name.text(), &name, errors);
            }
            if kind == "containerResource" {
                let container = source.field("container");
                if container.is_empty() {
                    errors.push(container.required("must specify a container"));
                } else {
                    rules::named(&container, name::dns1123_label, errors);
                }
            }
        }
    }
    amounts(&target, errors);
    match kind {
        "object" if value.is_absent() && average.is_absent() => {
            errors.push(average.required("must set either a target value or averageValue"));
        }
        "external" if value.is_absent() && average.is_absent() => {
            errors.push(average.required("must set either a target value for metric or a per-pod target"));
        }
        "external" if value.is_present() && average.is_present() => {
            errors.push(value.forbidden("may not set both a target value for metric and a per-pod target"));
        }
        "pods" if average.is_absent() => {
            errors.push(average.required("must specify a positive target averageValue"));
        }
        "resource" | "containerResource" if utilization.is_absent() && average.is_absent() => {
            errors.push(utilization.required("must set either a target raw value or a target utilization"));
        }
        "resource" | "containerResource" if utilization.is_present() && average.is_present() => {
            errors.push(average.forbidden("may not set both a target raw value and a target utilization"));
        }
        _ => {}
    }
}

fn identifier(metric: &Field<'_>, errors: &mut Vec<Error>) {
    let name = metric.field("name");
    if name.is_empty() {
        errors.push(name.required("must specify a metric name"));
    } else {
        rules::named(&name, name::path_segment, errors);
    }
}

fn amounts(target: &Field<'_>, errors: &mut Vec<Error>) {
    let kind = target.field("type");
    if kind.is_empty() {
        errors.push(kind.required("must specify a metric target type"));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind.text()) {
        errors.push(Error::invalid(&kind.path, kind.text(), "must be either Utilization, Value, or AverageValue"));
    }
    for amount in ["value", "averageValue"].map(|field| target.field(field)) {
        let is_positive = |quantity: Quantity| !quantity.is_negative() && !quantity.is_zero();
        if Quantity::parse(amount.text()).is_ok_and(|quantity| !is_positive(quantity)) {
            errors.push(amount.invalid("must be positive"));
        }
    }
    rules::positive(&target.field("averageUtilization"), errors);
}

/// The rules for scaling in one direction.
fn scaling(scaling: &Field<'_>, errors: &mut Vec<Error>) {
    if scaling.is_absent() {
        return;
    }
    let window = scaling.field("stabilizationWindowSeconds");
    if window.number().is_some_and(|seconds| seconds < 0) {
        errors.push(window.invalid("must be greater than or equal to zero"));
    }
    if window.number().is_some_and(|seconds| seconds > WINDOW_SECONDS_MAX) {
        errors.push(window.invalid(format!("must be less than or equal to {WINDOW_SECONDS_MAX}")));
    }
    rules::one_of_if_present(&scaling.field("selectPolicy"), &["Disabled", "Max", "Min"], errors);
    let policies = scaling.field("policies");
    if policies.items().next().is_none() {
        errors.push(Error::required(&policies.path, "must specify at least one Policy"));
    }
    for policy in policies.items() {
        rules::one_of(&policy.field("type"), &["Percent", "Pods"], errors);
        let (value, period) = (policy.field("value"), policy.field("periodSeconds"));
        for field in [&value, &period] {
            let number = field.number().unwrap_or(0);
            if number <= 0 {
                errors.push(Error::invalid(&field.path, number, "must be greater than zero"));
            }
        }
        if period.number().is_some_and(|seconds| seconds > PERIOD_SECONDS_MAX) {
            errors.push(period.invalid(format!("must be less than or equal to {PERIOD_SECONDS_MAX}")));
        }
    }
    rules::not_negative_quantity(&scaling.field("tolerance"), errors);
}
