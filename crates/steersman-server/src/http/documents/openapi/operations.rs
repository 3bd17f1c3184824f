//! The paths of a document and the operations at each, the same for both versions of OpenAPI.

use crate::http::documents::openapi::parameters::{self, Parameter};
use crate::http::documents::openapi::schemas;
use std::sync::Arc;
use steersman_kinds::catalog::{GroupVersion, ResourceScope, Served, Verb};
use steersman_machinery::GroupVersionKind;

pub(super) const API_GROUP: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup";
const API_GROUP_LIST: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList";
const API_RESOURCE_LIST: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList";
const API_VERSIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const VERSION_INFO: &str = "io.k8s.apimachinery.pkg.version.Info";
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The path of a document, and what is served below it.
#[derive(Debug)]
pub(super) enum DocumentPath {
    /// `/api`.
    Core,
    /// `/apis/GROUP`.
    Group(Box<str>),
    /// `/apis/GROUP/VERSION`, or `/api/VERSION` for the core group.
    GroupVersion(Arc<GroupVersion>),
    /// `/apis`.
    Groups,
    /// `/version`.
    Version,
}

/// One path.
#[derive(Debug)]
pub(super) struct PathItem {
    pub(super) path: String,
    /// The parameters that all operations at the path share.
    pub(super) parameters: Vec<Parameter>,
    pub(super) operations: Vec<Operation>,
}

/// The operation of one method at a path.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) id: String,
    pub(super) tag: String,
    pub(super) action: Option<&'static str>,
    pub(super) kind: Option<GroupVersionKind>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Body>,
    /// Status codes, each with the definition of its body.
    pub(super) answers: Vec<(u16, Option<String>)>,
    /// The media types of the answers.
    pub(super) produces: Vec<&'static str>,
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) definition: String,
    pub(super) is_required: bool,
    pub(super) media_types: Vec<&'static str>,
}

/// The path of a group version, and the parts of its operations' names.
struct GroupVersionPath<'a> {
    /// `/apis/apps/v1`.
    root: &'a str,
    /// `AppsV1`.
    title: String,
    /// `apps_v1`.
    tag: String,
}

/// A resource at the path where it is served.
struct ResourcePath<'a> {
    group_version: &'a GroupVersionPath<'a>,
    served: &'a Served,
    /// `Namespaced` or empty.
    namespaced: &'static str,
    object: String,
    list: String,
}

impl DocumentPath {
    /// The path after `/openapi/v3/`.
    pub(super) fn key(&self) -> String {
        match self {
            DocumentPath::Core => "api".to_owned(),
            DocumentPath::Group(group) => format!("apis/{group}"),
            DocumentPath::GroupVersion(version) if version.group.is_empty() => format!("api/{}", version.name),
            DocumentPath::GroupVersion(version) => format!("apis/{}/{}", version.group, version.name),
            DocumentPath::Groups => "apis".to_owned(),
            DocumentPath::Version => "version".to_owned(),
        }
    }

    /// The name of its version.
    pub(super) fn version(&self) -> Option<&str> {
        match self {
            DocumentPath::GroupVersion(version) => Some(&version.name),
            DocumentPath::Core | DocumentPath::Group(_) | DocumentPath::Groups | DocumentPath::Version => None,
        }
    }

    /// The resources of the document.
    pub(super) fn served(&self) -> &[Served] {
        match self {
            DocumentPath::GroupVersion(version) => &version.resources,
            DocumentPath::Core | DocumentPath::Group(_) | DocumentPath::Groups | DocumentPath::Version => &[],
        }
    }

