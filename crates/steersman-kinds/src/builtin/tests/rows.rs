//! Every row of a kind fits the schema of the kind: the field is there, the check fits its type, and the values are the field's.

use super::*;
use crate::builtin;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::rule::{self, Check, Rule, When};
use crate::builtin::storage::volume_source;
use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use steersman_schema::openapi::{self, Version as Document};
use steersman_schema::schema::{Special, Type};
use steersman_schema::{Definitions, Edition, Schema};

/// Rows that functions check, each with the definitions that they are about, below `io.k8s.api`.
const CALLED: &[(&[&str], &[Rule])] = &[
    (&["admissionregistration.v1.ServiceReference"], cluster::admission_registration::client::SERVICE),
    (
        &[
            "admissionregistration.v1.MutatingAdmissionPolicySpec",
            "admissionregistration.v1.ValidatingAdmissionPolicySpec",
        ],
        cluster::admission_registration::policy::POLICY_RULES,
    ),
    (&["admissionregistration.v1.MutatingAdmissionPolicySpec"], cluster::admission_registration::policy::MUTABLE),
    (
        &["admissionregistration.v1.MutatingWebhook", "admissionregistration.v1.ValidatingWebhook"],
        cluster::admission_registration::webhook::SELECTION,
    ),
    (&["admissionregistration.v1.MutatingWebhook"], cluster::admission_registration::webhook::CALL),
    (
        &["flowcontrol.v1.ExemptPriorityLevelConfiguration", "flowcontrol.v1.LimitedPriorityLevelConfiguration"],
        cluster::flow::level::SHARES,
    ),
    (&["flowcontrol.v1.LimitedPriorityLevelConfiguration"], cluster::flow::level::LIMITED),
    (&["flowcontrol.v1.QueuingConfiguration"], cluster::flow::level::QUEUING),
    (&["flowcontrol.v1.ServiceAccountSubject"], cluster::flow::schema::ACCOUNT),
    (&["core.v1.LinuxContainerUser"], pods::pod::container::status::LINUX_USER),
    (&["core.v1.ResourceHealth"], pods::pod::container::status::HEALTH),
    (&["core.v1.Taint"], cluster::node::validate::TAINT),
    (&["networking.v1.IngressTLS"], network::ingress::SECRET),
    (&["discovery.v1.EndpointSlice"], network::endpoint_slice::SLICE),
    (&["discovery.v1.Endpoint"], network::endpoint_slice::ENDPOINT),
    (&["core.v1.Endpoints"], network::endpoints::ENDPOINTS),
    (&["core.v1.EndpointPort"], network::endpoints::PORT),
    (&["core.v1.ServiceSpec"], network::service::validate::FAMILIES),
    (&["core.v1.LoadBalancerIngress"], network::service::validate::INGRESS),
    (
        &["resource.v1.DeviceAllocationConfiguration", "resource.v1.DeviceClaimConfiguration"],
        pods::device::CONFIGURATION,
    ),
    (&["resource.v1.ResourceClaimConsumerReference"], pods::device::claim::CONSUMER),
    (
        &["resource.v1.AllocatedDeviceStatus", "resource.v1.DeviceRequestAllocationResult"],
        pods::device::claim::IDENTITY,
    ),
    (&["resource.v1.AllocatedDeviceStatus"], pods::device::claim::DEVICE_STATUS),
    (&["resource.v1.Device", "resource.v1.DeviceRequest", "resource.v1.DeviceSubRequest"], pods::device::request::NAME),
    (&["resource.v1.DeviceSubRequest", "resource.v1.ExactDeviceRequest"], pods::device::request::ONE),
    (&["resource.v1.Device"], pods::device::slice::TAINTS),
    (&["resource.v1.DeviceAttribute"], pods::device::slice::ATTRIBUTE),
    (&["core.v1.Container", "core.v1.EphemeralContainer"], pods::pod::container::CONTAINER),
    (&["core.v1.Container", "core.v1.EphemeralContainer"], pods::pod::container::RESTART),
    (&["core.v1.EnvFromSource"], pods::pod::container::environment::SOURCE),
    (&["core.v1.EnvVarSource"], pods::pod::container::environment::VALUE_SOURCE),
    (&["core.v1.Probe"], pods::pod::container::handler::PROBE),
    (&["core.v1.HTTPGetAction"], pods::pod::container::handler::HTTP_GET),
    (&["core.v1.TopologySpreadConstraint"], pods::pod::scheduling::CONSTRAINT),
    (&["core.v1.TopologySpreadConstraint"], pods::pod::scheduling::DOMAINS),
    (&["core.v1.PodSpec"], pods::pod::security::MASKED),
    (&["core.v1.SecurityContext"], pods::pod::security::CONTAINER),
    (&["core.v1.ConfigMapVolumeSource"], pods::pod::volume_source::CONFIG_MAP),
    (&["core.v1.DownwardAPIVolumeSource"], pods::pod::volume_source::DOWNWARD),
    (&["core.v1.EphemeralVolumeSource"], pods::pod::volume_source::EPHEMERAL),
    (&["core.v1.GitRepoVolumeSource"], pods::pod::volume_source::GIT_REPO),
    (&["core.v1.PersistentVolumeClaimVolumeSource"], pods::pod::volume_source::CLAIM),
    (&["core.v1.ProjectedVolumeSource"], pods::pod::volume_source::PROJECTED_MODE),
    (&["core.v1.SecretVolumeSource"], pods::pod::volume_source::SECRET),
    (&["core.v1.AWSElasticBlockStoreVolumeSource"], volume_source::BLOCK_STORE),
    (&["core.v1.AzureDiskVolumeSource"], volume_source::AZURE_DISK),
    (&["core.v1.AzureFileVolumeSource", "core.v1.AzureFilePersistentVolumeSource"], volume_source::AZURE_FILE),
    (&["core.v1.AzureFilePersistentVolumeSource"], volume_source::AZURE_FILE_OF_VOLUME),
    (&["core.v1.CephFSVolumeSource", "core.v1.CephFSPersistentVolumeSource"], volume_source::CEPH_FS),
    (&["core.v1.CinderVolumeSource"], volume_source::CINDER_OF_POD),
    (&["core.v1.CinderPersistentVolumeSource"], volume_source::CINDER_OF_VOLUME),
    (&["core.v1.CSIVolumeSource"], volume_source::CSI_OF_POD),
    (&["core.v1.CSIPersistentVolumeSource"], volume_source::CSI_OF_VOLUME),
    (&["core.v1.FCVolumeSource"], volume_source::FIBRE_CHANNEL),
    (&["core.v1.FlexVolumeSource", "core.v1.FlexPersistentVolumeSource"], volume_source::FLEX),
    (&["core.v1.FlockerVolumeSource"], volume_source::FLOCKER),
    (&["core.v1.GCEPersistentDiskVolumeSource"], volume_source::PERSISTENT_DISK),
    (&["core.v1.GlusterfsVolumeSource", "core.v1.GlusterfsPersistentVolumeSource"], volume_source::GLUSTER_FS),
    (&["core.v1.GlusterfsPersistentVolumeSource"], volume_source::GLUSTER_FS_OF_VOLUME),
    (&["core.v1.HostPathVolumeSource"], volume_source::HOST_PATH),
    (&["core.v1.ISCSIVolumeSource"], volume_source::ISCSI_OF_POD),
    (&["core.v1.ISCSIPersistentVolumeSource"], volume_source::ISCSI_OF_VOLUME),
    (&["core.v1.LocalVolumeSource"], volume_source::LOCAL),
    (&["core.v1.NFSVolumeSource"], volume_source::NFS),
    (&["core.v1.PhotonPersistentDiskVolumeSource"], volume_source::PHOTON),
    (&["core.v1.PortworxVolumeSource"], volume_source::PORTWORX),
    (&["core.v1.QuobyteVolumeSource"], volume_source::QUOBYTE),
    (&["core.v1.RBDVolumeSource", "core.v1.RBDPersistentVolumeSource"], volume_source::RBD),
    (&["core.v1.ScaleIOVolumeSource", "core.v1.ScaleIOPersistentVolumeSource"], volume_source::SCALE_IO),
    (&["core.v1.StorageOSVolumeSource"], volume_source::STORAGE_OS_OF_POD),
    (&["core.v1.StorageOSPersistentVolumeSource"], volume_source::STORAGE_OS_OF_VOLUME),
    (&["core.v1.VsphereVirtualDiskVolumeSource"], volume_source::VSPHERE),
    (&["core.v1.PersistentVolumeSpec"], builtin::storage::persistent_volume::INLINE),
    (&["autoscaling.v2.CrossVersionObjectReference"], builtin::workloads::autoscaler::validate::REFERENCE),
    (&["autoscaling.v2.ContainerResourceMetricSource"], builtin::workloads::autoscaler::validate::CONTAINER),
    (&["autoscaling.v2.MetricIdentifier"], builtin::workloads::autoscaler::validate::METRIC),
    (&["autoscaling.v2.MetricTarget"], builtin::workloads::autoscaler::validate::TARGET),
    (&["batch.v1.JobStatus"], builtin::workloads::batch::job::status::COUNTERS),
];

