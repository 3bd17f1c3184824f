//! Validation of HorizontalPodAutoscalers, as in kubernetes' `pkg/apis/autoscaling/validation`.

use crate::builtin::rules;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::resource_name;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use crate::builtin::workloads::autoscaler::convert;
use steersman_machinery::field::Error;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::{GroupVersion, name};

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

/// The rules of autoscalers, in the form of v2.
pub(super) const AUTOSCALER: &[Rule] = &[
    Rule::new("spec", Check::Change(replicas)),
    Rule::new("spec.scaleTargetRef", Check::Rules(REFERENCE)),
    Rule::new("spec.scaleTargetRef", Check::Change(target_version)),
    Rule::new("spec", Check::Change(metrics)),
    Rule::new("spec.behavior.scaleUp", Check::Rules(SCALING)).if_present(),
    Rule::new("spec.behavior.scaleDown", Check::Rules(SCALING)).if_present(),
];

pub(in crate::builtin) const REFERENCE: &[Rule] = &[
    Rule::new("kind", Check::Format(name::path_segment)).and_required(""),
    Rule::new("name", Check::Format(name::path_segment)).and_required(""),
];

/// The rules for scaling in one direction.
const SCALING: &[Rule] = &[
    Rule::new("stabilizationWindowSeconds", Check::AtLeast(0, "must be greater than or equal to zero")),
    Rule::new("stabilizationWindowSeconds", Check::AtMost(3_600, "must be less than or equal to 3600")),
    Rule::new("selectPolicy", Check::OneOf(&["Disabled", "Max", "Min"])).if_present(),
    Rule::required("policies", "must specify at least one Policy"),
    Rule::new("policies[]", Check::Rules(SCALING_POLICY)),
    Rule::new("tolerance", Check::NotNegativeQuantity),
];

const SCALING_POLICY: &[Rule] = &[
    Rule::new("type", Check::OneOf(&["Percent", "Pods"])),
    Rule::new("value", Check::AtLeast(1, "must be greater than zero")).or_zero(),
    Rule::new("periodSeconds", Check::AtLeast(1, "must be greater than zero")).or_zero(),
    Rule::new("periodSeconds", Check::AtMost(1_800, "must be less than or equal to 1800")),
];

fn replicas(Change { new: spec, old }: &Change<'_>, errors: &mut Vec<Error>) {
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
}

fn target_version(Change { new, old }: &Change<'_>, errors: &mut Vec<Error>) {
    let is_same = ["apiVersion", "kind"].iter().all(|field| new.field(field).text() == old.field(field).text());
    let versions = match new.field("kind").text() {
        _ if is_same && old.is_present() => Versions::Any,
        "ReplicationController" => Versions::Valid,
        _ => Versions::OfGroup,
    };
    errors.extend(version_error(&new.field("apiVersion"), versions));
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

fn metrics(Change { new: spec, old }: &Change<'_>, errors: &mut Vec<Error>) {
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
            let described = source.field("describedObject");
            check_field(REFERENCE, &described, errors);
            errors.extend(version_error(&described.field("apiVersion"), versions));
            check_field(METRIC, &source.field("metric"), errors);
        }
        "external" | "pods" => check_field(METRIC, &source.field("metric"), errors),
        _ => {
            let name = source.field("name");
            if name.is_empty() {
                errors.push(name.required("must specify a resource name"));
            } else if kind == "containerResource" {
                resource_name::of_container(name.text(), &name, errors);
            }
            if kind == "containerResource" {
                check_field(CONTAINER, source, errors);
            }
        }
    }
    check_field(TARGET, &target, errors);
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

pub(in crate::builtin) const CONTAINER: &[Rule] =
    &[Rule::new("container", Check::Format(name::dns1123_label)).and_required("must specify a container")];

pub(in crate::builtin) const METRIC: &[Rule] =
    &[Rule::new("name", Check::Format(name::path_segment)).and_required("must specify a metric name")];

pub(in crate::builtin) const TARGET: &[Rule] = &[
    Rule::required("type", "must specify a metric target type"),
    Rule::new("type", Check::Text(is_target_type, "must be either Utilization, Value, or AverageValue")),
    Rule::new("value", Check::By(positive)),
    Rule::new("averageValue", Check::By(positive)),
    Rule::new("averageUtilization", Check::Positive),
];

fn is_target_type(text: &str) -> bool {
    matches!(text, "Utilization" | "Value" | "AverageValue")
}

fn positive(amount: &Field<'_>, errors: &mut Vec<Error>) {
    if Quantity::parse(amount.text()).is_ok_and(|quantity| quantity <= Quantity::ZERO) {
        errors.push(amount.invalid("must be positive"));
    }
}