    /// The document's paths, sorted.
    pub(super) fn paths(&self) -> Vec<PathItem> {
        let root = format!("/{}", self.key());
        let mut paths = match self {
            DocumentPath::Core => vec![root_path(&root, "getCoreAPIVersions".to_owned(), "core", API_VERSIONS)],
            DocumentPath::Groups => vec![root_path(&root, "getAPIVersions".to_owned(), "apis", API_GROUP_LIST)],
            DocumentPath::Version => vec![root_path(&root, "getCodeVersion".to_owned(), "version", VERSION_INFO)],
            DocumentPath::Group(group) => {
                let (title, tag) = (camel(short(group), Case::Upper), camel(short(group), Case::Lower));
                vec![root_path(&root, format!("get{title}APIGroup"), &tag, API_GROUP)]
            }
            DocumentPath::GroupVersion(served) => {
                let group = if served.group.is_empty() { "core" } else { short(&served.group) };
                let version = &*served.name;
                let group_version = GroupVersionPath {
                    root: &root,
                    title: format!("{}{}", camel(group, Case::Upper), camel(version, Case::Upper)),
                    tag: format!("{}_{}", camel(group, Case::Lower), camel(version, Case::Lower)),
                };
                let mut paths = Vec::new();
                if served.has_built_in() {
                    let id = format!("get{}APIResources", group_version.title);
                    paths.push(root_path(&root, id, &group_version.tag, API_RESOURCE_LIST));
                }
                served.resources.iter().for_each(|served| ResourcePath::new(&group_version, served).paths(&mut paths));
                paths
            }
        };
        paths.sort_by(|a, b| a.path.cmp(&b.path));
        paths
    }
}

fn root_path(root: &str, id: String, tag: &str, definition: &str) -> PathItem {
    let operation = Operation {
        method: "get",
        id,
        tag: tag.to_owned(),
        action: None,
        kind: None,
        parameters: Vec::new(),
        body: None,
        answers: vec![(200, Some(definition.to_owned())), (401, None)],
        produces: vec![JSON, YAML, PROTOBUF],
    };
    PathItem { path: format!("{root}/"), parameters: Vec::new(), operations: vec![operation] }
}

