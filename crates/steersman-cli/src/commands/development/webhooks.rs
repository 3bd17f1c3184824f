//! `steersman webhooks`: the admission webhooks that a server has called, how often, how long, and with what outcome.
//!
//! The figures come from the server's metrics, so they work with any kube-apiserver, and count from its start. Webhooks
//! are listed from the configurations, so one that was never called has a row too.

mod samples;

use crate::Failure;
use crate::args::WebhooksOptions;
use crate::commands::cluster;
use crate::commands::development::webhooks::samples::{Sample, samples};
use anyhow::Context as _;
use http::Request;
use kube::Client;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const PREFIX: &str = "apiserver_admission_webhook_";
const SKIPPED: &str = "apiserver_admission_match_condition_exclusions_total";
const HEADERS: [&str; 12] = [
    "TYPE",
    "CONFIGURATION",
    "WEBHOOK",
    "OPERATION",
    "CALLS",
    "ALLOWED",
    "DENIED",
    "FAILED",
    "IGNORED",
    "SKIPPED",
    "MEAN",
    "P99",
];
/// Ninety-nine of a hundred calls took no longer.
const QUANTILE: f64 = 0.99;

/// A kind of webhooks.
struct Kind {
    /// The name in tables.
    name: &'static str,
    /// The value of the metrics' label.
    label: &'static str,
    plural: &'static str,
}

static KINDS: [Kind; 2] = [
    Kind { name: "mutating", label: "admit", plural: "mutatingwebhookconfigurations" },
    Kind { name: "validating", label: "validating", plural: "validatingwebhookconfigurations" },
];

