//! Keystone's answer to a sign-in: the token's lifetime, its project, and the addresses of services.
//!
//! Pure functions; `session` makes the requests.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::Url;
use serde::Deserialize;

use crate::config::{Keystone, service_url};

/// The fields that are used of the answer to a sign-in.
#[derive(Debug, Deserialize)]
pub(crate) struct SignedIn {
    token: TokenBody,
}

#[derive(Debug, Deserialize)]
struct TokenBody {
    expires_at: Option<Timestamp>,
    issued_at: Option<Timestamp>,
    project: Option<Project>,
    #[serde(default)]
    catalog: Vec<Service>,
}

#[derive(Debug, Deserialize)]
struct Project {
    id: String,
}

#[derive(Debug, Deserialize)]
struct Service {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    interface: String,
    region_id: Option<String>,
    url: String,
}

/// The lifetime of a token if Keystone names none.
const LIFE_DEFAULT: Duration = Duration::from_secs(300);

impl SignedIn {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(body).map_err(|error| format!("the answer is not Keystone's ({error})"))
    }

    /// How long the token is valid, counted from its issue by Keystone's own clock, so that ours may be wrong.
    pub(crate) fn life(&self) -> Duration {
        match (self.token.issued_at, self.token.expires_at) {
            (Some(issued), Some(expires)) => Duration::try_from(expires.duration_since(issued)).unwrap_or_default(),
            (_, _) => LIFE_DEFAULT,
        }
    }

    pub(crate) fn project_id(&self) -> Option<String> {
        self.token.project.as_ref().map(|project| project.id.clone())
    }

    /// The address of the network service.
    pub(crate) fn endpoint(&self, keystone: &Keystone) -> Result<Url, String> {
        if let Some(url) = &keystone.endpoint {
            return Ok(url.clone());
        }
        let interface = &keystone.interface;
        let networks = self.token.catalog.iter().filter(|service| service.kind == "network");
        let offered: Vec<&Endpoint> = networks.flat_map(|service| &service.endpoints).collect();
        if offered.is_empty() {
            return Err("the service catalog has no network service for this project; name its URL".to_owned());
        }
        let fitting: Vec<&Endpoint> = offered
            .iter()
            .copied()
            .filter(|endpoint| endpoint.interface == *interface)
            .filter(|endpoint| keystone.region.is_none() || endpoint.region_id == keystone.region)
            .collect();
        let regions = |endpoints: &[&Endpoint]| -> String {
            let regions: BTreeSet<&str> =
                endpoints.iter().filter_map(|endpoint| endpoint.region_id.as_deref()).collect();
            regions.into_iter().collect::<Vec<_>>().join(", ")
        };
        let [first, rest @ ..] = fitting.as_slice() else {
            let wanted = match &keystone.region {
                Some(region) => format!("{interface} network service in region {region:?}"),
                None => format!("{interface} network service"),
            };
            return Err(format!("the service catalog has no {wanted}, only in: {}", regions(&offered)));
        };
        if rest.iter().any(|endpoint| endpoint.region_id != first.region_id) {
            let regions = regions(&fitting);
            return Err(format!("the service catalog has several regions, name one of: {regions}"));
        }
        service_url(&first.url).map_err(|error| format!("the service catalog is unusable: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::SignedIn;
    use crate::config::{Credentials, Keystone, Named, Secret, keystone_url};

    fn keystone(region: Option<&str>, interface: &str) -> Keystone {
        Keystone {
            auth_url: keystone_url("http://k").unwrap(),
            credentials: Credentials::ApplicationCredential {
                credential: Named::Id("c".to_owned()),
                secret: Secret("s".to_owned()),
            },
            region: region.map(str::to_owned),
            interface: interface.to_owned(),
            endpoint: None,
        }
    }

    #[track_caller]
    fn check(catalog: &str, keystone: &Keystone, expected: Expect) {
        let body = format!(
            r#"{{"token":{{"issued_at":"2026-11-21T02:00:00.000000Z","expires_at":"2026-11-21T03:00:00.000000Z",
            "project":{{"id":"p","name":"n"}},"catalog":{catalog}}}}}"#
        );
        let signed_in = SignedIn::parse(body.as_bytes()).unwrap();
        assert_eq!((signed_in.life().as_secs(), signed_in.project_id().as_deref()), (3600, Some("p")));
        let answer = match signed_in.endpoint(keystone) {
            Ok(url) => url.to_string(),
            Err(reason) => reason,
        };
        expected.assert_eq(&answer);
    }

    const TWO_REGIONS: &str = r#"[
        {"type":"identity","endpoints":[{"interface":"public","region_id":"A","url":"http://k"}]},
        {"type":"network","endpoints":[
            {"interface":"internal","region_id":"A","url":"http://a-internal:9696"},
            {"interface":"public","region_id":"A","url":"http://a:9696/v2.0/"},
            {"interface":"public","region_id":"B","url":"https://b/networking"}]}]"#;

    #[test]
    fn region_and_interface_choose_the_endpoint() {
        check(TWO_REGIONS, &keystone(Some("A"), "public"), expect!["http://a:9696/"]);
        check(TWO_REGIONS, &keystone(Some("B"), "public"), expect!["https://b/networking"]);
        check(TWO_REGIONS, &keystone(None, "internal"), expect!["http://a-internal:9696/"]);
    }

    #[test]
    fn a_choice_that_cannot_be_made_names_what_there_is() {
        check(
            TWO_REGIONS,
            &keystone(None, "public"),
            expect!["the service catalog has several regions, name one of: A, B"],
        );
        check(
            TWO_REGIONS,
            &keystone(Some("C"), "public"),
            expect![[r#"the service catalog has no public network service in region "C", only in: A, B"#]],
        );
        check(
            "[]",
            &keystone(None, "public"),
            expect!["the service catalog has no network service for this project; name its URL"],
        );
    }
}
