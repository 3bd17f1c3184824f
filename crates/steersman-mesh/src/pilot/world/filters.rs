//! Filters of rules and backends. GRPCRoutes have a part of those of HTTPRoutes.

use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::http_route::{
    Add, ExternalAuthBackendRef, Filter, RequestMirror, RequestRedirect, RequestRedirectPath, RequestRedirectPathType,
    Scheme, Set, Type, UrlRewrite,
};
use crate::pilot::world::draft::{DraftFilters, DraftMirror, Reference};
use crate::pilot::world::route::{HeaderChanges, PathChange, Redirect, Rewrite};
use crate::pilot::world::values::header_value;
use crate::pilot::world::verdict::{INCOMPATIBLE_FILTERS, Problem};

const MILLION: u64 = 1_000_000;

/// Reads the filters of a rule or a backend.
///
/// # Errors
/// One of them is not supported, occurs twice, or does not go with another.
pub(crate) fn filters(list: &[Filter]) -> Result<DraftFilters, Problem> {
    let mut filters = DraftFilters::default();
    let mut seen = Vec::new();
    for filter in list {
        if filter.type_ != Type::RequestMirror {
            if seen.contains(&&filter.type_) {
                return Err(incompatible(format!("the filter {} occurs twice", type_name(&filter.type_))));
            }
            seen.push(&filter.type_);
        }
        match &filter.type_ {
            Type::RequestHeaderModifier => {
                let changes = required(filter.request_header_modifier.as_ref(), "requestHeaderModifier")?;
                filters.request = headers(&changes.set, &changes.add, &changes.remove)?;
                if filters.request.has_host() {
                    let message = "requestHeaderModifier cannot change the header Host: use urlRewrite.hostname";
                    return Err(Problem::unsupported(message));
                }
            }
            Type::ResponseHeaderModifier => {
                let changes = required(filter.response_header_modifier.as_ref(), "responseHeaderModifier")?;
                filters.response = headers(&changes.set, &changes.add, &changes.remove)?;
                if filters.response.has_host() {
                    return Err(Problem::unsupported("responseHeaderModifier cannot change the header Host"));
                }
            }
            Type::RequestMirror => {
                filters.mirrors.push(mirror(required(filter.request_mirror.as_ref(), "requestMirror")?)?);
            }
            Type::RequestRedirect => {
                filters.redirect = Some(redirect(required(filter.request_redirect.as_ref(), "requestRedirect")?)?);
            }
            Type::UrlRewrite => {
                filters.rewrite = Some(rewrite(required(filter.url_rewrite.as_ref(), "urlRewrite")?)?);
            }
            Type::Cors | Type::ExtensionRef | Type::ExternalAuth | Type::Other(_) => {
                let message = format!("the filter {} is not supported", type_name(&filter.type_));
                return Err(Problem::unsupported(message));
            }
        }
    }
    if filters.redirect.is_some() && filters.rewrite.is_some() {
        return Err(incompatible("the filters RequestRedirect and URLRewrite exclude each other".to_owned()));
    }
    Ok(filters)
}

fn incompatible(message: String) -> Problem {
    Problem { reason: INCOMPATIBLE_FILTERS, message }
}

fn type_name(type_: &Type) -> &str {
    match type_ {
        Type::Cors => "CORS",
        Type::ExtensionRef => "ExtensionRef",
        Type::ExternalAuth => "ExternalAuth",
        Type::RequestHeaderModifier => "RequestHeaderModifier",
        Type::RequestMirror => "RequestMirror",
        Type::RequestRedirect => "RequestRedirect",
        Type::ResponseHeaderModifier => "ResponseHeaderModifier",
        Type::UrlRewrite => "URLRewrite",
        Type::Other(name) => name,
    }
}

fn required<'a, T>(value: Option<&'a T>, field: &str) -> Result<&'a T, Problem> {
    value.ok_or_else(|| Problem::unsupported(format!("a filter has no {field} although its type says so")))
}

