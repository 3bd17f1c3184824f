//! Counters of calls to admission webhooks, under upstream's names (apiserver's `admission/metrics`).

use crate::metrics::histogram::Histogram;
use crate::metrics::text::{Text, Type};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// The upper bounds of the buckets in seconds, those of upstream for webhooks.
const BOUNDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// The most combinations of labels; further calls are counted under an empty name.
const SERIES_MAX: usize = 10_000;

/// The counters of all webhooks.
#[derive(Debug, Default)]
pub(crate) struct Webhooks(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    calls: BTreeMap<Labels, Calls>,
    excluded: BTreeMap<Labels, u64>,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Labels {
    name: Box<str>,
    kind: &'static str,
    operation: &'static str,
}

/// The calls of one webhook for one operation.
#[derive(Debug)]
struct Calls {
    passed: Histogram,
    rejected: Histogram,
    /// Calls by the code, and by whether the write was rejected.
    codes: BTreeMap<(u16, bool), u64>,
    /// Rejections by the type of the error, and the code.
    rejections: BTreeMap<(&'static str, u16), u64>,
    n_ignored: u64,
}

/// A call to a webhook.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WebhookCall<'a> {
    pub(crate) name: &'a str,
    /// `admit` or `validating`.
    pub(crate) kind: &'static str,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub(crate) operation: &'static str,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WebhookOutcome {
    /// The webhook could not be called, so the write failed.
    Failed { code: u16 },
    /// The webhook could not be called, and the write went on.
    Ignored { code: u16 },
    /// The server did not make the call, as for a dry run of a webhook with side effects, or could not apply the
    /// patch of the answer.
    Internal,
    /// The write went on.
    Passed,
    /// The webhook refused the write.
    Refused { code: u16 },
}

impl Webhooks {
    /// Counts a call.
    pub(crate) fn called(&self, call: &WebhookCall<'_>, outcome: WebhookOutcome, duration: Duration) {
        let (rejection, code) = match outcome {
            WebhookOutcome::Failed { code } => (Some(("calling_webhook_error", code)), code),
            WebhookOutcome::Ignored { code } => (None, code),
            WebhookOutcome::Internal => (Some(("apiserver_internal_error", 0)), 0),
            WebhookOutcome::Passed => (None, 200),
            WebhookOutcome::Refused { code } => (Some(("no_error", code)), code),
        };
        let mut counts = self.0.lock();
        let labels = Labels::bounded(&counts.calls, call.name, call.kind, call.operation);
        let calls = counts.calls.entry(labels).or_insert_with(Calls::new);
        let durations = if rejection.is_some() { &calls.rejected } else { &calls.passed };
        durations.observe(duration);
        *calls.codes.entry((code, rejection.is_some())).or_default() += 1;
        if let Some(rejection) = rejection {
            *calls.rejections.entry(rejection).or_default() += 1;
        }
        calls.n_ignored += u64::from(matches!(outcome, WebhookOutcome::Ignored { .. }));
    }

    /// Counts a write that a webhook's `matchConditions` exclude.
    pub(crate) fn excluded(&self, name: &str, kind: &'static str, operation: &'static str) {
        let mut counts = self.0.lock();
        let labels = Labels::bounded(&counts.excluded, name, kind, operation);
        *counts.excluded.entry(labels).or_default() += 1;
    }

    /// All counters as text.
    pub(super) fn exposition(&self, text: &mut Text) {
        let counts = self.0.lock();
        let duration = "apiserver_admission_webhook_admission_duration_seconds";
        text.family(duration, Type::Histogram, "Time that calls to an admission webhook took, in seconds.");
        for (labels, calls) in &counts.calls {
            for (rejected, durations) in [("false", &calls.passed), ("true", &calls.rejected)] {
                let Labels { name, kind, operation } = labels;
                let labels = [("name", &**name), ("operation", *operation), ("rejected", rejected), ("type", *kind)];
                durations.write_if_any(text, duration, &labels);
            }
        }
        let fail_open = "apiserver_admission_webhook_fail_open_count";
        text.family(fail_open, Type::Counter, "Writes that went on although an admission webhook could not be called.");
        let mut ignored: BTreeMap<[&str; 2], u64> = BTreeMap::new();
        for (labels, calls) in counts.calls.iter().filter(|(_, calls)| calls.n_ignored > 0) {
            *ignored.entry([&labels.name, labels.kind]).or_default() += calls.n_ignored;
        }
        for ([name, kind], count) in ignored {
            text.value(fail_open, &[("name", name), ("type", kind)], count);
        }
        let rejection = "apiserver_admission_webhook_rejection_count";
        text.family(
            rejection,
            Type::Counter,
            "Writes that failed because of an admission webhook: it refused them (no_error), could not be called (calling_webhook_error), or sent what the server could not use (apiserver_internal_error).",
        );
        for (labels, calls) in &counts.calls {
            let Labels { name, kind, operation } = labels;
            for ((error, code), count) in &calls.rejections {
                let labels = [
                    ("error_type", *error),
                    ("name", name),
                    ("operation", operation),
                    ("rejection_code", &code.to_string()),
                    ("type", kind),
                ];
                text.value(rejection, &labels, count);
            }
        }
        let total = "apiserver_admission_webhook_request_total";
        text.family(total, Type::Counter, "Calls to an admission webhook, by the code of the answer.");
        for (labels, calls) in &counts.calls {
            let Labels { name, kind, operation } = labels;
            for ((code, is_rejected), count) in &calls.codes {
                let rejected = if *is_rejected { "true" } else { "false" };
                let labels = [
                    ("code", code.to_string().as_str()),
                    ("name", name),
                    ("operation", operation),
                    ("rejected", rejected),
                    ("type", kind),
                ]
                .map(|(label, value)| (label, value.to_owned()));
                let labels = labels.each_ref().map(|(label, value)| (*label, value.as_str()));
                text.value(total, &labels, count);
            }
        }
        let excluded = "apiserver_admission_match_condition_exclusions_total";
        text.family(
            excluded,
            Type::Counter,
            "Writes that an admission webhook was not asked about because of its matchConditions.",
        );
        for (Labels { name, kind, operation }, count) in &counts.excluded {
            let labels = [("kind", "webhook"), ("name", name), ("operation", *operation), ("type", *kind)];
            text.value(excluded, &labels, count);
        }
    }
}

impl Labels {
    fn bounded<T>(known: &BTreeMap<Labels, T>, name: &str, kind: &'static str, operation: &'static str) -> Labels {
        let labels = Labels { name: name.into(), kind, operation };
        let is_full = SERIES_MAX <= known.len() && !known.contains_key(&labels);
        if is_full { Labels { name: "".into(), ..labels } } else { labels }
    }
}

impl Calls {
    fn new() -> Calls {
        Calls {
            passed: Histogram::new(BOUNDS),
            rejected: Histogram::new(BOUNDS),
            codes: BTreeMap::new(),
            rejections: BTreeMap::new(),
            n_ignored: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_by_what_came_of_it() {
        let webhooks = Webhooks::default();
        let call = WebhookCall { name: "a.b.c", kind: "admit", operation: "CREATE" };
        webhooks.called(&call, WebhookOutcome::Passed, Duration::from_millis(30));
        webhooks.called(&call, WebhookOutcome::Refused { code: 403 }, Duration::from_secs(30));
        webhooks.called(&call, WebhookOutcome::Failed { code: 503 }, Duration::ZERO);
        webhooks.called(&call, WebhookOutcome::Ignored { code: 503 }, Duration::ZERO);
        webhooks.called(&call, WebhookOutcome::Internal, Duration::ZERO);
        webhooks.excluded("a.b.c", "admit", "CREATE");
        let mut text = Text::default();
        webhooks.exposition(&mut text);
        let text = text.into_string();
        let of = r#"name="a.b.c",operation="CREATE""#;
        for line in [
            format!(r#"duration_seconds_bucket{{{of},rejected="false",type="admit",le="0.025"}} 1"#),
            format!(r#"duration_seconds_bucket{{{of},rejected="false",type="admit",le="0.1"}} 2"#),
            format!(r#"duration_seconds_bucket{{{of},rejected="true",type="admit",le="25"}} 2"#),
            format!(r#"duration_seconds_count{{{of},rejected="true",type="admit"}} 3"#),
            r#"webhook_fail_open_count{name="a.b.c",type="admit"} 1"#.to_owned(),
            format!(r#"rejection_count{{error_type="no_error",{of},rejection_code="403",type="admit"}} 1"#),
            format!(
                r#"rejection_count{{error_type="calling_webhook_error",{of},rejection_code="503",type="admit"}} 1"#
            ),
            format!(
                r#"rejection_count{{error_type="apiserver_internal_error",{of},rejection_code="0",type="admit"}} 1"#
            ),
            format!(r#"request_total{{code="200",{of},rejected="false",type="admit"}} 1"#),
            format!(r#"request_total{{code="503",{of},rejected="false",type="admit"}} 1"#),
            format!(r#"request_total{{code="403",{of},rejected="true",type="admit"}} 1"#),
            format!(r#"match_condition_exclusions_total{{kind="webhook",{of},type="admit"}} 1"#),
        ] {
            assert!(text.lines().any(|one| one.ends_with(&line)), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn series_are_bounded() {
        let webhooks = Webhooks::default();
        for n in 0..SERIES_MAX + 10 {
            webhooks.excluded(&n.to_string(), "admit", "CREATE");
            let name = n.to_string();
            let call = WebhookCall { name: &name, kind: "admit", operation: "CREATE" };
            webhooks.called(&call, WebhookOutcome::Passed, Duration::ZERO);
        }
        let counts = webhooks.0.lock();
        assert_eq!((counts.calls.len(), counts.excluded.len()), (SERIES_MAX + 1, SERIES_MAX + 1));
    }
}