/// Values of an enumeration that a row refuses, each with the reason.
const REFUSED: &[(&str, &str, &str)] = &[
    ("admissionregistration.v1.NamedRuleWithOperations.operations[]", "DELETE", "a deletion has no object to change"),
    ("core.v1.ServiceSpec.ipFamilies[]", "", "upstream's validation has the two families only"),
    ("storage.v1.StorageClass.reclaimPolicy", "Recycle", "upstream refuses it for volumes that are provisioned"),
];

/// The values of fields that have no enumeration in upstream's OpenAPI: the constants of `k8s.io/api` and
/// `k8s.io/kube-aggregator`, without those that need a feature that is off.
const CONSTANTS: &[(&str, &[&str])] = &[
    ("apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy.whenDeleted", &["Delete", "Retain"]),
    ("apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy.whenScaled", &["Delete", "Retain"]),
    ("autoscaling.v2.HPAScalingPolicy.type", &["Percent", "Pods"]),
    ("autoscaling.v2.HPAScalingRules.selectPolicy", &["Disabled", "Max", "Min"]),
    ("coordination.v1.LeaseSpec.strategy", &["OldestEmulationVersion"]),
    ("core.v1.Container.restartPolicy", &["Always", "Never", "OnFailure"]),
    ("core.v1.ContainerRestartRule.action", &["Restart", "RestartAllContainers"]),
    ("core.v1.ContainerRestartRuleOnExitCodes.operator", &["In", "NotIn"]),
    ("core.v1.EphemeralContainer.restartPolicy", &["Always", "Never", "OnFailure"]),
    ("core.v1.PodOS.name", &["linux", "windows"]),
    ("core.v1.PodSecurityContext.seLinuxChangePolicy", &["Recursive"]),
    ("core.v1.ResourceHealth.health", &["Healthy", "Unhealthy", "Unknown"]),
    ("core.v1.ServiceSpec.trafficDistribution", &["PreferClose", "PreferSameNode", "PreferSameZone"]),
    ("flowcontrol.v1.FlowDistinguisherMethod.type", &["ByNamespace", "ByUser"]),
    ("io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIServiceCondition.status", &["False", "True", "Unknown"]),
    ("networking.v1.IngressClassParametersReference.scope", &["Cluster", "Namespace"]),
    ("storage.v1.CSIDriverSpec.fsGroupPolicy", &["File", "None", "ReadWriteOnceWithFSType"]),
    ("storage.v1.CSIDriverSpec.volumeLifecycleModes[]", &["Ephemeral", "Persistent"]),
];

