//! The attributes of a request, read from its method, path and query alone, for authorization, routing and audit.
//! Follows apiserver's `endpoints/request/requestinfo.go`.

use crate::shared::operation::{Attributes, ResourceAttributes};
use crate::shared::request::query::Query;
use http::Method;
use steersman_machinery::selector::{Fields, Labels};

/// The attributes of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RequestInfo {
    /// The path with escapes resolved.
    pub path: String,
    /// The verb: for resources one of authorization's verbs, else the method in lower case.
    pub verb: &'static str,
    /// The resource, if the path is below `/api/VERSION` or `/apis/GROUP/VERSION`.
    pub target: Option<Target>,
}

/// The resource that a path names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Target {
    /// The group, empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The namespace; for a Namespace itself its own name.
    pub namespace: Option<String>,
    /// The plural.
    pub resource: String,
    /// The object, also for a list or watch whose field selector names it.
    pub name: Option<String>,
    /// Whether the path itself names an object.
    pub has_name_in_path: bool,
    /// Whether the path itself names a namespace.
    pub has_namespace_in_path: bool,
    /// The subresource.
    pub subresource: Option<String>,
    /// Whether the path is one of the old `/watch/` paths, which only accept reads.
    pub is_old_watch: bool,
    /// Whether the path continues after all parts that an API defines.
    pub has_rest: bool,
    /// The field selector, if there is a valid one.
    pub field_selector: Option<Fields>,
    /// The label selector, if there is a valid one.
    pub label_selector: Option<Labels>,
}

/// Subresources whose answers may last for as long as their clients want.
const STREAMS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Path segments after a namespace's name that are its subresources and not resources in it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["finalize", "status"];

impl RequestInfo {
    /// Reads the attributes of a request. `raw_path` is the path as it was sent.
    pub fn new(method: &Method, raw_path: &str, query: &Query) -> RequestInfo {
        let path = crate::shared::request::query::percent_decode(raw_path);
        let target = target(&path);
        let Some(mut target) = target else {
            return RequestInfo { path, verb: method_word(method), target: None };
        };
        let verb = match *method {
            Method::GET | Method::HEAD if target.is_old_watch || query.is_true("watch") && !target.has_name_in_path => {
                "watch"
            }
            Method::GET | Method::HEAD if target.has_name_in_path => "get",
            Method::GET | Method::HEAD => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if target.has_name_in_path => "delete",
            Method::DELETE => "deletecollection",
            // As upstream: only who may everything may this.
            _ => "",
        };
        if matches!(verb, "list" | "watch" | "deletecollection") {
            target.select(query);
        }
        RequestInfo { path, verb, target: Some(target) }
    }

    /// Whether the answer may last for as long as its client wants.
    pub(crate) fn is_long_running(&self) -> bool {
        let subresource = self.target.as_ref().and_then(|target| target.subresource.as_deref());
        self.verb == "watch" || subresource.is_some_and(|subresource| STREAMS.contains(&subresource))
    }

    /// The attributes on which authorization decides.
    pub fn attributes(&self) -> Attributes<'_> {
        match &self.target {
            None => Attributes::NonResource { verb: self.verb, path: &self.path },
            Some(target) => Attributes::Resource(target.attributes(self.verb)),
        }
    }
}

impl Target {
    /// Reads the selectors. A request for a single name is authorized like one for that object.
    fn select(&mut self, query: &Query) {
        self.field_selector = query.non_empty("fieldSelector").and_then(|text| Fields::parse(text).ok());
        self.label_selector = query.non_empty("labelSelector").and_then(|text| Labels::parse(text).ok());
        if self.name.is_none() {
            let name = self.field_selector.as_ref().and_then(|fields| fields.exact("metadata.name"));
            self.name = name.filter(|name| !name.is_empty()).map(str::to_owned);
        }
    }

    /// The attributes of a verb on the target.
    pub(crate) fn attributes<'a>(&'a self, verb: &'a str) -> ResourceAttributes<'a> {
        ResourceAttributes {
            verb,
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            subresource: self.subresource.as_deref(),
            namespace: self.namespace.as_deref(),
            name: self.name.as_deref(),
            field_selector: self.field_selector.as_ref(),
            label_selector: self.label_selector.as_ref(),
        }
    }
}

