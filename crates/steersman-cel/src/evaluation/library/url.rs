//! Functions of URLs.

use crate::error::EvalError;
use crate::evaluation::data::url::{Url, escaped_path, host_and_port, parse, query_unescape};
use crate::evaluation::outcome::{Implementation, Outcome};
use crate::evaluation::value::{Entries, Key, Map, Opaque, Text, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "getEscapedPath" => |_, args| of_url(args, |url| Value::text(escaped_path(&url.path))),
        "getHost" => |_, args| of_url(args, |url| Value::text(&*url.host)),
        "getHostname" => |_, args| of_url(args, |url| Value::text(host_and_port(&url.host).0)),
        "getPort" => |_, args| of_url(args, |url| Value::text(host_and_port(&url.host).1)),
        "getQuery" => |meter, args| match args {
            // Each parameter becomes values that are much larger.
            [Value::Opaque(Opaque::Url(url))] => {
                Some(meter.work(url.query.len().saturating_mul(4)).map(|()| query(url)))
            }
            _ => None,
        },
        "getScheme" => |_, args| of_url(args, |url| Value::text(&*url.scheme)),
        "isURL" => |_, args| Some(Ok(Value::Bool(parse(args.first()?.as_str()?).is_some()))),
        "url" => |_, args| {
            let text = args.first()?.as_str()?;
            Some(parse(text).map(|url| Value::Opaque(Opaque::Url(Arc::new(url)))).ok_or_else(|| {
                EvalError::new(format!(
                    "URL parse error during conversion from string: parse {text:?}: invalid URI for request"
                ))
            }))
        },
        _ => return None,
    })
}

fn of_url<'a>(args: &[Value<'a>], what: fn(&Url) -> Value<'a>) -> Option<Outcome<'a>> {
    match args {
        [Value::Opaque(Opaque::Url(url))] => Some(Ok(what(url))),
        _ => None,
    }
}

/// The parameters by name; malformed ones are left out.
fn query<'a>(url: &Url) -> Value<'a> {
    let mut found: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for pair in url.query.split('&') {
        if pair.is_empty() || pair.contains(';') {
            continue;
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Some(key), Some(value)) = (query_unescape(key), query_unescape(value)) {
            found.entry(key).or_default().push(Value::text(value));
        }
    }
    let entries =
        found.into_iter().map(|(key, values)| (Key::String(Text::Shared(key.into())), Value::list(values))).collect();
    Value::Map(Map(Entries::Values(Arc::new(entries))))
}
