//! The metric labels of a request, as apiserver's `endpoints/metrics` chooses them.

use crate::metrics::Labels;
use crate::shared::request::query::Query;
use crate::shared::request::request_info::{RequestInfo, Target};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Method};
use steersman_kinds::catalog::{Catalog, ResourceScope};

/// Non-resource paths with a label of their own; all others are counted together.
const PATHS: [&str; 9] = ["/", "/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/readyz", "/version"];

/// The labels of a request. For a resource that is not served only the verb is set, since clients must not be able to
/// create labels.
pub(super) fn of<'a>(catalog: &Catalog, info: &'a RequestInfo, parts: &Parts, query: &Query) -> Labels<'a> {
    let Some(target) = &info.target else {
        let path = PATHS.iter().copied().find(|path| *path == info.path).unwrap_or("");
        return Labels { verb: verb(&parts.method, info), subresource: path, ..Labels::default() };
    };
    let verb = match verb(&parts.method, info) {
        "PATCH" if is_apply(&parts.headers) => "APPLY",
        verb => verb,
    };
    let Some(served) = catalog.find(&target.group, &target.version, &target.resource) else {
        return Labels { verb, ..Labels::default() };
    };
    let subresource = target.subresource.as_deref().unwrap_or("");
    let is_known = matches!(subresource, "" | "status" | "scale")
        || served.version().subresources.iter().any(|one| *one.name == *subresource);
    Labels {
        verb,
        group: &target.group,
        version: &target.version,
        resource: &target.resource,
        subresource: if is_known { subresource } else { "" },
        scope: scope(target, served.resource.scope),
        is_dry_run: query.first("dryRun").is_some(),
    }
}

/// Whether a patch is an apply.
fn is_apply(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/apply-patch"))
}

fn verb(method: &Method, info: &RequestInfo) -> &'static str {
    match info.verb {
        "create" => "POST",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        "get" => "GET",
        "list" => "LIST",
        "patch" => "PATCH",
        "update" => "PUT",
        "watch" => "WATCH",
        _ => match *method {
            Method::DELETE => "DELETE",
            Method::GET => "GET",
            Method::HEAD => "HEAD",
            Method::OPTIONS => "OPTIONS",
            Method::PATCH => "PATCH",
            Method::POST => "POST",
            Method::PUT => "PUT",
            _ => "OTHER",
        },
    }
}

fn scope(target: &Target, scope: ResourceScope) -> &'static str {
    match (target.has_name_in_path, &target.namespace, scope) {
        (true, _, _) => "resource",
        (false, Some(_), ResourceScope::Namespaced) => "namespace",
        (false, _, _) => "cluster",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &Method, path: &str, want: &str) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query = Query::parse(query);
        let parts = http::Request::builder().method(method).body(()).unwrap().into_parts().0;
        let info = RequestInfo::new(method, path, &query);
        let catalog = Catalog::new(steersman_kinds::builtin::resources(&Default::default()));
        let Labels { verb, group, version, resource, subresource, scope, is_dry_run } =
            of(&catalog, &info, &parts, &query);
        assert_eq!(format!("{verb} {group}/{version}/{resource}/{subresource} {scope} {is_dry_run}"), want);
    }

    #[test]
    fn labels_are_those_of_what_is_served() {
        check(&Method::GET, "/api/v1/namespaces/a/pods", "LIST /v1/pods/ namespace false");
        check(&Method::GET, "/api/v1/pods?watch=1", "WATCH /v1/pods/ cluster false");
        check(
            &Method::PUT,
            "/apis/apps/v1/namespaces/a/deployments/b/status",
            "PUT apps/v1/deployments/status resource false",
        );
        check(&Method::POST, "/api/v1/namespaces/a/pods?dryRun=All", "POST /v1/pods/ namespace true");
        check(&Method::GET, "/api/v1/namespaces/a/pods/b/made-up", "GET /v1/pods/ resource false");
        check(&Method::GET, "/apis/made.up/v1/things", "LIST ///  false");
        check(&Method::GET, "/readyz", "GET ////readyz  false");
        check(&Method::GET, "/made/up", "GET ///  false");
    }
}
