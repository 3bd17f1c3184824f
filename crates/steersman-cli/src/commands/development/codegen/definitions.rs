//! The CustomResourceDefinitions that a command line names: from files, directories or a server.

use crate::Failure;
use crate::args::DefinitionsOptions;
use crate::commands::cluster;
use crate::commands::development::codegen::refused;
use anyhow::Context as _;
use http::Request;
use kube::Client;
use serde_json::Value;
use std::path::{Path, PathBuf};
use steersman_codegen::crd;

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// The definitions of the requested groups, by name.
pub(super) async fn read(options: &DefinitionsOptions) -> Result<Vec<Value>, Failure> {
    let (mut definitions, origin) = match options.from_server {
        true => from_server(options.kubeconfig.as_deref()).await?,
        false => (from_paths(&options.paths)?, "the manifests".to_owned()),
    };
    let group = |definition: &Value| definition["spec"]["group"].as_str().unwrap_or_default().to_owned();
    for wanted in &options.group {
        if !definitions.iter().any(|definition| group(definition) == *wanted) {
            let mut groups: Vec<String> = definitions.iter().map(group).collect();
            groups.sort();
            groups.dedup();
            let there = if groups.is_empty() { "no group at all".to_owned() } else { groups.join(", ") };
            return Err(Failure::Refused(format!("{origin} have no kind of the group {wanted}: there is {there}")));
        }
    }
    definitions.retain(|definition| options.group.is_empty() || options.group.contains(&group(definition)));
    definitions.sort_by_key(|definition| definition["metadata"]["name"].as_str().unwrap_or_default().to_owned());
    if definitions.is_empty() {
        return Err(Failure::Refused(format!("{origin} have no CustomResourceDefinition")));
    }
    Ok(definitions)
}

async fn from_server(kubeconfig: Option<&Path>) -> Result<(Vec<Value>, String), Failure> {
    let config = cluster::find(kubeconfig).await?;
    let origin = config.cluster_url.to_string();
    let client = Client::try_from(config).context("no client can be made for the server")?;
    let request = Request::get(PATH).body(Vec::new()).context("the request cannot be made")?;
    let mut list: Value = client.request(request).await.map_err(|error| {
        Failure::Refused(format!("the definitions of {origin} cannot be listed: {}", crate::chain(&error)))
    })?;
    let mut definitions: Vec<Value> = serde_json::from_value(list["items"].take()).unwrap_or_default();
    for definition in &mut definitions {
        // Items of a list have no kind and apiVersion.
        definition["apiVersion"] = "apiextensions.k8s.io/v1".into();
        definition["kind"] = "CustomResourceDefinition".into();
    }
    Ok((definitions, format!("the definitions of {origin}")))
}

fn from_paths(paths: &[PathBuf]) -> Result<Vec<Value>, Failure> {
    let mut definitions = Vec::new();
    for path in paths {
        if path.is_dir() {
            for file in files_in(path)? {
                match read_file(&file) {
                    // A directory may contain other objects too.
                    Ok(read) => definitions.extend(read),
                    Err(crd::ReadError::NoDefinition { .. }) => {}
                    Err(error) => return Err(refused(&error)),
                }
            }
        } else {
            definitions.extend(read_file(path).map_err(|error| refused(&error))?);
        }
    }
    Ok(definitions)
}

fn read_file(path: &Path) -> Result<Vec<Value>, crd::ReadError> {
    let text = std::fs::read_to_string(path).map_err(|source| crd::ReadError::Io { path: path.to_owned(), source })?;
    let file = path.display().to_string();
    // Read as definitions first, so that an error names the file and the document.
    crd::read(&file, &text)?;
    crd::objects(&file, &text)
}

fn files_in(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |error: std::io::Error| Failure::Refused(format!("cannot read {}: {error}", directory.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_manifest = path.extension().and_then(|extension| extension.to_str());
        if path.is_file() && is_manifest.is_some_and(|extension| EXTENSIONS.contains(&extension)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
