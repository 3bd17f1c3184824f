//! The files of a project, and names that are refused.

use std::path::PathBuf;

use crate::crd;
use crate::project::{Dependency, Options, generate};

fn options() -> Options {
    Options {
        name: "my-operator".to_owned(),
        kind: "Greeting".to_owned(),
        group: "example.com".to_owned(),
        webhook: false,
        dependency: Dependency::Published,
    }
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Options), expected: &str) {
    let mut options = options();
    change(&mut options);
    let error = generate(&options).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn every_gap_is_filled() {
    for webhook in [false, true] {
        for dependency in [Dependency::Published, Dependency::Path(PathBuf::from("/src/steersman"))] {
            let files = generate(&Options { webhook, dependency: dependency.clone(), ..options() }).unwrap();
            assert_eq!(files.text("src/webhook.rs").is_some(), webhook);
            for (path, text) in files.iter() {
                let path = path.display();
                assert!(!text.is_empty() && text.ends_with('\n'), "{path}");
                // GitHub's own variables have a space after the braces.
                assert!(!text.replace("${{ ", "").contains("{{"), "{path}: {text}");
                assert!(!text.lines().any(|line| line.ends_with(' ')), "{path}");
                // The library has them only with the feature that is checked below.
                assert!(webhook || !text.to_lowercase().contains("webhook"), "{path}: {text}");
            }
            let cargo = files.text("Cargo.toml").unwrap();
            let features = if webhook { ", features = [\"webhook\"]" } else { "" };
            let version = env!("CARGO_PKG_VERSION");
            let line = match dependency {
                Dependency::Published => format!("steersman = {{ version = \"{version}\"{features} }}"),
                Dependency::Path(_) => {
                    format!("steersman = {{ path = \"/src/steersman/crates/steersman\"{features} }}")
                }
            };
            assert!(cargo.contains(&line), "{cargo}");
        }
    }
}

#[test]
fn a_project_that_is_built_of_a_checkout_has_no_ci() {
    let ci = ".github/workflows/ci.yaml";
    let files = generate(&options()).unwrap();
    let toolchain = concat!("rustup toolchain install ", env!("CARGO_PKG_RUST_VERSION"), " ");
    assert!(files.text(ci).unwrap().contains(toolchain), "the toolchain of the machine may be older");
    let dependency = Dependency::Path(PathBuf::from("/src/steersman"));
    let files = generate(&Options { dependency, ..options() }).unwrap();
    assert_eq!(files.text(ci), None);
}

#[test]
fn the_image_that_is_pushed_is_the_one_that_runs() {
    for dependency in [Dependency::Published, Dependency::Path(PathBuf::from("/src/steersman"))] {
        let files = generate(&Options { dependency, ..options() }).unwrap();
        let image = "registry.example.com/my-operator";
        let readme = files.text("README.md").unwrap();
        assert!(readme.contains(&format!("docker push {image}:dev\n")), "{readme}");
        assert!(readme.contains(&format!("-t {image}:dev .\n")), "{readme}");
        let kustomization = files.text("manifests/kustomization.yaml").unwrap();
        assert!(kustomization.contains(&format!("newName: {image}\n  newTag: dev\n")), "{kustomization}");
    }
}

#[test]
fn a_kind_of_another_name_is_called_so_everywhere() {
    let files =
        generate(&Options { kind: "BackupPolicy".to_owned(), group: "dr.acme.io".to_owned(), ..options() }).unwrap();
    let definitions = crd::read("crd.yaml", files.text("manifests/crd.yaml").unwrap()).unwrap();
    assert_eq!(definitions[0].name, "backuppolicies.dr.acme.io");
    assert_eq!(definitions[0].names.kind, "BackupPolicy");
    assert!(files.text("src/controller.rs").unwrap().contains("backup_policies: Lister<BackupPolicy>"));
    assert!(files.text("manifests/rbac.yaml").unwrap().contains("- backuppolicies/status"));
    assert!(files.iter().all(|(_, text)| !text.contains("greetings.example.com") && !text.contains("kind: Greeting")));
}

#[test]
fn names_that_cannot_be_are_refused_with_what_can() {
    let long = "a".repeat(41);
    for name in ["", "My-operator", "my_operator", "1st", "-a", "a-", "a/b", long.as_str()] {
        refused(|options| options.name = name.to_owned(), "is no name of a project: want lower-case letters");
    }
    for name in ["kube", "tokio", "test", "steersman-x", "struct"] {
        refused(|options| options.name = name.to_owned(), "a project cannot be called");
    }
    for kind in ["", "greeting", "Greet-ing", "Grüße"] {
        refused(|options| options.kind = kind.to_owned(), "is no name of a kind: want letters");
    }
    refused(|options| options.kind = "ConfigMap".to_owned(), "because the project uses another type of that name");
    for group in ["", "example", "Example.com", "a..b", "a_b.com"] {
        refused(|options| options.group = group.to_owned(), "is no API group: want a domain");
    }
    refused(|options| options.group = "x.k8s.io".to_owned(), "belongs to the Kubernetes community");
}

#[test]
fn no_kind_has_the_name_of_a_type_that_the_project_imports() {
    for webhook in [false, true] {
        let files = generate(&Options { webhook, ..options() }).unwrap();
        let imports = files.iter().filter(|(path, _)| path.extension().is_some_and(|extension| extension == "rs"));
        let imports = imports.flat_map(|(_, text)| text.split("use ").skip(1).filter_map(|rest| rest.split_once(';')));
        let names = imports.flat_map(|(path, _)| path.split(|character: char| !character.is_ascii_alphanumeric()));
        let is_type = |name: &&str| {
            name.starts_with(|first: char| first.is_ascii_uppercase())
                && name.contains(|c: char| c.is_ascii_lowercase())
        };
        let names: Vec<&str> = names.filter(is_type).filter(|name| !name.starts_with("Greeting")).collect();
        assert!(names.contains(&"Client") && names.contains(&"Manager"), "{names:?}");
        for kind in names.into_iter().chain(["Vec", "String", "Default", "Send"]) {
            let error = generate(&Options { kind: kind.to_owned(), webhook, ..options() }).map(|_| ());
            assert!(error.is_err(), "{kind} is imported, and is allowed as a kind");
        }
    }
}
