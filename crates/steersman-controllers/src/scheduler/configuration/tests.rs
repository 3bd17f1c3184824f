//! Documents that are read, and sentences about those that are not.

use crate::scheduler::Configuration;
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
    assert_eq!(configuration.names().collect::<Vec<_>>(), ["default-scheduler"]);
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
    assert_eq!(configuration.names().collect::<Vec<_>>(), ["one", "two"]);
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
        "preFilter: VolumeZone is off here and on at filter, which cannot work: turn it off at filter too",
    );
    refused_plugins(
        json!({"permit": {"enabled": [{"name": "Coscheduling"}]}}),
        "permit.enabled[0]: no plugin of this scheduler runs at this point, Coscheduling neither",
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
    refused_args(
        "NodeAffinity",
        json!({"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}),
        ".addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: it is empty, or has an \
         operator that is unknown or does not take its values",
    );
    refused_args("VolumeBinding", json!({"bindTimeoutSeconds": -1}), ".bindTimeoutSeconds: -1 is negative");
    refused(
        json!({"profiles": [{"pluginConfig": [{"name": "ImageLocality", "args": {}}]}]}),
        "profiles[0].pluginConfig[0].name: \"ImageLocality\" has no settings here: DefaultPreemption, InterPodAffinity, \
         NodeAffinity, NodeResourcesBalancedAllocation, NodeResourcesFit, PodTopologySpread and VolumeBinding have",
    );
}
