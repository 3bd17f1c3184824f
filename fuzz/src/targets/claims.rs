//! Claims of OpenID Connect tokens: a document with an authentication configuration, one with the claims. Nobody becomes a user
//! whose token is not for this server, and every name has its prefix.

use crate::input::{self, Draw};
use serde_json::Value;
use steersman_server::authn::Configuration;
use steersman_server::fuzzing::user_of_claims;

pub fn run(data: &[u8]) {
    let parts = input::documents(data);
    let [configuration, claims] = parts.as_slice() else { return };
    let Ok(configuration) = std::str::from_utf8(configuration) else { return };
    let Ok(configuration) = Configuration::parse(configuration, &["https://own".to_owned()]) else { return };
    let claims = match Draw::of(claims) {
        Some(mut draw) => draw.any(0),
        None => input::tree(claims).unwrap_or(Value::Null),
    };
    let Value::Object(claims) = claims else { return };
    for issuer in &configuration.issuers {
        assert_ne!(issuer.url, "https://own", "the server's own tokens are no other issuer's");
        let Ok(user) = user_of_claims(issuer, &claims) else { continue };
        let is_for_us = match claims.get("aud") {
            Some(Value::String(one)) => issuer.audiences.contains(one),
            Some(Value::Array(many)) => many.iter().any(|one| issuer.audiences.iter().any(|wanted| one == wanted)),
            _ => false,
        };
        assert!(is_for_us, "{claims:?}: {user:?}");
        assert!(user.name.starts_with(&issuer.username.prefix) && user.name.len() > issuer.username.prefix.len(), "{user:?}");
        for (claim, wanted) in &issuer.required {
            assert_eq!(&claims[claim], wanted, "{user:?}");
        }
        let prefix = issuer.groups.as_ref().map_or("system:authenticated", |groups| &groups.prefix);
        let are_prefixed = user.groups.iter().all(|group| group == "system:authenticated" || group.starts_with(prefix));
        assert!(are_prefixed, "{user:?}");
    }
}
