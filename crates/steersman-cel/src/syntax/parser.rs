//! Parses expressions into a tree, and recognizes macros on the way.
//!
//! Binary operators use precedence climbing. Everything that nests costs one level of [`DEPTH_MAX`], and a deeper tree
//! is refused, so that code may walk the tree by recursion. Chains of `&&` and `||` become balanced trees, as upstream.

mod macros;
mod unexpected;

use crate::syntax::ast::{Ast, Entry, Expr, Field, Id, Item, Literal};
use crate::syntax::lexer::{self, Spanned, Token};
use crate::syntax::parser::unexpected::OperandPosition;
use crate::syntax::source::Issue;
use std::sync::Arc;

/// The maximum nesting of an expression.
pub(crate) const DEPTH_MAX: u16 = 250;

/// The maximum length of an expression, in characters.
pub(crate) const CHARS_MAX: usize = 100_000;

/// Reserved words, which are not allowed as names.
pub(crate) const RESERVED: [&str; 18] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "in",
];

/// Parses an expression.
pub(crate) fn parse(text: &str) -> Result<Ast, Issue> {
    let chars = text.chars().count();
    if chars > CHARS_MAX {
        return Err(Issue::new(
            0,
            format!("expression code point size exceeds limit: size: {chars}, limit {CHARS_MAX}"),
        ));
    }
    let mut parser = Parser {
        text,
        tokens: lexer::tokens(text)?,
        at: 0,
        place: OperandPosition::default(),
        nesting_of_brackets: 0,
        nesting: 0,
        nodes: Vec::new(),
        positions: Vec::new(),
        depths: Vec::new(),
    };
    let root = parser.expr()?;
    match parser.token() {
        Token::End => {
            let depth = parser.depths[root.index()];
            Ok(Ast { nodes: parser.nodes, positions: parser.positions, root, depth })
        }
        _ => Err(parser.not_the_end()),
    }
}

pub(crate) struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Spanned>,
    at: usize,
    /// The position of the next token.
    place: OperandPosition,
    /// The number of open brackets.
    nesting_of_brackets: u32,
    /// The number of nested expressions that are being parsed.
    nesting: u16,
    nodes: Vec<Expr>,
    positions: Vec<u32>,
    /// The depth of the tree below each node.
    depths: Vec<u16>,
}

