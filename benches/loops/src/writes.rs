//! Counts the server's writes by verb and resource, from its metrics.

use std::collections::BTreeMap;

use anyhow::Context;
use kube::Client;

/// Verbs that change something.
const VERBS: [&str; 5] = ["DELETE", "DELETECOLLECTION", "PATCH", "POST", "PUT"];
/// Resources that are answered but not stored.
const VIRTUAL: [&str; 5] = [
    "localsubjectaccessreviews",
    "selfsubjectaccessreviews",
    "selfsubjectreviews",
    "subjectaccessreviews",
    "tokenreviews",
];

/// The number of writes by verb and resource, as in `PUT deployments/status`.
pub(crate) type Counts = BTreeMap<String, f64>;

/// The writes since the start of the server.
pub(crate) async fn count(client: &Client) -> anyhow::Result<Counts> {
    let request = http::Request::get("/metrics").body(Vec::new()).context("there is no such request")?;
    let text = client.request_text(request).await.context("cannot read the metrics")?;
    Ok(read(&text))
}

fn read(text: &str) -> Counts {
    let mut counts = Counts::new();
    for line in text.lines() {
        let Some((labels, value)) =
            line.strip_prefix("apiserver_request_total{").and_then(|line| line.split_once("} "))
        else {
            continue;
        };
        // The values that are read contain neither commas nor quotes.
        let label = |name: &str| {
            let mut all = labels.split(',').filter_map(|label| label.split_once('='));
            all.find(|(found, _)| *found == name).map(|(_, value)| value.trim_matches('"'))
        };
        let (verb, resource) = (label("verb").unwrap_or_default(), label("resource").unwrap_or_default());
        if !VERBS.contains(&verb) || VIRTUAL.contains(&resource) {
            continue;
        }
        let what = match label("subresource").unwrap_or_default() {
            "" => format!("{verb} {resource}"),
            subresource => format!("{verb} {resource}/{subresource}"),
        };
        *counts.entry(what).or_default() += value.parse::<f64>().unwrap_or_default();
    }
    counts
}

/// The writes between two counts.
pub(crate) fn since(before: &Counts, after: &Counts) -> Counts {
    let difference = after.iter().map(|(what, n)| (what.clone(), n - before.get(what).copied().unwrap_or_default()));
    difference.filter(|(_, n)| 0.0 < *n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_write_are_counted_by_verb_and_resource() {
        let text = "apiserver_request_total{code=\"200\",component=\"apiserver\",group=\"apps\",resource=\"deployments\",\
                    scope=\"resource\",subresource=\"status\",verb=\"PUT\"} 3\n\
                    apiserver_request_total{code=\"200\",component=\"apiserver\",group=\"\",resource=\"pods\",verb=\"GET\"} 9\n";
        assert_eq!(read(text), Counts::from([("PUT deployments/status".to_owned(), 3.0)]));
        let later = Counts::from([("PUT deployments/status".to_owned(), 5.0)]);
        assert_eq!(since(&read(text), &later).into_values().collect::<Vec<_>>(), [2.0]);
    }
}
