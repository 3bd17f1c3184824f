//! The syntax tree of an expression, in an arena: nodes refer to each other by index, so that dropping a deep tree does
//! not recurse.
//!
//! Macros are nodes of their own (a fold, a bound optional) where upstream expands them into loops over an accumulator;
//! the checker, the cost estimate and the evaluator handle each accordingly.

use std::sync::Arc;

/// The index of a node in its [`Ast`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Id(pub(crate) u32);

impl Id {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A parsed expression.
#[derive(Debug)]
pub(crate) struct Ast {
    pub(crate) nodes: Vec<Expr>,
    /// The position at which each node is reported, in characters from the start.
    pub(crate) positions: Vec<u32>,
    pub(crate) root: Id,
    /// The depth of the tree.
    pub(crate) depth: u16,
}

impl Ast {
    pub(crate) fn expr(&self, id: Id) -> &Expr {
        &self.nodes[id.index()]
    }

    pub(crate) fn position(&self, id: Id) -> u32 {
        self.positions[id.index()]
    }
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    /// `cel.bind(name, value, body)`.
    Bind {
        name: Arc<str>,
        value: Id,
        body: Id,
    },
    Call {
        function: Arc<str>,
        target: Option<Id>,
        args: Box<[Id]>,
    },
    Fold(Box<Fold>),
    Ident(Arc<str>),
    List(Box<[Item]>),
    Literal(Literal),
    Map(Box<[Entry]>),
    /// `target.optMap(name, body)`, and `optFlatMap`, whose body is itself an optional.
    OptMap {
        target: Id,
        name: Arc<str>,
        body: Id,
        flat: bool,
    },
    Select {
        operand: Id,
        field: Arc<str>,
        test: bool,
    },
    Struct {
        name: Arc<str>,
        fields: Box<[Field]>,
    },
}

impl Expr {
    /// Calls `each` with each child.
    pub(crate) fn each_part(&self, each: &mut dyn FnMut(Id)) {
        match self {
            Expr::Bind { value, body, .. } => [*value, *body].into_iter().for_each(each),
            Expr::Call { target, args, .. } => target.iter().chain(args).copied().for_each(each),
            Expr::Fold(fold) => [Some(fold.range), fold.filter, Some(fold.body)].into_iter().flatten().for_each(each),
            Expr::Ident(_) | Expr::Literal(_) => {}
            Expr::List(items) => items.iter().map(|item| item.value).for_each(each),
            Expr::Map(entries) => entries.iter().flat_map(|entry| [entry.key, entry.value]).for_each(each),
            Expr::OptMap { target, body, .. } => [*target, *body].into_iter().for_each(each),
            Expr::Select { operand, .. } => each(*operand),
            Expr::Struct { fields, .. } => fields.iter().map(|field| field.value).for_each(each),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Bool(bool),
    Bytes(Arc<[u8]>),
    Double(f64),
    Int(i64),
    Null,
    String(Arc<str>),
    Uint(u64),
}

/// An item of a list; an optional one (`[?x]`) is left out when it is absent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) value: Id,
    pub(crate) optional: bool,
}

/// An entry of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Id,
    pub(crate) value: Id,
    pub(crate) optional: bool,
}

/// A field of an object literal.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: Arc<str>,
    pub(crate) value: Id,
    pub(crate) optional: bool,
    /// The position at which its errors are reported.
    pub(crate) position: u32,
}

/// A macro that iterates over a list or a map.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) kind: FoldKind,
    pub(crate) range: Id,
    pub(crate) var: Arc<str>,
    /// The variable of the value, where `var` is that of the index or the key.
    pub(crate) var2: Option<Arc<str>>,
    pub(crate) filter: Option<Id>,
    pub(crate) body: Id,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    /// `map`, `filter`, `transformList`.
    List,
    /// `transformMap`.
    Map,
    /// `transformMapEntry`.
    MapEntry,
    SortBy,
}