/// A row, the schema of its field, and the definition and the field that hold it; the field ends with `[]` for the items of a list.
struct Found<'s> {
    rule: &'static Rule,
    schema: &'s Schema,
    holder: Holder,
}

#[derive(Clone, Default)]
struct Holder {
    definition: String,
    field: String,
}

/// A schema on the way of a path, with the name of its definition.
#[derive(Clone, Copy)]
struct Place<'s> {
    schema: &'s Schema,
    definition: &'s str,
}

impl<'s> Place<'s> {
    fn of(definition: &'s str) -> Place<'s> {
        let schema = Definitions::of(Edition::WithInitializers).schema(definition);
        Place { schema: schema.unwrap_or_else(|| panic!("no definition {definition}")), definition }
    }

    fn next(self, schema: Option<&'s Schema>) -> Option<Place<'s>> {
        let schema = schema?;
        Some(Place { schema, definition: schema.reference().map_or("", |one| one.name()) })
    }

    /// The schema behind one segment of a path.
    fn step(self, segment: &str, holder: &mut Holder) -> Option<Place<'s>> {
        let (name, is_list) = segment.strip_suffix("[]").map_or((segment, false), |name| (name, true));
        let field = match name {
            "" => self,
            "*" => self.next(self.schema.values())?,
            _ => {
                *holder = Holder { definition: self.definition.to_owned(), field: name.to_owned() };
                self.next(self.schema.property(name))?
            }
        };
        if !is_list {
            return Some(field);
        }
        holder.field.push_str("[]");
        field.next(field.schema.item())
    }
}

/// The rows of a list, and those of their nested types. The row of a field that does not exist is an error.
fn follow<'s>(
    rules: &'static [Rule],
    place: Place<'s>,
    holder: &Holder,
    found: &mut Vec<Found<'s>>,
    wrong: &mut Vec<String>,
) {
    for rule in rules {
        let mut holder = holder.clone();
        let mut segments = rule.path.split('.').filter(|segment| !segment.is_empty());
        let Some(place) = segments.try_fold(place, |place, segment| place.step(segment, &mut holder)) else {
            wrong.push(format!("{}: {} is no field of {}", rule.declared, rule.path, place.definition));
            continue;
        };
        if let Check::Rules(rules) = rule.check {
            follow(rules, place, &holder, found, wrong);
        }
        found.push(Found { rule, schema: place.schema, holder });
    }
}

