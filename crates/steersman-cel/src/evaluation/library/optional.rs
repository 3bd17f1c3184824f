//! Functions of optional values.

use crate::error::EvalError;
use crate::evaluation::outcome::Implementation;
use crate::evaluation::value::Value;

pub(super) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "hasValue" => |_, args| match args {
            [Value::Optional(optional)] => Some(Ok(Value::Bool(optional.is_some()))),
            _ => None,
        },
        "optional.none" => |_, _| Some(Ok(Value::Optional(None))),
        "optional.of" => |_, args| args.first().map(|value| Ok(Value::optional(Some(value.clone())))),
        "optional.ofNonZeroValue" => |_, args| {
            args.first().map(|value| Ok(Value::optional(Some(value.clone()).filter(|value| !value.is_zero()))))
        },
        "optional.unwrap" | "unwrapOpt" => |meter, args| {
            let [Value::List(list)] = args else { return None };
            let mut out = Vec::new();
            for item in list.iter() {
                match meter.work(8).and(item) {
                    Ok(Value::Optional(Some(value))) => out.push((*value).clone()),
                    Ok(Value::Optional(None)) => {}
                    Ok(_) => return None,
                    Err(error) => return Some(Err(error)),
                }
            }
            Some(Ok(Value::list(out)))
        },
        "value" => |_, args| match args {
            [Value::Optional(Some(value))] => Some(Ok((**value).clone())),
            [Value::Optional(None)] => Some(Err(EvalError::new("optional.none() dereference"))),
            _ => None,
        },
        _ => return None,
    })
}
