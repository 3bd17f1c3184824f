//! Authorization by a webhook: posts a SubjectAccessReview to it, and reads the decision from its status.
//!
//! A bounded number of decisions is cached for a while. When the webhook fails, the decision is no opinion with an
//! error, or a denial if the failure policy says so. Follows apiserver's `plugin/pkg/authorizer/webhook`.

use crate::access::authz::{Authorizer, Decision, Rules, Verdict};
use crate::shared::identity::digest_cache::{DigestCache, digest};
use crate::shared::operation::{Attributes, ResourceAttributes};
use crate::shared::webhook::Client;
use bytes::Bytes;
use futures::future::{self, BoxFuture};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use steersman_kinds::user::User;
use steersman_machinery::selector::{self, Operator};
use tokio::time::Instant;

/// The maximum size of the cache of decisions.
const VERDICTS_MAX: usize = 8192;
const VERDICTS_BYTES_MAX: usize = 8 << 20;
/// The approximate size of a decision without its reason.
const VERDICT_BYTES: usize = 256;

/// How a webhook is called.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long an allowance is cached; zero: not at all.
    pub authorized_ttl: Duration,
    /// How long a denial is cached; zero: not at all.
    pub unauthorized_ttl: Duration,
    /// The timeout of one call.
    pub timeout: Duration,
    /// The version of the SubjectAccessReview.
    pub version: ReviewVersion,
    /// The decision when the webhook fails.
    pub failure_policy: FailurePolicy,
}

/// A version of SubjectAccessReview.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReviewVersion {
    V1,
    /// The groups are in a field `group`.
    V1Beta1,
}

/// The decision when a webhook fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FailurePolicy {
    Deny,
    NoOpinion,
}

/// Calls a webhook.
#[derive(Debug)]
pub struct Webhook {
    client: Client,
    settings: Settings,
    verdicts: DigestCache<(Verdict, Instant)>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'static str,
    kind: &'static str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_attributes: Option<ReviewAttributes<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    non_resource_attributes: Option<AskedPath<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    user: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    /// The groups, under their v1beta1 name.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    group: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
}

#[derive(Serialize)]
struct AskedPath<'a> {
    path: &'a str,
    verb: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewAttributes<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    verb: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field_selector: Option<Requirements<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_selector: Option<Requirements<'a>>,
}

#[derive(Serialize)]
struct Requirements<'a> {
    requirements: Vec<Requirement<'a>>,
}

#[derive(Serialize)]
struct Requirement<'a> {
    key: &'a str,
    operator: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<&'a str>,
}

#[derive(Deserialize)]
struct Answer {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    denied: bool,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    evaluation_error: String,
}

impl Default for Settings {
    /// The defaults of kube-apiserver's flags.
    fn default() -> Settings {
        Settings {
            authorized_ttl: Duration::from_secs(300),
            unauthorized_ttl: Duration::from_secs(30),
            timeout: Duration::from_secs(30),
            version: ReviewVersion::V1,
            failure_policy: FailurePolicy::NoOpinion,
        }
    }
}

// === impl Webhook ===

impl Webhook {
    pub fn new(client: Client, settings: Settings) -> Webhook {
        Webhook { client, settings, verdicts: DigestCache::new(VERDICTS_MAX, VERDICTS_BYTES_MAX) }
    }

    /// The body of the SubjectAccessReview.
    fn review(&self, user: &User, attributes: &Attributes<'_>) -> Result<Vec<u8>, serde_json::Error> {
        let (api_version, groups, group): (_, &[String], &[String]) = match self.settings.version {
            ReviewVersion::V1 => ("authorization.k8s.io/v1", &user.groups, &[]),
            ReviewVersion::V1Beta1 => ("authorization.k8s.io/v1beta1", &[], &user.groups),
        };
        let (resource_attributes, non_resource_attributes) = match attributes {
            Attributes::NonResource { verb, path } => (None, Some(AskedPath { path, verb })),
            Attributes::Resource(of) => (Some(asked(of)), None),
        };
        let (extra, uid) = (&user.extra, user.uid.as_str());
        let spec = Spec { resource_attributes, non_resource_attributes, user: &user.name, groups, group, extra, uid };
        serde_json::to_vec(&Review { api_version, kind: "SubjectAccessReview", spec })
    }

