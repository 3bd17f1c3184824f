//! The module of one version of a group: clients, informers and listers of its kinds.

use crate::clients::names::{GroupVersion, Kind};
use crate::clients::text::Text;
use crate::clients::{Options, has_status, head, types};
use crate::crd::Scope;

pub(super) fn module(group_version: &GroupVersion, kinds: &[Kind<'_>], options: &Options) -> String {
    let mut text = Text::default();
    let api_version = group_version.api_version();
    head(&mut text, &format!("Clients, informers and listers of {api_version}."), options);
    text.line("pub mod apply;");
    text.blank();
    text.line("use steersman::{InformerFactory, Lister, typed};");
    text.blank();
    let path = types(group_version, options);
    let mut names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
    names.sort_unstable();
    text.imports(&path, &names);
    text.blank();
    clients(&mut text, &api_version, kinds);
    text.blank();
    informers(&mut text, &api_version, kinds);
    for kind in kinds {
        text.blank();
        lister(&mut text, kind);
    }
    text.finish()
}

fn clients(text: &mut Text, api_version: &str, kinds: &[Kind<'_>]) {
    text.doc(&format!("Clients of {api_version}."));
    text.line("#[derive(Clone)]");
    text.open("pub struct Clients {");
    text.line("client: kube::Client,");
    text.close("}");
    text.blank();
    text.open("impl Clients {");
    text.doc("All requests go through `client`.");
    text.open("pub fn new(client: kube::Client) -> Self {");
    text.line("Self { client }");
    text.close("}");
    for kind in kinds {
        text.blank();
        let result = format!(" -> typed::Client<{}{}> {{", kind.name, subresources(kind));
        match kind.scope {
            Scope::Cluster => {
                text.doc(&format!("Objects of the kind {}.", kind.name));
                text.signature(&format!("pub fn {}", kind.method), &["&self".to_owned()], &result);
                text.line("typed::Client::new(self.client.clone(), \"\")");
            }
            Scope::Namespaced => {
                let what = "in `namespace`; if that is empty, in all namespaces, to list, watch and create them.";
                text.doc(&format!("Objects of the kind {} {what}", kind.name));
                let arguments = ["&self".to_owned(), "namespace: &str".to_owned()];
                text.signature(&format!("pub fn {}", kind.method), &arguments, &result);
                text.line("typed::Client::new(self.client.clone(), namespace)");
            }
        }
        text.close("}");
    }
    text.close("}");
}

fn informers(text: &mut Text, api_version: &str, kinds: &[Kind<'_>]) {
    text.doc(&format!("Informers of {api_version}."));
    text.line("#[derive(Clone)]");
    text.open("pub struct Informers {");
    text.line("factory: InformerFactory,");
    text.close("}");
    text.blank();
    text.open("impl Informers {");
    text.doc("All informers are made by `factory`.");
    text.open("pub fn new(factory: InformerFactory) -> Self {");
    text.line("Self { factory }");
    text.close("}");
    for kind in kinds {
        text.blank();
        text.doc(&format!("The informer and the lister of the kind {}.", kind.name));
        let result = format!(" -> typed::TypedInformer<{}> {{", kind.name);
        text.signature(&format!("pub fn {}", kind.method), &["&self".to_owned()], &result);
        text.line("typed::TypedInformer::new(&self.factory)");
        text.close("}");
    }
    text.close("}");
}

/// Writes the lister of a kind. Cluster-scoped objects are read with `Lister::get` directly.
fn lister(text: &mut Text, kind: &Kind<'_>) {
    if kind.scope == Scope::Cluster {
        text.doc(&format!("Reads objects of the kind {} from a cache.", kind.name));
        text.line(&format!("pub type {0}Lister = Lister<{0}>;", kind.name));
        return;
    }
    text.doc(&format!("Reads objects of the kind {} from a cache, by namespace.", kind.name));
    text.open(&format!("pub trait {}Lister {{", kind.name));
    text.doc("The lister of the objects in `namespace`.");
    let head = format!("fn {}", kind.method);
    let result = format!(" -> typed::NamespaceLister<{}>", kind.name);
    text.line(&format!("{head}(&self, namespace: &str){result};"));
    text.close("}");
    text.blank();
    text.open(&format!("impl {0}Lister for Lister<{0}> {{", kind.name));
    text.signature(&head, &["&self".to_owned(), "namespace: &str".to_owned()], &format!("{result} {{"));
    text.line("typed::NamespaceLister::new(self, namespace)");
    text.close("}");
    text.close("}");
}

/// The second argument of `typed::Client`.
fn subresources(kind: &Kind<'_>) -> &'static str {
    match (has_status(kind.version), kind.version.scale.is_some()) {
        (false, false) => "",
        (false, true) => ", typed::Scale",
        (true, false) => ", typed::Status",
        (true, true) => ", typed::StatusAndScale",
    }
}
