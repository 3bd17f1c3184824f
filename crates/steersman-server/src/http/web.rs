//! The headers of every answer that are meant for browsers: whether a page of another origin may read it (CORS), and
//! that the server may be reached by TLS only (HSTS). Without either, answers have no such headers.
//!
//! The chain uses [`Web`]. Before a request that changes something, or one with a token, a browser sends a preflight
//! request; it has no credentials, so it is answered before authentication.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ORIGIN, STRICT_TRANSPORT_SECURITY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use regex::Regex;

const METHODS: HeaderValue = HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE, PATCH");
const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
);

/// The headers for browsers; none by default.
#[derive(Clone, Debug, Default)]
pub struct Web {
    origins: Vec<Regex>,
    strict_transport_security: Option<HeaderValue>,
}

/// The error of an invalid [`Web`].
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The directive is not one of RFC 6797.
    #[error(
        "{directive:?} is no directive of Strict-Transport-Security: want max-age=SECONDS, includeSubDomains or preload"
    )]
    Directive {
        /// The given directive.
        directive: String,
    },
    /// The pattern does not parse.
    #[error("{pattern:?} is no regular expression")]
    Pattern {
        /// The given pattern.
        pattern: String,
        /// The cause.
        #[source]
        source: regex::Error,
    },
    /// The pattern has no bounds: one for `example.com` would also match `example.com.evil.org`.
    #[error("{pattern:?} does not say where the host begins (with ^ or //) and where it ends (with $ or :)")]
    Unbounded {
        /// The given pattern.
        pattern: String,
    },
}

impl Web {
    /// Allows pages of the origins that match a regular expression, and sends these directives of
    /// `Strict-Transport-Security`.
    ///
    /// # Errors
    /// When a pattern is invalid or has no bounds, or a directive is unknown.
    pub fn new(origins: &[String], directives: &[String]) -> Result<Web, WebError> {
        let compiled = origins.iter().map(|pattern| {
            let has_bounds = (pattern.contains('^') || pattern.contains("//")) && pattern.contains(['$', ':']);
            match Regex::new(pattern) {
                Err(source) => Err(WebError::Pattern { pattern: pattern.clone(), source }),
                Ok(_) if !has_bounds => Err(WebError::Unbounded { pattern: pattern.clone() }),
                Ok(regex) => Ok(regex),
            }
        });
        let origins = compiled.collect::<Result<_, _>>()?;
        if let Some(directive) = directives.iter().find(|directive| !is_directive(directive)) {
            return Err(WebError::Directive { directive: directive.clone() });
        }
        // The checked directives are valid in a header.
        let strict_transport_security =
            HeaderValue::from_str(&directives.join("; ")).ok().filter(|_| !directives.is_empty());
        Ok(Web { origins, strict_transport_security })
    }

    /// Whether a request is a preflight of an allowed origin.
    pub(crate) fn is_preflight(&self, parts: &Parts) -> bool {
        parts.method == Method::OPTIONS && self.origin(&parts.headers).is_some()
    }

    /// Adds the headers to an answer.
    pub(crate) fn finish(&self, request: &HeaderMap, answer: &mut HeaderMap) {
        if let Some(directives) = &self.strict_transport_security {
            answer.insert(STRICT_TRANSPORT_SECURITY, directives.clone());
        }
        if let Some(origin) = self.origin(request) {
            answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            answer.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Date"));
            answer.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }

    /// The origin of a request, if it is allowed.
    fn origin<'a>(&self, request: &'a HeaderMap) -> Option<&'a HeaderValue> {
        if self.origins.is_empty() {
            return None;
        }
        let origin = request.get(ORIGIN)?;
        let text = origin.to_str().ok()?;
        self.origins.iter().any(|pattern| pattern.is_match(text)).then_some(origin)
    }
}

fn is_directive(directive: &str) -> bool {
    match directive.strip_prefix("max-age=") {
        Some(seconds) => !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit()),
        None => matches!(directive, "includeSubDomains" | "preload"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[track_caller]
    fn check(pattern: &str, origin: &'static str, is_let_in: bool) {
        let web = Web::new(&texts(&[pattern]), &[]).unwrap();
        let mut answer = HeaderMap::new();
        let request = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static(origin))]);
        web.finish(&request, &mut answer);
        assert_eq!(answer.get(ACCESS_CONTROL_ALLOW_ORIGIN).is_some(), is_let_in, "{pattern} {origin}");
    }

    #[test]
    fn an_origin_is_let_in_by_a_pattern() {
        check(r"//example\.com(:|$)", "https://example.com", true);
        check(r"//example\.com(:|$)", "https://example.com:8443", true);
        check(r"//example\.com(:|$)", "https://example.com.evil.org", false);
        check(r"^https://.*\.example\.com$", "https://a.example.com", true);
        check(r"^https://.*\.example\.com$", "http://a.example.com", false);
    }

    #[test]
    fn a_pattern_without_bounds_and_an_unknown_directive_are_refused() {
        for pattern in ["example.com", "//example.com", "example.com$"] {
            assert!(matches!(Web::new(&texts(&[pattern]), &[]), Err(WebError::Unbounded { .. })), "{pattern}");
        }
        assert!(matches!(Web::new(&texts(&["^($"]), &[]), Err(WebError::Pattern { .. })));
        for directive in ["max-age=", "max-age=1h", "includesubdomains", "preload\r\nX: y"] {
            assert!(matches!(Web::new(&[], &texts(&[directive])), Err(WebError::Directive { .. })), "{directive}");
        }
    }

    #[test]
    fn without_options_answers_have_no_headers_for_browsers() {
        let mut answer = HeaderMap::new();
        let request = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static("https://example.com"))]);
        Web::default().finish(&request, &mut answer);
        assert!(answer.is_empty());
    }
}
