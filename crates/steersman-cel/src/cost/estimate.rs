//! Estimates the cost of evaluating an expression, before any value is known.
//!
//! Sizes come from literals and from declarations (maxItems, maxLength, or what fits into a request). The figures are
//! those of cel-go's estimator and of Kubernetes' libraries, because they decide which rules a definition may have; odd
//! figures (comparing an integer costs nothing) are upstream's.

mod calls;

pub(crate) use crate::cost::estimate::calls::CHECK;

use crate::checking::check::{self, Checked, Name, Step};
use crate::checking::declarations::Declarations;
use crate::checking::types::Type;
use crate::syntax::ast::{Ast, Entry, Expr, Fold, FoldKind, Id, Item, Literal};
use std::collections::HashMap;
use std::sync::Arc;

/// The cost per character of reading a string.
pub(crate) const PER_CHAR: f64 = 0.1;
/// The cost per character of a pattern.
pub(crate) const PER_PATTERN_CHAR: f64 = 0.25;
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const OBJECT: u64 = 40;

/// Bounds of a cost, or of a size.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Range {
    pub min: u64,
    pub max: u64,
}

impl Range {
    pub(crate) const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

    pub(crate) const fn fixed(number: u64) -> Range {
        Range { min: number, max: number }
    }

    #[must_use]
    pub(crate) fn plus(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    #[must_use]
    pub(crate) fn times(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Times a factor, rounded up.
    #[must_use]
    pub(crate) fn scaled(self, factor: f64) -> Range {
        Range { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }

    #[must_use]
    pub(crate) fn or(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// The factor by which a cost exceeds a limit, as messages show it: `1.054965x`, `2.8x`, `more than 100x`. None if it
/// does not.
pub fn factor_over(cost: u64, limit: u64) -> Option<String> {
    if cost <= limit {
        return None;
    }
    let factor = cost as f64 / limit as f64;
    Some(match factor {
        _ if factor > 100.0 => "more than 100x".to_owned(),
        // With one digit the factor might be shown as 1.0x.
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    })
}

/// A number times a factor, rounded up; saturates.
pub(crate) fn scaled(number: u64, factor: f64) -> u64 {
    // The conversion from a float saturates.
    (number as f64 * factor).ceil() as u64
}

/// The sizes of the keys and values of a list or a map.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    key: Range,
    value: Range,
}

impl Sizes {
    fn or(self, other: Sizes) -> Sizes {
        Sizes { key: self.key.or(other.key), value: self.value.or(other.value) }
    }
}

/// The path from a declared variable to a value.
pub(crate) type Path = Arc<[Step]>;

#[derive(Clone)]
struct Local {
    name: Arc<str>,
    path: Option<(Arc<str>, Path)>,
    size: Option<Range>,
    entries: Option<Sizes>,
}

/// Estimates the cost of an expression.
pub(crate) fn estimate(ast: &Ast, checked: &Checked, environment: &Declarations) -> Range {
    let mut estimator = Estimator {
        ast,
        checked,
        environment,
        locals: Vec::new(),
        paths: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    estimator.cost(ast.root)
}

struct Estimator<'e> {
    ast: &'e Ast,
    checked: &'e Checked,
    environment: &'e Declarations,
    locals: Vec<Local>,
    /// The variable and the path of a node's value.
    paths: HashMap<u32, (Arc<str>, Path)>,
    sizes: HashMap<u32, Range>,
    entries: HashMap<u32, Sizes>,
}

impl Estimator<'_> {
    fn cost(&mut self, id: Id) -> Range {
        let ast = self.ast;
        match ast.expr(id) {
            Expr::Literal(_) => Range::default(),
            Expr::Ident(name) => {
                self.find_path(id, name);
                Range::fixed(1)
            }
            Expr::Select { operand, field, test } => self.select(id, *operand, field, *test),
            Expr::Call { function, target, args } => self.call(id, function, *target, args),
            Expr::List(items) => self.list(id, items),
            Expr::Map(entries) => self.map(id, entries),
            Expr::Struct { fields, .. } => {
                fields.iter().fold(Range::fixed(OBJECT), |sum, field| sum.plus(self.cost(field.value)))
            }
            Expr::Fold(fold) => self.fold(id, fold),
            Expr::Bind { name, value, body } => self.bind(id, name, *value, *body),
            Expr::OptMap { target, name, body, flat } => self.opt_map(*target, name, *body, *flat),
        }
    }

    fn select(&mut self, id: Id, operand: Id, field: &Arc<str>, test: bool) -> Range {
        if let Some(Name::Variable(name)) = self.checked.names.get(&id.0) {
            self.paths.insert(id.0, (Arc::clone(name), Arc::new([])));
            return Range::fixed(1);
        }
        if self.checked.names.contains_key(&id.0) {
            return Range::fixed(1);
        }
        let cost = self.cost(operand);
        if test {
            return cost;
        }
        self.extend_path(id, operand, Step::Field(Arc::clone(field)));
        match self.checked.type_of(operand) {
            Type::Map(..) | Type::Object(_) => cost.plus(Range::fixed(1)),
            _ => cost,
        }
    }

    fn list(&mut self, id: Id, items: &[Item]) -> Range {
        let mut sum = Range::fixed(LIST);
        let mut value = Range { min: if items.is_empty() { 0 } else { u64::MAX }, max: 0 };
        for item in items {
            sum = sum.plus(self.cost(item.value));
            value = value.or(self.size_or_unknown(item.value));
        }
        self.entries.insert(id.0, Sizes { key: Range::fixed(1), value });
        sum
    }

    fn map(&mut self, id: Id, entries: &[Entry]) -> Range {
        let mut sum = Range::fixed(MAP);
        let nothing = Range { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
        let mut sizes = Sizes { key: nothing, value: nothing };
        for entry in entries {
            sum = sum.plus(self.cost(entry.key)).plus(self.cost(entry.value));
            sizes.key = sizes.key.or(self.size_or_unknown(entry.key));
            sizes.value = sizes.value.or(self.size_or_unknown(entry.value));
        }
        self.entries.insert(id.0, sizes);
        sum
    }

    /// Upstream expands the macro into a loop over an empty list, which costs as much as the list.
    fn bind(&mut self, id: Id, name: &Arc<str>, value: Id, body: Id) -> Range {
        let value_cost = self.cost(value);
        let path = self.paths.get(&value.0).cloned();
        let (size, entries) = (self.size(value), self.entries_of(value));
        self.locals.push(Local { name: Arc::clone(name), path, size, entries });
        let body_cost = self.cost(body);
        let (size, entries) = (self.size(body), self.entries_of(body));
        self.locals.pop();
        if let Some(size) = size {
            self.sizes.insert(id.0, size);
        }
        if let Some(entries) = entries {
            self.entries.insert(id.0, entries);
        }
        Range::fixed(LIST).plus(value_cost).plus(body_cost)
    }

    fn opt_map(&mut self, target: Id, name: &Arc<str>, body: Id, flat: bool) -> Range {
        let target_cost = self.cost(target);
        // The condition reads the target, and so does the branch that binds its value.
        self.locals.push(Local { name: Arc::clone(name), path: None, size: None, entries: None });
        let body_cost = self.cost(body);
        self.locals.pop();
        let wrap = if flat { 0 } else { 1 };
        let some = target_cost.plus(body_cost).plus(Range::fixed(LIST + 1 + wrap));
        target_cost.plus(Range::fixed(1)).plus(some.or(Range::fixed(1)))
    }

    fn find_path(&mut self, id: Id, name: &str) {
        match self.locals.iter().rev().find(|local| *local.name == *name) {
            Some(local) => {
                if let Some(path) = local.path.clone() {
                    self.paths.insert(id.0, path);
                }
            }
            None => {
                self.paths.insert(id.0, (name.into(), Arc::new([])));
            }
        }
    }

    fn extend_path(&mut self, id: Id, operand: Id, step: Step) {
        if let Some(path) = self.paths.get(&operand.0).map(|path| extended(path, step)) {
            self.paths.insert(id.0, path);
        }
    }

    /// The size of the value according to its declaration.
    fn declared_size(&self, path: &(Arc<str>, Path)) -> Option<Range> {
        let (_, decl) = self.environment.variable(&path.0)?;
        Some(Range { min: 0, max: check::declared(decl, &path.1)?.elements_max })
    }

    fn size(&mut self, id: Id) -> Option<Range> {
        if let Some(size) = self.sizes.get(&id.0) {
            return Some(*size);
        }
        let ast = self.ast;
        let written = match ast.expr(id) {
            Expr::Literal(Literal::String(text)) => Some(text.chars().count()),
            Expr::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            Expr::Literal(_) => Some(1),
            Expr::List(items) => Some(items.len()),
            Expr::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(written) = written {
            return Some(Range::fixed(written as u64));
        }
        if let Some(size) = self.paths.get(&id.0).and_then(|path| self.declared_size(path)) {
            self.sizes.insert(id.0, size);
            return Some(size);
        }
        if self.checked.type_of(id).is_scalar() {
            return Some(Range::fixed(1));
        }
        match ast.expr(id) {
            Expr::Ident(name) => self.locals.iter().rev().find(|local| local.name == *name)?.size,
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, id: Id) -> Range {
        self.size(id).unwrap_or(Range::UNKNOWN)
    }

    fn entries_of(&self, id: Id) -> Option<Sizes> {
        if let Some(entries) = self.entries.get(&id.0) {
            return Some(*entries);
        }
        match self.ast.expr(id) {
            Expr::Ident(name) => self.locals.iter().rev().find(|local| local.name == *name)?.entries,
            _ => None,
        }
    }

    fn call(&mut self, id: Id, name: &str, target: Option<Id>, args: &[Id]) -> Range {
        if let ("dyn", None, [arg]) = (name, target, args) {
            let cost = self.cost(*arg);
            if let Some(size) = self.size(*arg) {
                self.sizes.insert(id.0, size);
            }
            if let Some(entries) = self.entries_of(*arg) {
                self.entries.insert(id.0, entries);
            }
            return cost.plus(Range::fixed(1));
        }
        let arg_costs: Vec<Range> = args.iter().map(|arg| self.cost(*arg)).collect();
        let arg_sum = arg_costs.iter().fold(Range::default(), |sum, cost| sum.plus(*cost));
        if name == "_?._" {
            return arg_sum.plus(Range::fixed(1));
        }
        let Some(resolved) = self.checked.calls.get(&id.0).cloned() else { return Range::default() };
        let target = target.filter(|_| resolved.member);
        let target_cost = target.map_or(Range::default(), |target| self.cost(target));
        let mut sum = Range { min: u64::MAX, max: 0 };
        let mut result_size: Option<Range> = None;
        for at in &resolved.overloads {
            let overload = &resolved.function.overloads[*at];
            let (own, size) = match overload.id {
                "logical_or" | "logical_and" => {
                    // Only the left side is always evaluated.
                    let most = arg_costs[0].max.saturating_add(arg_costs[1].max);
                    (Range { min: arg_costs[0].min, max: most }, None)
                }
                "conditional" => {
                    let size = self.size_or_unknown(args[1]).or(self.size_or_unknown(args[2]));
                    if let (Some(yes), Some(no)) = (self.entries_of(args[1]), self.entries_of(args[2])) {
                        self.entries.insert(id.0, yes.or(no));
                    }
                    (arg_costs[0].plus(arg_costs[1].or(arg_costs[2])), Some(size))
                }
                overload_id => {
                    let (own, size) = self.call_cost(id, resolved.function.name, overload_id, target, args);
                    (own.plus(arg_sum), size)
                }
            };
            sum = sum.or(own);
            result_size = match (result_size, size) {
                (Some(known), Some(size)) => Some(known.or(size)),
                (known, size) => known.or(size),
            };
            match overload.id {
                "index_list" | "index_map" => {
                    result_size = self.entries_of(args[0]).map(|entries| entries.value);
                    self.extend_path(id, args[0], Step::Element);
                }
                _ => {}
            }
            if result_size.is_none() {
                result_size = self.size(id);
            }
        }
        if let Some(size) = result_size {
            self.sizes.insert(id.0, size);
        }
        target_cost.plus(sum)
    }

    fn fold(&mut self, id: Id, fold: &Fold) -> Range {
        let range_cost = self.cost(fold.range);
        let size = self.size_or_unknown(fold.range);
        if fold.kind == FoldKind::SortBy {
            return self.sort_by(id, fold, range_cost);
        }
        let count = self.locals.len();
        self.push_variables(fold);
        let body = self.cost(fold.body);
        let filter = fold.filter.map(|filter| self.cost(filter));
        let body_size = self.size_or_unknown(fold.body);
        self.locals.truncate(count);
        // Upstream expands each macro into a loop over an accumulator, and charges for reading and testing it.
        let (once, each) = match fold.kind {
            // Once the accumulator decides the result, the body is not evaluated.
            FoldKind::All => (1, Range { min: 3, max: body.max.saturating_add(3) }),
            FoldKind::Exists => (1, Range { min: 4, max: body.max.saturating_add(4) }),
            FoldKind::ExistsOne => (2, body.plus(Range { min: 1, max: 2 })),
            FoldKind::List => (LIST + 1, with_filter(filter, body.plus(Range::fixed(2 + LIST)))),
            FoldKind::Map => (MAP + 1, with_filter(filter, body.plus(Range::fixed(3)))),
            FoldKind::MapEntry => (MAP + 1, with_filter(filter, body.plus(Range::fixed(2)))),
            FoldKind::SortBy => (0, Range::default()),
        };
        match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => {
                self.sizes.insert(id.0, Range::fixed(1));
            }
            FoldKind::List => {
                self.sizes.insert(id.0, size);
                let value = Range { min: 0, max: body_size.max };
                self.entries.insert(id.0, Sizes { key: Range::fixed(1), value });
            }
            FoldKind::Map | FoldKind::MapEntry | FoldKind::SortBy => {
                self.sizes.insert(id.0, size);
            }
        }
        range_cost.plus(Range::fixed(once)).plus(size.times(each))
    }

    fn push_variables(&mut self, fold: &Fold) {
        let entries = self.entries_of(fold.range);
        let path = self.paths.get(&fold.range.0).cloned();
        let is_list = matches!(self.checked.type_of(fold.range), Type::List(_));
        let local = |name: &Arc<str>, step: Step, size: Option<Range>| Local {
            name: Arc::clone(name),
            path: path.as_ref().map(|path| extended(path, step)),
            size,
            entries: None,
        };
        let key = entries.map(|entries| entries.key);
        let value = entries.map(|entries| entries.value);
        let pushed = match &fold.var2 {
            Some(var2) => vec![local(&fold.var, Step::Unknown, key), local(var2, Step::Element, value)],
            None if is_list => vec![local(&fold.var, Step::Element, value)],
            // A declaration bounds the number of keys, but not their length.
            None => vec![local(&fold.var, Step::Key, key)],
        };
        self.locals.extend(pushed);
    }

    /// `target.sortBy(x, key)`: the keys are a separate list, by which the target is sorted.
    fn sort_by(&mut self, id: Id, fold: &Fold, range_cost: Range) -> Range {
        let size = self.size_or_unknown(fold.range);
        let count = self.locals.len();
        self.push_variables(fold);
        let key = self.cost(fold.body);
        self.locals.truncate(count);
        let keys = size.times(key.plus(Range::fixed(2 + LIST))).plus(Range::fixed(2 + LIST));
        let factor = match self.checked.type_of(fold.body) {
            Type::Bytes | Type::String => 2.0 + PER_CHAR,
            _ => 2.0,
        };
        let sort = size.times(size).scaled(factor).plus(Range::fixed(1 + LIST));
        self.sizes.insert(id.0, size);
        range_cost.plus(Range::fixed(LIST + 1)).plus(keys).plus(sort)
    }
}

/// A step that is taken only if the filter holds; otherwise only the accumulator is read.
fn with_filter(filter: Option<Range>, step: Range) -> Range {
    match filter {
        Some(filter) => filter.plus(step.or(Range::fixed(1))),
        None => step,
    }
}

fn extended(path: &(Arc<str>, Path), step: Step) -> (Arc<str>, Path) {
    (Arc::clone(&path.0), path.1.iter().cloned().chain([step]).collect())
}
