//! Documents that are read, and sentences about those that are not.

use crate::scheduler::Configuration;
use proptest::prelude::*;
use serde_json::{Value, json};

fn document(fields: Value) -> Value {
    let mut document = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
    let fields = fields.as_object().unwrap().clone();
    document.as_object_mut().unwrap().extend(fields);
    document
}

#[track_caller]
fn refused(fields: Value, want: &str) {
    match Configuration::read(&document(fields)) {
        Err(error) => assert_eq!(error.to_string(), want),
        Ok(configuration) => panic!("it was taken: {configuration:?}"),
    }
}

#[track_caller]
fn refused_args(plugin: &str, args: Value, want: &str) {
    let profile = json!({"pluginConfig": [{"name": plugin, "args": args}]});
    refused(json!({"profiles": [profile]}), &format!("profiles[0].pluginConfig[0].args{want}"));
}

#[track_caller]
fn refused_plugins(plugins: Value, want: &str) {
    refused(json!({"profiles": [{"plugins": plugins}]}), &format!("profiles[0].plugins.{want}"));
}

#[test]
fn an_empty_configuration_has_the_default_profile() {
    let configuration = Configuration::read(&document(json!({}))).unwrap();
    assert_eq!(configuration.profile_names().collect::<Vec<_>>(), ["default-scheduler"]);
    assert!(configuration.without_effect().is_empty());
}

#[test]
fn a_file_for_kube_scheduler_is_taken_and_the_parts_about_its_process_are_named() {
    let configuration = Configuration::read(&document(json!({
        "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
        "leaderElection": {"leaderElect": true},
        "profiles": [{"schedulerName": "one"}, {"schedulerName": "two", "plugins": {
            "preScore": {"disabled": [{"name": "*"}]}, "score": {"disabled": [{"name": "*"}]}}}],
    })));
    let configuration = configuration.unwrap();
    assert_eq!(configuration.profile_names().collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(configuration.without_effect(), ["clientConnection", "leaderElection"]);
}

#[test]
fn refusals_name_the_field_and_the_value() {
    let read = |document: Value| Configuration::read(&document).unwrap_err().to_string();
    assert_eq!(read(json!([])), "kind: the document is not an object of the kind KubeSchedulerConfiguration");
    assert_eq!(
        read(json!({"apiVersion": "kubescheduler.config.k8s.io/v1beta3", "kind": "KubeSchedulerConfiguration"})),
        "apiVersion: \"kubescheduler.config.k8s.io/v1beta3\" is not supported: it must be \"kubescheduler.config.k8s.io/v1\""
    );
    let mistyped = Configuration::read(&document(json!({"profile": []}))).unwrap_err().to_string();
    assert!(mistyped.starts_with("the document: unknown field `profile`"), "{mistyped}");
    let mistyped = Configuration::read(&document(json!({"profiles": [{"plugin": []}]}))).unwrap_err().to_string();
    assert!(mistyped.starts_with("profiles[0]: unknown field `plugin`"), "{mistyped}");
    refused(json!({"percentageOfNodesToScore": 101}), "percentageOfNodesToScore: 101 is not in the range 0 to 100");
    refused(json!({"podInitialBackoffSeconds": 0}), "podInitialBackoffSeconds: 0 is not greater than 0");
    refused(
        json!({"podInitialBackoffSeconds": 20}),
        "podMaxBackoffSeconds: 10 is less than podInitialBackoffSeconds, which is 20",
    );
    refused(
        json!({"profiles": [{"schedulerName": "one"}, {}]}),
        "profiles[1].schedulerName: a name is required where there are several profiles",
    );
    refused(
        json!({"profiles": [{"schedulerName": "one"}, {"schedulerName": "one"}]}),
        "profiles[1].schedulerName: \"one\" is the name of profiles[0] already",
    );
    refused(
        json!({"extenders": [{"urlPrefix": "http://127.0.0.1"}]}),
        "extenders: extenders are not supported: run a kube-scheduler of your own with --controllers='*,-scheduler'",
    );
}

#[test]
fn refusals_about_plugins_say_where_they_can_be() {
    let unknown = Configuration::read(&document(
        json!({"profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}}}]}),
    ));
    let unknown = unknown.unwrap_err().to_string();
    let begin = "profiles[0].plugins.multiPoint.enabled[0].name: there is no plugin \"Coscheduling\": there are SchedulingGates";
    assert!(unknown.starts_with(begin), "{unknown}");
    refused_plugins(
        json!({"score": {"enabled": [{"name": "NodePorts"}]}}),
        "score.enabled[0].name: NodePorts does not extend score",
    );
    refused_plugins(
        json!({"score": {"enabled": [{"name": "ImageLocality"}, {"name": "ImageLocality"}]}}),
        "score.enabled[1].name: ImageLocality is in the list twice",
    );
    refused_plugins(
        json!({"bind": {"disabled": [{"name": "*"}]}}),
        "bind.disabled: without DefaultBinder nothing binds Pods",
    );
    refused_plugins(
        json!({"preFilter": {"disabled": [{"name": "VolumeZone"}]}}),
        "preFilter: VolumeZone is off here and on at filter: this scheduler turns it off at both only",
    );
    refused_plugins(
        json!({"permit": {"enabled": [{"name": "Coscheduling"}]}}),
        "permit.enabled[0]: Coscheduling cannot be enabled: this scheduler has no plugins at this point",
    );
}

#[test]
fn refusals_about_settings_name_the_range() {
    refused_args(
        "InterPodAffinity",
        json!({"hardPodAffinityWeight": 101}),
        ".hardPodAffinityWeight: 101 is not in the range 0 to 100",
    );
    refused_args(
        "InterPodAffinity",
        json!({"kind": "OtherArgs"}),
        ".kind: \"OtherArgs\" is not the plugin's: it must be \"InterPodAffinityArgs\"",
    );
    refused_args(
        "DefaultPreemption",
        json!({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}),
        ".minCandidateNodesAbsolute: it cannot be 0 at the same time as minCandidateNodesPercentage",
    );
    refused_args(
        "NodeResourcesFit",
        json!({"scoringStrategy": {"type": "RequestedToCapacityRatio"}}),
        ".scoringStrategy.requestedToCapacityRatio.shape: at least one point is required",
    );
    let shape = json!([{"utilization": 10, "score": 1}, {"utilization": 10, "score": 2}]);
    refused_args(
        "NodeResourcesFit",
        json!({"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}}}),
        ".scoringStrategy.requestedToCapacityRatio.shape[1].utilization: 10 is not greater than the one before",
    );
    refused_args(
        "NodeResourcesFit",
        json!({"scoringStrategy": {"type": "Least"}}),
        ".scoringStrategy.type: \"Least\" is unknown: there are LeastAllocated, MostAllocated and RequestedToCapacityRatio",
    );
    refused_args(
        "NodeResourcesBalancedAllocation",
        json!({"resources": [{"name": "cpu", "weight": 2}]}),
        ".resources[0].weight: 2 is not possible: it must be 1",
    );
    let zone = json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"});
    refused_args(
        "PodTopologySpread",
        json!({"defaultConstraints": [zone]}),
        ".defaultingType: constraints of your own need defaultingType: List",
    );
    refused_args(
        "PodTopologySpread",
        json!({"defaultingType": "List", "defaultConstraints": [zone, zone]}),
        ".defaultConstraints[1]: zone with ScheduleAnyway is there already",
    );
    let required = |terms: Value| json!({"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    let at = ".addedAffinity.requiredDuringSchedulingIgnoredDuringExecution";
    let operator =
        json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]}]});
    refused_args(
        "NodeAffinity",
        required(operator),
        &format!("{at}.nodeSelectorTerms[0]: an operator is unknown, or does not take its values"),
    );
    refused_args(
        "NodeAffinity",
        required(json!({"nodeSelectorTerm": []})),
        &format!("{at}.nodeSelectorTerm: there is no such field"),
    );
    refused_args(
        "NodeAffinity",
        required(json!({"nodeSelectorTerms": []})),
        &format!("{at}.nodeSelectorTerms: at least one term is required, because no node matches without any"),
    );
    let negative = json!([{"weight": -1, "preference": {}}]);
    refused_args(
        "NodeAffinity",
        json!({"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": negative}}),
        ".addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: -1 is negative",
    );
    let mistyped = json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "minDomain": 1});
    refused_args(
        "PodTopologySpread",
        json!({"defaultingType": "List", "defaultConstraints": [mistyped]}),
        ".defaultConstraints[0].minDomain: there is no such field",
    );
    refused_args("VolumeBinding", json!({"bindTimeoutSeconds": -1}), ".bindTimeoutSeconds: -1 is negative");
    refused(
        json!({"profiles": [{"pluginConfig": [{"name": "ImageLocality", "args": {}}]}]}),
        "profiles[0].pluginConfig[0].name: there are no settings for \"ImageLocality\": only DefaultPreemption, \
         InterPodAffinity, NodeAffinity, NodeResourcesBalancedAllocation, NodeResourcesFit, PodTopologySpread and \
         VolumeBinding have settings",
    );
}