/// The type of a webhook, its name, and an operation, which is empty if it was never called.
type Key = (&'static str, String, String);

/// The counters of a webhook.
#[derive(Debug, Default)]
struct Row {
    allowed: f64,
    denied: f64,
    failed: f64,
    ignored: f64,
    skipped: f64,
    /// The number of timed calls, and their total duration in seconds.
    timed: f64,
    seconds: f64,
    /// The number of calls that took no longer than this.
    buckets: Vec<(f64, f64)>,
}

/// The names of configurations by the type and the name of a webhook.
type Registered = BTreeMap<(&'static str, String), Vec<String>>;

/// Prints the table.
pub(crate) async fn run(options: WebhooksOptions) -> Result<(), Failure> {
    let config = cluster::find(options.kubeconfig.as_deref()).await?;
    let client = Client::try_from(config).context("no client can be made for the server")?;
    let get = |path: String| Request::get(path).body(Vec::new()).context("the request cannot be made");
    let metrics = client.request_text(get("/metrics".to_owned())?).await;
    let metrics =
        metrics.map_err(|error| Failure::Refused(format!("the metrics cannot be read: {}", crate::chain(&error))))?;
    let mut registered = Registered::new();
    for kind in &KINDS {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{}", kind.plural);
        let list: Result<Value, _> = client.request(get(path)?).await;
        let list = list.map_err(|error| {
            Failure::Refused(format!("the {} cannot be listed: {}", kind.plural, crate::chain(&error)))
        })?;
        register(kind, &list, &mut registered);
    }
    print!("{}", table(&rows(&samples(&metrics)), &registered));
    Ok(())
}

fn register(kind: &Kind, list: &Value, registered: &mut Registered) {
    for configuration in list["items"].as_array().into_iter().flatten() {
        let name = configuration["metadata"]["name"].as_str().unwrap_or_default();
        for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
            let webhook = webhook["name"].as_str().unwrap_or_default().to_owned();
            registered.entry((kind.name, webhook)).or_default().push(name.to_owned());
        }
    }
}

fn rows(samples: &[Sample<'_>]) -> BTreeMap<Key, Row> {
    let mut rows: BTreeMap<Key, Row> = BTreeMap::new();
    for sample in samples {
        let Some(kind) = KINDS.iter().find(|kind| kind.label == sample.label("type")) else { continue };
        let what = match sample.name.strip_prefix(PREFIX) {
            Some(what) => what,
            None if sample.name == SKIPPED && sample.label("kind") == "webhook" => SKIPPED,
            None => continue,
        };
        // This metric has no operation, and its calls are also counted as requests.
        if what == "fail_open_count" {
            continue;
        }
        let key = (kind.name, sample.label("name").to_owned(), sample.label("operation").to_owned());
        let (row, value) = (rows.entry(key).or_default(), sample.value);
        match what {
            "request_total" if sample.label("rejected") == "false" => match sample.label("code") {
                "200" => row.allowed += value,
                _ => row.ignored += value,
            },
            "rejection_count" => match sample.label("error_type") {
                "no_error" => row.denied += value,
                _ => row.failed += value,
            },
            "admission_duration_seconds_count" => row.timed += value,
            "admission_duration_seconds_sum" => row.seconds += value,
            "admission_duration_seconds_bucket" => {
                let bound = sample.label("le").parse().unwrap_or(f64::INFINITY);
                match row.buckets.iter_mut().find(|(known, _)| *known == bound) {
                    Some((_, count)) => *count += value,
                    None => row.buckets.push((bound, value)),
                }
            }
            SKIPPED => row.skipped += value,
            _ => {}
        }
    }
    rows
}

impl Row {
    /// The number of calls. The metric of requests counts a refusal by the webhook and a failed call alike as rejected,
    /// so [`rows`] takes these two from the metric of rejections.
    fn calls(&self) -> f64 {
        self.allowed + self.denied + self.failed + self.ignored
    }

    fn mean(&self) -> String {
        if self.timed > 0.0 { milliseconds(self.seconds / self.timed) } else { "-".to_owned() }
    }

    /// The bound of the quantile's bucket.
    fn quantile(&self) -> String {
        let mut buckets = self.buckets.clone();
        buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let wanted = self.timed * QUANTILE;
        match buckets.iter().find(|(_, count)| *count >= wanted) {
            Some(_) if self.timed == 0.0 => "-".to_owned(),
            Some((bound, _)) if bound.is_finite() => format!("<={}", milliseconds(*bound)),
            Some(_) => buckets
                .iter()
                .rev()
                .find(|(bound, _)| bound.is_finite())
                .map_or_else(|| "-".to_owned(), |(bound, _)| format!(">{}", milliseconds(*bound))),
            None => "-".to_owned(),
        }
    }
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1}ms", seconds * 1000.0)
}

fn table(rows: &BTreeMap<Key, Row>, registered: &Registered) -> String {
    let mut lines: Vec<[String; 12]> = vec![HEADERS.map(str::to_owned)];
    let configurations = |kind, name: &str| {
        let names = registered.get(&(kind, name.to_owned()));
        names.map_or_else(|| "-".to_owned(), |names| names.join(","))
    };
    for ((kind, name, operation), row) in rows {
        let counts = [row.calls(), row.allowed, row.denied, row.failed, row.ignored, row.skipped];
        let [calls, allowed, denied, failed, ignored, skipped] = counts.map(|count| count.to_string());
        lines.push([
            (*kind).to_owned(),
            configurations(kind, name),
            name.clone(),
            operation.clone(),
            calls,
            allowed,
            denied,
            failed,
            ignored,
            skipped,
            row.mean(),
            row.quantile(),
        ]);
    }
    let is_called = |kind: &str, name: &str| rows.keys().any(|(known, called, _)| *known == kind && called == name);
    for (kind, name) in registered.keys().filter(|(kind, name)| !is_called(kind, name)) {
        let mut line: [String; 12] = std::array::from_fn(|_| "0".to_owned());
        [line[0], line[1], line[2], line[3]] =
            [(*kind).to_owned(), configurations(kind, name), name.clone(), "-".to_owned()];
        [line[10], line[11]] = ["-".to_owned(), "-".to_owned()];
        lines.push(line);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; 12] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{}", cells.join("   ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_says_who_was_called_and_what_came_of_it() {
        let of = r#"name="a.b.c",operation="CREATE""#;
        let text = format!(
            r#"# HELP x y
apiserver_admission_webhook_admission_duration_seconds_bucket{{{of},rejected="false",type="admit",le="0.005"}} 1
apiserver_admission_webhook_admission_duration_seconds_bucket{{{of},rejected="false",type="admit",le="0.025"}} 3
apiserver_admission_webhook_admission_duration_seconds_bucket{{{of},rejected="false",type="admit",le="+Inf"}} 3
apiserver_admission_webhook_admission_duration_seconds_sum{{{of},rejected="false",type="admit"}} 0.03
apiserver_admission_webhook_admission_duration_seconds_count{{{of},rejected="false",type="admit"}} 3
apiserver_admission_webhook_rejection_count{{error_type="no_error",{of},rejection_code="403",type="admit"}} 1
apiserver_admission_webhook_rejection_count{{error_type="calling_webhook_error",{of},rejection_code="503",type="admit"}} 2
apiserver_admission_webhook_request_total{{code="200",{of},rejected="false",type="admit"}} 5
apiserver_admission_webhook_request_total{{code="503",{of},rejected="false",type="admit"}} 1
apiserver_admission_webhook_request_total{{code="403",{of},rejected="true",type="admit"}} 1
apiserver_admission_match_condition_exclusions_total{{kind="webhook",{of},type="admit"}} 7
"#
        );
        let mut registered = Registered::new();
        let configuration = |name: &str, webhook: &str| json!({"items": [{"metadata": {"name": name}, "webhooks": [{"name": webhook}]}]});
        register(&KINDS[0], &configuration("one", "a.b.c"), &mut registered);
        register(&KINDS[1], &configuration("two", "d.e.f"), &mut registered);
        let table = table(&rows(&samples(&text)), &registered);
        let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], HEADERS);
        let called = ["mutating", "one", "a.b.c", "CREATE", "9", "5", "1", "2", "1", "7", "10.0ms", "<=25.0ms"];
        assert_eq!(words[1], called);
        assert_eq!(words[2], ["validating", "two", "d.e.f", "-", "0", "0", "0", "0", "0", "0", "-", "-"]);
    }
}