impl<'a> ResourcePath<'a> {
    fn new(group_version: &'a GroupVersionPath<'a>, served: &'a Served) -> ResourcePath<'a> {
        let namespaced = if served.resource.scope == ResourceScope::Namespaced { "Namespaced" } else { "" };
        ResourcePath {
            group_version,
            served,
            namespaced,
            object: schemas::object_name(served),
            list: schemas::list_name(served),
        }
    }

    fn can(&self, verb: Verb) -> bool {
        self.served.resource.verbs.contains(&verb)
    }

    fn is_custom(&self) -> bool {
        self.served.resource.is_custom()
    }

    fn paths(&self, paths: &mut Vec<PathItem>) {
        let (root, plural) = (self.group_version.root, &self.served.resource.plural);
        let mut base = format!("{root}/{plural}");
        let mut watched = format!("{root}/watch/{plural}");
        let mut inherited = vec![parameters::PRETTY];
        let kind = &self.served.resource.kind;
        if !self.namespaced.is_empty() {
            let all = self.list_operation("list", "list", &format!("{kind}ForAllNamespaces"), &self.list);
            self.push_if(Verb::List, paths, &base, list_and_pretty(), all);
            let all = self.watch_operation("watchlist", &format!("{kind}ListForAllNamespaces"));
            self.push_if_watched(paths, &watched, list_and_pretty(), all);
            base = format!("{root}/namespaces/{{namespace}}/{plural}");
            watched = format!("{root}/watch/namespaces/{{namespace}}/{plural}");
            inherited.insert(0, parameters::NAMESPACE);
        }
        push(paths, &base, inherited.clone(), self.collection());
        let of_list: Vec<Parameter> = inherited.iter().chain(parameters::LIST).copied().collect();
        let all = self.watch_operation("watchlist", &format!("{}{kind}List", self.namespaced));
        self.push_if_watched(paths, &watched, of_list.clone(), all);

        let with_name = |mut parameters: Vec<Parameter>| {
            parameters.insert(0, parameters::NAME);
            parameters
        };
        push(paths, &format!("{base}/{{name}}"), with_name(inherited.clone()), self.single());
        let one = self.watch_operation("watch", &format!("{}{kind}", self.namespaced));
        if self.can(Verb::Get) {
            self.push_if_watched(paths, &format!("{watched}/{{name}}"), with_name(of_list), one);
        }
        for (name, operations) in self.subresources() {
            push(paths, &format!("{base}/{{name}}/{name}"), with_name(inherited.clone()), operations);
        }
    }

    fn push_if(&self, verb: Verb, paths: &mut Vec<PathItem>, path: &str, parameters: Vec<Parameter>, one: Operation) {
        if self.can(verb) {
            push(paths, path, parameters, vec![one]);
        }
    }

    /// The deprecated `/watch/` paths are documented for built-in kinds only.
    fn push_if_watched(&self, paths: &mut Vec<PathItem>, path: &str, parameters: Vec<Parameter>, one: Operation) {
        if !self.is_custom() {
            self.push_if(Verb::Watch, paths, path, parameters, one);
        }
    }

    /// The operations on a collection.
    fn collection(&self) -> Vec<Operation> {
        let name = format!("{}{}", self.namespaced, self.served.resource.kind);
        let mut operations = Vec::new();
        if self.can(Verb::List) {
            let mut list = self.list_operation("list", "list", &name, &self.list);
            list.parameters = parameters::LIST.to_vec();
            operations.push(list);
        }
        if self.can(Verb::Create) {
            operations.push(self.write("post", "create", &name, &self.object, self.served.kind()));
        }
        if self.can(Verb::DeleteCollection) {
            let mut all = self.operation("delete", "delete", "deletecollection", &format!("Collection{name}"), STATUS);
            all.parameters = parameters::delete_collection();
            all.body = Some(self.options());
            operations.push(all);
        }
        operations
    }

    /// The operations on a single object.
    fn single(&self) -> Vec<Operation> {
        let name = format!("{}{}", self.namespaced, self.served.resource.kind);
        let mut operations = Vec::new();
        if self.can(Verb::Get) {
            operations.push(self.operation("get", "read", "get", &name, &self.object));
        }
        if self.can(Verb::Update) {
            operations.push(self.write("put", "replace", &name, &self.object, self.served.kind()));
        }
        if self.can(Verb::Delete) {
            let mut one = self.operation("delete", "delete", "delete", &name, STATUS);
            one.parameters = parameters::DELETE.to_vec();
            one.body = Some(self.options());
            one.answers.insert(1, (202, Some(STATUS.to_owned())));
            operations.push(one);
        }
        if self.can(Verb::Patch) {
            operations.push(self.patch(&name, &self.object, self.served.kind()));
        }
        operations
    }

    fn subresources(&self) -> Vec<(&'a str, Vec<Operation>)> {
        let version = self.served.version();
        let own = [Verb::Get, Verb::Patch, Verb::Update];
        let mut found = Vec::new();
        if version.has_status {
            found.push(("status", self.subresource("status", &self.object, &self.served.kind(), &own)));
        }
        if version.scale.is_some() {
            let kind = GroupVersionKind::new("autoscaling", "v1", "Scale");
            found.push(("scale", self.subresource("scale", &schemas::kind_name(&kind), &kind, &own)));
        }
        for sub in &version.subresources {
            let operations = self.subresource(&sub.name, &schemas::kind_name(&sub.kind), &sub.kind, &sub.verbs);
            found.push((&*sub.name, operations));
        }
        found
    }

    fn subresource(&self, name: &str, definition: &str, kind: &GroupVersionKind, verbs: &[Verb]) -> Vec<Operation> {
        let title = format!("{}{}{}", self.namespaced, self.served.resource.kind, camel(name, Case::Upper));
        // A kind of options describes how to open a connection; the data of the connection is no object.
        let is_connection = kind.kind.ends_with("Options");
        let operation = |verb: &Verb| {
            let (method, word) = match verb {
                Verb::Create => ("post", "create"),
                Verb::Delete => ("delete", "delete"),
                Verb::Patch => ("patch", "patch"),
                Verb::Update => ("put", "replace"),
                Verb::DeleteCollection | Verb::Get | Verb::List | Verb::Watch => ("get", "read"),
            };
            let mut operation = match verb {
                _ if is_connection => {
                    let title = format!("{}{title}", camel(method, Case::Upper));
                    let mut operation = self.operation(method, "connect", "connect", &title, "");
                    operation.answers = vec![(200, None), (401, None)];
                    operation.produces = vec!["*/*"];
                    operation
                }
                Verb::Create | Verb::Update => self.write(method, word, &title, definition, kind.clone()),
                Verb::Patch => self.patch(&title, definition, kind.clone()),
                _ => self.operation(method, word, method, &title, definition),
            };
            operation.kind = Some(kind.clone());
            operation
        };
        verbs.iter().map(operation).collect()
    }

    // === single operations ===

    fn operation(&self, method: &'static str, verb: &str, action: &'static str, name: &str, answer: &str) -> Operation {
        Operation {
            method,
            id: format!("{verb}{}{name}", self.group_version.title),
            tag: self.group_version.tag.clone(),
            action: Some(action),
            kind: Some(self.served.kind()),
            parameters: Vec::new(),
            body: None,
            answers: vec![(200, Some(answer.to_owned())), (401, None)],
            produces: self.produces(),
        }
    }

    fn list_operation(&self, verb: &str, action: &'static str, name: &str, answer: &str) -> Operation {
        let mut operation = self.operation("get", verb, action, name, answer);
        if !self.is_custom() {
            operation
                .produces
                .extend(["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"]);
        }
        operation
    }

    fn watch_operation(&self, action: &'static str, name: &str) -> Operation {
        self.list_operation("watch", action, name, WATCH_EVENT)
    }

    fn write(
        &self,
        method: &'static str,
        verb: &str,
        name: &str,
        definition: &str,
        kind: GroupVersionKind,
    ) -> Operation {
        let mut operation = self.operation(method, verb, method, name, definition);
        operation.kind = Some(kind);
        operation.parameters = parameters::WRITE.to_vec();
        let media_types = if self.is_custom() { vec![JSON, YAML] } else { vec!["*/*"] };
        operation.body = Some(Body { definition: definition.to_owned(), is_required: true, media_types });
        operation.answers.insert(1, (201, Some(definition.to_owned())));
        if method == "post" {
            operation.answers.insert(2, (202, Some(definition.to_owned())));
        }
        operation
    }

    fn patch(&self, name: &str, definition: &str, kind: GroupVersionKind) -> Operation {
        let mut operation = self.operation("patch", "patch", "patch", name, definition);
        operation.kind = Some(kind);
        operation.parameters = parameters::patch();
        let mut media_types = vec![JSON_PATCH, MERGE_PATCH];
        if !self.is_custom() {
            media_types.push(STRATEGIC_PATCH);
        }
        media_types.push(APPLY_PATCH);
        operation.body = Some(Body { definition: PATCH.to_owned(), is_required: true, media_types });
        if !self.is_custom() {
            operation.answers.insert(1, (201, Some(definition.to_owned())));
        }
        operation
    }

    fn options(&self) -> Body {
        let media_types = if self.is_custom() { vec![JSON, YAML] } else { vec!["*/*"] };
        Body { definition: DELETE_OPTIONS.to_owned(), is_required: false, media_types }
    }

    fn produces(&self) -> Vec<&'static str> {
        if self.is_custom() { vec![JSON, YAML] } else { vec![JSON, YAML, PROTOBUF] }
    }
}

fn push(paths: &mut Vec<PathItem>, path: &str, parameters: Vec<Parameter>, operations: Vec<Operation>) {
    if !operations.is_empty() {
        paths.push(PathItem { path: path.to_owned(), parameters, operations });
    }
}

fn list_and_pretty() -> Vec<Parameter> {
    std::iter::once(parameters::PRETTY).chain(parameters::LIST.iter().copied()).collect()
}

/// The group's name without the domain that most built-in groups share.
fn short(group: &str) -> &str {
    group.strip_suffix(".k8s.io").unwrap_or(group)
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Case {
    Lower,
    Upper,
}

/// The letters and digits of a text, in camel case: the letter after any other character becomes a capital.
fn camel(text: &str, first: Case) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_raised = first == Case::Upper;
    for char in text.chars() {
        match char.is_ascii_alphanumeric() {
            true if is_raised => out.push(char.to_ascii_uppercase()),
            true => out.push(char),
            false => {}
        }
        is_raised = !char.is_ascii_alphanumeric();
    }
    out
}
