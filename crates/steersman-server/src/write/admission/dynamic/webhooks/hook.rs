//! One webhook of a configuration, compiled.

use crate::shared::webhook::ClientConfig;
use crate::write::admission::dynamic::condition::{Conditions, Names};
use crate::write::admission::dynamic::matching::Criteria;
use std::time::Duration;
use steersman_machinery::Value;
use steersman_machinery::value::str_at;

/// The timeout of a webhook that does not specify one.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One webhook of a configuration.
#[derive(Debug)]
pub(crate) struct Hook {
    /// The name of the configuration.
    pub(crate) configuration: Box<str>,
    pub(crate) name: Box<str>,
    /// Unique among all webhooks of the same kind.
    pub(crate) id: String,
    pub(crate) criteria: Criteria,
    pub(crate) conditions: Conditions,
    pub(crate) timeout: Duration,
    /// `failurePolicy: Ignore`: the write continues if the webhook cannot be called.
    pub(crate) is_ignored_on_failure: bool,
    /// The webhook may have side effects even in a dry run.
    pub(crate) has_side_effects: bool,
    /// `reinvocationPolicy: IfNeeded`.
    pub(crate) is_reinvoked: bool,
    /// The version of AdmissionReview that is sent; `None` if the webhook accepts none that the server supports.
    pub(crate) review: Option<ReviewVersion>,
    /// The client configuration, or why it is invalid.
    pub(crate) client: Result<ClientConfig, String>,
}

/// A version of AdmissionReview.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl Hook {
    /// The webhooks of a configuration, in order.
    pub(crate) fn read(configuration: &str, object: &Value) -> Vec<Hook> {
        let webhooks = object.get("webhooks").and_then(Value::as_array).into_iter().flatten();
        let read = |(position, webhook)| Hook::read_one(configuration, position, webhook);
        webhooks.enumerate().map(read).collect()
    }

    fn read_one(configuration: &str, position: usize, webhook: &Value) -> Hook {
        let text = |key: &str| str_at(webhook, &[key]).unwrap_or_default();
        let name = text("name");
        let seconds = webhook.get("timeoutSeconds").and_then(Value::as_u64);
        let reviews = webhook.get("admissionReviewVersions").and_then(Value::as_array).into_iter().flatten();
        // The first supported version, in the webhook's order of preference.
        let review = reviews.filter_map(Value::as_str).find_map(ReviewVersion::parse);
        Hook {
            configuration: configuration.into(),
            name: name.into(),
            id: format!("{configuration}/{name}/{position}"),
            criteria: Criteria::of_webhook(webhook),
            conditions: Conditions::read(webhook, Names::WEBHOOK),
            timeout: seconds.map_or(TIMEOUT, Duration::from_secs),
            is_ignored_on_failure: text("failurePolicy") == "Ignore",
            has_side_effects: !matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            is_reinvoked: text("reinvocationPolicy") == "IfNeeded",
            review,
            client: ClientConfig::read(webhook.get("clientConfig").unwrap_or(&Value::Null))
                .map_err(|error| error.to_string()),
        }
    }
}

impl ReviewVersion {
    fn parse(text: &str) -> Option<ReviewVersion> {
        match text {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1Beta1),
            _ => None,
        }
    }

    pub(crate) fn api_version(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "admission.k8s.io/v1",
            ReviewVersion::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}
