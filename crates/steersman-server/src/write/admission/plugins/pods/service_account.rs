//! `ServiceAccount`: sets the account of a pod, mounts the token of the account in a volume, and adds the account's
//! image pull secrets; refuses pods of accounts that do not exist, and secrets that the account does not let its pods
//! use. Follows kubernetes' `plugin/pkg/admission/serviceaccount`.
//!
//! A control loop must create the account `default` of every namespace; kube-controller-manager has one.

use crate::access::pod_references::{self, Referred, items};
use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, find, forbidden};
use futures::future::BoxFuture;
use rand::Rng as _;
use serde_json::json;
use std::time::Duration;
use steersman_machinery::value::{at, object_at, set_at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value, name};

const DEFAULT: &str = "default";
/// The path at which programs in a pod look for their token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The prefix of the volume's name.
const VOLUME: &str = "kube-api-access-";
/// The annotation of an account whose pods may only use the secrets that it lists.
const ENFORCES: &str = "kubernetes.io/enforce-mountable-secrets";
/// The requested lifetime of the token; the server extends tokens with this lifetime for old clients.
const TOKEN_SECONDS: i64 = 3607;
/// The maximum number of lookups of the account `default`: it is created soon after its namespace.
const ATTEMPTS_MAX: u32 = 10;
/// The pause between two lookups, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 100..200;

#[derive(Debug)]
pub(crate) struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        attributes.is_about("", "pods")
            && match (action, attributes.subresource) {
                (Action::Create, None) => true,
                (Action::Update, Some("ephemeralcontainers")) => phase == Phase::Validate,
                _ => false,
            }
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let Some(pod) = new else { return Ok(()) };
            if !pod_references::is_mirror(pod) {
                give(review, pod).await?;
            }
            check(review, pod).await
        })
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            match new {
                Some(pod) => check(review, pod).await,
                None => Ok(()),
            }
        })
    }
}

/// Sets the account of a pod, with its token and image pull secrets.
async fn give(review: &Review<'_, '_>, pod: &mut Value) -> Result<(), Failure> {
    if account_name(pod).is_empty() {
        set_at(pod, &["spec", "serviceAccountName"], DEFAULT.into());
        set_at(pod, &["spec", "serviceAccount"], DEFAULT.into());
    }
    let account = account(review, pod).await?;
    let wish = |object: &Value, path: &[&str]| at(object, path).and_then(Value::as_bool);
    let of_pod = wish(pod, &["spec", "automountServiceAccountToken"]);
    if of_pod.or(wish(&account, &["automountServiceAccountToken"])).unwrap_or(true) {
        mount_token(pod);
    }
    if items(pod, &["spec", "imagePullSecrets"]).next().is_none() {
        let names = items(&account, &["imagePullSecrets"]).filter_map(|secret| str_at(secret, &["name"]));
        let secrets: Vec<Value> = names.map(|name| json!({ "name": name })).collect();
        if !secrets.is_empty() {
            set_at(pod, &["spec", "imagePullSecrets"], secrets.into());
        }
    }
    Ok(())
}

/// Mounts the token in every container that has no mount at its path.
fn mount_token(pod: &mut Value) {
    let existing = items(pod, &["spec", "volumes"]).filter_map(|volume| str_at(volume, &["name"]));
    let existing = existing.into_iter().find(|name| name.starts_with(VOLUME)).map(str::to_owned);
    let is_new = existing.is_none();
    let volume = existing.unwrap_or_else(|| {
        let (mut random, alphabet) = (rand::rng(), name::GENERATED_ALPHABET);
        let letters = (0..name::GENERATED_LENGTH).map(|_| char::from(alphabet[random.random_range(0..alphabet.len())]));
        VOLUME.chars().chain(letters).collect()
    });
    let Some(spec) = object_at(pod, &["spec"]) else { return };
    let mut is_needed = false;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            if mounts.is_null() {
                *mounts = json!([]);
            }
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if !mounts.iter().any(|mount| str_at(mount, &["mountPath"]) == Some(MOUNT_PATH)) {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}));
                is_needed = true;
            }
        }
    }
    if is_new && is_needed {
        let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
        if volumes.is_null() {
            *volumes = json!([]);
        }
        if let Some(volumes) = volumes.as_array_mut() {
            volumes.push(json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ]}}));
        }
    }
}

