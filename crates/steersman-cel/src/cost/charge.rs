//! The run-time cost of calls, by upstream's figures.

use crate::cost::estimate::CHECK;
use crate::cost::estimate::{LIST, PER_CHAR, PER_PATTERN_CHAR, scaled};
use crate::evaluation::functions;
use crate::evaluation::value::{Opaque, Value};

/// How the cost of a call is computed from its arguments and its result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Charge {
    Check,
    ContainsCidr {
        text: bool,
    },
    ContainsIp {
        text: bool,
    },
    /// The product of the lengths of two strings.
    ContainsText,
    Flatten,
    Index {
        is_first: bool,
    },
    /// The length of the shorter of two values.
    Least,
    /// Building a list takes as many steps as it has items.
    NewList,
    One,
    /// An absent value costs nothing.
    OptionalIndex {
        is_first: bool,
    },
    /// Searches the first argument for the pattern in the second.
    Pattern,
    /// The length of the first argument.
    ReadFirst,
    ReadFirstTwice,
    ReadResultTwice,
    ReadSecond,
    SecondSize,
    /// Compares each item with each other one.
    SelfCompare,
    Sets {
        factor: u8,
    },
    /// Copies both strings.
    Sum,
    Traverse,
    Validate,
}

impl Charge {
    /// The charge of a function, and of an overload if it is known before run time.
    pub(crate) fn of(function: &str, overload: Option<&str>) -> Charge {
        match function {
            "check" => Charge::Check,
            "fieldSelector" | "labelSelector" => Charge::ReadSecond,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Charge::Traverse,
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver" => Charge::ReadFirst,
            "ip" if overload != Some("cidr_ip") => Charge::ReadFirst,
            "ip.isCanonical" | "replace" | "split" => Charge::ReadFirstTwice,
            "join" => Charge::ReadResultTwice,
            "find" | "findAll" => Charge::Pattern,
            "containsIP" => Charge::ContainsIp { text: overload == Some("cidr_contains_ip_string") },
            "containsCIDR" => Charge::ContainsCidr { text: overload == Some("cidr_contains_cidr_string") },
            "validate" => Charge::Validate,
            "sets.contains" | "sets.intersects" => Charge::Sets { factor: 1 },
            "sets.equivalent" => Charge::Sets { factor: 2 },
            "slice" | "lists.range" => Charge::NewList,
            "reverse" => Charge::NewList,
            "flatten" => Charge::Flatten,
            "distinct" | "sort" => Charge::SelfCompare,
            _ => match overload.unwrap_or_default() {
                "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "string_format"
                | "strings_quote" => Charge::ReadFirst,
                "in_list" => Charge::SecondSize,
                overload if functions::is_order_of_texts(overload) => Charge::Least,
                "add_string" | "add_bytes" => Charge::Sum,
                "matches_string" => Charge::Pattern,
                "contains_string" => Charge::ContainsText,
                _ => Charge::One,
            },
        }
    }

    /// The cost of a call.
    pub(crate) fn cost(self, args: &[Value<'_>], result: &Value<'_>) -> u64 {
        let size = |at: usize| args.get(at).map_or(1, Value::size);
        let read = |size: u64| scaled(size, PER_CHAR);
        match self {
            Charge::One => 1,
            Charge::Check => CHECK,
            Charge::ContainsCidr { text } => {
                let own = size(0);
                read(own + own) + read(own) + 1 + if text { read(size(1)) } else { 0 }
            }
            Charge::ContainsIp { text } => read(size(0) * 2) + if text { read(size(1)) } else { 0 },
            Charge::ContainsText => read(size(0)).saturating_mul(read(size(1))),
            Charge::Flatten => {
                let depth = match args.get(1) {
                    Some(Value::Int(depth)) => u64::try_from(*depth).unwrap_or(0),
                    _ => 1,
                };
                size(0).saturating_mul(depth).saturating_add(1 + LIST)
            }
            Charge::Index { is_first } => 1 + u64::from(is_first),
            Charge::Least => least(&args[0], &args[1]),
            Charge::NewList => result.size().saturating_add(1 + LIST),
            Charge::OptionalIndex { is_first } => {
                u64::from(is_first) + u64::from(matches!(result, Value::Optional(Some(_))))
            }
            Charge::Pattern => {
                let pattern = scaled(size(1), PER_PATTERN_CHAR);
                read(size(0).saturating_add(1)).saturating_mul(pattern)
            }
            Charge::ReadFirst => read(size(0)),
            Charge::ReadFirstTwice => scaled(size(0), 2.0 * PER_CHAR),
            Charge::ReadResultTwice => scaled(result.size(), 2.0 * PER_CHAR),
            Charge::ReadSecond => read(size(1)),
            Charge::SecondSize => size(1),
            Charge::SelfCompare => self_compare(args.first()),
            Charge::Sets { factor } => {
                size(0).saturating_mul(size(1)).saturating_mul(u64::from(factor)).saturating_add(1)
            }
            Charge::Sum => read(size(0).saturating_add(size(1))),
            Charge::Traverse => args.first().map_or(0, traversal),
            Charge::Validate => {
                let pattern = match args.first() {
                    Some(Value::Opaque(Opaque::Format(format))) => format.pattern_chars,
                    _ => 1,
                };
                read(size(1).saturating_add(1)).saturating_mul(scaled(pattern, PER_PATTERN_CHAR))
            }
        }
    }
}

/// The cost of comparing two values: the shorter is read. Values of library types cost one.
pub(crate) fn least(one: &Value<'_>, other: &Value<'_>) -> u64 {
    match (one, other) {
        (Value::Opaque(_), _) | (Value::Int(_), _) | (Value::Bool(_), _) => 1,
        // The number of bytes bounds the number of characters, and is cheaper to get; short strings cost one either
        // way.
        (Value::String(one), Value::String(other)) if one.len().min(other.len()) <= 10 => {
            u64::from(!one.is_empty() && !other.is_empty())
        }
        _ => scaled(one.size().min(other.size()), PER_CHAR),
    }
}

/// The cost of sorting a list, or of making its items distinct.
pub(crate) fn self_compare(list: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = list else { return 1 + LIST };
    let size = list.len() as u64;
    let reads = matches!(list.get(0), Some(Ok(Value::String(_) | Value::Bytes(_))));
    let factor = if reads { 2.0 + PER_CHAR } else { 2.0 };
    let cost = size.saturating_mul(size) as f64 * factor;
    (cost as u64).saturating_add(1 + LIST)
}

/// The cost of reading everything in a value once.
fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * PER_CHAR) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * PER_CHAR) as u64,
        Value::List(list) => list.iter().flatten().map(|item| traversal(&item)).fold(0, u64::saturating_add),
        Value::Map(map) => map
            .iter()
            .map(|(key, value)| traversal(&key).saturating_add(value.as_ref().map_or(0, traversal)))
            .fold(0, u64::saturating_add),
        _ => 1,
    }
}
