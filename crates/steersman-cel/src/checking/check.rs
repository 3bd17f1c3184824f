//! The type checker: assigns each node a type, and each call its possible overloads.
//!
//! The rules are those of cel-go's checker: types unify, `dyn` is compatible with every type, and a call may mean every
//! overload that fits; its type is `dyn` when their result types differ.

mod unify;
mod validate;

use crate::checking::check::unify::Unifier;
use crate::checking::decl::{DeclType, ObjectDecl};
use crate::checking::declarations::Declarations;
use crate::checking::types::Type;
use crate::evaluation::functions::{self, Function};
use crate::syntax::ast::{Ast, Entry, Expr, Fold, FoldKind, Id, Item, Literal};
use crate::syntax::source::Issue;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Further issues are not reported.
const ISSUES_MAX: usize = 100;

/// The result of the checker.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The type of each node.
    pub(crate) types: Vec<Type>,
    /// The calls, by node.
    pub(crate) calls: HashMap<u32, Resolved>,
    /// The meaning of names, by node.
    pub(crate) names: HashMap<u32, Name>,
}

/// A resolved call.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) function: &'static Function,
    /// The overloads that the call may mean.
    pub(crate) overloads: Vec<usize>,
    /// Whether the expression before the name is an argument, and not a part of the name.
    pub(crate) member: bool,
}

/// The meaning of a name.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    /// A variable of a macro.
    Local(Arc<str>),
    Type(Type),
    /// A variable of the environment.
    Variable(Arc<str>),
}

impl Checked {
    pub(crate) fn type_of(&self, id: Id) -> &Type {
        &self.types[id.index()]
    }
}

/// Checks an expression.
pub(crate) fn check(ast: &Ast, environment: &Declarations) -> Result<Checked, Vec<Issue>> {
    let mut checker = Checker {
        ast,
        environment,
        unifier: Unifier::default(),
        checked: Checked { types: vec![Type::Error; ast.nodes.len()], calls: HashMap::new(), names: HashMap::new() },
        scopes: Vec::new(),
        issues: Vec::new(),
    };
    checker.check(ast.root);
    let Checker { unifier, mut checked, mut issues, .. } = checker;
    for of in &mut checked.types {
        *of = unifier.substitute_or_dyn(of);
    }
    if issues.is_empty() {
        validate::validate(ast, &checked, &mut issues);
    }
    if issues.is_empty() { Ok(checked) } else { Err(issues) }
}

struct Checker<'c> {
    ast: &'c Ast,
    environment: &'c Declarations,
    unifier: Unifier,
    checked: Checked,
    /// Variables of macros, the innermost last.
    scopes: Vec<(Arc<str>, Type)>,
    issues: Vec<Issue>,
}

impl<'c> Checker<'c> {
    fn fault(&mut self, position: u32, message: String) {
        if self.issues.len() < ISSUES_MAX {
            self.issues.push(Issue { position, message });
        }
    }

    fn shown(&self, of: &Type) -> String {
        self.unifier.substitute_or_dyn(of).to_string()
    }

    fn check(&mut self, id: Id) -> Type {
        let ast = self.ast;
        let position = ast.position(id);
        let of = match ast.expr(id) {
            Expr::Literal(literal) => match literal {
                Literal::Bool(_) => Type::Bool,
                Literal::Bytes(_) => Type::Bytes,
                Literal::Double(_) => Type::Double,
                Literal::Int(_) => Type::Int,
                Literal::Null => Type::Null,
                Literal::String(_) => Type::String,
                Literal::Uint(_) => Type::Uint,
            },
            Expr::Ident(name) => self.ident(id, name, position),
            Expr::Select { operand, field, test } => self.select(id, *operand, field, *test),
            Expr::Call { function, target, args } => self.call(id, function, *target, args),
            Expr::List(items) => self.list(items),
            Expr::Map(entries) => self.map(entries),
            Expr::Struct { name, .. } => self.object(id, name),
            Expr::Fold(fold) => self.fold(fold, position),
            Expr::Bind { name, value, body } => self.bind(position, name, *value, *body),
            Expr::OptMap { target, name, body, flat } => self.opt_map(position, *target, name, *body, *flat),
        };
        // A type can double with each macro, and is walked repeatedly, so a large type becomes `dyn`.
        let of = if of.is_larger_than(PARTS_MAX) { Type::Dyn } else { of };
        self.checked.types[id.index()] = of.clone();
        of
    }

    /// Each arm of `check` is a function of its own, which keeps the recursive stack frame small.
    fn ident(&mut self, id: Id, name: &str, position: u32) -> Type {
        match self.name(id, name) {
            Some(of) => of,
            None => {
                self.fault(position, format!("undeclared reference to '{name}' (in container '')"));
                Type::Error
            }
        }
    }

