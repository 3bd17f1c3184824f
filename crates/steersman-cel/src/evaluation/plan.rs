//! Checked expressions compiled for evaluation: names become indexes, calls have their implementation and charge,
//! patterns are compiled.

mod folded;

use crate::checking::check::{Checked, Name};
use crate::checking::decl::ObjectDecl;
use crate::checking::declarations::{COMPOSED, Declarations};
use crate::cost::charge::Charge;
use crate::error::EvalError;
use crate::evaluation::data::named_format::NamedFormat;
use crate::evaluation::library::regex::{Regex, Search};
use crate::evaluation::library::{self, named_format};
use crate::evaluation::outcome::Implementation;
use crate::evaluation::value::{Opaque, Text, Value};
use crate::syntax::ast::{Ast, Expr, Fold, FoldKind, Id, Literal};
use crate::syntax::source::Issue;
use std::fmt;
use std::sync::Arc;

/// An expression ready for evaluation.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: Vec<Node>,
    pub(crate) root: u32,
    /// The variables that it reads.
    pub(crate) variables: Vec<Arc<str>>,
    /// The composed expressions that it reads.
    pub(crate) composed: Vec<Arc<str>>,
    pub(crate) depth: u16,
}

/// One step of an evaluation. Numbers refer to other nodes.
#[derive(Debug)]
pub(crate) enum Node {
    And(u32, u32),
    /// `value in [..]`, where the list is constant and has only scalars.
    Among {
        value: u32,
        list: u32,
    },
    Call(Box<Call>),
    Composed(Arc<str>),
    Conditional {
        condition: u32,
        yes: Branch,
        no: Branch,
    },
    Const(Constant),
    Equal {
        left: u32,
        right: u32,
        negate: bool,
    },
    Fold(Box<FoldNode>),
    Has {
        operand: u32,
        field: Arc<str>,
        is_first: bool,
    },
    List(Box<[(u32, bool)]>),
    /// The index of a macro's variable.
    Local(usize),
    Map(Box<[(u32, u32, bool)]>),
    Bind {
        value: u32,
        body: u32,
    },
    OptMap {
        target: u32,
        body: u32,
        flat: bool,
    },
    /// `a.or(b)` and `a.orValue(b)`: the second is evaluated if the first is absent.
    OptionalOr {
        optional: u32,
        other: u32,
        is_value: bool,
    },
    OptionalSelect {
        operand: u32,
        field: Arc<str>,
        is_first: bool,
    },
    Or(u32, u32),
    Search(Box<SearchNode>),
    /// `is_first`, here and above: the operand is neither a selection nor a variable. Upstream charges one more for it.
    Select {
        operand: u32,
        field: Arc<str>,
        is_first: bool,
    },
    Struct(Box<StructNode>),
    /// The index of a variable among those that the plan reads.
    Variable(usize),
}

/// A branch of a conditional. Reading a variable costs nothing there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch {
    pub(crate) node: u32,
    pub(crate) is_selection: bool,
}

/// The fields of an object literal by name, and whether they are optional.
#[derive(Debug)]
pub(crate) struct StructNode {
    pub(crate) decl: Arc<ObjectDecl>,
    pub(crate) fields: Box<[(Arc<str>, u32, bool)]>,
}

/// A value known without evaluation.
#[derive(Debug)]
pub(crate) enum Constant {
    Format(&'static NamedFormat),
    Literal(Literal),
    Type(Arc<str>),
    /// A list, a map, or the result of converting a constant: made once.
    Value(Value<'static>),
}

impl Constant {
    /// The value, without borrowed strings.
    fn to_value(&self) -> Value<'static> {
        match self {
            Constant::Format(format) => Value::Opaque(Opaque::Format(format)),
            Constant::Literal(literal) => match literal {
                Literal::Bool(bool) => Value::Bool(*bool),
                Literal::Bytes(bytes) => Value::Bytes(Arc::clone(bytes)),
                Literal::Double(double) => Value::Double(*double),
                Literal::Int(int) => Value::Int(*int),
                Literal::Null => Value::Null,
                Literal::String(text) => Value::text(Arc::clone(text)),
                Literal::Uint(uint) => Value::Uint(*uint),
            },
            Constant::Type(name) => Value::Type(Arc::clone(name)),
            Constant::Value(value) => value.clone(),
        }
    }

    /// The value, with borrowed strings.
    pub(crate) fn borrowed(&self) -> Value<'_> {
        match self {
            Constant::Literal(Literal::String(text)) => Value::String(Text::Borrowed(text)),
            _ => self.to_value(),
        }
    }
}

pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) implementation: Implementation,
    pub(crate) args: Box<[u32]>,
    pub(crate) charge: Charge,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.name, self.args)
    }
}

#[derive(Debug)]
pub(crate) struct SearchNode {
    pub(crate) search: Search,
    pub(crate) text: u32,
    pub(crate) pattern: u32,
    /// The compiled pattern, if it is a literal.
    pub(crate) regex: Option<Regex>,
    pub(crate) limit: Option<u32>,
    pub(crate) charge: Charge,
}

