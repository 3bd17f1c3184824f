//! The `caBundle` of the entries that lead to this server, in configurations of webhooks and in definitions.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::ApiResource;
use serde_json::Value;

/// An object with entries of webhooks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Target {
    pub(crate) place: ConfigurationKind,
    pub(crate) name: String,
}

/// The kind of the object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ConfigurationKind {
    Definition,
    Mutating,
    Validating,
}

/// The entries that lead to this server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    /// The namespace and name of each Service.
    pub(crate) services: Vec<(String, String)>,
    pub(crate) hosts: Vec<String>,
}

impl ConfigurationKind {
    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::Definition => ApiResource::erase::<CustomResourceDefinition>(&()),
            Self::Mutating => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            Self::Validating => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
        }
    }

    /// The `clientConfig` of each entry of an object.
    fn client_configs(self, object: &mut Value) -> Vec<&mut Value> {
        match self {
            Self::Definition => object.pointer_mut("/spec/conversion/webhook/clientConfig").into_iter().collect(),
            Self::Mutating | Self::Validating => {
                let entries = object.get_mut("webhooks").and_then(Value::as_array_mut);
                entries.into_iter().flatten().filter_map(|entry| entry.get_mut("clientConfig")).collect()
            }
        }
    }
}

impl Own {
    /// Sets the `caBundle`, which is base64, of the entries that lead to this server. Returns how many had another one.
    pub(crate) fn trust(&self, place: ConfigurationKind, object: &mut Value, bundle: &str) -> usize {
        let mut n_changed = 0;
        for client_config in place.client_configs(object) {
            let is_known = client_config.get("caBundle").and_then(Value::as_str) == Some(bundle);
            if is_known || !self.leads_here(client_config) {
                continue;
            }
            if let Some(fields) = client_config.as_object_mut() {
                fields.insert("caBundle".to_owned(), bundle.into());
                n_changed += 1;
            }
        }
        n_changed
    }

    fn leads_here(&self, client_config: &Value) -> bool {
        let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(service) = client_config.get("service").filter(|service| !service.is_null()) {
            return self.services.contains(&(text(service, "namespace"), text(service, "name")));
        }
        let url: Option<http::Uri> = text(client_config, "url").parse().ok();
        let host = url.as_ref().and_then(http::Uri::host).map(|host| host.trim_matches(['[', ']']));
        host.is_some_and(|host| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_entries_that_lead_here_are_changed() {
        let own = Own {
            services: vec![("ops".to_owned(), "hook".to_owned())],
            hosts: vec!["127.0.0.1".to_owned(), "::1".to_owned()],
        };
        let mut object = json!({"webhooks": [
            {"name": "service", "clientConfig": {"service": {"namespace": "ops", "name": "hook", "path": "/a"}}},
            {"name": "other", "clientConfig": {"service": {"namespace": "ops", "name": "other"}, "caBundle": "bz0="}},
            {"name": "url", "clientConfig": {"url": "https://127.0.0.1:9443/a", "caBundle": "b2xk"}},
            {"name": "v6", "clientConfig": {"url": "https://[::1]:9443/a"}},
            {"name": "elsewhere", "clientConfig": {"url": "https://example.com/127.0.0.1"}}
        ]});
        assert_eq!(own.trust(ConfigurationKind::Mutating, &mut object, "bmV3"), 3);
        assert_eq!(own.trust(ConfigurationKind::Mutating, &mut object, "bmV3"), 0);
        let bundles = object["webhooks"].as_array().unwrap().iter();
        let bundles: Vec<String> =
            bundles.map(|entry| format!("{} {}", entry["name"], entry["clientConfig"]["caBundle"])).collect();
        expect![[r#"
            "service" "bmV3"
            "other" "bz0="
            "url" "bmV3"
            "v6" "bmV3"
            "elsewhere" null"#]]
        .assert_eq(&bundles.join("\n"));
    }

    #[test]
    fn a_definition_that_converts_without_a_webhook_is_left_alone() {
        let own = Own { services: vec![("ops".to_owned(), "hook".to_owned())], hosts: Vec::new() };
        let mut none = json!({"spec": {"conversion": {"strategy": "None"}}});
        assert_eq!(own.trust(ConfigurationKind::Definition, &mut none, "bmV3"), 0);
        let service = json!({"namespace": "ops", "name": "hook"});
        let mut webhook =
            json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": service}}}}});
        assert_eq!(own.trust(ConfigurationKind::Definition, &mut webhook, "bmV3"), 1);
        assert_eq!(webhook["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"], "bmV3");
    }
}