/// The rows of all kinds, those that functions check too.
fn all_rows() -> Vec<Found<'static>> {
    followed().0
}

/// The rows of all kinds, and the errors of those about a field that does not exist.
fn followed() -> (Vec<Found<'static>>, Vec<String>) {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for kind in kinds(Edition::WithInitializers) {
        let others = [kind.validate_status, kind.validate_resize, kind.validate_other.unwrap_or_default()];
        for rules in [kind.validate].into_iter().chain(others) {
            follow(rules, Place::of(kind.internal_definition()), &Holder::default(), &mut found, &mut wrong);
        }
    }
    let projection = Place::of("io.k8s.api.core.v1.VolumeProjection");
    for (field, rules) in pods::pod::volume_source::PARTS {
        follow(
            rules,
            projection.step(field, &mut Holder::default()).unwrap(),
            &Holder::default(),
            &mut found,
            &mut wrong,
        );
    }
    for (definitions, rules) in CALLED {
        for definition in *definitions {
            let definition = Definitions::of(Edition::WithInitializers).definition(&format!("io.k8s.api.{definition}"));
            follow(rules, Place::of(definition.unwrap().name()), &Holder::default(), &mut found, &mut wrong);
        }
    }
    (found, wrong)
}

#[test]
fn every_row_is_about_a_field_of_its_kind() {
    let (found, wrong) = followed();
    assert!(wrong.is_empty(), "rows about no field:\n{}", wrong.join("\n"));
    let place = |file: &str, line: u32, column: u32| {
        let file = file.rsplit_once("src/builtin/").map_or(file, |(_, below)| below);
        format!("{file}:{line}:{column}")
    };
    let reached: BTreeSet<String> = found
        .iter()
        .map(|one| place(one.rule.declared.file(), one.rule.declared.line(), one.rule.declared.column()))
        .collect();
    let row = Regex::new(r"Rule::(?:new|required|present)\(").unwrap();
    let mut missing = Vec::new();
    for (file, text) in names::sources_of_kinds() {
        for (index, line) in text.lines().enumerate().filter(|_| file != "rules/rule.rs") {
            for one in row.find_iter(line) {
                let number = |number: usize| u32::try_from(number + 1).unwrap();
                let declared = place(&file, number(index), number(line[..one.start()].chars().count()));
                if !reached.contains(&declared) {
                    missing.push(declared);
                }
            }
        }
    }
    assert!(
        missing.is_empty(),
        "rows of no kind; name them in CALLED if a function checks them:\n{}",
        missing.join("\n")
    );
    assert!(reached.len() > 400, "the test finds the rows: {}", reached.len());
}

/// Functions check their rows without the old value.
#[test]
fn rows_that_functions_check_need_no_old_value() {
    for rule in CALLED.iter().flat_map(|(_, rules)| *rules) {
        let needs_old = matches!(rule.check, Check::Change(_) | Check::Immutable | Check::Unchanged(_));
        assert!(!needs_old && rule.when == When::Always, "{}", rule.declared);
    }
}

#[test]
fn every_check_fits_the_type_of_its_field() {
    for Found { rule, schema, holder } in all_rows() {
        let is_number = matches!(schema.value_type(), Type::Integer | Type::Number);
        let is_text = schema.value_type() == Type::String && schema.special().is_none();
        let fits = match rule.check {
            Check::AtLeast(..)
            | Check::AtMost(..)
            | Check::Between(..)
            | Check::NotNegative
            | Check::Port
            | Check::Positive
            | Check::Within(..) => is_number,
            Check::Format(_) | Check::LengthMax(_) | Check::OneOf(_) | Check::Text(..) | Check::Unique => is_text,
            Check::ItemsMax(_) => schema.item().is_some() || schema.values().is_some(),
            Check::NotNegativeQuantity => schema.special() == Some(Special::Quantity),
            Check::WildcardAlone(_) => schema.item().is_some_and(|item| item.value_type() == Type::String),
            Check::Any
            | Check::By(_)
            | Check::Change(_)
            | Check::Forbidden(_)
            | Check::Immutable
            | Check::Invalid(_)
            | Check::Rules(_)
            | Check::Unchanged(_) => true,
        };
        let name = format!("{}: {} {}", rule.declared, holder.definition, holder.field);
        assert!(fits, "{name} has the type {:?}", schema.value_type());
    }
}

