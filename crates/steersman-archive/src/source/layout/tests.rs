//! Places of files, as the tools make them.

use crate::logs::{Container, Lines, Run};
use crate::source::documents::Hint;
use crate::source::layout::{LAYOUTS, Place};
use proptest::prelude::*;

fn found(path: &str) -> Option<(&'static str, Place)> {
    let segments: Vec<&str> = path.split('/').collect();
    LAYOUTS.iter().find_map(|layout| Some((layout.name(), layout.place(&segments)?)))
}

#[track_caller]
fn objects(path: &str, name: &str, resource: &str, group: Option<&str>, is_namespaced: Option<bool>) {
    let hint = Hint { resource: Some(resource.into()), group: group.map(Into::into), is_namespaced };
    assert_eq!(found(path), Some((name, Place::Objects(hint))), "{path}");
}

#[track_caller]
fn log(path: &str, container: &str, run: Run, lines: Lines) {
    let want = Place::Log(Container::new("default", "web-1", container, run), lines);
    assert_eq!(found(path).map(|(_, place)| place), Some(want), "{path}");
}

#[test]
fn a_must_gather_has_its_objects_by_group_and_resource() {
    let name = "a must-gather";
    let root = "must-gather.local.1/quay-io-x";
    objects(&format!("{root}/cluster-scoped-resources/core/nodes/n-1.yaml"), name, "nodes", Some(""), Some(false));
    objects(
        &format!("{root}/cluster-scoped-resources/config.openshift.io/infrastructures.yaml"),
        name,
        "infrastructures",
        Some("config.openshift.io"),
        Some(false),
    );
    objects("namespaces/default/apps/deployments.yaml", name, "deployments", Some("apps"), Some(true));
    objects("namespaces/default/core/configmaps/a.yaml", name, "configmaps", Some(""), Some(true));
    objects("namespaces/default/default.yaml", name, "namespaces", Some(""), Some(false));
    objects("namespaces/default/pods/web-1/web-1.yaml", name, "pods", Some(""), Some(true));
    objects("namespaces/namespaces/core/pods.yaml", name, "pods", Some(""), Some(true));
    log("a/namespaces/default/pods/web-1/web/web/logs/current.log", "web", Run::Current, Lines::Timed);
    log("a/namespaces/default/pods/web-1/web/web/logs/previous.log", "web", Run::Previous, Lines::Timed);
    assert_eq!(found("a/namespaces/default/pods/web-1/web/web/logs/previous.insecure.log"), None);
}

#[test]
fn a_backup_of_velero_has_its_objects_by_resource() {
    let name = "a backup of Velero";
    objects("resources/pods/namespaces/default/a.json", name, "pods", Some(""), Some(true));
    objects(
        "resources/deployments.apps/v1-preferredversion/namespaces/default/a.json",
        name,
        "deployments",
        Some("apps"),
        Some(true),
    );
    objects("resources/widgets.example.com/cluster/a.json", name, "widgets", Some("example.com"), Some(false));
    assert_eq!(found("metadata/version"), None);
}

#[test]
fn a_support_bundle_has_its_objects_by_kind() {
    let name = "a support bundle";
    objects("b/cluster-resources/pods/default.json", name, "pods", None, Some(true));
    objects("b/cluster-resources/custom-resource-definitions.json", name, "customresourcedefinitions", None, None);
    objects("b/cluster-resources/pvcs/default.json", name, "persistentvolumeclaims", None, Some(true));
    objects(
        "b/cluster-resources/custom-resources/widgets.example.com/default.yaml",
        name,
        "widgets",
        Some("example.com"),
        Some(true),
    );
    objects(
        "b/cluster-resources/custom-resources/widgets.example.com.yaml",
        name,
        "widgets",
        Some("example.com"),
        None,
    );
    log("b/cluster-resources/pods/logs/default/web-1/web.log", "web", Run::Current, Lines::Plain);
    log("b/cluster-resources/pods/logs/default/web-1/web-previous.log", "web", Run::Previous, Lines::Plain);
}

#[test]
fn a_dump_of_cluster_info_has_its_objects_by_namespace() {
    let name = "the directory of kubectl cluster-info dump";
    for path in ["nodes.json", "default/pods.json", "x/kube-system/replication-controllers.json"] {
        assert_eq!(found(path), Some((name, Place::Objects(Hint::default()))), "{path}");
    }
    let want = Place::Log(Container::all_of("default", "web-1"), Lines::Plain);
    assert_eq!(found("default/web-1/logs.txt"), Some((name, want)));
    assert_eq!(found("README.md"), None);
}

proptest! {
    #[test]
    fn any_path_has_a_place_or_none(path in prop::collection::vec("(namespaces|resources|cluster-resources|cluster|pods|logs|[a-z.]{0,6}|x.json|logs.txt|current.log)", 0..9)) {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        for layout in LAYOUTS {
            let _place = layout.place(&path);
        }
    }
}