/// The target of a path.
fn target(path: &str) -> Option<Target> {
    let trimmed = path.strip_suffix('/').unwrap_or(path);
    let mut parts = trimmed.strip_prefix('/')?.split('/').peekable();
    let (group, version) = match parts.next()? {
        "api" => ("", parts.next()?),
        "apis" => (parts.next().filter(|group| !group.is_empty())?, parts.next()?),
        _ => return None,
    };
    let is_old_watch = parts.next_if_eq(&"watch").is_some();
    let mut target = Target { group: group.to_owned(), version: version.to_owned(), is_old_watch, ..Target::default() };
    let rest: Vec<&str> = parts.collect();
    let rest = match rest.as_slice() {
        ["namespaces", namespace, resource, more @ ..] if !NAMESPACE_SUBRESOURCES.contains(resource) => {
            target.namespace = Some((*namespace).to_owned());
            target.has_namespace_in_path = true;
            target.resource = (*resource).to_owned();
            more
        }
        [resource, more @ ..] => {
            target.resource = (*resource).to_owned();
            if let ("namespaces", Some(name)) = (*resource, more.first()) {
                target.namespace = Some((*name).to_owned());
            }
            more
        }
        [] => return None,
    };
    if target.resource.is_empty() {
        return None;
    }
    target.name = rest.first().map(|name| (*name).to_owned());
    target.has_name_in_path = target.name.is_some();
    target.subresource = rest.get(1).map(|name| (*name).to_owned());
    target.has_rest = rest.len() > 2;
    Some(target)
}

fn method_word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, uri: &str, want: &str) {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let info = RequestInfo::new(&method, path, &Query::parse(query));
        let got = match info.target {
            None => format!("{} {}", info.verb, info.path),
            Some(target) => {
                let text = |option: Option<String>| option.unwrap_or_else(|| "-".to_owned());
                let api = format!("{}/{}", target.group, target.version);
                format!(
                    "{} {api} {} {} {} {}",
                    info.verb,
                    text(target.namespace),
                    target.resource,
                    text(target.name),
                    text(target.subresource)
                )
            }
        };
        assert_eq!(got, want);
    }

    #[test]
    fn paths_name_resources() {
        check(Method::GET, "/api/v1/pods", "list /v1 - pods - -");
        check(Method::GET, "/api/v1/namespaces/a/pods/", "list /v1 a pods - -");
        check(Method::GET, "/api/v1/namespaces/a/pods/p", "get /v1 a pods p -");
        check(Method::PUT, "/apis/apps/v1/namespaces/a/deployments/d/status", "update apps/v1 a deployments d status");
        check(Method::POST, "/api/v1/namespaces", "create /v1 - namespaces - -");
        check(Method::GET, "/api/v1/namespaces/a", "get /v1 a namespaces a -");
        check(Method::OPTIONS, "/api/v1/namespaces/a/pods/p/proxy/b", " /v1 a pods p proxy");
        check(Method::PUT, "/api/v1/namespaces/a/finalize", "update /v1 a namespaces a finalize");
        check(Method::DELETE, "/api/v1/namespaces/a/configmaps", "deletecollection /v1 a configmaps - -");
        check(Method::GET, "/api/v1/%6eamespaces/a", "get /v1 a namespaces a -");
    }

    #[test]
    fn a_query_can_make_a_watch_and_name_one_object() {
        check(Method::GET, "/api/v1/pods?watch=1", "watch /v1 - pods - -");
        check(Method::GET, "/api/v1/pods?watch=false", "list /v1 - pods - -");
        check(Method::GET, "/api/v1/pods?fieldSelector=metadata.name%3Dp", "list /v1 - pods p -");
        check(Method::GET, "/api/v1/watch/namespaces/a/pods/p", "watch /v1 a pods p -");
    }

    #[test]
    fn other_paths_name_nothing() {
        for path in
            ["/", "/version", "/api", "/api/v1", "/apis/apps/v1", "/apis/apps/v1/", "/apis//v1/pods", "/metrics"]
        {
            check(Method::GET, path, &format!("get {path}"));
        }
    }
}