/// The enumeration and the description that OpenAPI documents have for a field.
fn documented(holder: &Holder) -> (Vec<String>, String) {
    let json =
        openapi::definition_json(Edition::WithInitializers, &holder.definition, Document::V3).unwrap_or_default();
    let property = &json["properties"][holder.field.trim_end_matches("[]")];
    let values = if holder.field.ends_with("[]") { &property["items"]["enum"] } else { &property["enum"] };
    let values = values.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    (values, property["description"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn every_value_that_a_row_allows_is_one_of_the_field() {
    let mut wrong = BTreeSet::new();
    for Found { rule, holder, .. } in all_rows() {
        let Check::OneOf(words) = rule.check else { continue };
        let (mut values, description) = documented(&holder);
        let name = format!("{}.{}", holder.definition.trim_start_matches("io.k8s.api."), holder.field);
        if values.is_empty() && words.iter().all(|word| description.contains(word)) {
            continue;
        }
        let constants = CONSTANTS.iter().filter(|(field, _)| *field == name).flat_map(|(_, values)| *values);
        values.extend(constants.map(|value| (*value).to_owned()));
        for word in words.iter().filter(|word| !values.iter().any(|value| value == **word)) {
            wrong.insert(format!("{}: {name} has no value {word:?}, but {values:?}", rule.declared));
        }
        for value in values.iter().filter(|value| !words.contains(&value.as_str())) {
            if !REFUSED.iter().any(|(field, refused, _)| *field == name && refused == value) {
                wrong.insert(format!("{}: {name} may be {value:?}", rule.declared));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "values that a field does not have, or has besides:\n{}",
        Vec::from_iter(wrong).join("\n")
    );
}

/// An object with a value at a path of fields.
fn object_with(path: &str, value: Value) -> Value {
    path.rsplit('.').filter(|name| !name.is_empty()).fold(value, |value, name| json!({ name: value }))
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        "[a-zA-Z0-9*./ -]{0,12}".prop_map(Value::from),
        Just(json!("Always")),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,3}", inner, 0..3).prop_map(|fields| json!(fields)),
        ]
    })
}

proptest! {
    /// The values are of any type: an object that was stored long ago is checked too.
    #[test]
    fn an_error_of_a_row_has_the_path_and_the_value_of_its_field(index in any::<prop::sample::Index>(), value in any_value()) {
        static ROWS: LazyLock<Vec<&Rule>> = LazyLock::new(|| {
            let is_plain = |rule: &&Rule| {
                !rule.path.contains(['[', '*']) && !matches!(rule.check, Check::By(_) | Check::Change(_) | Check::Rules(_))
            };
            all_rows().into_iter().map(|found| found.rule).filter(is_plain).collect()
        });
        let rule: &'static Rule = ROWS[index.index(ROWS.len())];
        let object = object_with(rule.path, value.clone());
        let mut errors = Vec::new();
        rule::check(std::slice::from_ref(rule), &Change::update(&object, &json!({"other": 1})), &mut errors);
        for error in errors {
            prop_assert_eq!(&error.field, rule.blamed.unwrap_or(rule.path));
            let shows_count = matches!(rule.check, Check::ItemsMax(_));
            if let Some(shown) = error.value.filter(|_| !shows_count) {
                let is_zero = value.is_null() && (shown == "" || shown == 0);
                let is_text = !value.is_string() && shown == "";
                prop_assert!(shown == value || is_zero || is_text, "{shown} of {value}");
            }
        }
    }

    #[test]
    fn an_item_that_repeats_an_earlier_one_is_the_only_duplicate(names in prop::collection::vec("[abc]?", 0..6)) {
        const NAMES: &[Rule] = &[Rule::new("list[]", Check::Rules(&[Rule::new("name", Check::Unique).unless_empty()]))];
        let list: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let mut errors = Vec::new();
        rule::check(NAMES, &Change::creation(&json!({"list": list})), &mut errors);
        let is_repeated = |(index, name): &(usize, &String)| !name.is_empty() && names[..*index].contains(name);
        let repeated = names.iter().enumerate().filter(is_repeated);
        let expected: Vec<String> = repeated.map(|(index, name)| format!("list[{index}].name: Duplicate value: {name:?}")).collect();
        prop_assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }
}
