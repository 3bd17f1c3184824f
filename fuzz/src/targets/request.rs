//! Requests: the path with its query in the first line, then headers `Accept` and `Accept-Encoding`, then the body of a
//! deletion.

use crate::input;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::{HeaderMap, HeaderValue, Method};
use steersman_server::negotiate::{self, Shape};
use steersman_server::query::{Query, percent_decode};
use steersman_server::request_info::RequestInfo;
use steersman_server::{authz::Attributes, fuzzing};

const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.splitn(4, '\n');
    let target = lines.next().unwrap_or_default();
    let (path, raw) = target.split_once('?').unwrap_or((target, ""));
    let query = Query::parse(raw);
    let decoded = percent_decode(path);
    assert!(decoded.contains('%') || percent_decode(&decoded) == decoded, "{path:?}");
    for method in METHODS {
        let info = RequestInfo::new(&method, path, &query);
        if let Attributes::Resource(resource) = info.attributes() {
            assert_eq!(resource.verb.is_empty(), method == Method::OPTIONS, "{method} {path:?}");
            assert!(!resource.version.contains('/'), "{path:?}");
        }
    }
    for options in [fuzzing::list_options, fuzzing::watch_options] {
        if let Some(Some(token)) = options(&query) {
            let again = Query::parse(&format!("continue={token}"));
            let read = options(&again).expect("a token that was written can be read");
            assert_eq!(read.as_deref(), Some(&*token), "{raw:?}");
        }
    }
    let mut headers = HeaderMap::new();
    for name in [ACCEPT, ACCEPT_ENCODING] {
        if let Some(value) = lines.next().and_then(|line| HeaderValue::from_str(line).ok()) {
            headers.insert(name, value);
        }
    }
    for shape in [Shape::List, Shape::One, Shape::Plain, Shape::Stream] {
        let all = negotiate::negotiate(&headers, shape);
        let without = negotiate::negotiate_for(&headers, shape, || false);
        assert!(all.is_ok() || without.is_err(), "who serves more serves all that others do");
        if let Ok(negotiated) = all {
            assert!(!negotiated.encoding.content_type().is_empty());
        }
    }
    let _ = (negotiate::error_encoding(&headers), fuzzing::takes_gzip(&headers));
    let body = lines.next().and_then(|body| input::tree(body.as_bytes()));
    let _ = fuzzing::write_options(&query, body);
}