/// Checks that the account exists and lets the pod use the secrets that it names.
async fn check(review: &Review<'_, '_>, pod: &Value) -> Result<(), Failure> {
    let is_change = review.action == Action::Update;
    if !is_change && pod_references::is_mirror(pod) {
        return mirror_fault(pod).map_or(Ok(()), |why| Err(forbidden(review, Some(pod), why)));
    }
    if account_name(pod).is_empty() {
        let (namespace, name) = (review.operation.namespace().unwrap_or_default(), str_at(pod, &["metadata", "name"]));
        let why = format!("no service account specified for pod {namespace}/{}", name.unwrap_or_default());
        return Err(forbidden(review, Some(pod), &why));
    }
    let account = account(review, pod).await?;
    let enforces = str_at(&account, &["metadata", "annotations", ENFORCES]);
    if !matches!(enforces, Some("1" | "t" | "T" | "TRUE" | "true" | "True")) {
        return Ok(());
    }
    let fault = if is_change { container_fault(&account, pod, &EPHEMERAL) } else { secret_fault(&account, pod) };
    fault.map_or(Ok(()), |why| Err(forbidden(review, Some(pod), &why)))
}

fn account_name(pod: &Value) -> &str {
    str_at(pod, &["spec", "serviceAccountName"]).unwrap_or_default()
}

async fn account(review: &Review<'_, '_>, pod: &Value) -> Result<Value, Failure> {
    let (namespace, name) = (review.operation.namespace().unwrap_or_default(), account_name(pod));
    let (accounts, key) = (GroupResource::new("", "serviceaccounts"), ObjectKey::namespaced(namespace, name));
    let attempts = if name == DEFAULT { ATTEMPTS_MAX } else { 1 };
    for attempt in 1..=attempts {
        if let Some(account) = find(review.state, &accounts, &key).await? {
            return Ok(account);
        }
        if attempt < attempts {
            let pause = rand::rng().random_range(PAUSE_MS);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }
    let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
    Err(forbidden(review, Some(pod), &why))
}

/// The error of a mirror pod with fields that it may not have.
fn mirror_fault(pod: &Value) -> Option<&'static str> {
    if !account_name(pod).is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    if pod_references::of(pod).iter().any(|(kind, _)| *kind == Referred::Secret) {
        return Some("a mirror pod may not reference secrets");
    }
    let mut sources = items(pod, &["spec", "volumes"]).flat_map(|volume| items(volume, &["projected", "sources"]));
    let is_token = |source: &Value| at(source, &["serviceAccountToken"]).is_some_and(|token| !token.is_null());
    sources.any(is_token).then_some("a mirror pod may not use ServiceAccountToken volume projections")
}

/// The lists of containers, each with its name in error messages.
const EPHEMERAL: [(&str, &str); 1] = [("ephemeralContainers", "ephemeral container")];
const LASTING: [(&str, &str); 2] = [("initContainers", "init container"), ("containers", "container")];

/// The error about the first secret that a pod names and its account does not list.
fn secret_fault(account: &Value, pod: &Value) -> Option<String> {
    let of_account = str_at(account, &["metadata", "name"]).unwrap_or_default();
    let mut volumes = items(pod, &["spec", "volumes"]).filter_map(|volume| str_at(volume, &["secret", "secretName"]));
    if let Some(secret) = volumes.find(|secret| !names(account, "secrets", secret)) {
        return Some(format!(
            "volume with secret.secretName=\"{secret}\" is not allowed because service account {of_account} does not reference that secret"
        ));
    }
    if let Some(fault) = container_fault(account, pod, &LASTING) {
        return Some(fault);
    }
    let of_images = items(pod, &["spec", "imagePullSecrets"]).filter_map(|secret| str_at(secret, &["name"]));
    let (index, secret) = of_images.enumerate().find(|(_, secret)| !names(account, "imagePullSecrets", secret))?;
    Some(format!(
        "imagePullSecrets[{index}].name=\"{secret}\" is not allowed because service account {of_account} does not reference that imagePullSecret"
    ))
}

