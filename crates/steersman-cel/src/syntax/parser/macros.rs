//! Calls that are macros: `has`, quantifiers, transformations, bound optionals.
//!
//! A call with a macro's name and number of arguments is always the macro; the parser reports its errors.

use crate::syntax::ast::{Expr, Fold, FoldKind, Id};
use crate::syntax::parser::Parser;
use crate::syntax::source::Issue;
use std::sync::Arc;

impl Parser<'_> {
    pub(super) fn global_call(&mut self, function: Arc<str>, args: Vec<Id>, position: u32) -> Result<Id, Issue> {
        if let ("has", [arg]) = (&*function, args.as_slice()) {
            return match self.nodes[arg.index()].clone() {
                Expr::Select { operand, field, test: false } => {
                    self.add(Expr::Select { operand, field, test: true }, position)
                }
                _ => Err(Issue::new(self.positions[arg.index()], "invalid argument to has() macro")),
            };
        }
        self.add(Expr::Call { function, target: None, args: args.into() }, position)
    }

    pub(super) fn member_call(
        &mut self,
        target: Id,
        function: Arc<str>,
        args: Vec<Id>,
        position: u32,
    ) -> Result<Id, Issue> {
        let (kind, one, filter, body) = match (&*function, args.as_slice()) {
            ("all", [var, body]) => (FoldKind::All, (*var, None), None, *body),
            ("exists", [var, body]) => (FoldKind::Exists, (*var, None), None, *body),
            ("exists_one", [var, body]) => (FoldKind::ExistsOne, (*var, None), None, *body),
            ("map", [var, body]) => (FoldKind::List, (*var, None), None, *body),
            ("map", [var, filter, body]) => (FoldKind::List, (*var, None), Some(*filter), *body),
            ("filter", [var, filter]) => (FoldKind::List, (*var, None), Some(*filter), *var),
            ("sortBy", [var, body]) => (FoldKind::SortBy, (*var, None), None, *body),
            ("all", [var, var2, body]) => (FoldKind::All, (*var, Some(*var2)), None, *body),
            ("exists", [var, var2, body]) => (FoldKind::Exists, (*var, Some(*var2)), None, *body),
            ("existsOne" | "exists_one", [var, var2, body]) => (FoldKind::ExistsOne, (*var, Some(*var2)), None, *body),
            ("transformList", [var, var2, body]) => (FoldKind::List, (*var, Some(*var2)), None, *body),
            ("transformList", [var, var2, filter, body]) => (FoldKind::List, (*var, Some(*var2)), Some(*filter), *body),
            ("transformMap", [var, var2, body]) => (FoldKind::Map, (*var, Some(*var2)), None, *body),
            ("transformMap", [var, var2, filter, body]) => (FoldKind::Map, (*var, Some(*var2)), Some(*filter), *body),
            ("transformMapEntry", [var, var2, body]) => (FoldKind::MapEntry, (*var, Some(*var2)), None, *body),
            ("transformMapEntry", [var, var2, filter, body]) => {
                (FoldKind::MapEntry, (*var, Some(*var2)), Some(*filter), *body)
            }
            ("bind", [var, value, body]) if self.is_cel(target) => {
                let (name, value, body) = (self.variable(*var, "cel.bind")?, *value, *body);
                return self.add(Expr::Bind { name, value, body }, position);
            }
            (name @ ("optMap" | "optFlatMap"), [var, body]) => {
                let flat = name == "optFlatMap";
                let name = self.variable(*var, name)?;
                return self.add(Expr::OptMap { target, name, body: *body, flat }, position);
            }
            _ => return self.add(Expr::Call { function, target: Some(target), args: args.into() }, position),
        };
        let var = self.variable(one.0, &function)?;
        let var2 = one.1.map(|var2| self.variable(var2, &function)).transpose()?;
        if let (Some(name), Some(id)) = (&var2, one.1)
            && *name == var
        {
            return Err(Issue::new(self.positions[id.index()], format!("duplicate variable name: {var}")));
        }
        self.add(Expr::Fold(Box::new(Fold { kind, range: target, var, var2, filter, body })), position)
    }

    /// Whether a target is the namespace of Kubernetes' own macros.
    fn is_cel(&self, target: Id) -> bool {
        matches!(&self.nodes[target.index()], Expr::Ident(name) if **name == *"cel")
    }

    /// The variable that an argument names.
    fn variable(&self, id: Id, function: &str) -> Result<Arc<str>, Issue> {
        match &self.nodes[id.index()] {
            // Upstream's loops accumulate their result in a variable of this name.
            Expr::Ident(name) if **name == *"__result__" => {
                Err(Issue::new(self.positions[id.index()], "iteration variable overwrites accumulator variable"))
            }
            Expr::Ident(name) => Ok(Arc::clone(name)),
            _ => {
                let why = match function {
                    "cel.bind" => "cel.bind() variable names must be simple identifiers".to_owned(),
                    "filter" | "map" => "argument is not an identifier".to_owned(),
                    "optMap" | "optFlatMap" => format!("{function}() variable name must be a simple identifier"),
                    _ => "argument must be a simple name".to_owned(),
                };
                Err(Issue::new(self.positions[id.index()], why))
            }
        }
    }
}
