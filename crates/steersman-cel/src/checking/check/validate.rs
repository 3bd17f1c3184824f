//! Kubernetes' checks beyond types: lists and maps of mixed types, literals that are not valid durations, timestamps or
//! patterns, and format strings that do not match their arguments.

use crate::checking::check::Checked;
use crate::checking::types::Type;
use crate::evaluation::data::time::{self, Timestamp};
use crate::evaluation::library::format::{Clause, Verb};
use crate::evaluation::library::regex;
use crate::syntax::ast::{Ast, Expr, Id, Item, Literal};
use crate::syntax::source::Issue;
use steersman_machinery::duration;

pub(super) fn validate(ast: &Ast, checked: &Checked, issues: &mut Vec<Issue>) {
    // The nodes within a call of format(), where types may be mixed.
    let mut within_format = vec![false; ast.nodes.len()];
    // A node is added after its children, so iterating backwards visits it before them.
    for index in (0..ast.nodes.len()).rev() {
        let is_within = within_format[index];
        let node = &ast.nodes[index];
        let is_format = matches!(node, Expr::Call { function, .. } if **function == *"format");
        if is_within || is_format {
            node.each_part(&mut |part| within_format[part.index()] = true);
        }
        match node {
            Expr::Call { function, args, .. } => literals(ast, function, args, issues).unwrap_or_default(),
            Expr::List(items) if !is_within => {
                let mut first = None;
                for item in items {
                    let of = element(checked.type_of(item.value), item.optional);
                    if mismatch(&mut first, of, ast.position(item.value), issues) {
                        break;
                    }
                }
            }
            Expr::Map(entries) if !is_within => {
                let mut first_key = None;
                let mut first_value = None;
                for entry in entries {
                    mismatch(&mut first_key, checked.type_of(entry.key), ast.position(entry.key), issues);
                    let of = element(checked.type_of(entry.value), entry.optional);
                    mismatch(&mut first_value, of, ast.position(entry.value), issues);
                }
            }
            _ => {}
        }
        if let Expr::Call { target: Some(target), args, .. } = node
            && is_format
            && let (Expr::Literal(Literal::String(template)), [Expr::List(items)]) =
                (ast.expr(*target), args.iter().map(|arg| ast.expr(*arg)).collect::<Vec<_>>().as_slice())
        {
            issues.extend(formatted(ast, checked, template, items, ast.positions[index]));
        }
    }
}

/// Reports a literal argument that the function cannot convert. None if no argument can be checked.
fn literals(ast: &Ast, function: &str, args: &[Id], issues: &mut Vec<Issue>) -> Option<()> {
    let last = *args.last()?;
    let Expr::Literal(literal) = ast.expr(last) else { return None };
    let fault = match (function, literal) {
        ("duration", Literal::String(text)) => duration::parse(text).is_err().then_some("invalid duration argument"),
        ("matches", Literal::String(text)) => regex::Regex::new(text).is_err().then_some("invalid matches argument"),
        ("timestamp", Literal::Int(seconds)) => {
            Timestamp::from_seconds(*seconds).is_none().then_some("invalid timestamp argument")
        }
        ("timestamp", Literal::String(text)) => {
            time::parse_timestamp(text).is_none().then_some("invalid timestamp argument")
        }
        _ => None,
    };
    issues.push(Issue::new(ast.position(last), fault?));
    Some(())
}

/// The first error of a format string with literal arguments.
fn formatted(ast: &Ast, checked: &Checked, template: &str, items: &[Item], position: u32) -> Option<Issue> {
    let mut used = 0;
    let mut rest = template;
    while let Some(percent) = rest.find('%') {
        rest = &rest[percent + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            rest = behind;
            continue;
        }
        let item = items.get(used);
        if item.is_none() && !rest.is_empty() {
            return Some(Issue::new(position, format!("index {used} out of range")));
        }
        let clause = match Clause::read(&mut rest) {
            Ok(clause) => clause,
            Err(error) => return Some(Issue::new(position, error.to_string())),
        };
        if let Some(bad) = misfit(ast, checked, clause.verb, item?.value) {
            let found = checked.type_of(bad).runtime_name();
            return Some(Issue::new(ast.position(bad), clause.verb.fault(found).to_string()));
        }
        used += 1;
    }
    let given = items.len();
    (used < given).then(|| {
        let message = format!("too many arguments supplied to string.format (expected {used}, got {given})");
        Issue::new(position, message)
    })
}

/// The value, or the part of it, that a verb cannot format.
fn misfit(ast: &Ast, checked: &Checked, verb: Verb, value: Id) -> Option<Id> {
    let of = checked.type_of(value);
    let fits = match verb {
        _ if matches!(of, Type::Dyn | Type::Error | Type::Param(_)) => true,
        Verb::Decimal | Verb::Octal => matches!(of, Type::Int | Type::Uint),
        Verb::Binary => matches!(of, Type::Int | Type::Uint | Type::Bool),
        Verb::Hex { .. } => matches!(of, Type::Int | Type::Uint | Type::String | Type::Bytes),
        Verb::Fixed | Verb::Scientific => matches!(of, Type::Double | Type::String),
        Verb::Text => !matches!(of, Type::Object(_) | Type::Opaque(..)),
    };
    if !fits {
        return Some(value);
    }
    if verb != Verb::Text {
        return None;
    }
    let mut parts = Vec::new();
    if let whole @ (Expr::List(_) | Expr::Map(_)) = ast.expr(value) {
        whole.each_part(&mut |part| parts.push(part));
    }
    parts.into_iter().find_map(|part| misfit(ast, checked, verb, part))
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