    fn list(&mut self, items: &[Item]) -> Type {
        let mut item_type = None;
        for item in items {
            let mut of = self.check(item.value);
            if item.optional {
                of = self.unwrapped(item.value, of);
            }
            item_type = Some(self.join(item_type, of));
        }
        Type::list(item_type.unwrap_or_else(|| self.unifier.fresh()))
    }

    fn map(&mut self, entries: &[Entry]) -> Type {
        let mut key_type = None;
        let mut value_type = None;
        for entry in entries {
            let key = self.check(entry.key);
            key_type = Some(self.join(key_type, key));
            let mut value = self.check(entry.value);
            if entry.optional {
                value = self.unwrapped(entry.value, value);
            }
            value_type = Some(self.join(value_type, value));
        }
        let key_type = key_type.unwrap_or_else(|| self.unifier.fresh());
        Type::map(key_type, value_type.unwrap_or_else(|| self.unifier.fresh()))
    }

    fn bind(&mut self, position: u32, name: &Arc<str>, value: Id, body: Id) -> Type {
        if !self.environment.has_bind {
            self.fault(position, "undeclared reference to 'cel' (in container '')".to_owned());
            return Type::Error;
        }
        let of = self.check(value);
        self.scopes.push((Arc::clone(name), of));
        let body = self.check(body);
        self.scopes.pop();
        body
    }

    fn opt_map(&mut self, position: u32, target: Id, name: &Arc<str>, body: Id, flat: bool) -> Type {
        let of = self.check(target);
        let inner = match of.as_optional() {
            Some(inner) => inner.clone(),
            None if of.is_dyn_or_error() => Type::Dyn,
            None => {
                let found = self.shown(&of);
                let function = "hasValue";
                let message = format!("found no matching overload for '{function}' applied to '{found}.()'");
                self.fault(position, message);
                Type::Error
            }
        };
        self.scopes.push((Arc::clone(name), inner));
        let body_type = self.check(body);
        self.scopes.pop();
        if flat {
            let wanted = Type::optional(self.unifier.fresh());
            self.expect(body, &wanted, &body_type);
            body_type
        } else {
            Type::optional(body_type)
        }
    }

    /// The type of a name, dotted or not, if it is declared.
    fn name(&mut self, id: Id, name: &str) -> Option<Type> {
        if let Some((name, of)) = self.scopes.iter().rev().find(|(local, _)| **local == *name) {
            self.checked.names.insert(id.0, Name::Local(Arc::clone(name)));
            return Some(of.clone());
        }
        // A leading dot skips the variables of macros.
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some((name, decl)) = self.environment.variable(name) {
            self.checked.names.insert(id.0, Name::Variable(Arc::clone(name)));
            return Some(decl.type_of());
        }
        let named = functions::type_named(name)?;
        self.checked.names.insert(id.0, Name::Type(named.clone()));
        Some(Type::Type(Arc::new(named)))
    }

    /// The dotted name of a chain of selections, unless it begins with a variable of a macro.
    fn qualified(&self, id: Id) -> Option<String> {
        match self.ast.expr(id) {
            Expr::Ident(name) if self.scopes.iter().any(|(local, _)| local == name) => None,
            Expr::Ident(name) => Some(name.to_string()),
            Expr::Select { operand, field, test: false } => Some(format!("{}.{field}", self.qualified(*operand)?)),
            _ => None,
        }
    }

    fn select(&mut self, id: Id, operand: Id, field: &str, test: bool) -> Type {
        if !test
            && let Some(qualified) = self.qualified(id)
            && let Some(of) = self.name(id, &qualified)
        {
            return of;
        }
        let target = self.check(operand);
        let of = self.field(self.ast.position(id), &target, field);
        if test { Type::Bool } else { of }
    }

