//! Bootstrap tokens for joining nodes: Secrets of the type `bootstrap.kubernetes.io/token` in `kube-system`. Follows
//! kubernetes' `plugin/pkg/auth/authenticator/token/bootstrap`.

use crate::access::authn::see_acknowledged;
use crate::shared::identity::digest_cache::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use std::sync::Arc;
use steersman_kinds::user::User;
use steersman_machinery::bootstrap_token::Expiration;
use steersman_machinery::value::str_at;
use steersman_machinery::{GroupResource, ObjectKey, Value};
use steersman_storage::Store;

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";
/// The maximum length of a group after the common prefix.
const GROUP_BYTES_MAX: usize = 256;

/// The user of a token. `None` if it is not a bootstrap token, or is unknown.
///
/// # Errors
/// When the Secret has groups that a bootstrap token must not have, or the store fails.
pub(super) async fn authenticate(store: &Store, token: &str, now: Timestamp) -> Result<Option<Arc<User>>, String> {
    let Some((id, secret)) = parts(token) else { return Ok(None) };
    see_acknowledged(store).await?;
    let key = ObjectKey::namespaced(NAMESPACE, format!("bootstrap-token-{id}"));
    let Some(object) = store.get_cached(&GroupResource::new("", "secrets"), &key) else { return Ok(None) };
    if object.meta().is_deleting() {
        return Ok(None);
    }
    let object: Value = serde_json::from_slice(object.json()).map_err(|error| error.to_string())?;
    let data = |key: &str| {
        let bytes = STANDARD.decode(str_at(&object, &["data", key]).unwrap_or_default()).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
    };
    // Digests are compared, so that the duration of the comparison does not depend on the secret.
    let is_known = str_at(&object, &["type"]) == Some(TYPE)
        && digest(data("token-secret")) == digest(secret)
        && data("token-id") == id
        && data("usage-bootstrap-authentication") == "true";
    if !is_known || Expiration::parse(&data("expiration")).is_past(now) {
        return Ok(None);
    }
    let mut groups = vec![GROUP.to_owned()];
    let extra = data("auth-extra-groups");
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        if !is_bootstrap_group(group) {
            return Err(format!("bootstrap token {id} gives the group {group:?}: want {GROUP}:NAME"));
        }
        groups.push(group.to_owned());
    }
    Ok(Some(Arc::new(User::authenticated(format!("system:bootstrap:{id}"), groups))))
}

/// The id and the secret of a bootstrap token.
fn parts(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let is_of = |text: &str, len: usize| {
        text.len() == len && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (is_of(id, 6) && is_of(secret, 16)).then_some((id, secret))
}

fn is_bootstrap_group(group: &str) -> bool {
    let Some(name) = group.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(':')) else { return false };
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends_plain = name.bytes().last().is_some_and(is_plain);
    let is_allowed = |byte: u8| is_plain(byte) || matches!(byte, b':' | b'-');
    ends_plain && name.len() <= GROUP_BYTES_MAX && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};
    use steersman_storage::{Memory, Options};

    const TOKEN: &str = "abcdef.0123456789abcdef";

    /// The groups of a token's user, with these changes of the Secret.
    async fn check(changes: &[(&str, &str)], token: &str) -> Result<Option<Vec<String>>, String> {
        let store = Store::open(Arc::new(Memory::new()), Options::default()).await.unwrap();
        let mut data: Map<String, Value> = Map::new();
        let good = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("expiration", "2027-01-01T00:00:00Z"),
        ];
        for (key, value) in good.iter().chain(changes) {
            data.insert((*key).to_owned(), STANDARD.encode(value).into());
        }
        let secret = json!({"type": TYPE, "metadata": {}, "data": data}).to_string();
        let key = ObjectKey::namespaced(NAMESPACE, "bootstrap-token-abcdef");
        store.create(&GroupResource::new("", "secrets"), &key, secret.into()).await.unwrap();
        let found = authenticate(&store, token, "2026-01-01T00:00:00Z".parse().unwrap()).await?;
        Ok(found.map(|user| {
            assert_eq!(user.name, "system:bootstrap:abcdef");
            user.groups.clone()
        }))
    }

    #[tokio::test]
    async fn a_token_is_good_while_its_secret_says_so() {
        let plain = vec!["system:bootstrappers".to_owned(), "system:authenticated".to_owned()];
        assert_eq!(check(&[], TOKEN).await, Ok(Some(plain.clone())));
        for never in ["", "9999-12-31T23:59:59Z"] {
            assert_eq!(check(&[("expiration", never)], TOKEN).await, Ok(Some(plain.clone())));
        }
        for (key, value) in [
            ("token-secret", "0123456789abcdee"),
            ("token-secret", ""),
            ("token-id", "abcdee"),
            ("usage-bootstrap-authentication", "yes"),
            ("expiration", "2025-12-31T23:59:59Z"),
            ("expiration", "tomorrow"),
            ("expiration", "2027-01-01T00:00Z"),
            ("expiration", "9999-12-31T23:59Z"),
            ("expiration", "9999-12-31T23:59:59"),
        ] {
            assert_eq!(check(&[(key, value)], TOKEN).await, Ok(None), "{key}: {value}");
        }
        for token in ["abcdef.0123456789abcdee", "abcdef", "abcdeg.0123456789abcdef", "ABCDEF.0123456789abcdef"] {
            assert_eq!(check(&[], token).await, Ok(None), "{token}");
        }
    }

    #[tokio::test]
    async fn a_token_gives_groups_of_bootstrappers_only() {
        let groups = check(&[("auth-extra-groups", "system:bootstrappers:a,system:bootstrappers:b:c")], TOKEN).await;
        let want =
            ["system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:b:c", "system:authenticated"];
        assert_eq!(groups.unwrap().unwrap(), want);
        for bad in ["system:masters", "system:bootstrappers:", "system:bootstrappers:A", "system:bootstrappers:a-", ","]
        {
            assert!(check(&[("auth-extra-groups", bad)], TOKEN).await.is_err(), "{bad}");
        }
    }
}