fn container_fault(account: &Value, pod: &Value, lists: &[(&str, &str)]) -> Option<String> {
    let of_account = str_at(account, &["metadata", "name"]).unwrap_or_default();
    let because = format!("is not allowed because service account {of_account} does not reference that secret");
    lists.iter().find_map(|(list, what)| {
        items(pod, &["spec", list]).find_map(|container| {
            let name = str_at(container, &["name"]).unwrap_or_default();
            let of_variables = items(container, &["env"]).find_map(|variable| {
                let secret = str_at(variable, &["valueFrom", "secretKeyRef", "name"])?;
                let variable = str_at(variable, &["name"]).unwrap_or_default();
                (!names(account, "secrets", secret)).then(|| {
                    format!("{what} {name} with envVar {variable} referencing secret.secretName=\"{secret}\" {because}")
                })
            });
            of_variables.or_else(|| {
                let mut sources =
                    items(container, &["envFrom"]).filter_map(|source| str_at(source, &["secretRef", "name"]));
                let secret = sources.find(|secret| !names(account, "secrets", secret))?;
                Some(format!("{what} {name} with envFrom referencing secret.secretName=\"{secret}\" {because}"))
            })
        })
    })
}

/// Whether an account lists a secret in one of its lists.
fn names(account: &Value, list: &str, secret: &str) -> bool {
    items(account, &[list]).any(|one| str_at(one, &["name"]) == Some(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_mounted_where_nothing_is() {
        let mut pod = json!({"spec": {
            "initContainers": [{"name": "i"}],
            "containers": [{"name": "a", "volumeMounts": [{"name": "own", "mountPath": MOUNT_PATH}]}],
        }});
        mount_token(&mut pod);
        let volume = pod["spec"]["volumes"][0]["name"].as_str().unwrap().to_owned();
        assert!(volume.starts_with(VOLUME) && volume.len() == VOLUME.len() + 5, "{volume}");
        let mount = json!([{"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}]);
        assert_eq!(pod["spec"]["initContainers"][0]["volumeMounts"], mount);
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["name"], "own");
        let mut own = json!({"spec": {"containers": [{"name": "a"}], "volumes": [{"name": "kube-api-access-mine"}]}});
        mount_token(&mut own);
        assert_eq!(own["spec"]["volumes"].as_array().unwrap().len(), 1);
        assert_eq!(own["spec"]["containers"][0]["volumeMounts"][0]["name"], "kube-api-access-mine");
    }

    #[track_caller]
    fn check_secret(spec: Value, want: Option<&str>) {
        let account = json!({
            "metadata": {"name": "a"}, "secrets": [{"name": "known"}], "imagePullSecrets": [{"name": "pull"}],
        });
        assert_eq!(secret_fault(&account, &json!({ "spec": spec })).as_deref(), want);
    }

    #[test]
    fn only_the_secrets_of_the_account_are_mounted() {
        let volume = |secret: &str| json!({"volumes": [{"name": "v", "secret": {"secretName": secret}}]});
        check_secret(volume("known"), None);
        let because = "is not allowed because service account a does not reference that secret";
        check_secret(volume("other"), Some(&format!("volume with secret.secretName=\"other\" {because}")));
        let env = json!([{"name": "V", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}]);
        check_secret(
            json!({"initContainers": [{"name": "i", "env": env}]}),
            Some(&format!("init container i with envVar V referencing secret.secretName=\"other\" {because}")),
        );
        check_secret(
            json!({"containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "other"}}]}]}),
            Some(&format!("container c with envFrom referencing secret.secretName=\"other\" {because}")),
        );
        check_secret(
            json!({"imagePullSecrets": [{"name": "pull"}, {"name": "known"}]}),
            Some(
                "imagePullSecrets[1].name=\"known\" is not allowed because service account a does not reference that imagePullSecret",
            ),
        );
    }

    #[test]
    fn a_mirror_pod_uses_nothing_of_the_api() {
        assert_eq!(mirror_fault(&json!({"spec": {}})), None);
        let account = json!({"spec": {"serviceAccountName": "a"}});
        assert_eq!(mirror_fault(&account), Some("a mirror pod may not reference service accounts"));
        let secret = json!({"spec": {"volumes": [{"secret": {"secretName": "s"}}]}});
        assert_eq!(mirror_fault(&secret), Some("a mirror pod may not reference secrets"));
    }
}
