//! Documents that are read, and sentences about those that are not.

use crate::scheduler::Configuration;
use crate::scheduler::configuration::{NodeForm, OnFailure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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

/// The refusal of an extender with these fields, without the path of its entry.
#[track_caller]
fn refused_extender(fields: Value, want: &str) {
    let mut extender = json!({"urlPrefix": "http://127.0.0.1:80/scheduler"});
    extender.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    refused(json!({"extenders": [extender]}), &format!("extenders[0].{want}"));
}

#[test]
fn extenders_have_the_defaults_of_kube_scheduler_and_ignorable_ones_come_last() {
    let all = json!({
        "urlPrefix": "https://gpu.example.com:12346/scheduler/", "filterVerb": "filter", "prioritizeVerb": "score",
        "preemptVerb": "preempt", "bindVerb": "bind", "weight": 5, "enableHTTPS": true, "httpTimeout": "1m30s",
        "tlsConfig": {"insecure": true, "serverName": "gpu"}, "nodeCacheCapable": true, "ignorable": true,
        "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": true}, {"name": "example.com/fpga"}],
    });
    let fields = json!({"extenders": [all, {"urlPrefix": "http://[::1]:80"}], "profiles": [{"pluginConfig": [
        {"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/other"]}}]}]});
    let configuration = Configuration::read(&document(fields)).unwrap();
    let [plain, all] = configuration.extenders() else { panic!("{configuration:?}") };
    assert_eq!((plain.at, plain.url.as_str(), plain.timeout.as_secs()), (0, "http://[::1]:80", 5));
    assert_eq!((plain.nodes, plain.on_failure), (NodeForm::Objects, OnFailure::FailThePod));
    assert!(plain.filter.is_none() && plain.prioritize.is_none() && plain.preempt.is_none() && plain.bind.is_none());
    assert_eq!((all.at, all.weight, all.timeout.as_secs()), (1, 5, 90));
    assert_eq!((all.nodes, all.on_failure), (NodeForm::Names, OnFailure::GoOnWithout));
    let filter = all.filter.as_ref().map(|verb| (verb.name.clone(), verb.url.to_string()));
    assert_eq!(filter, Some(("filter".to_owned(), "https://gpu.example.com:12346/scheduler/filter".to_owned())));
    // These resources take the place of those in the settings of the plugin.
    let profile = configuration.profile("default-scheduler").unwrap();
    assert_eq!(profile.fit.ignored, ["example.com/gpu"]);
    assert_eq!(profile.extenders.len(), 2);
    let nothing = json!({"urlPrefix": "http://a", "filterVerb": null, "weight": null, "tlsConfig": null, "httpTimeout": null,
        "managedResources": null, "ignorable": null});
    Configuration::read(&document(json!({"extenders": [nothing]}))).unwrap();
    Configuration::read(&document(json!({"extenders": null}))).unwrap();
}

#[test]
fn refusals_about_extenders_name_the_entry() {
    for (url, why) in [
        ("", "it is no URL"),
        ("gpu:80", "it must begin with http:// or https:// and a host"),
        ("ftp://gpu", "it must begin with http:// or https:// and a host"),
        ("http://me:secret@gpu", "a user is not supported"),
        ("http://gpu/a?b", "verbs are appended to it, so that it can have no query and no fragment"),
    ] {
        refused_extender(json!({"urlPrefix": url}), &format!("urlPrefix: {url:?} is not possible: {why}"));
    }
    refused_extender(
        json!({"filterVerb": "a b"}),
        "filterVerb: \"a b\" is not possible: it cannot be the end of a URL",
    );
    for weight in [json!({}), json!({"weight": -1})] {
        let value = weight["weight"].as_i64().unwrap_or_default();
        let mut fields = json!({"prioritizeVerb": "score"});
        fields.as_object_mut().unwrap().extend(weight.as_object().unwrap().clone());
        let want = format!("weight: {value} is not greater than 0, which an extender with a prioritizeVerb needs");
        refused_extender(fields, &want);
    }
    refused_extender(json!({"httpTimeout": "5"}), "httpTimeout: time: missing unit in duration \"5\"");
    refused_extender(json!({"httpTimeout": "-5s"}), "httpTimeout: \"-5s\" is negative");
    for resource in ["cpu", "kubernetes.io/gpu", "requests.example.com/gpu"] {
        let want = format!("managedResources[0].name: {resource:?} is no extended resource, such as example.com/gpu");
        refused_extender(json!({"managedResources": [{"name": resource}]}), &want);
    }
    refused_extender(
        json!({"managedResources": [{"ignoredByScheduler": true}]}),
        "managedResources[0].name: \"\" is not possible: name part must be non-empty",
    );
    let gpu = json!({"urlPrefix": "http://gpu", "managedResources": [{"name": "example.com/gpu"}]});
    refused(
        json!({"extenders": [gpu, gpu]}),
        "extenders[1].managedResources[0].name: \"example.com/gpu\" is managed by extenders[0] already",
    );
    let binds = json!({"urlPrefix": "http://gpu", "bindVerb": "bind"});
    refused(json!({"extenders": [binds, binds]}), "extenders: 2 extenders have a bindVerb: only one can bind Pods");
    let mistyped = document(json!({"extenders": [{"urlPrefix": "http://gpu", "filterVerbs": "a"}]}));
    let mistyped = Configuration::read(&mistyped).unwrap_err().to_string();
    assert!(mistyped.starts_with("extenders[0]: unknown field `filterVerbs`"), "{mistyped}");
}