    async fn ask(&self, review: Vec<u8>) -> Verdict {
        let key = digest(&review);
        match self.verdicts.get(&key) {
            Some((verdict, until)) if Instant::now() < until => return verdict,
            Some(_) => self.verdicts.remove(&key),
            None => {}
        }
        let answer = self.client.post_again(&Bytes::from(review), self.settings.timeout).await;
        let status = match answer.map_err(|error| error.to_string()).and_then(|answer| read(&answer)) {
            Ok(status) => status,
            Err(error) => {
                tracing::error!(error, "the authorization webhook failed");
                let decision = match self.settings.failure_policy {
                    FailurePolicy::Deny => Decision::Deny,
                    FailurePolicy::NoOpinion => Decision::NoOpinion,
                };
                return Verdict { decision, error: Some(error), ..Verdict::NO_OPINION };
            }
        };
        let ttl = if status.allowed { self.settings.authorized_ttl } else { self.settings.unauthorized_ttl };
        let reason_bytes = status.reason.len();
        let verdict = status.verdict();
        if !ttl.is_zero() {
            let bytes = VERDICT_BYTES + reason_bytes;
            self.verdicts.insert(key, (verdict.clone(), Instant::now() + ttl), bytes);
        }
        verdict
    }
}

/// Reads an answer.
///
/// # Errors
/// When it is none.
pub(crate) fn read(answer: &[u8]) -> Result<Status, String> {
    let answer: Result<Answer, _> = serde_json::from_slice(answer);
    answer
        .map(|answer| answer.status)
        .map_err(|error| format!("the authorization webhook answers no SubjectAccessReview: {error}"))
}

impl Status {
    pub(crate) fn verdict(self) -> Verdict {
        let Status { allowed, denied, reason, evaluation_error } = self;
        let both = "webhook subject access review returned both allow and deny response";
        let decision = match (allowed, denied) {
            (_, true) => Decision::Deny,
            (true, false) => Decision::Allow,
            (false, false) => Decision::NoOpinion,
        };
        if !evaluation_error.is_empty() {
            tracing::debug!(error = evaluation_error, "the authorization webhook could not evaluate everything");
        }
        Verdict { decision, reason: reason.into(), error: (allowed && denied).then(|| both.to_owned()) }
    }
}

fn asked<'a>(of: &'a ResourceAttributes<'_>) -> ReviewAttributes<'a> {
    let field_selector = of
        .field_selector
        .filter(|fields| !fields.is_everything())
        .map(|fields| Requirements { requirements: fields.requirements.iter().map(of_field).collect() });
    let label_selector = of.label_selector.map(|labels| labels.requirements().iter().filter_map(of_label).collect());
    let label_selector = label_selector.filter(|requirements: &Vec<_>| !requirements.is_empty());
    ReviewAttributes {
        namespace: of.namespace.unwrap_or_default(),
        verb: of.verb,
        group: of.group,
        version: of.version,
        resource: of.resource,
        subresource: of.subresource.unwrap_or_default(),
        name: of.name.unwrap_or_default(),
        field_selector,
        label_selector: label_selector.map(|requirements| Requirements { requirements }),
    }
}

fn of_field(requirement: &selector::FieldRequirement) -> Requirement<'_> {
    let operator = if requirement.equal { "In" } else { "NotIn" };
    Requirement { key: &requirement.field, operator, values: vec![&requirement.value] }
}

/// The requirement in a review. Conditions that reviews cannot express are left out: the webhook then decides about
/// more than the request asks for.
fn of_label(requirement: &selector::Requirement) -> Option<Requirement<'_>> {
    let (operator, values): (_, &[String]) = match &requirement.operator {
        Operator::DoesNotExist => ("DoesNotExist", &[]),
        Operator::Exists => ("Exists", &[]),
        Operator::In(values) => ("In", values),
        Operator::NotIn(values) => ("NotIn", values),
        Operator::GreaterThan(_) | Operator::LessThan(_) => return None,
    };
    Some(Requirement { key: &requirement.key, operator, values: values.iter().map(String::as_str).collect() })
}

impl Authorizer for Webhook {
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            match self.review(user, attributes) {
                Ok(review) => self.ask(review).await,
                Err(error) => Verdict { error: Some(error.to_string()), ..Verdict::NO_OPINION },
            }
        })
    }

    /// The rules are unknown: a webhook decides about single requests only.
    fn rules_for<'a>(&'a self, _: &'a User, _: &'a str) -> BoxFuture<'a, Rules> {
        let error = Some("webhook authorizer does not support user rule resolution".to_owned());
        Box::pin(future::ready(Rules { is_incomplete: true, error, ..Rules::default() }))
    }
}