fn headers(
    set: &Option<Vec<Set>>,
    add: &Option<Vec<Add>>,
    remove: &Option<Vec<String>>,
) -> Result<HeaderChanges, Problem> {
    let pair = |name: &String, value: &String| Ok((name.clone(), header_value(&format!("the header {name}"), value)?));
    Ok(HeaderChanges {
        set: set.iter().flatten().map(|header| pair(&header.name, &header.value)).collect::<Result<_, _>>()?,
        add: add.iter().flatten().map(|header| pair(&header.name, &header.value)).collect::<Result<_, _>>()?,
        remove: remove.iter().flatten().cloned().collect(),
    })
}

fn mirror(filter: &RequestMirror) -> Result<DraftMirror, Problem> {
    let part = |number: i32| u64::try_from(number).ok();
    let parts = match (filter.percent, &filter.fraction) {
        (None, None) => Some(MILLION),
        (Some(percent), _) => part(percent).map(|percent| percent * MILLION / 100),
        (None, Some(fraction)) => part(fraction.numerator).and_then(|numerator| {
            let denominator = part(fraction.denominator.unwrap_or(100)).filter(|denominator| *denominator > 0)?;
            Some(numerator * MILLION / denominator)
        }),
    };
    let parts = parts.filter(|parts| *parts <= MILLION).and_then(|parts| u32::try_from(parts).ok());
    let parts_per_million =
        parts.ok_or_else(|| Problem::unsupported("the share of a requestMirror is not between 0 and 1"))?;
    Ok(DraftMirror { to: mirror_reference(&filter.backend_ref), parts_per_million })
}

fn mirror_reference(reference: &ExternalAuthBackendRef) -> Reference {
    Reference {
        group: reference.group.clone().unwrap_or_default(),
        kind: reference.kind.clone().unwrap_or_else(|| "Service".to_owned()),
        namespace: reference.namespace.clone(),
        name: reference.name.clone(),
        port: reference.port,
    }
}

fn redirect(filter: &RequestRedirect) -> Result<Redirect, Problem> {
    let status = filter.status_code.unwrap_or(302);
    let status = match status {
        301 | 302 | 303 | 307 | 308 => u16::try_from(status).unwrap_or(302),
        other => return Err(Problem::unsupported(format!("a redirect with the status {other} is not supported"))),
    };
    let scheme = match &filter.scheme {
        None => None,
        Some(Scheme::Http) => Some("http".to_owned()),
        Some(Scheme::Https) => Some("https".to_owned()),
        Some(Scheme::Other(other)) => {
            return Err(Problem::unsupported(format!("a redirect to the scheme {other} is not supported")));
        }
    };
    let port = filter.port.map(u16::try_from).transpose();
    let port = port.map_err(|_| Problem::unsupported("the port of a redirect is not between 1 and 65535"))?;
    let path = filter.path.as_ref().map(path_change).transpose()?;
    let hostname = hostname(filter.hostname.as_ref())?;
    Ok(Redirect { scheme, hostname, path, port, status })
}

fn rewrite(filter: &UrlRewrite) -> Result<Rewrite, Problem> {
    let path = filter.path.as_ref().map(path_change).transpose()?;
    Ok(Rewrite { hostname: hostname(filter.hostname.as_ref())?, path })
}

fn hostname(hostname: Option<&String>) -> Result<Option<String>, Problem> {
    hostname.map(|hostname| header_value("hostname", hostname)).transpose()
}

fn path_change(path: &RequestRedirectPath) -> Result<PathChange, Problem> {
    match &path.type_ {
        RequestRedirectPathType::ReplaceFullPath => {
            let value = required(path.replace_full_path.as_ref(), "replaceFullPath")?;
            header_value("replaceFullPath", value).map(PathChange::Full)
        }
        RequestRedirectPathType::ReplacePrefixMatch => {
            let value = required(path.replace_prefix_match.as_ref(), "replacePrefixMatch")?;
            header_value("replacePrefixMatch", value).map(PathChange::Prefix)
        }
        RequestRedirectPathType::Other(other) => {
            Err(Problem::unsupported(format!("a change of the path of the type {other} is not supported")))
        }
    }
}

impl HeaderChanges {
    /// Whether `Host` is among them: Envoy refuses a table with a route that changes it.
    fn has_host(&self) -> bool {
        self.names().any(|name| name.eq_ignore_ascii_case("host"))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let changed = self.set.iter().chain(&self.add).map(|(name, _)| name.as_str());
        changed.chain(self.remove.iter().map(String::as_str))
    }
}