#[test]
fn refusals_about_certificates_name_the_field_or_the_file() {
    let directory = std::env::temp_dir();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["scheduler".to_owned()]).unwrap().self_signed(&key).unwrap();
    let pem = certificate.pem();
    let [certificate, own_key] = [pem.clone(), key.serialize_pem()].map(|pem| STANDARD.encode(pem));
    let other_key = STANDARD.encode(rcgen::KeyPair::generate().unwrap().serialize_pem());
    let tls = |tls: &Value| json!({"tlsConfig": tls});
    let own = json!({"caData": certificate, "certData": certificate, "keyData": own_key, "keyFile": "/absent"});
    let fields = json!({"extenders": [{"urlPrefix": "https://gpu", "tlsConfig": own}]});
    Configuration::read(&document(fields)).unwrap();
    refused_extender(
        tls(&json!({"insecure": true, "caData": certificate})),
        "tlsConfig.insecure: it cannot be true with a CA, which would have nothing to check",
    );
    refused_extender(
        tls(&json!({"caData": STANDARD.encode("none")})),
        "tlsConfig.caData: there is no certificate in PEM",
    );
    refused_extender(
        tls(&json!({"certData": certificate})),
        "tlsConfig.certData: a certificate needs its key: keyData or keyFile",
    );
    refused_extender(
        tls(&json!({"keyData": own_key})),
        "tlsConfig.keyData: a key needs its certificate: certData or certFile",
    );
    let said = |fields: Value| {
        let fields = json!({"extenders": [{"urlPrefix": "https://gpu", "tlsConfig": fields}]});
        Configuration::read(&document(fields)).unwrap_err().to_string()
    };
    let absent = directory.join("absent").join("ca.crt");
    let want = format!("extenders[0].tlsConfig.caFile: cannot read {}: ", absent.display());
    let absent = said(json!({"caFile": absent}));
    assert!(absent.starts_with(&want), "{absent}");
    let encoded = said(json!({"caData": "-----BEGIN"}));
    assert!(encoded.starts_with("extenders[0].tlsConfig.caData: it is not in base64: "), "{encoded}");
    let damaged = format!("{pem}-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n{pem}");
    for bundle in [damaged, format!("{pem}-----BEGIN CERTIFICATE-----\nAAAA\n")] {
        let said = said(json!({"caData": STANDARD.encode(bundle)}));
        assert!(said.starts_with("extenders[0].tlsConfig.caData: a block of the PEM is damaged: "), "{said}");
    }
    let remarked = json!({"caData": STANDARD.encode(format!("# One.\n{pem}# Two.\n{pem}\n# End.\n"))});
    Configuration::read(&document(json!({"extenders": [{"urlPrefix": "https://gpu", "tlsConfig": remarked}]})))
        .unwrap();
    let pair = said(json!({"certData": certificate, "keyData": other_key}));
    assert!(pair.starts_with("extenders[0].tlsConfig: no connection can be made with it: "), "{pair}");
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

    #[test]
    fn any_extender_is_read_or_refused(url in "https?://[a-z.:@/?#\\[\\]]{0,20}|.{0,20}", verb in ".{0,10}", timeout in "[-0-9.smh]{0,6}", resource in ".{0,10}") {
        let extender = json!({"urlPrefix": url, "filterVerb": verb, "httpTimeout": timeout, "managedResources": [{"name": resource}]});
        drop(Configuration::read(&document(json!({"extenders": [extender]}))));
        drop(Configuration::read(&document(json!({"extenders": [{"urlPrefix": url, "bindVerb": verb}]}))));
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
