//! `serviceaccounts/token`: a token for an account, bound to an object if the client requests that. Follows kubernetes'
//! `pkg/registry/core/serviceaccount/storage/token.go`.

use crate::access::authn::service_account::Request;
use crate::access::authn::service_account::claims::Bound;
use crate::http::endpoint::connect::Reply;
use crate::http::endpoint::context::Context;
use crate::shared::conversion;
use crate::shared::operation::seconds;
use crate::shared::status::Failure;
use crate::write::registry;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::sync::Arc;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::{at, object_at, set_at, str_at};
use steersman_machinery::{GroupKind, GroupResource, Object, ObjectKey, Value};

const KIND: &str = "TokenRequest";
const API_VERSION: &str = "authentication.k8s.io/v1";
const SECONDS_DEFAULT: i64 = 3600;
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 1 << 32;

/// The objects that the token is bound to beside its account.
#[derive(Default)]
struct Binding {
    pod: Option<Bound>,
    node: Option<Bound>,
    secret: Option<Bound>,
}

pub(super) fn default(request: &mut Value) {
    if let Some(spec) = object_at(request, &["spec"]) {
        let seconds = spec.entry("expirationSeconds").or_insert(Value::Null);
        if seconds.is_null() {
            *seconds = SECONDS_DEFAULT.into();
        }
    }
}

pub(super) fn issue<'a>(cx: &'a mut Context<'_>, mut request: Value) -> BoxFuture<'a, Result<Reply, Failure>> {
    Box::pin(async move {
        let state = cx.state;
        let accounts = state.authenticator.service_accounts();
        if !accounts.is_issuing() {
            return Err(Failure::unknown_resource());
        }
        let (name, namespace) = (cx.operation.name(), cx.operation.namespace().unwrap_or_default());
        check_name(&request, name)?;
        let account = cx.current().await?;
        let audiences = audiences(&request).unwrap_or_else(|| state.authenticator.audiences().to_vec());
        let mut asked_seconds = at(&request, &["spec", "expirationSeconds"]).and_then(Value::as_i64).unwrap_or(0);
        check_seconds(asked_seconds)?;
        let binding = match at(&request, &["spec", "boundObjectRef"]).filter(|reference| !reference.is_null()) {
            Some(reference) => bind(cx, reference, name, namespace).await?,
            None => Binding::default(),
        };
        if let Some(max) = accounts.seconds_max().filter(|max| *max < asked_seconds) {
            let warning = format!("requested expiration of {asked_seconds} seconds shortened to {max} seconds");
            cx.operation.warn(warning);
            asked_seconds = max;
        }
        let now = cx.operation.now;
        let asked = Request {
            namespace: namespace.to_owned(),
            account: bound(&account),
            pod: binding.pod,
            node: binding.node,
            secret: binding.secret,
            audiences: audiences.clone(),
            seconds: asked_seconds,
        };
        let issued = accounts.issue(asked, state.authenticator.audiences(), now).await;
        let issued = issued.map_err(|error| Failure::of_signing(&error))?;
        cx.operation.annotate("authentication.kubernetes.io/issued-credential-id", format!("JTI={}", issued.id));
        let end = now.checked_add(SignedDuration::from_secs(asked_seconds)).unwrap_or(Timestamp::MAX);
        set_at(&mut request, &["kind"], KIND.into());
        set_at(&mut request, &["apiVersion"], API_VERSION.into());
        for (key, value) in [("name", name), ("namespace", namespace)] {
            set_at(&mut request, &["metadata", key], value.into());
        }
        set_at(&mut request, &["metadata", "creationTimestamp"], seconds(now).into());
        set_at(&mut request, &["spec", "audiences"], json!(audiences));
        set_at(&mut request, &["spec", "expirationSeconds"], asked_seconds.into());
        if let Some(spec) = object_at(&mut request, &["spec"]) {
            spec.entry("boundObjectRef").or_insert(Value::Null);
        }
        set_at(&mut request, &["status"], json!({"token": issued.token, "expirationTimestamp": seconds(end)}));
        Ok(Reply::Object(request))
    })
}

