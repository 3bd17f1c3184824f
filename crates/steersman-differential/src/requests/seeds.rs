//! Valid objects, from which everything else is made: at least one of every kind that is compared.

use anyhow::Context as _;
use serde_json::Value;

const FILES: [(&str, &str); 4] = [
    ("core.yaml", include_str!("../../seeds/core.yaml")),
    ("workloads.yaml", include_str!("../../seeds/workloads.yaml")),
    ("network-and-storage.yaml", include_str!("../../seeds/network-and-storage.yaml")),
    ("access-and-extension.yaml", include_str!("../../seeds/access-and-extension.yaml")),
];

/// The definition of the custom kind among the seeds.
const DEFINITIONS: (&str, &str) = ("definitions.yaml", include_str!("../../seeds/definitions.yaml"));

pub(crate) fn objects() -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for file in FILES {
        objects.append(&mut documents(file)?);
    }
    Ok(objects)
}

pub(crate) fn definitions() -> anyhow::Result<Vec<Value>> {
    documents(DEFINITIONS)
}

fn documents((name, text): (&str, &str)) -> anyhow::Result<Vec<Value>> {
    let parse = |document| serde_saphyr::from_str(document).with_context(|| format!("{name}: {document}"));
    text.split("\n---\n").map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_names_its_kind() {
        for object in objects().unwrap().iter().chain(&definitions().unwrap()) {
            assert!(object["apiVersion"].is_string() && object["kind"].is_string(), "{object}");
        }
    }
}
