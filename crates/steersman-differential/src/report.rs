//! The findings of a run, by class and by signature.

use std::collections::BTreeMap;
use std::io::Write as _;

use serde_json::json;

use crate::answer::Answer;
use crate::difference::{Class, Difference};
use crate::server::Request;

/// A difference with the question that showed it.
pub(crate) struct Finding {
    pub(crate) number: usize,
    /// The class, the verb, the plural and what differs.
    pub(crate) signature: String,
    pub(crate) places: String,
    pub(crate) difference: Difference,
    pub(crate) request: Request,
    pub(crate) upstream: Answer,
    pub(crate) ours: Answer,
    pub(crate) is_accepted: bool,
}

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) n_cases: usize,
    pub(crate) found: Vec<Finding>,
}

// === impl Report ===

impl Report {
    /// Differences that no line of the accepted ones explains.
    pub(crate) fn n_unexpected(&self) -> usize {
        self.found.iter().filter(|found| !found.is_accepted).count()
    }

    pub(crate) fn print(&self) {
        println!("{} cases", self.n_cases);
        for class in Class::ALL {
            let of_class = || self.found.iter().filter(|found| found.difference.class == class);
            let (n_found, n_accepted) = (of_class().count(), of_class().filter(|found| found.is_accepted).count());
            let percent = 100.0 * n_found as f64 / self.n_cases.max(1) as f64;
            println!("{class:10} {n_found:6}  {percent:6.2} %  of them accepted {n_accepted}");
        }
        let mut groups: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
        for found in self.found.iter().filter(|found| !found.is_accepted) {
            groups.entry(&found.signature).or_default().push(found);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(signature, found)| (found[0].difference.class, usize::MAX - found.len(), *signature));
        for (signature, found) in groups {
            let shown = found[0];
            println!("\n{} x {signature}", found.len());
            println!("  case {} changes {}", shown.number, shown.places);
            println!("  {} {} {}", shown.request.method, shown.request.path, shown.request.body);
            println!("  kube-apiserver: {} {}", shown.upstream.status, shown.upstream.message);
            println!("  this server:    {} {}", shown.ours.status, shown.ours.message);
        }
    }

    pub(crate) fn write_json(&self, path: &std::path::Path) -> std::io::Result<()> {
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        for found in &self.found {
            let side = |answer: &Answer| {
                json!({
                    "status": answer.status, "reason": answer.reason, "blamed": answer.blamed, "warnings": answer.warnings,
                    "message": answer.message, "body": answer.body,
                })
            };
            let line = json!({
                "case": found.number, "signature": found.signature, "class": found.difference.class.to_string(),
                "detail": found.difference.detail, "places": found.places, "accepted": found.is_accepted,
                "method": found.request.method, "path": found.request.path, "contentType": found.request.content_type,
                "accept": found.request.accept, "body": found.request.body,
                "upstream": side(&found.upstream), "ours": side(&found.ours),
            });
            writeln!(file, "{line}")?;
        }
        file.flush()
    }
}
