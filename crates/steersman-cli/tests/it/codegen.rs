//! `steersman codegen` and `steersman new` as commands: files that are written or compared, and refusals.

use std::fs;
use std::path::Path;

use crate::support::kubectl::{Kubectl, program};
use crate::support::plane::{Plane, run};
use crate::support::root;

/// Runs `steersman ARGUMENTS` in `home`, expects the exit code, and returns its standard output and standard error.
#[track_caller]
fn steersman(home: &Path, arguments: &str, code: i32) -> (String, String) {
    let ended = run(home, arguments.split_whitespace());
    assert_eq!(ended.status.code(), Some(code), "steersman {arguments}: {ended:#?}");
    (ended.stdout, ended.stderr)
}

fn home_with_a_definition() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("crds")).unwrap();
    fs::copy(root().join("manifests/crd/network-v1.yaml"), home.path().join("crds/network.yaml")).unwrap();
    fs::copy(root().join("manifests/example-network.yaml"), home.path().join("crds/example.yaml")).unwrap();
    home
}

#[test]
fn a_check_fails_when_output_is_stale_and_names_file_and_command() {
    let home = home_with_a_definition();
    let command = "codegen clients crds --types crate::api --out src/client.rs";
    let (_, said) = steersman(home.path(), &format!("{command} --check"), 1);
    assert!(said.contains("client.rs is missing") && said.contains(&format!("run `steersman {command}`")), "{said}");

    let (printed, _) = steersman(home.path(), command, 0);
    assert_eq!(
        printed.lines().collect::<Vec<_>>(),
        ["src/client/samplecrd_v1/apply.rs", "src/client/samplecrd_v1.rs", "src/client.rs"]
    );
    steersman(home.path(), &format!("{command} --check"), 0);
    assert_eq!(steersman(home.path(), command, 0).0, "", "nothing is written twice");

    let definition = home.path().join("crds/network.yaml");
    let text = fs::read_to_string(&definition).unwrap().replace("networkID", "networkName");
    fs::write(&definition, text).unwrap();
    let (_, said) = steersman(home.path(), &format!("{command} --check"), 1);
    assert!(said.contains("client/samplecrd_v1/apply.rs differs"), "{said}");
    // Generated files of a removed version are removed too; handwritten files stay.
    fs::write(home.path().join("src/client/hand.rs"), "//! Mine.\n").unwrap();
    let text = fs::read_to_string(&definition).unwrap().replace("- name: v1\n", "- name: v2\n");
    fs::write(&definition, text).unwrap();
    steersman(home.path(), command, 0);
    assert!(!home.path().join("src/client/samplecrd_v1.rs").exists());
    assert!(home.path().join("src/client/hand.rs").exists());
    steersman(home.path(), &format!("{command} --check"), 0);
}

#[test]
fn types_are_written_where_clients_look_for_them() {
    let home = home_with_a_definition();
    steersman(home.path(), "codegen types crds --out src/apis.rs", 0);
    let file = fs::read_to_string(home.path().join("src/apis/samplecrd_k8s_io/v1/network.rs")).unwrap();
    assert!(file.contains("pub struct Network"), "{file}");
    steersman(home.path(), "codegen clients crds --types crate::apis::{group}::{version} --out src/client.rs", 0);
    let file = fs::read_to_string(home.path().join("src/client/samplecrd_v1.rs")).unwrap();
    assert!(file.contains("use crate::apis::samplecrd_k8s_io::v1::Network;"), "{file}");
    steersman(home.path(), "codegen types crds --out src/apis.rs --check", 0);
}

#[test]
fn definitions_come_from_a_server() {
    let Some(program) = program() else { return };
    let home = home_with_a_definition();
    let plane = Plane::server(home.path(), &["--in-memory"]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("apply -f manifests/crd/network-v1.yaml");
    let kubeconfig = plane.kubeconfig();
    let server = format!("--from-server --kubeconfig {}", kubeconfig.display());

    let (printed, _) = steersman(home.path(), &format!("codegen crd {server}"), 0);
    assert!(printed.starts_with("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"), "{printed}");
    for of_the_server in ["uid:", "managedFields", "\nstatus:", "storedVersions"] {
        assert!(!printed.contains(of_the_server), "{of_the_server}: {printed}");
    }
    fs::write(home.path().join("printed.yaml"), &printed).unwrap();
    let applied =
        kubectl.ok(&format!("apply --server-side --force-conflicts -f {}", home.path().join("printed.yaml").display()));
    assert!(applied.contains("serverside-applied"), "{applied}");
    steersman(home.path(), &format!("codegen crd {server} --out crds"), 0);
    steersman(home.path(), &format!("codegen crd {server} --out crds --check"), 0);
    steersman(home.path(), &format!("codegen clients {server} --types crate::api --out src/client.rs"), 0);
    assert!(home.path().join("src/client/samplecrd_v1.rs").is_file());
    let (_, said) = steersman(home.path(), &format!("codegen crd {server} --group no.such"), 2);
    assert!(said.contains("have no kind of the group no.such: there is samplecrd.k8s.io"), "{said}");
    plane.stop();
}

#[test]
fn what_cannot_be_generated_is_refused_in_a_sentence() {
    let home = home_with_a_definition();
    let refused = |arguments: &str, part: &str| {
        let (printed, said) = steersman(home.path(), arguments, 2);
        assert!(printed.is_empty() && said.lines().count() == 1 && said.contains(part), "{arguments}: {said}");
    };
    refused("codegen clients crds --types crate::api --out src/client", "is no file of a Rust module");
    refused("codegen clients nowhere.yaml --types crate::api --out src/client.rs", "cannot read nowhere.yaml");
    refused("codegen crd crds/example.yaml", "has no CustomResourceDefinition; it holds Network");
    refused("codegen clients --types crate::api --out src/client.rs", "FILE|DIR");
    refused("codegen crd crds --check", "--out");
    refused("new My_Operator", "want lower-case letters, digits and '-'");
    refused("new a --group k8s.io", "belongs to the Kubernetes community");
    refused("new a --steersman-path crds", "has no crates/steersman");
    assert!(!home.path().join("src").exists() && !home.path().join("a").exists());
}

#[test]
fn a_project_is_made_in_a_directory_that_is_empty_or_not_there() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("my-operator")).unwrap();
    let (printed, _) = steersman(home.path(), "new my-operator", 0);
    assert!(printed.contains("cd my-operator\n    cargo test"), "{printed}");
    for file in ["Cargo.toml", "Dockerfile", "manifests/kustomization.yaml", ".github/workflows/ci.yaml", "src/main.rs"]
    {
        assert!(home.path().join("my-operator").join(file).is_file(), "{file}");
    }
    assert!(!printed.contains("CI"), "{printed}");
    let checkout = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let (printed, _) = steersman(home.path(), &format!("new of-a-checkout --steersman-path {checkout}"), 0);
    assert!(
        printed.ends_with("There is no CI workflow, since its machines have no checkout of Steersman."),
        "{printed}"
    );
    assert!(!home.path().join("of-a-checkout/.github").exists());
    let (_, said) = steersman(home.path(), "new my-operator", 2);
    assert!(said.contains("my-operator is there already and is not an empty directory"), "{said}");
    fs::write(home.path().join("taken"), "").unwrap();
    steersman(home.path(), "new taken", 2);
}