#[test]
fn absent_and_null_are_the_same() {
    let profile = json!({
        "plugins": {"score": {"enabled": null, "disabled": null}},
        "pluginConfig": [
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "RequestedToCapacityRatio", "resources": null,
                "requestedToCapacityRatio": {"shape": [{"score": 1}, {"utilization": 100}]}}}},
            {"name": "PodTopologySpread", "args": {"defaultingType": null, "defaultConstraints": null}},
            {"name": "InterPodAffinity", "args": {"ignorePreferredTermsOfExistingPods": null}},
            {"name": "VolumeBinding", "args": null},
        ],
    });
    Configuration::read(&document(json!({"profiles": [profile]}))).unwrap();
}

#[test]
fn a_plugin_that_is_off_everywhere_is_missed_where_the_file_turns_it_off() {
    refused_plugins(
        json!({"multiPoint": {"disabled": [{"name": "*"}]}}),
        "multiPoint.disabled: without PrioritySort nothing sorts the queue",
    );
}

proptest! {
    #[test]
    fn any_document_is_read_or_refused(plugin in "[A-Z][a-zA-Z]{0,20}|NodeResourcesFit|PodTopologySpread|NodeAffinity", args in any_json(), plugins in any_json()) {
        let profile = json!({"plugins": plugins, "pluginConfig": [{"name": plugin, "args": args}]});
        drop(Configuration::read(&document(json!({"profiles": [profile]}))));
    }
}

/// Values with the names of fields that the configuration has.
fn any_json() -> impl Strategy<Value = Value> {
    let names = "scoringStrategy|type|resources|weight|name|shape|enabled|disabled|score|filter|multiPoint|addedAffinity|defaultConstraints|maxSkew";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zA-Z*/]{0,8}|LeastAllocated|List|cpu|NodePorts".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}
