//! Answers with documents: cacheable for ever under the current hash, redirected under any other.

use crate::http::answer::Answer;
use crate::http::documents::openapi::{Document, Form, OpenApi};
use crate::shared::request::negotiate;
use crate::shared::request::query::Query;
use http::HeaderMap;
use http::header::{CACHE_CONTROL, ETAG, EXPIRES, IF_NONE_MATCH, LOCATION, VARY};
use std::time::{Duration, SystemTime};

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The media type of version 2 in protobuf, and its spelling in older clients.
const PROTOBUF_V2: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];

/// Whether the answer to a path was made before; also for a path that has no document of OpenAPI.
pub(crate) fn is_made(documents: &OpenApi, path: &str, headers: &HeaderMap) -> bool {
    let Some(path) = path.strip_prefix("/openapi/") else { return true };
    documents.has_made(path, form(headers))
}

fn form(headers: &HeaderMap) -> Form {
    match negotiate::entries(headers).first().is_some_and(|entry| PROTOBUF_V2.contains(&entry.media_type)) {
        true => Form::Protobuf,
        false => Form::Json,
    }
}

/// The answer to `GET /openapi/v2`, in JSON or in protobuf.
pub(crate) fn answer_v2(documents: &OpenApi, headers: &HeaderMap) -> Answer {
    match form(headers) {
        Form::Json => answer(&documents.v2(), headers),
        Form::Protobuf => {
            let mut answer = Answer::document(PROTOBUF_V2[0], &documents.v2_protobuf());
            answer.set(VARY.as_str(), "Accept");
            answer
        }
    }
}

/// The answer to `GET /openapi/v3/PATH`. The query may have the hash from the index.
pub(crate) fn answer_v3(path: &str, document: &Document, query: &Query, headers: &HeaderMap) -> Answer {
    match query.non_empty("hash") {
        Some(hash) if *hash != *document.hash => {
            let mut answer = Answer::empty(301);
            answer.set(LOCATION.as_str(), &format!("/openapi/v3/{path}?hash={}", document.hash));
            answer
        }
        Some(_) => {
            let mut answer = answer(document, headers);
            answer.set(CACHE_CONTROL.as_str(), "public, immutable");
            answer.set(EXPIRES.as_str(), &in_a_year());
            answer
        }
        None => answer(document, headers),
    }
}

fn answer(document: &Document, headers: &HeaderMap) -> Answer {
    // Only JSON is served. Other media types get an answer without a body, as upstream does here.
    let accepted = negotiate::entries(headers);
    let is_json = |media_type: &str| matches!(media_type, "*/*" | "application/*" | "application/json");
    if !accepted.is_empty() && !accepted.iter().any(|entry| is_json(entry.media_type)) {
        return Answer::empty(406);
    }
    let etag = document.etag();
    let is_known = headers.get_all(IF_NONE_MATCH).iter().any(|value| value.as_bytes() == etag.as_bytes());
    let mut answer = match is_known {
        true => Answer::empty(304),
        false => Answer::document("application/json", &document.bytes),
    };
    answer.set(ETAG.as_str(), &etag);
    answer.set(VARY.as_str(), "Accept");
    answer
}

/// The time a year from now, in the format of HTTP.
fn in_a_year() -> String {
    let then = SystemTime::now() + YEAR;
    let then = jiff::Timestamp::try_from(then).unwrap_or_default();
    then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;
    use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
    use steersman_kinds::catalog::Catalog;

    fn document() -> Document {
        Document { bytes: "{}".into(), hash: "AB".into() }
    }

    fn headers(name: http::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[track_caller]
    fn check(answer: &Answer, code: StatusCode, header: http::HeaderName, want: Option<&str>) {
        let response = &answer.response;
        assert_eq!(response.status(), code);
        assert_eq!(response.headers().get(header).map(|value| value.to_str().unwrap()), want);
    }

    #[test]
    fn a_hash_decides_how_long_a_document_may_be_kept() {
        let answer = |query| answer_v3("apis/apps/v1", &document(), &Query::parse(query), &HeaderMap::new());
        check(&answer(""), StatusCode::OK, CONTENT_TYPE, Some("application/json"));
        check(&answer(""), StatusCode::OK, EXPIRES, None);
        check(&answer("hash=AB"), StatusCode::OK, CACHE_CONTROL, Some("public, immutable"));
        let expires = answer("hash=AB").response.headers()[EXPIRES].to_str().unwrap().to_owned();
        assert!(expires.ends_with(" GMT") && expires.len() == "Sun, 06 Nov 1994 08:49:37 GMT".len(), "{expires}");
        check(&answer("hash=0"), StatusCode::MOVED_PERMANENTLY, LOCATION, Some("/openapi/v3/apis/apps/v1?hash=AB"));
    }

    #[test]
    fn a_known_hash_gets_304_and_an_unknown_media_type_406() {
        let known = answer(&document(), &headers(IF_NONE_MATCH, "\"AB\""));
        check(&known, StatusCode::NOT_MODIFIED, ETAG, Some("\"AB\""));
        check(&answer(&document(), &headers(IF_NONE_MATCH, "\"CD\"")), StatusCode::OK, VARY, Some("Accept"));
        check(&answer(&document(), &headers(ACCEPT, "text/html")), StatusCode::NOT_ACCEPTABLE, CONTENT_TYPE, None);
    }

    #[test]
    fn version_2_is_served_in_protobuf_too() {
        let documents = OpenApi::new(&Catalog::new([]));
        for spelling in PROTOBUF_V2 {
            let wanted = headers(ACCEPT, spelling);
            let answer = answer_v2(&documents, &wanted);
            check(&answer, StatusCode::OK, CONTENT_TYPE, Some(PROTOBUF_V2[0]));
            assert!(answer.is_shared && is_made(&documents, "/openapi/v2", &wanted));
            assert!(!is_made(&documents, "/openapi/v2", &HeaderMap::new()));
        }
    }
}
