//! New paths, and new addresses for clients.

use steersman_xds::resources::core::{RegexMatchAndSubstitute, RegexMatcher};
use steersman_xds::resources::route::{
    PathRewriteSpecifier, RedirectAction, RedirectResponseCode, SchemeRewriteSpecifier,
};

use crate::pilot::world::{PathChange, PathMatch, Redirect, leading};

/// A new path in the words of Envoy.
pub(super) enum NewPath {
    /// In place of the prefix that matched.
    Prefix(String),
    /// In place of whatever an expression finds.
    Regex(RegexMatchAndSubstitute),
}

/// The new path for requests whose path matched so.
pub(super) fn new_path(change: &PathChange, matched: &PathMatch) -> NewPath {
    match (change, matched) {
        (PathChange::Full(path), _) => NewPath::Regex(regex(".*", path)),
        (PathChange::Prefix(new), PathMatch::Prefix(prefix)) => match new.trim_end_matches('/') {
            // Without this, `/` in place of `/a` would make `//b` of `/a/b`, and nothing of `/a`.
            "" => NewPath::Regex(regex(&leading(prefix), "/")),
            new => NewPath::Prefix(new.to_owned()),
        },
        // All paths match, so that the prefix is the first slash.
        (PathChange::Prefix(new), _) => NewPath::Prefix(format!("{}/", new.trim_end_matches('/'))),
    }
}

fn regex(pattern: &str, substitution: &str) -> RegexMatchAndSubstitute {
    // `\1` would be a group.
    let substitution = substitution.replace('\\', "\\\\");
    RegexMatchAndSubstitute { pattern: Some(RegexMatcher { regex: pattern.to_owned() }), substitution }
}

/// The redirect of requests to a port whose path matched so.
pub(super) fn redirect(redirect: &Redirect, matched: &PathMatch, own_port: u16) -> RedirectAction {
    let path = redirect.path.as_ref().map(|change| match (change, new_path(change, matched)) {
        (PathChange::Full(path), _) => PathRewriteSpecifier::Path(path.clone()),
        (_, NewPath::Prefix(prefix)) => PathRewriteSpecifier::Prefix(prefix),
        (_, NewPath::Regex(regex)) => PathRewriteSpecifier::Regex(regex),
    });
    let code = match redirect.status {
        301 => RedirectResponseCode::MovedPermanently,
        303 => RedirectResponseCode::SeeOther,
        307 => RedirectResponseCode::TemporaryRedirect,
        308 => RedirectResponseCode::PermanentRedirect,
        _ => RedirectResponseCode::Found,
    };
    RedirectAction {
        host_redirect: redirect.hostname.clone().unwrap_or_default(),
        path,
        response_code: code.into(),
        scheme: redirect.scheme.clone().map(SchemeRewriteSpecifier::Scheme),
        strip_query: false,
        port_redirect: port(redirect, own_port).map_or(0, u32::from),
    }
}

/// The port of the new address, unless it goes without saying. It is the one that the redirect names, or that of its scheme, or
/// that of the Service.
fn port(redirect: &Redirect, own_port: u16) -> Option<u16> {
    let usual = |scheme: &str| if scheme == "https" { 443 } else { 80 };
    let scheme = redirect.scheme.as_deref();
    let port = redirect.port.or(scheme.map(usual)).unwrap_or(own_port);
    let is_usual = port == usual(scheme.unwrap_or("http"));
    // The client's host may contain a port, which stays unless another takes its place.
    let host_has_port = redirect.hostname.is_none() && !matches!(own_port, 80 | 443);
    (!is_usual || host_has_port).then_some(port)
}
