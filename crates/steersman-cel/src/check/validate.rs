//! What Kubernetes refuses beyond types: lists and maps of mixed types, and literals that are no duration, time or pattern.

use crate::ast::{Ast, Expr, Id, Literal};
use crate::check::Checked;
use crate::data::time;
use crate::library::regex;
use crate::source::Issue;
use crate::types::Type;
use steersman_machinery::duration;

pub(super) fn validate(ast: &Ast, checked: &Checked, issues: &mut Vec<Issue>) {
    // Nodes that stand within the arguments of format(), where types may be mixed.
    let mut within_format = vec![false; ast.nodes.len()];
    // A node is added after its parts, so that going backwards sees it before them.
    for index in (0..ast.nodes.len()).rev() {
        let is_within = within_format[index];
        match &ast.nodes[index] {
            Expr::Call { function, target, args } => {
                let position = args.first().map_or(0, |arg| ast.position(*arg));
                let text = |id: Option<&Id>| match ast.expr(*id?) {
                    Expr::Literal(Literal::String(text)) => Some(text.clone()),
                    _ => None,
                };
                match (&**function, target) {
                    ("format", Some(target)) => {
                        for id in args.iter().chain([target]) {
                            within_format[id.index()] = true;
                        }
                    }
                    ("duration", None) if text(args.first()).is_some_and(|text| duration::parse(&text).is_none()) => {
                        issues.push(Issue::new(position, "invalid duration argument"));
                    }
                    ("timestamp", None)
                        if text(args.first()).is_some_and(|text| time::parse_timestamp(&text).is_none()) =>
                    {
                        issues.push(Issue::new(position, "invalid timestamp argument"));
                    }
                    ("matches", _) if text(args.last()).is_some_and(|text| regex::Regex::new(&text).is_err()) => {
                        let position = args.last().map_or(position, |arg| ast.position(*arg));
                        issues.push(Issue::new(position, "invalid matches argument"));
                    }
                    _ => {}
                }
            }
            Expr::List(items) => {
                let mut first = None;
                for item in items {
                    within_format[item.value.index()] |= is_within;
                    let of = element(checked.type_of(item.value), item.optional);
                    if !is_within && mismatch(&mut first, of, ast.position(item.value), issues) {
                        break;
                    }
                }
            }
            Expr::Map(entries) => {
                let mut first_key = None;
                let mut first_value = None;
                for entry in entries {
                    within_format[entry.key.index()] |= is_within;
                    within_format[entry.value.index()] |= is_within;
                    if is_within {
                        continue;
                    }
                    mismatch(&mut first_key, checked.type_of(entry.key), ast.position(entry.key), issues);
                    let of = element(checked.type_of(entry.value), entry.optional);
                    mismatch(&mut first_value, of, ast.position(entry.value), issues);
                }
            }
            _ => {}
        }
    }
}

fn element(of: &Type, optional: bool) -> &Type {
    if optional { of.as_optional().unwrap_or(of) } else { of }
}

fn mismatch<'t>(first: &mut Option<&'t Type>, of: &'t Type, position: u32, issues: &mut Vec<Issue>) -> bool {
    let wanted = *first.get_or_insert(of);
    let differs = wanted != of;
    if differs {
        issues.push(Issue::new(position, format!("expected type '{wanted}' but found '{of}'")));
    }
    differs
}