    /// The type of a field of a value of this type; for an optional value it is optional.
    fn field(&mut self, position: u32, target: &Type, field: &str) -> Type {
        let target = self.unifier.substitute(target);
        match &target {
            Type::Dyn | Type::Error | Type::Param(_) => Type::Dyn,
            // Upstream does not check the type of the keys: at run time such a field is not found.
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => match self.object_field(object, field) {
                Some(of) => of,
                None => {
                    self.fault(position, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            _ => match target.as_optional() {
                Some(inner) => {
                    let inner = self.field(position, &inner.clone(), field);
                    Type::optional(inner)
                }
                None => {
                    let found = self.shown(&target);
                    self.fault(position, format!("type '{found}' does not support field selection"));
                    Type::Error
                }
            },
        }
    }

    fn object_field(&self, object: &ObjectDecl, field: &str) -> Option<Type> {
        match object.field(field) {
            Some(field) => Some(field.value.type_of()),
            None => object.is_open().then_some(Type::Dyn),
        }
    }

    fn call(&mut self, id: Id, name: &str, target: Option<Id>, args: &[Id]) -> Type {
        let position = self.ast.position(id);
        if let ("_?._", [operand, field]) = (name, args) {
            return self.optional_select(id, *operand, *field);
        }
        if let ("_&&_" | "_||_", None) = (name, target) {
            return self.logical(id, name, args);
        }
        let mut types: Vec<Type> = Vec::with_capacity(args.len() + 1);
        types.extend(args.iter().map(|arg| self.check(*arg)));
        if let Some(target) = target {
            // The target may be a part of the function's name, as in ip.isCanonical(..).
            if let Some(qualified) = self.qualified(target)
                && let Some(function) = functions::find(&format!("{qualified}.{name}"))
                && self.environment.has_function(function.name)
            {
                return self.resolve(id, function, false, &types, position);
            }
            let of = self.check(target);
            types.insert(0, of);
        }
        match functions::find(name) {
            Some(function) => self.resolve(id, function, target.is_some(), &types, position),
            None => {
                self.fault(position, format!("undeclared reference to '{name}' (in container '')"));
                Type::Error
            }
        }
    }

    /// `operand.?field`
    fn optional_select(&mut self, id: Id, operand: Id, field: Id) -> Type {
        self.check(field);
        let target = self.check(operand);
        let Expr::Literal(Literal::String(name)) = self.ast.expr(field) else { return Type::Error };
        let of = self.field(self.ast.position(id), &target, name);
        // The field of an optional is already optional.
        if of.as_optional().is_some() && target.as_optional().is_some() { of } else { Type::optional(of) }
    }

    fn resolve(&mut self, id: Id, function: &'static Function, member: bool, args: &[Type], position: u32) -> Type {
        let mut result: Option<Type> = None;
        let mut overloads = Vec::new();
        for (at, overload) in function.overloads.iter().enumerate() {
            if overload.member != member || overload.args.len() != args.len() {
                continue;
            }
            let first = self.unifier.fresh_many(overload.parameters);
            let wanted: Vec<Type> = overload.args.iter().map(|arg| Unifier::instantiated(arg, first)).collect();
            if !self.unifier.try_assign_all(args, &wanted) {
                continue;
            }
            overloads.push(at);
            let of = self.unifier.substitute(&Unifier::instantiated(&overload.result, first));
            result = Some(match result {
                None => of,
                Some(known) if known == of => known,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let shown: Vec<String> = args.iter().map(|arg| self.shown(arg)).collect();
            let signature = match shown.split_first() {
                Some((target, rest)) if member => format!("{target}.({})", rest.join(", ")),
                _ => format!("({})", shown.join(", ")),
            };
            let name = function.name;
            self.fault(position, format!("found no matching overload for '{name}' applied to '{signature}'"));
            return Type::Error;
        };
        self.checked.calls.insert(id.0, Resolved { function, overloads, member });
        result
    }

    /// The type inside an entry that is written as optional; the entry must have an optional type.
    fn unwrapped(&mut self, id: Id, of: Type) -> Type {
        let of = self.unifier.substitute(&of);
        if let Some(inner) = of.as_optional() {
            return inner.clone();
        }
        if !of.is_dyn_or_error() {
            let found = self.shown(&of);
            let message = format!("expected type 'optional_type({found})' but found '{found}'");
            self.fault(self.ast.position(id), message);
        }
        of
    }

    /// The type of a container of values of both types: `dyn` if they differ.
    fn join(&mut self, known: Option<Type>, of: Type) -> Type {
        match known {
            None => of,
            Some(known) => {
                if self.unifier.try_assign(&known, &of) {
                    self.unifier.most_general(&known, &of)
                } else {
                    Type::Dyn
                }
            }
        }
    }

    fn expect(&mut self, id: Id, wanted: &Type, found: &Type) {
        if !self.unifier.try_assign(wanted, found) {
            let (wanted, found) = (self.shown(wanted), self.shown(found));
            self.fault(self.ast.position(id), format!("expected type '{wanted}' but found '{found}'"));
        }
    }

    fn object(&mut self, id: Id, name: &str) -> Type {
        let position = self.ast.position(id);
        let Expr::Struct { fields, .. } = self.ast.expr(id) else { return Type::Error };
        let Some(object) = self.environment.object_type(name) else {
            let message = match functions::type_named(name) {
                Some(_) => format!("'{name}' is not a message type"),
                None => format!("undeclared reference to '{name}' (in container '')"),
            };
            self.fault(position, message);
            return Type::Error;
        };
        for field in fields {
            let mut of = self.check(field.value);
            if field.optional {
                of = self.unwrapped(field.value, of);
            }
            let Some(wanted) = self.object_field(&object, &field.name) else {
                self.fault(field.position, format!("undefined field '{}'", field.name));
                continue;
            };
            if !self.unifier.try_assign(&wanted, &of) {
                let (wanted, found) = (self.shown(&wanted), self.shown(&of));
                let name = &field.name;
                let message = format!("expected type of field '{name}' is '{wanted}' but provided type is '{found}'");
                self.fault(field.position, message);
            }
        }
        Type::Object(object)
    }

    fn fold(&mut self, fold: &'c Fold, position: u32) -> Type {
        let range = self.check(fold.range);
        let range = self.unifier.substitute(&range);
        let is_list = |of: &Type| matches!(of, Type::List(_));
        let (first, second) = match &range {
            Type::List(item) if fold.var2.is_some() => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Dyn),
            Type::Map(key, value) if fold.kind != FoldKind::SortBy => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Param(_) => (Type::Dyn, Type::Dyn),
            other => {
                let found = self.shown(other);
                let message = format!(
                    "expression of type '{found}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.fault(self.ast.position(fold.range), message);
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((Arc::clone(&fold.var), first.clone()));
        if let Some(var2) = &fold.var2 {
            self.scopes.push((Arc::clone(var2), second));
        }
        let filter = fold.filter.map(|filter| self.check(filter));
        let body = self.check(fold.body);
        let depth = self.scopes.len() - 1 - usize::from(fold.var2.is_some());
        self.scopes.truncate(depth);
        if let Some(filter) = filter {
            let gathered = match fold.kind {
                FoldKind::Map | FoldKind::MapEntry => Type::map(first.clone(), body.clone()),
                _ => Type::list(body.clone()),
            };
            self.condition(position, &filter, &gathered);
        }
        match fold.kind {
            FoldKind::All | FoldKind::Exists => self.expect(fold.body, &Type::Bool, &body),
            FoldKind::ExistsOne => self.condition(position, &body, &Type::Int),
            FoldKind::List => return Type::list(body),
            FoldKind::Map => return Type::map(first, body),
            FoldKind::MapEntry => {
                let wanted = Type::map(self.unifier.fresh(), self.unifier.fresh());
                self.expect(fold.body, &wanted, &body);
                return self.unifier.substitute(&body);
            }
            FoldKind::SortBy => {
                let keys = Type::list(body);
                let args = [range.clone(), keys];
                let function = functions::find("@sortByAssociatedKeys");
                let fits = function.is_some_and(|function| {
                    function.overloads.iter().any(|overload| {
                        let first = self.unifier.fresh_many(overload.parameters);
                        let wanted: Vec<Type> =
                            overload.args.iter().map(|arg| Unifier::instantiated(arg, first)).collect();
                        self.unifier.try_assign_all(&args, &wanted)
                    })
                });
                if !fits {
                    let (range, keys) = (self.shown(&args[0]), self.shown(&args[1]));
                    let message =
                        format!("found no matching overload for '@sortByAssociatedKeys' applied to '{range}.({keys})'");
                    self.fault(position, message);
                }
                return if is_list(&range) { range } else { Type::list(Type::Dyn) };
            }
        }
        Type::Bool
    }

    /// The condition of a macro must be a bool. The issue is reported for the operator that the macro expands to, with
    /// the type of the macro's result.
    fn condition(&mut self, position: u32, of: &Type, gathered: &Type) {
        if !self.unifier.try_assign(of, &Type::Bool) {
            let (found, gathered) = (self.shown(of), self.shown(gathered));
            let message =
                format!("found no matching overload for '_?_:_' applied to '({found}, {gathered}, {gathered})'");
            self.fault(position, message);
        }
    }

    /// `left && right`, `left || right`: both must be bools.
    fn logical(&mut self, id: Id, name: &str, args: &[Id]) -> Type {
        for arg in args {
            let of = self.check(*arg);
            self.expect(*arg, &Type::Bool, &of);
        }
        if let Some(function) = functions::find(name) {
            self.checked.calls.insert(id.0, Resolved { function, overloads: vec![0], member: false });
        }
        Type::Bool
    }
}

/// The declaration at a path of fields, for cost estimation.
pub(crate) fn declared<'d>(root: &'d DeclType, path: &[Step]) -> Option<&'d DeclType> {
    path.iter().try_fold(root, |decl, step| -> Option<&'d DeclType> {
        match step {
            Step::Element => decl.element(),
            Step::Field(name) => match &decl.shape {
                crate::checking::decl::Shape::Object(object) => object.field(name).map(|field| &*field.value),
                _ => None,
            },
            Step::Key => Some(&KEY),
            Step::Unknown => None,
        }
    })
}

/// The maximum number of parts of a type: expressions written by hand nest only a few.
const PARTS_MAX: usize = 1000;

/// Keys are strings whose length no schema bounds.
static KEY: LazyLock<DeclType> = LazyLock::new(DeclType::string);

/// A step from a declared value to a part of it.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Element,
    Field(Arc<str>),
    /// A key of a map.
    Key,
    /// An index, which has no declaration.
    Unknown,
}
