//! Files that are read, and files that are refused with upstream's sentences.

use super::*;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n";
/// 32 bytes.
const SECRET: &str = "c2VjcmV0IGlzIHNlY3VyZSwgb3IgaXMgaXQ/MTIzNDU=";

fn read(entries: &str) -> Result<Configuration, ConfigurationError> {
    Configuration::read(&format!("{HEAD}{entries}"))
}

#[track_caller]
fn refused(entries: &str, wanted: &str) {
    assert_eq!(read(entries).unwrap_err().to_string(), wanted);
}

#[track_caller]
fn refused_resources(resources: &str, wanted: &str) {
    refused(&format!("- resources: {resources}\n  providers: [{{identity: {{}}}}]\n"), wanted);
}

#[track_caller]
fn refused_provider(provider: &str, wanted: &str) {
    refused(&format!("- resources: [secrets]\n  providers: [{provider}]\n"), wanted);
}

#[test]
fn upstreams_example_is_read() {
    let configuration = read(&format!(
        "- resources: [events]\n  providers: [{{identity: {{}}}}]\n\
         - resources: [secrets, configmaps, pandas.awesome.bears.example]\n  providers:\n  - aescbc:\n      keys:\n      - name: key1\n        secret: {SECRET}\n\
         - resources: ['*.apps']\n  providers:\n  - kms: {{apiVersion: v2, name: a, endpoint: 'unix:///run/kms.sock', timeout: 1m}}\n  - secretbox: {{keys: [{{name: k, secret: {SECRET}}}]}}\n\
         - resources: ['*.*']\n  providers: [{{aesgcm: {{keys: [{{name: key3, secret: {SECRET}}}]}}}}]\n",
    ))
    .unwrap();
    let names: Vec<Vec<String>> =
        configuration.entries.iter().map(|entry| entry.resources.iter().map(Named::to_string).collect()).collect();
    assert_eq!(names.concat(), ["events", "secrets", "configmaps", "pandas.awesome.bears.example", "*.apps", "*.*"]);
    let [Provider::Kms(kms), Provider::Secretbox(keys)] = &*configuration.entries[2].providers else { panic!() };
    assert_eq!((&*kms.socket, kms.timeout), ("/run/kms.sock", Duration::from_secs(60)));
    assert_eq!((&*keys[0].name, keys[0].secret.len()), ("k", 32));
    assert!(!format!("{configuration:?}").contains("115"), "no secret is printed");
}

#[test]
fn a_file_that_is_no_configuration_is_refused() {
    let refused = |text: &str| Configuration::read(text).unwrap_err().to_string();
    assert_eq!(refused(" \n"), "it is empty");
    assert_eq!(refused(HEAD), "resources: at least one resources is required");
    assert_eq!(
        refused("apiVersion: v1\nkind: EncryptionConfig\n"),
        "it is no EncryptionConfiguration: want kind EncryptionConfiguration and apiVersion apiserver.config.k8s.io/v1, not \"EncryptionConfig\" and \"v1\""
    );
    let unknown = refused(&format!("{HEAD}- resource: [secrets]\n  secret: hunter2\n"));
    assert!(unknown.contains("resource") && !unknown.contains("hunter2") && !unknown.contains('\n'), "{unknown}");
}

#[test]
fn names_of_resources_follow_upstreams_rules() {
    let of = |at: &str, why: &str| format!("resources[0].resources{at}: {why}");
    refused_resources("[]", &of("", "at least one resources[0].resources is required"));
    refused_resources("[Secrets]", &of("[0]", "\"Secrets\": resource name should not contain capital letters"));
    refused_resources(
        "['*']",
        &of("[0]", "\"*\": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"),
    );
    refused_resources("['a.*']", &of("[0]", "\"a.*\": encrypting the same resource across groups is not supported"));
    refused_resources("[secrets, secrets]", &of("", "the same resource cannot be specified multiple times"));
    let overlap = of(
        "",
        "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked",
    );
    for resources in ["[secrets, '*.']", "['*.*', secrets]", "['*.apps', deployments.apps]"] {
        refused_resources(resources, &overlap);
    }
    refused_resources(
        "[events.events.k8s.io]",
        &of(
            "[0]",
            "\"events.events.k8s.io\": '*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        ),
    );
}

#[test]
fn providers_follow_upstreams_rules() {
    let of = |field: &str, why: &str| format!("resources[0].providers[0]{field}: {why}");
    refused_provider(
        "{}",
        &of("", "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"),
    );
    refused_provider(
        &format!("{{identity: {{}}, aescbc: {{keys: [{{name: a, secret: {SECRET}}}]}}}}"),
        &of("", "more than one provider specified in a single element, should split into different list elements"),
    );
    refused_provider("{aescbc: {keys: []}}", &of(".aescbc.keys", "at least one keys is required"));
    refused_provider(
        "{aesgcm: {keys: [{secret: a}]}}",
        &of(".aesgcm.keys[0].name", "name is a mandatory field for a key"),
    );
    refused_provider(
        "{aesgcm: {keys: [{name: a}]}}",
        &of(".aesgcm.keys[0].secret", "secret is a mandatory field for a key"),
    );
    refused_provider(
        "{aesgcm: {keys: [{name: a, secret: '!'}]}}",
        &of(".aesgcm.keys[0].secret", "secrets must be base64 encoded"),
    );
    refused_provider(
        "{aesgcm: {keys: [{name: a, secret: YWJj}]}}",
        &of(".aesgcm.keys[0].secret", "secret is not of the expected length, got 3, expected one of [16 24 32]"),
    );
    refused_provider(
        "{secretbox: {keys: [{name: a, secret: YWJjZGVmZ2hpamtsbW5vcA==}]}}",
        &of(".secretbox.keys[0].secret", "secret is not of the expected length, got 16, expected one of [32]"),
    );
}

#[test]
fn key_management_services_follow_upstreams_rules() {
    let check = |kms: &str, field: &str, why: &str| {
        refused_provider(&format!("{{kms: {{{kms}}}}}"), &format!("resources[0].providers[0].kms.{field}: {why}"));
    };
    check(
        "name: a, endpoint: 'unix:///a'",
        "apiVersion",
        "KMS v1 is deprecated and not supported here: use a plugin of KMS v2, and say apiVersion: v2",
    );
    check("apiVersion: v3, name: a", "apiVersion", "unsupported apiVersion for KMS provider, only v2 is supported");
    check("apiVersion: v2", "name", "name is a mandatory field for a provider");
    check("apiVersion: v2, name: 'a:b'", "name", "invalid KMS provider name a:b, must not contain ':'");
    check("apiVersion: v2, name: a, timeout: 0s", "timeout", "timeout should be a positive value, such as 3s");
    check("apiVersion: v2, name: a", "endpoint", "endpoint is a mandatory field for a kms");
    check(
        "apiVersion: v2, name: a, endpoint: 'tcp://a'",
        "endpoint",
        "unsupported scheme \"tcp\" for KMS provider, only unix is supported",
    );
    check(
        "apiVersion: v2, name: a, endpoint: 'unix:///a', cachesize: 1",
        "cachesize",
        "cachesize is not supported in v2",
    );
    let kms = "{kms: {apiVersion: v2, name: a, endpoint: 'unix:///@a'}}";
    refused(
        &format!("- resources: [secrets]\n  providers: [{kms}, {kms}]\n"),
        "resources[0].providers[1].kms.name: duplicate KMS provider name a, names must be unique",
    );
}
