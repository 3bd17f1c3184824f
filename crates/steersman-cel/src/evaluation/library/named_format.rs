//! `format.named(..)`, `format.dns1123Label()` and `validate`.

use crate::evaluation::data::named_format::find;
use crate::evaluation::outcome::Implementation;
use crate::evaluation::value::{Opaque, Value};

pub(super) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "format.named" => |_, args| {
            let found = find(args.first()?.as_str()?);
            Some(Ok(Value::optional(found.map(|format| Value::Opaque(Opaque::Format(format))))))
        },
        "validate" => |_, args| {
            let [Value::Opaque(Opaque::Format(format)), Value::String(text)] = args else { return None };
            let faults = (format.check)(text);
            let faults = (!faults.is_empty()).then(|| Value::list(faults.into_iter().map(Value::text).collect()));
            Some(Ok(Value::optional(faults)))
        },
        _ => return None,
    })
}

/// The format that a function returns, such as `format.uuid()`.
pub(crate) fn constant<'a>(name: &str) -> Option<Value<'a>> {
    find(name.strip_prefix("format.")?).map(|format| Value::Opaque(Opaque::Format(format)))
}
