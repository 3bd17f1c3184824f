//! The estimated cost of calls, by function and overload, and the size of their results.

use crate::checking::check::Step;
use crate::checking::types::Type;
use crate::cost::estimate::{Estimator, LIST, PER_CHAR, PER_PATTERN_CHAR, Range, extended, scaled};
use crate::evaluation::functions;
use crate::syntax::ast::{Expr, Id, Literal};

/// The cost of an authorization check: an evaluation can afford two.
pub(crate) const CHECK: u64 = 350_000;
/// The length of the longest pattern of a named format.
pub(crate) const FORMAT_PATTERN_CHARS: f64 = 128.0;

const ONE: Range = Range::fixed(1);

impl Estimator<'_> {
    /// The cost of a call without that of its arguments, and the size of its result, where known.
    pub(super) fn call_cost(
        &mut self,
        id: Id,
        function: &str,
        overload: &str,
        target: Option<Id>,
        args: &[Id],
    ) -> (Range, Option<Range>) {
        if let Some(found) = self.library_call(function, overload, target, args) {
            return found;
        }
        let size = |estimator: &mut Self, at: usize| {
            args.get(at).map_or(Range::UNKNOWN, |arg| estimator.size_or_unknown(*arg))
        };
        match overload {
            "string_format" if target.is_some() => {
                let target = target.map_or(Range::UNKNOWN, |target| self.size_or_unknown(target));
                (target.scaled(PER_CHAR), None)
            }
            "string_to_bytes" => {
                let size = size(self, 0);
                (size.scaled(PER_CHAR), Some(Range { min: size.min, max: size.max.saturating_mul(4) }))
            }
            "bytes_to_string" => {
                let size = size(self, 0);
                (size.scaled(PER_CHAR), Some(Range { min: size.min / 4, max: size.max }))
            }
            "strings_quote" => {
                let size = size(self, 0);
                let max = size.max.saturating_mul(2).saturating_add(2);
                (size.scaled(PER_CHAR), Some(Range { min: size.min.saturating_add(2), max }))
            }
            "starts_with_string" | "ends_with_string" => (size(self, 0).scaled(PER_CHAR), None),
            "in_list" => (size(self, 1), None),
            "matches_string" if target.is_some() => {
                let target = target.map_or(Range::UNKNOWN, |target| self.size_or_unknown(target));
                let pattern = size(self, 0).scaled(PER_PATTERN_CHAR);
                (target.plus(ONE).scaled(PER_CHAR).times(pattern), None)
            }
            "contains_string" => {
                let target = target.map_or(Range::UNKNOWN, |target| self.size_or_unknown(target));
                (target.scaled(PER_CHAR).times(size(self, 0).scaled(PER_CHAR)), None)
            }
            "add_string" | "add_bytes" | "add_list" => {
                let sum = size(self, 0).plus(size(self, 1));
                if let (Some(left), Some(right)) = (self.entries_of(args[0]), self.entries_of(args[1])) {
                    self.entries.insert(id.0, left.or(right));
                }
                (if overload == "add_list" { ONE } else { sum.scaled(PER_CHAR) }, Some(sum))
            }
            _ if functions::is_order_of_texts(overload) || matches!(overload, "equals" | "not_equals") => {
                let most = size(self, 0).max.min(size(self, 1).max);
                (Range { min: u64::from(most > 0), max: most }.scaled(PER_CHAR), None)
            }
            _ => (ONE, None),
        }
    }

    /// The cost of the functions of Kubernetes' libraries and cel-go's extensions.
    fn library_call(
        &mut self,
        function: &str,
        overload: &str,
        target: Option<Id>,
        args: &[Id],
    ) -> Option<(Range, Option<Range>)> {
        let target_size = target.map(|target| self.size_or_unknown(target));
        let first = args.first().copied();
        let first_size = match first {
            Some(first) => self.size_or_unknown(first),
            None => Range::UNKNOWN,
        };
        let read = |size: Range| (size.scaled(PER_CHAR), None);
        let nominal = Some((ONE, None));
        match function {
            "check" => Some((Range::fixed(CHECK), None)),
            "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name" | "allowed"
            | "reason" | "error" | "errored" => nominal,
            "fieldSelector" | "labelSelector" if args.len() == 1 => Some(read(first_size)),
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let (target, size) = (target?, target_size?);
                let Type::List(item) = self.checked.type_of(target) else { return Some(read(size)) };
                let each = match **item {
                    // Elements that are strings are read.
                    Type::Bytes | Type::String => ONE.plus(self.item_size(target).scaled(PER_CHAR)),
                    _ => ONE,
                };
                Some((size.times(each), None))
            }
            "url" | "jsonpatch.escapeKey" if args.len() == 1 => Some((first_size.scaled(PER_CHAR), Some(first_size))),
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let size = target_size?;
                Some((size.scaled(PER_CHAR), Some(size)))
            }
            "replace" => {
                let (from, to) = (first_size, self.size_or_unknown(*args.get(1)?));
                Some(replaced(target_size?, from, to))
            }
            "split" => {
                let size = target_size?;
                let max = match args.get(1).map(|arg| self.ast.expr(*arg)) {
                    // A negative limit counts as a very large one, as in upstream's arithmetic.
                    Some(Expr::Literal(Literal::Int(limit))) => *limit as u64,
                    _ => size.max,
                };
                Some((size.scaled(2.0 * PER_CHAR), Some(Range { min: 0, max })))
            }
            "join" => {
                let (target, size) = (target?, target_size?);
                let mut sum = size.times(self.item_size(target));
                if first.is_some() {
                    let between = Range { min: size.min.saturating_sub(1), max: size.max.saturating_sub(1) };
                    sum = sum.plus(first_size.times(between));
                }
                Some((sum.scaled(PER_CHAR), Some(sum)))
            }
            "find" | "findAll" => {
                let size = target_size?;
                let cost = size.plus(ONE).scaled(PER_CHAR).times(first_size.scaled(PER_PATTERN_CHAR));
                Some((cost, Some(Range { min: 0, max: size.max })))
            }
            "ip" if overload == "cidr_ip" => nominal,
            "cidr" | "ip" | "isCIDR" | "isIP" | "isQuantity" | "isSemver" | "quantity" | "semver" => {
                Some((first_size.scaled(PER_CHAR), None))
            }
            "ip.isCanonical" => Some((first_size.scaled(2.0 * PER_CHAR), None)),
            "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast" => nominal,
            "containsIP" | "containsCIDR" if target.is_some() => {
                let address = Range { min: 4, max: 16 };
                let mut cost = address.plus(address).scaled(PER_CHAR);
                if function == "containsCIDR" {
                    cost = cost.plus(address.scaled(PER_CHAR)).plus(ONE);
                }
                if overload.ends_with("_string") {
                    cost = cost.plus(first_size.scaled(PER_CHAR));
                }
                Some((cost, None))
            }
            "validate" if target.is_some() => {
                let cost = first_size.scaled(PER_CHAR).scaled(FORMAT_PATTERN_CHARS * PER_PATTERN_CHAR);
                Some((cost, None))
            }
            "format.named" | "sign" | "asInteger" | "isInteger" | "asApproximateFloat" | "isGreaterThan"
            | "isLessThan" | "compareTo" | "add" | "sub" | "major" | "minor" | "patch" | "getScheme"
            | "getHostname" | "getHost" | "getPort" | "getEscapedPath" | "getQuery" => nominal,
            "_==_" => self.equality(args),
            "sets.contains" | "sets.intersects" | "sets.equivalent" => {
                let factor = if function == "sets.equivalent" { 2.0 } else { 1.0 };
                let other = self.size_or_unknown(*args.get(1)?);
                Some((first_size.times(other).scaled(factor).plus(ONE), None))
            }
            "slice" => {
                let whole = target_size?.max;
                let start = self.written_number(args.first()).unwrap_or(0);
                let end = self.written_number(args.get(1)).unwrap_or(whole);
                Some(new_list(1.0, Range::fixed(end.saturating_sub(start))))
            }
            "lists.range" => {
                let count = self.written_number(args.first()).unwrap_or(u64::MAX);
                Some(new_list(1.0, Range::fixed(count)))
            }
            "reverse" => Some(new_list(1.0, target_size?)),
            "flatten" => {
                let depth = match args.first() {
                    None => 1,
                    some => self.written_number(some).unwrap_or(u64::MAX),
                };
                Some(new_list(depth as f64, target_size?))
            }
            "distinct" => {
                let size = target_size?;
                Some(new_list(2.0, size.times(size)))
            }
            "sort" => {
                let size = target_size?;
                let reads = matches!(overload, "list_string_sort" | "list_bytes_sort");
                Some(new_list(if reads { 2.0 + PER_CHAR } else { 2.0 }, size.times(size)))
            }
            _ => None,
        }
    }

    /// The size of a list's items, according to its declaration.
    fn item_size(&self, list: Id) -> Range {
        let path = self.paths.get(&list.0).map(|path| extended(path, Step::Element));
        path.and_then(|path| self.declared_size(&path)).unwrap_or(Range::UNKNOWN)
    }

    fn written_number(&self, arg: Option<&Id>) -> Option<u64> {
        match self.ast.expr(*arg?) {
            Expr::Literal(Literal::Int(number)) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Values of library types are compared at cost one; others depending on their sizes.
    fn equality(&mut self, args: &[Id]) -> Option<(Range, Option<Range>)> {
        let [left, right] = args else { return None };
        let (Type::Opaque(left_name, _), Type::Opaque(right_name, _)) =
            (self.checked.type_of(*left), self.checked.type_of(*right))
        else {
            return None;
        };
        if left_name != right_name {
            return None;
        }
        match *left_name {
            functions::FORMAT => Some((Range { min: 1, max: 64 }.scaled(PER_CHAR), None)),
            functions::URL => {
                let most = self.size(*right).map_or(1, |size| size.max);
                Some((Range { min: 1, max: scaled(most, PER_CHAR).max(1) }, None))
            }
            functions::AUTHORIZER
            | functions::CIDR
            | functions::DECISION
            | functions::GROUP_CHECK
            | functions::IP
            | functions::PATH_CHECK
            | functions::QUANTITY
            | functions::RESOURCE_CHECK
            | functions::SEMVER => Some((ONE, None)),
            _ => None,
        }
    }
}

/// The cost of building a list in this number of steps.
fn new_list(factor: f64, size: Range) -> (Range, Option<Range>) {
    (size.scaled(factor).plus(Range::fixed(1 + LIST)), Some(size))
}

/// The cost and the result size of replacing: the longest and the shortest possible result.
fn replaced(text: Range, from: Range, to: Range) -> (Range, Option<Range>) {
    let parts = |length: u64, part: u64| (length as f64 / part as f64).ceil() as u64;
    let (count_max, kept_max) = match from.min {
        // An empty string is found around each character.
        0 => (text.max.saturating_add(1), text.max),
        least if to.max <= least => (0, text.max),
        least => (parts(text.max, least), 0),
    };
    let (count_min, kept_min) = match from.max {
        0 => (text.min.saturating_add(1), text.min),
        most if most <= to.min => (0, text.min),
        most => (parts(text.min, most), 0),
    };
    let size = Range { min: count_min, max: count_max }.times(to).plus(Range { min: kept_min, max: kept_max });
    (text.scaled(2.0 * PER_CHAR), Some(size))
}