#[derive(Debug)]
pub(crate) struct FoldNode {
    pub(crate) kind: FoldKind,
    pub(crate) range: u32,
    pub(crate) two: bool,
    pub(crate) filter: Option<u32>,
    pub(crate) body: u32,
}

/// Why an expression cannot be compiled.
pub(crate) enum Fault {
    /// One of its constants is invalid.
    Instantiation(EvalError),
    Expression(Issue),
}

impl From<Issue> for Fault {
    fn from(issue: Issue) -> Fault {
        Fault::Expression(issue)
    }
}

/// Compiles an expression for evaluation.
pub(crate) fn plan(ast: &Ast, checked: &Checked, environment: &Declarations) -> Result<Plan, Fault> {
    let mut planner = Planner {
        ast,
        checked,
        environment,
        locals: Vec::new(),
        plan: Plan { nodes: Vec::new(), root: 0, variables: Vec::new(), composed: Vec::new(), depth: ast.depth },
    };
    planner.plan.root = planner.node(ast.root)?;
    Ok(planner.plan)
}

struct Planner<'p> {
    ast: &'p Ast,
    checked: &'p Checked,
    environment: &'p Declarations,
    locals: Vec<Arc<str>>,
    plan: Plan,
}

impl Planner<'_> {
    fn add(&mut self, node: Node) -> u32 {
        self.plan.nodes.push(node);
        // The length of the expression bounds the number of its nodes.
        u32::try_from(self.plan.nodes.len() - 1).unwrap_or(u32::MAX)
    }

    fn name(&mut self, id: Id) -> Option<Node> {
        Some(match self.checked.names.get(&id.0)? {
            Name::Local(name) => Node::Local(self.locals.iter().rposition(|local| local == name)?),
            Name::Type(of) => Node::Const(Constant::Type(of.runtime_name().into())),
            Name::Variable(name) => {
                let known = self.plan.variables.iter().position(|variable| variable == name);
                Node::Variable(known.unwrap_or_else(|| {
                    self.plan.variables.push(Arc::clone(name));
                    self.plan.variables.len() - 1
                }))
            }
        })
    }

    fn node(&mut self, id: Id) -> Result<u32, Fault> {
        let ast = self.ast;
        let unknown = || Issue::new(ast.position(id), "an expression that was not checked");
        let node = match ast.expr(id) {
            Expr::Literal(literal) => Node::Const(Constant::Literal(literal.clone())),
            Expr::Ident(_) => self.name(id).ok_or_else(unknown)?,
            Expr::Select { operand, field, test } => self.select(id, *operand, field, *test)?,
            Expr::Call { function, target, args } => self.call(id, function, *target, args)?,
            Expr::List(_) | Expr::Map(_) | Expr::Struct { .. } => self.written(id)?,
            Expr::Fold(fold) => self.fold(fold)?,
            Expr::Bind { name, value, body } => {
                let value = self.node(*value)?;
                self.locals.push(Arc::clone(name));
                let body = self.node(*body)?;
                self.locals.pop();
                Node::Bind { value, body }
            }
            Expr::OptMap { target, name, body, flat } => {
                let target = self.node(*target)?;
                self.locals.push(Arc::clone(name));
                let body = self.node(*body)?;
                self.locals.pop();
                Node::OptMap { target, body, flat: *flat }
            }
        };
        Ok(self.add(node))
    }

    /// Whether a node is a variable, or a selection from one.
    fn is_selection(&self, node: u32) -> bool {
        match &self.plan.nodes[node as usize] {
            Node::Composed(_)
            | Node::Conditional { .. }
            | Node::Local(_)
            | Node::OptionalSelect { .. }
            | Node::Select { .. }
            | Node::Variable(_) => true,
            Node::Call(call) => matches!(call.name, "_[_]" | "_[?_]"),
            _ => false,
        }
    }

    fn select(&mut self, id: Id, operand: Id, field: &Arc<str>, test: bool) -> Result<Node, Fault> {
        let field = Arc::clone(field);
        let is_composed = matches!(
            self.checked.names.get(&operand.0),
            Some(Name::Variable(name)) if **name == *COMPOSED
        );
        Ok(match self.name(id) {
            Some(node) => node,
            None if is_composed && !test => {
                if !self.plan.composed.contains(&field) {
                    self.plan.composed.push(Arc::clone(&field));
                }
                Node::Composed(field)
            }
            None => {
                let operand = self.node(operand)?;
                let is_first = !self.is_selection(operand);
                if test { Node::Has { operand, field, is_first } } else { Node::Select { operand, field, is_first } }
            }
        })
    }

    /// A list, map or object literal.
    fn written(&mut self, id: Id) -> Result<Node, Fault> {
        let ast = self.ast;
        Ok(match ast.expr(id) {
            Expr::List(items) => {
                let mut nodes = Vec::with_capacity(items.len());
                for item in items {
                    nodes.push((self.node(item.value)?, item.optional));
                }
                if let Some(list) = folded::list(&self.plan.nodes, &nodes) {
                    return Ok(list);
                }
                Node::List(nodes.into())
            }
            Expr::Map(entries) => {
                let mut nodes = Vec::with_capacity(entries.len());
                for entry in entries {
                    nodes.push((self.node(entry.key)?, self.node(entry.value)?, entry.optional));
                }
                if let Some(map) = folded::map(&self.plan.nodes, &nodes) {
                    return Ok(map);
                }
                Node::Map(nodes.into())
            }
            Expr::Struct { name, fields } => {
                let decl = self.environment.object_type(name);
                let decl = decl.ok_or_else(|| Issue::new(ast.position(id), "an object that was not checked"))?;
                let mut nodes = Vec::with_capacity(fields.len());
                for field in fields {
                    nodes.push((Arc::clone(&field.name), self.node(field.value)?, field.optional));
                }
                Node::Struct(Box::new(StructNode { decl, fields: nodes.into() }))
            }
            _ => return Err(Issue::new(ast.position(id), "an expression that was not checked").into()),
        })
    }

    fn fold(&mut self, fold: &Fold) -> Result<Node, Fault> {
        let range = self.node(fold.range)?;
        let depth = self.locals.len();
        self.locals.push(Arc::clone(&fold.var));
        self.locals.extend(fold.var2.clone());
        let filter = fold.filter.map(|filter| self.node(filter)).transpose()?;
        let body = self.node(fold.body)?;
        self.locals.truncate(depth);
        Ok(Node::Fold(Box::new(FoldNode { kind: fold.kind, range, two: fold.var2.is_some(), filter, body })))
    }

    fn call(&mut self, id: Id, name: &str, target: Option<Id>, args: &[Id]) -> Result<Node, Fault> {
        if let ("_?._", [operand, field]) = (name, args) {
            let Expr::Literal(Literal::String(field)) = self.ast.expr(*field) else {
                return Err(Issue::new(self.ast.position(id), "the name of a field must be written out").into());
            };
            let field = Arc::clone(field);
            let operand = self.node(*operand)?;
            let is_first = !self.is_selection(operand);
            return Ok(Node::OptionalSelect { operand, field, is_first });
        }
        let unknown =
            || Issue::new(self.ast.position(id), format!("undeclared reference to '{name}' (in container '')"));
        let resolved = self.checked.calls.get(&id.0).cloned().ok_or_else(unknown)?;
        let function = resolved.function.name;
        let mut all: Vec<Id> = target.filter(|_| resolved.member).into_iter().collect();
        all.extend_from_slice(args);
        let overload = match resolved.overloads.as_slice() {
            [only] => Some(resolved.function.overloads[*only].id),
            _ => None,
        };
        let charge = Charge::of(function, overload);
        if let Some(Value::Opaque(Opaque::Format(format))) = named_format::constant(function)
            && all.is_empty()
        {
            return Ok(Node::Const(Constant::Format(format)));
        }
        let mut nodes = Vec::with_capacity(all.len());
        for arg in &all {
            nodes.push(self.node(*arg)?);
        }
        Ok(match (function, nodes.as_slice()) {
            ("_&&_", [left, right]) => Node::And(*left, *right),
            ("_||_", [left, right]) => Node::Or(*left, *right),
            ("_?_:_", [condition, yes, no]) => {
                let branch = |node: &u32| Branch { node: *node, is_selection: self.is_selection(*node) };
                Node::Conditional { condition: *condition, yes: branch(yes), no: branch(no) }
            }
            ("_==_", [left, right]) => Node::Equal { left: *left, right: *right, negate: false },
            ("_!=_", [left, right]) => Node::Equal { left: *left, right: *right, negate: true },
            ("or", [optional, other]) => Node::OptionalOr { optional: *optional, other: *other, is_value: false },
            ("orValue", [optional, other]) => Node::OptionalOr { optional: *optional, other: *other, is_value: true },
            _ => match Search::named(function) {
                Some(search) => self.search(search, &all, &nodes, charge)?,
                None => {
                    let implementation = library::implementation(function).ok_or_else(unknown)?;
                    if let Some(folded) = folded::call(&self.plan.nodes, function, overload, implementation, &nodes) {
                        return folded.map_err(Fault::Instantiation);
                    }
                    let is_first = nodes.first().is_some_and(|operand| !self.is_selection(*operand));
                    let charge = match function {
                        "_[_]" => Charge::Index { is_first },
                        "_[?_]" => Charge::OptionalIndex { is_first },
                        _ => charge,
                    };
                    Node::Call(Box::new(Call { name: function, implementation, args: nodes.into(), charge }))
                }
            },
        })
    }

    fn search(&mut self, search: Search, args: &[Id], nodes: &[u32], charge: Charge) -> Result<Node, Fault> {
        let regex = match args.get(1).map(|pattern| self.ast.expr(*pattern)) {
            Some(Expr::Literal(Literal::String(text))) => Some(Regex::new(text).map_err(Fault::Instantiation)?),
            _ => None,
        };
        let limit = nodes.get(2).copied();
        Ok(Node::Search(Box::new(SearchNode { search, text: nodes[0], pattern: nodes[1], regex, limit, charge })))
    }
}