/// The audiences that the client requests, if any.
fn audiences(request: &Value) -> Option<Vec<String>> {
    let list = at(request, &["spec", "audiences"])?.as_array().filter(|list| !list.is_empty())?;
    Some(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Checks that a name in the body is that of the account.
fn check_name(request: &Value, name: &str) -> Result<(), Failure> {
    let given = registry::text(request, "name");
    if given.is_empty() || given == name {
        return Ok(());
    }
    let why = "must match the service account name if specified";
    let fault = Error::invalid(&Path::new("metadata.name"), given, why);
    Err(Failure::invalid(&GroupKind::new("authentication.k8s.io", KIND), name, &[fault]))
}

fn check_seconds(seconds: i64) -> Result<(), Failure> {
    let why = match seconds {
        SECONDS_MIN..=SECONDS_MAX => return Ok(()),
        ..SECONDS_MIN => "may not specify a duration less than 10 minutes",
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let fault = Error::invalid(&Path::new("spec.expirationSeconds"), seconds, why);
    Err(Failure::invalid(&GroupKind::new("authentication.k8s.io", KIND), "", &[fault]))
}

/// Finds the object that the token will be bound to.
async fn bind(cx: &Context<'_>, reference: &Value, account: &str, namespace: &str) -> Result<Binding, Failure> {
    let text = |key: &str| str_at(reference, &[key]).unwrap_or_default();
    let (kind, name, uid) = (text("kind"), text("name"), text("uid"));
    let (group, version) = match text("apiVersion").split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", text("apiVersion")),
    };
    let mut binding = Binding::default();
    let found = match (group, kind) {
        ("", "Pod") => {
            let pod = find(cx, "pods", name, Some(namespace)).await?;
            let value = conversion::parse(&pod)?;
            if str_at(&value, &["spec", "serviceAccountName"]).unwrap_or_default() != account {
                return Err(Failure::bad_request(format!(
                    "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
                )));
            }
            if let Some(node) = str_at(&value, &["spec", "nodeName"]).filter(|node| !node.is_empty()) {
                // A node that does not exist (yet) is still named.
                let found = cx.state.get(&GroupResource::new("", "nodes"), &ObjectKey::cluster(node)).await?;
                let absent = || Bound { name: node.to_owned(), uid: String::new() };
                binding.node = Some(found.map_or_else(absent, |found| bound(&found)));
            }
            binding.pod = Some(bound(&pod));
            pod
        }
        ("", "Node") => {
            let node = find(cx, "nodes", name, None).await?;
            binding.node = Some(bound(&node));
            node
        }
        ("", "Secret") => {
            let secret = find(cx, "secrets", name, Some(namespace)).await?;
            binding.secret = Some(bound(&secret));
            secret
        }
        _ => {
            let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Failure::bad_request(message));
        }
    };
    if !uid.is_empty() && uid != found.meta().uid() {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Failure::conflict(&GroupResource::new(group, kind), name, &why));
    }
    Ok(binding)
}

async fn find(cx: &Context<'_>, resource: &str, name: &str, namespace: Option<&str>) -> Result<Arc<Object>, Failure> {
    if name.is_empty() {
        return Err(Failure::bad_request("Name parameter required."));
    }
    let resource = GroupResource::new("", resource);
    let key = match namespace {
        Some(namespace) => ObjectKey::namespaced(namespace, name),
        None => ObjectKey::cluster(name),
    };
    cx.state.get(&resource, &key).await?.ok_or_else(|| Failure::not_found(&resource, name))
}

fn bound(object: &Object) -> Bound {
    Bound { name: object.key.name.to_string(), uid: object.meta().uid().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_bounds_and_a_default() {
        let mut request = json!({"metadata": {}});
        default(&mut request);
        assert_eq!(request["spec"]["expirationSeconds"], 3600);
        for seconds in [600, 1 << 32] {
            check_seconds(seconds).unwrap();
        }
        for seconds in [i64::MIN, 0, 599, (1 << 32) + 1, i64::MAX] {
            assert_eq!(check_seconds(seconds).unwrap_err().code(), 422, "{seconds}");
        }
    }

    #[test]
    fn no_audience_is_asked_for_by_an_empty_list() {
        let of = |spec: Value| audiences(&json!({"spec": spec}));
        assert_eq!(of(json!({})), None);
        assert_eq!(of(json!({"audiences": []})), None);
        assert_eq!(of(json!({"audiences": ["a", "b"]})), Some(vec!["a".to_owned(), "b".to_owned()]));
    }
}