impl Parser<'_> {
    fn token(&self) -> &Token {
        &self.tokens[self.at].token
    }

    fn position(&self) -> u32 {
        self.tokens[self.at].position
    }

    fn next(&mut self) {
        // The last token is the end, and is never consumed.
        match self.token() {
            Token::Symbol("(" | "[" | "{") => self.nesting_of_brackets += 1,
            Token::Symbol(")" | "]" | "}") => self.nesting_of_brackets = self.nesting_of_brackets.saturating_sub(1),
            _ => {}
        }
        self.place = OperandPosition::Plain;
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    /// Consumes a symbol, if it comes next.
    fn accept(&mut self, symbol: &'static str) -> bool {
        let is_next = *self.token() == Token::Symbol(symbol);
        if is_next {
            self.next();
        }
        is_next
    }

    fn expect(&mut self, symbol: &'static str) -> Result<(), Issue> {
        if self.accept(symbol) { Ok(()) } else { Err(self.not_symbol(symbol)) }
    }

    fn too_deep(position: u32) -> Issue {
        Issue::new(position, format!("expression recursion limit exceeded: {DEPTH_MAX}"))
    }

    /// Adds a node.
    fn add(&mut self, expr: Expr, position: u32) -> Result<Id, Issue> {
        let depth = |id: &Id| self.depths[id.index()];
        let most = match &expr {
            Expr::Ident(_) | Expr::Literal(_) => 0,
            Expr::Bind { value, body, .. } => depth(value).max(depth(body)),
            Expr::Call { target, args, .. } => target.iter().chain(args.iter()).map(depth).max().unwrap_or(0),
            Expr::Fold(fold) => {
                let parts = [Some(fold.range), fold.filter, Some(fold.body)];
                parts.iter().flatten().map(depth).max().unwrap_or(0)
            }
            Expr::List(items) => items.iter().map(|item| depth(&item.value)).max().unwrap_or(0),
            Expr::Map(entries) => {
                entries.iter().map(|entry| depth(&entry.key).max(depth(&entry.value))).max().unwrap_or(0)
            }
            Expr::OptMap { target, body, .. } => depth(target).max(depth(body)),
            Expr::Select { operand, .. } => depth(operand),
            Expr::Struct { fields, .. } => fields.iter().map(|field| depth(&field.value)).max().unwrap_or(0),
        };
        if most >= DEPTH_MAX {
            return Err(Parser::too_deep(position));
        }
        let id = Id(u32::try_from(self.nodes.len()).map_err(|_| Parser::too_deep(position))?);
        self.nodes.push(expr);
        self.positions.push(position);
        self.depths.push(most + 1);
        Ok(id)
    }

    fn call(&mut self, function: &str, args: impl Into<Box<[Id]>>, position: u32) -> Result<Id, Issue> {
        self.add(Expr::Call { function: function.into(), target: None, args: args.into() }, position)
    }

    /// A whole expression: `a ? b : c`, or one that binds more tightly.
    fn expr(&mut self) -> Result<Id, Issue> {
        if self.nesting >= DEPTH_MAX {
            return Err(Parser::too_deep(self.position()));
        }
        self.nesting += 1;
        let condition = self.or()?;
        let position = self.position();
        let id = if self.accept("?") {
            let yes = self.or()?;
            self.expect(":")?;
            let no = self.expr()?;
            self.call("_?_:_", [condition, yes, no], position)?
        } else {
            condition
        };
        self.nesting -= 1;
        Ok(id)
    }

    fn or(&mut self) -> Result<Id, Issue> {
        self.chain("||", "_||_", |parser| parser.chain("&&", "_&&_", |parser| parser.binary(0)))
    }

    /// Operands with one logical operator between them, as a balanced tree.
    fn chain(
        &mut self,
        symbol: &'static str,
        function: &str,
        operand: impl Fn(&mut Parser<'_>) -> Result<Id, Issue>,
    ) -> Result<Id, Issue> {
        let first = operand(self)?;
        if *self.token() != Token::Symbol(symbol) {
            return Ok(first);
        }
        let mut operands = vec![first];
        let mut positions = Vec::new();
        loop {
            let position = self.position();
            if !self.accept(symbol) {
                break;
            }
            positions.push(position);
            operands.push(operand(self)?);
        }
        self.balance(function, &operands, &positions)
    }

    /// The operators `positions` between `operands`, of which there is one more. The depth is the logarithm of their
    /// number.
    fn balance(&mut self, function: &str, operands: &[Id], positions: &[u32]) -> Result<Id, Issue> {
        if positions.is_empty() {
            return Ok(operands[0]);
        }
        let middle = positions.len() / 2;
        let left = self.balance(function, &operands[..=middle], &positions[..middle])?;
        let right = self.balance(function, &operands[middle + 1..], &positions[middle + 1..])?;
        self.call(function, [left, right], positions[middle])
    }

    /// Operators that bind at least as tightly as `level`: comparison, sum, product.
    fn binary(&mut self, level: u8) -> Result<Id, Issue> {
        let mut left = self.unary()?;
        loop {
            let position = self.position();
            let Token::Symbol(symbol) = self.token() else { return Ok(left) };
            let (at, function) = match *symbol {
                "==" => (0, "_==_"),
                "!=" => (0, "_!=_"),
                "<" => (0, "_<_"),
                "<=" => (0, "_<=_"),
                ">" => (0, "_>_"),
                ">=" => (0, "_>=_"),
                "in" => (0, "@in"),
                "+" => (1, "_+_"),
                "-" => (1, "_-_"),
                "*" => (2, "_*_"),
                "/" => (2, "_/_"),
                "%" => (2, "_%_"),
                _ => return Ok(left),
            };
            if at < level {
                return Ok(left);
            }
            self.next();
            let right = self.binary(at + 1)?;
            left = self.call(function, [left, right], position)?;
        }
    }

    fn unary(&mut self) -> Result<Id, Issue> {
        let position = self.position();
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            if *self.token() != Token::Symbol(symbol) {
                continue;
            }
            // The minus sign of a number literal belongs to the literal.
            if symbol == "-"
                && let Some(literal) = self.negative_number()
            {
                self.next();
                self.next();
                let number = self.add(Expr::Literal(literal), position)?;
                return self.members(number);
            }
            let mut count = 0;
            while self.accept(symbol) {
                count += 1;
            }
            let operand = self.member()?;
            return if count % 2 == 0 { Ok(operand) } else { self.call(function, [operand], position) };
        }
        self.member()
    }

    fn negative_number(&self) -> Option<Literal> {
        match &self.tokens.get(self.at + 1)?.token {
            Token::Literal(Literal::Int(number)) => Some(Literal::Int(-number)),
            Token::Literal(Literal::Double(number)) => Some(Literal::Double(-number)),
            Token::IntMin => Some(Literal::Int(i64::MIN)),
            _ => None,
        }
    }

    fn member(&mut self) -> Result<Id, Issue> {
        let primary = self.primary()?;
        self.members(primary)
    }

    /// The members after a primary: `.name`, `.?name`, `.name(..)`, `[..]`, `[?..]`.
    fn members(&mut self, primary: Id) -> Result<Id, Issue> {
        let mut operand = primary;
        loop {
            let position = self.position();
            if self.accept(".") {
                let optional = self.accept("?");
                let Token::Ident(name) = self.token().clone() else { return Err(self.no_name()) };
                self.next();
                let call = self.position();
                operand = if optional {
                    let field = self.add(Expr::Literal(Literal::String(name)), position)?;
                    self.call("_?._", [operand, field], position)?
                } else if self.accept("(") {
                    let args = self.list_of(")")?;
                    self.member_call(operand, name, args, call)?
                } else {
                    self.add(Expr::Select { operand, field: name, test: false }, position)?
                };
            } else if self.accept("[") {
                self.place = OperandPosition::Index;
                let function = if self.accept("?") { "_[?_]" } else { "_[_]" };
                let index = self.expr()?;
                self.expect("]")?;
                operand = self.call(function, [operand, index], position)?;
            } else if *self.token() == Token::Symbol("{")
                && let Some(name) = self.qualified_name(operand)
            {
                operand = self.object(name)?;
            } else {
                return Ok(operand);
            }
        }
    }

    /// The dotted name of a chain of selections, if it is one.
    fn qualified_name(&self, id: Id) -> Option<String> {
        match &self.nodes[id.index()] {
            Expr::Ident(name) => Some(name.to_string()),
            Expr::Select { operand, field, test: false } => Some(format!("{}.{field}", self.qualified_name(*operand)?)),
            _ => None,
        }
    }

    fn primary(&mut self) -> Result<Id, Issue> {
        let position = self.position();
        match self.token().clone() {
            Token::Literal(literal) => {
                self.next();
                self.add(Expr::Literal(literal), position)
            }
            Token::IntMin => Err(Issue::new(position, "invalid int literal '9223372036854775808'")),
            Token::Ident(name) => {
                self.next();
                self.name(name, position)
            }
            Token::Symbol(".") => {
                self.next();
                let position = self.position();
                let Token::Ident(name) = self.token().clone() else { return Err(self.no_name()) };
                self.next();
                match self.token() {
                    Token::Symbol("(") => self.name(name, position),
                    _ => self.name(format!(".{name}").into(), position),
                }
            }
            Token::Symbol("(") => {
                self.next();
                let inner = self.expr()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Symbol("[") => {
                self.next();
                let mut items = Vec::new();
                self.place = OperandPosition::List;
                while !self.accept("]") {
                    let optional = self.accept("?");
                    items.push(Item { value: self.expr()?, optional });
                    self.separator("]")?;
                    self.place = OperandPosition::ListItem;
                }
                self.add(Expr::List(items.into()), position)
            }
            Token::Symbol("{") => {
                self.next();
                let mut entries = Vec::new();
                self.place = OperandPosition::Map;
                while !self.accept("}") {
                    let optional = self.accept("?");
                    let key = self.expr()?;
                    self.expect(":")?;
                    entries.push(Entry { key, value: self.expr()?, optional });
                    self.separator("}")?;
                }
                self.add(Expr::Map(entries.into()), position)
            }
            _ => Err(self.no_operand()),
        }
    }

    /// A name that begins an operand: a variable, or a called function.
    fn name(&mut self, name: Arc<str>, position: u32) -> Result<Id, Issue> {
        if RESERVED.contains(&&*name) {
            return Err(Issue::new(position, format!("reserved identifier: {name}")));
        }
        let call = self.position();
        if self.accept("(") {
            let args = self.list_of(")")?;
            return self.global_call(name, args, call);
        }
        self.add(Expr::Ident(name), position)
    }

    fn list_of(&mut self, end: &'static str) -> Result<Vec<Id>, Issue> {
        let mut args = Vec::new();
        self.place = OperandPosition::Arguments;
        if self.accept(end) {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if !self.accept(",") {
                self.expect(end)?;
                return Ok(args);
            }
        }
    }

    /// The separator of items: a comma, which may follow the last item too.
    fn separator(&mut self, end: &'static str) -> Result<(), Issue> {
        if *self.token() == Token::Symbol(end) || self.accept(",") { Ok(()) } else { Err(self.not_between(end)) }
    }

    fn object(&mut self, name: String) -> Result<Id, Issue> {
        let position = self.position();
        self.expect("{")?;
        let mut fields = Vec::new();
        while !self.accept("}") {
            let optional = self.accept("?");
            let Token::Ident(name) = self.token().clone() else { return Err(self.no_field()) };
            self.next();
            let position = self.position();
            self.expect(":")?;
            fields.push(Field { name, value: self.expr()?, optional, position });
            self.separator("}")?;
        }
        self.add(Expr::Struct { name: name.into(), fields: fields.into() }, position)
    }
}

#[cfg(test)]
mod tests;
