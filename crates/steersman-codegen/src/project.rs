//! A project for an operator: a kind, its controller, tests, manifests, an image and CI.
//!
//! The files are templates with the names filled in. After that they belong to the user: nothing generates them again,
//! except the manifests that the project's own tests keep up to date.

mod names;
mod template;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::manifest;
use crate::output::Files;
use crate::project::template::{Section, Template};
use crate::rbac::{Permissions, ServiceAccount};

pub use crate::project::names::NameError;

/// Options for the project.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the package, the image, the namespace and the service account: `my-operator`.
    pub name: String,
    /// The kind that it reconciles: `Greeting`.
    pub kind: String,
    /// The API group of the kind: `example.com`.
    pub group: String,
    /// Whether it has admission webhooks.
    pub webhook: bool,
    pub dependency: Dependency,
}

/// The source of the project's Steersman crates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Dependency {
    /// A checkout, by its absolute path.
    Path(PathBuf),
    /// The registry, in the version of this crate.
    Published,
}

/// Why the project could not be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name cannot be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The roles cannot be written.
    #[error("the roles of the operator cannot be written")]
    Roles(#[source] manifest::Error),
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
const RUST_VERSION: &str = env!("CARGO_PKG_RUST_VERSION");

/// Every file: its path in the project, and its template.
const FILES: &[(&str, &str)] = &[
    (".dockerignore", include_str!("../templates/operator/dockerignore.template")),
    (".gitignore", include_str!("../templates/operator/gitignore.template")),
    ("Cargo.toml", include_str!("../templates/operator/Cargo.toml.template")),
    ("Dockerfile", include_str!("../templates/operator/Dockerfile.template")),
    ("README.md", include_str!("../templates/operator/README.md.template")),
    ("manifests/crd.yaml", include_str!("../templates/operator/manifests/crd.yaml.template")),
    ("manifests/deployment.yaml", include_str!("../templates/operator/manifests/deployment.yaml.template")),
    ("manifests/kustomization.yaml", include_str!("../templates/operator/manifests/kustomization.yaml.template")),
    ("manifests/namespace.yaml", include_str!("../templates/operator/manifests/namespace.yaml.template")),
    ("manifests/sample.yaml", include_str!("../templates/operator/manifests/sample.yaml.template")),
    ("manifests/service.yaml", include_str!("../templates/operator/manifests/service.yaml.template")),
    ("src/api.rs", include_str!("../templates/operator/src/api.rs.template")),
    ("src/controller.rs", include_str!("../templates/operator/src/controller.rs.template")),
    ("src/lib.rs", include_str!("../templates/operator/src/lib.rs.template")),
    ("src/main.rs", include_str!("../templates/operator/src/main.rs.template")),
    ("tests/operator.rs", include_str!("../templates/operator/tests/operator.rs.template")),
];

/// Files of projects with webhooks only.
const WEBHOOK_FILES: &[(&str, &str)] = &[
    ("manifests/webhook.yaml", include_str!("../templates/operator/manifests/webhook.yaml.template")),
    ("src/webhook.rs", include_str!("../templates/operator/src/webhook.rs.template")),
];

/// The CI workflow, which only a project with published dependencies has: a CI machine has no checkout of Steersman.
const CI_FILE: (&str, &str) =
    (".github/workflows/ci.yaml", include_str!("../templates/operator/github/workflows/ci.yaml.template"));

/// Generates the files of the project. With [`Dependency::Path`] there is no CI workflow.
///
/// # Errors
///
/// If a name cannot be used.
pub fn generate(options: &Options) -> Result<Files, Error> {
    names::check(options)?;
    let template = variables(options);
    let mut files = Files::default();
    let webhook_files = if options.webhook { WEBHOOK_FILES } else { &[] };
    let ci_file = match options.dependency {
        Dependency::Path(_) => None,
        Dependency::Published => Some(&CI_FILE),
    };
    for (path, text) in FILES.iter().chain(webhook_files).chain(ci_file) {
        files.insert(*path, template.fill(text));
    }
    let account = ServiceAccount::new(&options.name, &options.name);
    files.insert("manifests/rbac.yaml", permissions(options).manifests(&account).map_err(Error::Roles)?);
    Ok(files)
}

/// The permissions of the generated operator. Its own test compares its requests with the manifest.
fn permissions(options: &Options) -> Permissions {
    let Options { name, kind, group, .. } = options;
    let plural = names::plural(kind);
    let permissions = Permissions::default()
        .allow(group, &plural, &["list", "watch"])
        .allow(group, &format!("{plural}/finalizers"), &["update"])
        .allow(group, &format!("{plural}/status"), &["patch"])
        .allow("", "configmaps", &["list", "watch", "create", "patch"])
        .allow("", "events", &["create", "patch"])
        .allow_in(name, "coordination.k8s.io", "leases", &["get", "create", "update"]);
    if !options.webhook {
        return permissions;
    }
    let configurations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let permissions = permissions.allow_in(name, "", "secrets", &["get", "list", "watch", "create", "update"]);
    configurations.iter().fold(permissions, |permissions, resource| {
        permissions.allow("admissionregistration.k8s.io", resource, &["get", "list", "watch", "update"])
    })
}

fn variables(options: &Options) -> Template {
    let Options { name, kind, group, webhook, dependency } = options;
    let plural = names::plural(kind);
    let dependency_on = |crate_name: &str, features: &[&str]| {
        let features = match features {
            [] => String::new(),
            features => format!(", features = {features:?}"),
        };
        match dependency {
            Dependency::Published => format!("{{ version = {VERSION:?}{features} }}"),
            Dependency::Path(path) => {
                let path = path.join("crates").join(crate_name).display().to_string();
                format!("{{ path = {path:?}{features} }}")
            }
        }
    };
    let (features, webhook_section): (&[&str], Section) =
        if *webhook { (&["webhook"], Section::Kept) } else { (&[], Section::Dropped) };
    let (path, path_section) = match dependency {
        Dependency::Path(path) => (path.display().to_string(), Section::Kept),
        Dependency::Published => (String::new(), Section::Dropped),
    };
    Template::default()
        .variable("name", name)
        .variable("crate", &name.replace('-', "_"))
        .variable("kind", kind)
        .variable("singular", &kind.to_lowercase())
        .variable("plural", &plural)
        .variable("plural_ident", &names::plural_ident(kind))
        .variable("group", group)
        .variable("group_dashes", &group.replace('.', "-"))
        .variable("rust_version", RUST_VERSION)
        .variable("steersman", &dependency_on("steersman", features))
        .variable("steersman_codegen", &dependency_on("steersman-codegen", &[]))
        .variable("steersman_testkit", &dependency_on("steersman-testkit", &[]))
        .variable("steersman_path", &path)
        .section("path", path_section)
        .section("webhook", webhook_section)
}
