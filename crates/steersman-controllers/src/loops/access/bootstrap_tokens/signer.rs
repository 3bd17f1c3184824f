//! Signs the ConfigMap `cluster-info` in `kube-public` with every bootstrap token for signing, so that a node with such
//! a token can verify the cluster.
//!
//! Follows kube-controller-manager's bootstrapsigner controller: a detached JSON Web Signature (HS256, the id of the
//! token as `kid`) of the key `kubeconfig` is stored beside it, under `jws-kubeconfig-` and the id. The signature of a
//! token is removed when the token expires; upstream waits for another change.

use crate::loops::access::bootstrap_tokens::{ID_BYTES, NAME_PREFIX, expiration, selection, text};
use crate::settings::Parts;
use crate::shared::refusal::{self, Refused};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use kube::{Api, Client};
use ring::hmac;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use steersman::cache::Selection;
use steersman::{Action, BoxError, Controller, Lister, Manager, ObjectKey, Scope};
use steersman_machinery::bootstrap_token::Expiration;

/// The name of the loop in logs.
const NAME: &str = "bootstrap-signer-controller";
const NAMESPACE: &str = "kube-public";
const CONFIG_MAP: &str = "cluster-info";
/// The key of the signed content.
const CONTENT: &str = "kubeconfig";
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";
/// The longest pause before the tokens are checked again while one of them will expire, because the clock may be set
/// meanwhile.
const LOOK_MAX: Duration = Duration::from_secs(3_600);

struct Context {
    client: Client,
    clock: fn() -> Timestamp,
    configs: Lister<ConfigMap>,
    tokens: Lister<Secret>,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let scope = Scope::Namespace(NAMESPACE.to_owned());
    let configs =
        manager.informers().informer::<ConfigMap>(Selection::new(scope).fields(format!("metadata.name={CONFIG_MAP}")));
    let tokens = manager.informers().informer::<Secret>(selection());
    let context = Context { client, clock: settings.clock, configs: configs.lister(), tokens: tokens.lister() };
    let controller = Controller::<ConfigMap>::of(&configs, reconcile, context)
        .name(NAME)
        .watches(&tokens, |_| vec![ObjectKey::namespaced(NAMESPACE, CONFIG_MAP)]);
    manager.controller(controller)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let config = cx.configs.get(&key)?;
    let (now, tokens) = ((cx.clock)(), cx.tokens.list()?);
    let good: BTreeMap<&str, &str> = tokens.iter().filter_map(|token| signing(token, now)).collect();
    let ends =
        tokens.iter().filter(|token| signing(token, now).is_some()).filter_map(|token| match expiration(token) {
            Expiration::At(time) => Some(time),
            Expiration::Never | Expiration::Unreadable => None,
        });
    let next = ends.min().map_or(Action::AwaitChange, |time| {
        let left = Duration::try_from(time.duration_since(now)).unwrap_or_default();
        Action::RequeueAfter(left.clamp(Duration::from_millis(1), LOOK_MAX))
    });
    let Some(data) = signed(config.data.as_ref(), &good) else { return Ok(next) };
    let config = ConfigMap { data: Some(data), ..(*config).clone() };
    let api = Api::<ConfigMap>::namespaced(cx.client.clone(), NAMESPACE);
    match api.replace(CONFIG_MAP, &PostParams::default(), &config).await {
        Ok(_) => Ok(next),
        Err(error) if refusal::is_outdated(&error) => Ok(next),
        Err(error) => Err(Refused::to("sign what nodes read of the cluster")(error).into()),
    }
}

/// The id and the secret of a token, if it may sign.
fn signing(token: &Secret, now: Timestamp) -> Option<(&str, &str)> {
    let named = token.metadata.name.as_deref().and_then(|name| name.strip_prefix(NAME_PREFIX))?;
    let is_id = named.len() == ID_BYTES && named.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let (id, secret) = (text(token, "token-id"), text(token, "token-secret"));
    let is_good = is_id && id == named && !secret.is_empty() && text(token, "usage-bootstrap-signing") == "true";
    (is_good && !expiration(token).is_past(now)).then_some((id, secret))
}

/// The data with the signatures of exactly these tokens; `None` if it has them already.
fn signed(data: Option<&BTreeMap<String, String>>, tokens: &BTreeMap<&str, &str>) -> Option<BTreeMap<String, String>> {
    let known = data?;
    let content = known.get(CONTENT)?;
    let mut wanted = known.clone();
    wanted.retain(|key, _| !key.starts_with(SIGNATURE_PREFIX));
    for (id, secret) in tokens {
        wanted.insert(format!("{SIGNATURE_PREFIX}{id}"), signature(content, id, secret));
    }
    (wanted != *known).then_some(wanted)
}

/// A detached JSON Web Signature of the content.
fn signature(content: &str, id: &str, secret: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": id}).to_string());
    let payload = URL_SAFE_NO_PAD.encode(content);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{header}.{payload}").as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_signature_is_the_one_that_upstream_makes() {
        // The test vector of upstream.
        let want = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiYzEyMyJ9..QSxpUG7Q542CirTI2ECPSZjvBOJURUW5a7XqFpNI958";
        assert_eq!(signature("payload", "abc123", "tokenSecret"), want);
    }

    #[test]
    fn each_token_has_its_signature_and_no_other_stays() {
        let tokens = BTreeMap::from([("abc123", "tokenSecret")]);
        let known = data(&[(CONTENT, ""), ("other", "x"), ("jws-kubeconfig-gone00", "old")]);
        let wanted = signed(Some(&known), &tokens).unwrap();
        assert_eq!(wanted.keys().collect::<Vec<_>>(), ["jws-kubeconfig-abc123", CONTENT, "other"]);
        assert_eq!(signed(Some(&wanted), &tokens), None);
        assert_eq!(signed(Some(&data(&[("other", "x")])), &tokens), None, "nothing to sign");
    }

    #[test]
    fn a_token_signs_if_it_is_for_signing_and_named_after_its_id() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let token = |name: &str, usage: &str, expiration: &str| {
            let mut token = Secret::default();
            token.metadata.name = Some(name.to_owned());
            let pairs = [
                ("token-id", "abc123"),
                ("token-secret", "s"),
                ("usage-bootstrap-signing", usage),
                ("expiration", expiration),
            ];
            token.data = Some(
                pairs.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect(),
            );
            token
        };
        assert_eq!(signing(&token("bootstrap-token-abc123", "true", ""), now), Some(("abc123", "s")));
        assert_eq!(signing(&token("bootstrap-token-abc123", "yes", ""), now), None);
        assert_eq!(signing(&token("bootstrap-token-abc124", "true", ""), now), None);
        assert_eq!(signing(&token("abc123", "true", ""), now), None);
        assert_eq!(signing(&token("bootstrap-token-abc123", "true", "2020-01-01T00:00:00Z"), now), None);
    }
}
