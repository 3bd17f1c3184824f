//! The file `AuthenticationConfiguration`: issuers of JWTs, and anonymous access. Unsupported settings are refused by
//! name. Follows apiserver's `pkg/apis/apiserver/v1` and its validation.

use crate::access::authn::Anonymous;
use crate::access::authn::key::Algorithm;
use crate::access::authn::oidc::{Issuer, PrefixedClaim};
use crate::shared::config_file;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of issuers, as upstream.
const ISSUERS_MAX: usize = 64;
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];

/// A parsed configuration.
#[derive(Clone, Debug)]
pub struct Configuration {
    pub issuers: Vec<Issuer>,
    /// Anonymous access; `None`: the flag decides.
    pub anonymous: Option<Anonymous>,
}

/// Why a file cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConfigurationError {
    #[error("it is no AuthenticationConfiguration: {0}")]
    Malformed(String),
    #[error("{path}: {why}")]
    Invalid { path: String, why: String },
    #[error("{path} is not supported yet: want a claim and a prefix in place of a CEL expression")]
    Expression { path: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    jwt: Vec<Jwt>,
    anonymous: Option<AnonymousConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Jwt {
    issuer: IssuerConfig,
    #[serde(default)]
    claim_validation_rules: Vec<ClaimRule>,
    #[serde(default)]
    claim_mappings: Mappings,
    #[serde(default)]
    user_validation_rules: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct IssuerConfig {
    url: String,
    #[serde(rename = "discoveryURL")]
    discovery_url: Option<String>,
    certificate_authority: Option<String>,
    #[serde(default)]
    audiences: Vec<String>,
    #[serde(default)]
    audience_match_policy: String,
    egress_selector_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ClaimRule {
    #[serde(default)]
    claim: String,
    #[serde(default)]
    required_value: String,
    expression: Option<String>,
    #[serde(default, rename = "message")]
    _message: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Mappings {
    #[serde(default)]
    username: Mapping,
    groups: Option<Mapping>,
    uid: Option<Mapping>,
    #[serde(default)]
    extra: Vec<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Mapping {
    #[serde(default)]
    claim: String,
    prefix: Option<String>,
    expression: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AnonymousConfig {
    enabled: bool,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Condition {
    path: String,
}

impl Configuration {
    /// Parses a file. `own_issuers` are the issuers of service account tokens, which no other issuer may equal.
    ///
    /// # Errors
    /// When its form is invalid, or it has unsupported settings.
    pub fn parse(yaml: &str, own_issuers: &[String]) -> Result<Configuration, ConfigurationError> {
        let file: File = config_file::parse(yaml).map_err(ConfigurationError::Malformed)?;
        if file.kind != "AuthenticationConfiguration" || !VERSIONS.contains(&file.api_version.as_str()) {
            let (kind, version) = (file.kind, file.api_version);
            return Err(ConfigurationError::Malformed(format!(
                "its kind is {kind:?} of {version:?}: want AuthenticationConfiguration of {:?}",
                VERSIONS[0]
            )));
        }
        if file.jwt.len() > ISSUERS_MAX {
            return Err(invalid("jwt", format!("has {} issuers: want {ISSUERS_MAX} at most", file.jwt.len())));
        }
        let mut issuers = Vec::new();
        let mut urls: BTreeSet<String> = own_issuers.iter().cloned().collect();
        for (index, jwt) in file.jwt.into_iter().enumerate() {
            let path = format!("jwt[{index}]");
            let issuer = issuer(jwt, &path)?;
            if !urls.insert(issuer.url.clone()) {
                return Err(invalid(format!("{path}.issuer.url"), format!("another issuer is {:?}", issuer.url)));
            }
            issuers.push(issuer);
        }
        let anonymous = file.anonymous.map(|anonymous| {
            let paths: Vec<String> = anonymous.conditions.into_iter().map(|condition| condition.path).collect();
            match (anonymous.enabled, paths.is_empty()) {
                (false, _) => Anonymous::Never,
                (true, true) => Anonymous::Always,
                (true, false) => Anonymous::At(paths),
            }
        });
        Ok(Configuration { issuers, anonymous })
    }
}

fn issuer(jwt: Jwt, path: &str) -> Result<Issuer, ConfigurationError> {
    let Jwt { issuer, claim_validation_rules, claim_mappings, user_validation_rules } = jwt;
    let expression = |field: &str| ConfigurationError::Expression { path: format!("{path}.{field}") };
    if !user_validation_rules.is_empty() {
        return Err(expression("userValidationRules"));
    }
    let Mappings { username, groups, uid, extra } = claim_mappings;
    if !extra.is_empty() {
        return Err(expression("claimMappings.extra"));
    }
    let mapped = |mapping: Mapping, field: &str, wants_prefix: bool| {
        let Mapping { claim, prefix, expression: given } = mapping;
        if given.is_some_and(|given| !given.is_empty()) {
            return Err(expression(&format!("claimMappings.{field}.expression")));
        }
        if claim.is_empty() {
            return Err(invalid(format!("{path}.claimMappings.{field}.claim"), "is required"));
        }
        match (prefix, wants_prefix) {
            (Some(prefix), true) => Ok(PrefixedClaim { claim, prefix }),
            (None, true) => {
                let why = "is required when claim is set; it may be the empty string";
                Err(invalid(format!("{path}.claimMappings.{field}.prefix"), why))
            }
            (None, false) => Ok(PrefixedClaim { claim, prefix: String::new() }),
            (Some(_), false) => Err(invalid(format!("{path}.claimMappings.{field}.prefix"), "there is none for it")),
        }
    };
    let username = mapped(username, "username", true)?;
    let groups = groups.filter(|groups| !groups.is_unset());
    let groups = groups.map(|groups| mapped(groups, "groups", true)).transpose()?;
    let uid = uid.filter(|uid| !uid.is_unset()).map(|uid| mapped(uid, "uid", false)).transpose()?;
    let mut required = BTreeMap::new();
    for (index, rule) in claim_validation_rules.into_iter().enumerate() {
        let field = format!("claimValidationRules[{index}]");
        if rule.expression.is_some_and(|given| !given.is_empty()) {
            return Err(expression(&format!("{field}.expression")));
        }
        if rule.claim.is_empty() {
            return Err(invalid(format!("{path}.{field}.claim"), "is required"));
        }
        required.insert(rule.claim, rule.required_value);
    }
    check_issuer(&issuer, path)?;
    Ok(Issuer {
        url: issuer.url,
        discovery_url: issuer.discovery_url.filter(|url| !url.is_empty()),
        ca: issuer.certificate_authority.unwrap_or_default().into_bytes(),
        audiences: issuer.audiences,
        algorithms: Algorithm::ALL.to_vec(),
        username,
        groups,
        uid: uid.map(|uid| uid.claim),
        required,
    })
}

fn check_issuer(issuer: &IssuerConfig, path: &str) -> Result<(), ConfigurationError> {
    for (field, url) in [("url", Some(&issuer.url)), ("discoveryURL", issuer.discovery_url.as_ref())] {
        let is_left_out = |url: &str| url.is_empty() && field == "discoveryURL";
        if url.is_some_and(|url| !(url.starts_with("https://") || is_left_out(url))) {
            return Err(invalid(format!("{path}.issuer.{field}"), "want an https URL"));
        }
    }
    if issuer.egress_selector_type.as_ref().is_some_and(|kind| !kind.is_empty()) {
        return Err(invalid(format!("{path}.issuer.egressSelectorType"), "egress selectors are not supported"));
    }
    if issuer.audiences.is_empty() || issuer.audiences.iter().any(String::is_empty) {
        return Err(invalid(format!("{path}.issuer.audiences"), "want at least one, none of them empty"));
    }
    match (issuer.audience_match_policy.as_str(), issuer.audiences.len()) {
        ("" | "MatchAny", 1) | ("MatchAny", _) => Ok(()),
        _ => Err(invalid(format!("{path}.issuer.audienceMatchPolicy"), "want MatchAny for several audiences")),
    }
}

impl Mapping {
    fn is_unset(&self) -> bool {
        self.claim.is_empty() && self.prefix.is_none() && self.expression.is_none()
    }
}

fn invalid(path: impl Into<String>, why: impl Into<String>) -> ConfigurationError {
    ConfigurationError::Invalid { path: path.into(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    const ISSUER: &str = "{url: 'https://issuer.example', audiences: [a]}";
    const USERNAME: &str = "username: {claim: sub, prefix: 'x:'}";

    fn parse(rest: &str) -> Result<Configuration, String> {
        let own = ["https://kubernetes.default.svc".to_owned()];
        Configuration::parse(&format!("{HEAD}{rest}"), &own).map_err(|error| error.to_string())
    }

    #[test]
    fn issuers_map_claims_to_users() {
        let parsed = parse(&format!(
            "jwt: [{{issuer: {ISSUER}, claimMappings: {{{USERNAME}, groups: {{claim: g, prefix: ''}}, uid: {{claim: id}}}}, claimValidationRules: [{{claim: hd, requiredValue: x}}]}}]"
        ))
        .unwrap();
        let issuer = &parsed.issuers[0];
        assert_eq!(issuer.username, PrefixedClaim { claim: "sub".to_owned(), prefix: "x:".to_owned() });
        assert_eq!(issuer.groups.as_ref().map(|groups| groups.claim.as_str()), Some("g"));
        assert_eq!((issuer.uid.as_deref(), issuer.required["hd"].as_str()), (Some("id"), "x"));
        assert!(parsed.anonymous.is_none());
    }

    #[test]
    fn requests_without_credentials_can_be_for_some_paths_only() {
        let anonymous = |text: &str| parse(&format!("anonymous: {text}")).unwrap().anonymous.unwrap();
        assert_eq!(anonymous("{enabled: false}"), Anonymous::Never);
        assert_eq!(anonymous("{enabled: true}"), Anonymous::Always);
        assert_eq!(
            anonymous("{enabled: true, conditions: [{path: /livez}]}"),
            Anonymous::At(vec!["/livez".to_owned()])
        );
    }

    #[test]
    fn what_is_not_supported_is_refused_by_its_name() {
        let jwt = |issuer: &str, mappings: &str, rest: &str| {
            parse(&format!("jwt: [{{issuer: {issuer}, claimMappings: {{{mappings}}}{rest}}}]")).unwrap_err()
        };
        let expression =
            |path: &str| format!("{path} is not supported yet: want a claim and a prefix in place of a CEL expression");
        for (mappings, rest, want) in [
            ("username: {expression: claims.sub}", "", "jwt[0].claimMappings.username.expression"),
            (USERNAME, ", userValidationRules: [{expression: 'true'}]", "jwt[0].userValidationRules"),
            (USERNAME, ", claimValidationRules: [{expression: 'true'}]", "jwt[0].claimValidationRules[0].expression"),
        ] {
            assert_eq!(jwt(ISSUER, mappings, rest), expression(want));
        }
        let extra = format!("{USERNAME}, extra: [{{key: a, valueExpression: b}}]");
        assert_eq!(jwt(ISSUER, &extra, ""), expression("jwt[0].claimMappings.extra"));
        assert!(
            jwt("{url: 'http://x', audiences: [a]}", USERNAME, "").contains("jwt[0].issuer.url: want an https URL")
        );
        assert!(jwt("{url: 'https://x'}", USERNAME, "").contains("jwt[0].issuer.audiences"));
        assert!(jwt("{url: 'https://x', audiences: [a, b]}", USERNAME, "").contains("MatchAny"));
        assert!(jwt(ISSUER, "username: {claim: sub}", "").contains("username.prefix: is required"));
        assert!(jwt(ISSUER, "", "").contains("username.claim: is required"));
        let own = "{url: 'https://kubernetes.default.svc', audiences: [a]}";
        assert!(jwt(own, USERNAME, "").contains("another issuer is"));
        assert!(parse("jwts: []").unwrap_err().contains("jwts"));
        assert!(Configuration::parse("kind: Pod\napiVersion: v1", &[]).is_err());
    }
}
