//! The two requests of a reflector.

use std::fmt::Write;
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING};
use kube::client::Body;

use crate::list_watch::reflector::InitialList;
use crate::shared::selection::{Form, Target};

/// LIST. An empty `version` asks for the newest state, and only then pages work: with a version the server answers from
/// its cache, which ignores them.
pub(crate) fn list(
    target: &Target,
    version: &str,
    page_limit: u32,
    page: &str,
) -> Result<http::Request<Body>, http::Error> {
    let mut query = Query::of(target);
    if version.is_empty() && page_limit > 0 {
        query.add("limit", &page_limit.to_string());
    }
    if page.is_empty() {
        query.add("resourceVersion", version);
    } else {
        query.add("continue", page);
    }
    let accept = match target.form {
        Form::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        Form::Whole => "application/json",
    };
    http::Request::get(query.uri(target)).header(ACCEPT, accept).body(Body::empty())
}

/// WATCH from `version` on, with bookmarks; streaming, beginning with the state at `version` or newer.
pub(crate) fn watch(
    target: &Target,
    version: &str,
    lifetime: Duration,
    initial: InitialList,
) -> Result<http::Request<Body>, http::Error> {
    let mut query = Query::of(target);
    query.add("watch", "true");
    query.add("allowWatchBookmarks", "true");
    query.add("timeoutSeconds", &lifetime.as_secs().max(1).to_string());
    query.add("resourceVersion", version);
    if initial == InitialList::Streaming {
        query.add("sendInitialEvents", "true");
        query.add("resourceVersionMatch", "NotOlderThan");
    }
    let accept = match target.form {
        Form::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        Form::Whole => "application/json",
    };
    http::Request::get(query.uri(target))
        .header(ACCEPT, accept)
        // A compressed watch may be one gzip member per event, which some decoders in proxies do not support.
        .header(ACCEPT_ENCODING, "identity")
        .body(Body::empty())
}

/// A query string under construction. Empty values are left out.
struct Query {
    text: String,
}

impl Query {
    fn of(target: &Target) -> Self {
        let mut query = Self { text: String::new() };
        query.add("labelSelector", &target.selection.labels);
        query.add("fieldSelector", &target.selection.fields);
        query.add("shardSelector", &target.selection.shard);
        query.add("includeUninitialized", if target.selection.includes_uninitialized { "true" } else { "" });
        query
    }

    fn add(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        self.text.push(if self.text.is_empty() { '?' } else { '&' });
        self.text.push_str(name);
        self.text.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                self.text.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(self.text, "%{byte:02X}");
            }
        }
    }

    fn uri(&self, target: &Target) -> String {
        format!("{}{}", target.path, self.text)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::shared::selection::{Scope, Selection};

    #[track_caller]
    fn check(request: Result<http::Request<Body>, http::Error>, expected: Expect) {
        expected.assert_eq(&request.unwrap().uri().to_string());
    }

    #[test]
    fn requests_ask_for_what_the_reflector_means() {
        let all = Target::of::<ConfigMap>(&(), Scope::All.into());
        let some = Selection::new(Scope::Namespace("a".into())).labels("app in (x,y)").fields("metadata.name=é");
        let some = Target::of::<ConfigMap>(&(), some);
        check(list(&all, "0", 500, ""), expect!["/api/v1/configmaps?resourceVersion=0"]);
        check(list(&all, "", 500, ""), expect!["/api/v1/configmaps?limit=500"]);
        let uninitialized = Target::of::<ConfigMap>(&(), Selection::from(Scope::All).include_uninitialized());
        check(list(&uninitialized, "", 0, ""), expect!["/api/v1/configmaps?includeUninitialized=true"]);
        check(list(&all, "", 500, "a+b="), expect!["/api/v1/configmaps?limit=500&continue=a%2Bb%3D"]);
        check(
            list(&some, "7", 0, ""),
            expect![
                "/api/v1/namespaces/a/configmaps?labelSelector=app%20in%20%28x%2Cy%29&fieldSelector=metadata.name%3D%C3%A9&resourceVersion=7"
            ],
        );
        check(
            watch(&all, "7", Duration::from_secs(300), InitialList::Paged),
            expect!["/api/v1/configmaps?watch=true&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=7"],
        );
        check(
            watch(&all, "", Duration::from_secs(300), InitialList::Streaming),
            expect![
                "/api/v1/configmaps?watch=true&allowWatchBookmarks=true&timeoutSeconds=300&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
            ],
        );
    }
}
