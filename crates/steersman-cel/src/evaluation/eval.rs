//! Evaluates a plan.
//!
//! Recursive, which the depth of a plan bounds. Each step charges upstream's cost; where upstream expands a macro into
//! a loop over an accumulator, reading and testing the accumulator is charged too.

use crate::checking::decl::ObjectDecl;
use crate::cost::charge;
use crate::cost::estimate::{LIST, MAP, OBJECT};
use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::library::regex::Regex;
use crate::evaluation::library::{lists, operators};
use crate::evaluation::plan::{Branch, Call, Constant, FoldNode, Node, Plan, SearchNode};
use crate::evaluation::value::Entries;
use crate::evaluation::value::{self, Fields, Key, Map, Object, Value};
use crate::program::Activation;
use crate::syntax::ast::FoldKind;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of bytes of an argument for which a function is charged one unit of work.
const TEXT_BYTES_PER_WORK: usize = 8;

/// The value of a plan.
pub(crate) fn evaluate<'a>(
    plan: &'a Plan,
    activation: &mut Activation<'a>,
    meter: &mut Meter,
) -> Result<Value<'a>, EvalError> {
    let depth = meter.enter_by(plan.depth)?;
    let variables = plan.variables.iter().map(|name| activation.variable(name)).collect();
    let mut evaluator = Evaluator { plan, variables, activation, locals: Vec::new(), meter };
    let value = evaluator.eval(plan.root);
    meter.set_depth(depth);
    value
}

struct Evaluator<'a, 'e> {
    plan: &'a Plan,
    variables: Vec<Option<Value<'a>>>,
    activation: &'e mut Activation<'a>,
    locals: Vec<Value<'a>>,
    meter: &'e mut Meter,
}

/// Functions whose upstream error has no details.
const PLAIN: [&str; 6] = ["contains", "endsWith", "find", "findAll", "matches", "startsWith"];

/// The error of a call without an overload for these values. Upstream names the operator only where no value of the
/// first argument's type has it.
fn no_overload(name: &str, args: &[&Value<'_>]) -> EvalError {
    if args.first().is_some_and(|first| !first.has_operator(name)) {
        return EvalError::new(format!("no such overload: {name}"));
    }
    if name.starts_with(['_', '-', '!', '@']) || PLAIN.contains(&name) {
        return EvalError::new("no such overload");
    }
    let types: Vec<&str> = args.iter().map(|arg| arg.type_name()).collect();
    EvalError::new(format!("no such overload: {name}({})", types.join(", ")))
}

impl<'a> Evaluator<'a, '_> {
    fn eval(&mut self, id: u32) -> Result<Value<'a>, EvalError> {
        let plan = self.plan;
        match &plan.nodes[id as usize] {
            Node::Const(constant) => {
                if let Constant::Format(_) = constant {
                    self.meter.charge(1)?;
                }
                Ok(constant.borrowed())
            }
            Node::Local(place) => {
                self.meter.charge(1)?;
                Ok(self.locals[*place].clone())
            }
            Node::Variable(place) => {
                self.meter.charge(1)?;
                self.variables[*place]
                    .clone()
                    .ok_or_else(|| EvalError::new(format!("no such attribute(s): {}", plan.variables[*place])))
            }
            Node::Composed(name) => {
                self.meter.charge(2)?;
                self.activation.compose(name, self.meter)
            }
            Node::Select { operand, field, is_first } => {
                let operand = self.eval(*operand)?;
                // An absent operand costs nothing.
                let own = u64::from(!matches!(operand, Value::Optional(None)));
                self.meter.charge(own + u64::from(*is_first))?;
                select(&operand, field)
            }
            Node::And(left, right) => self.logical(*left, *right, false),
            Node::Or(left, right) => self.logical(*left, *right, true),
            Node::Conditional { condition, yes, no } => match self.eval(*condition)? {
                Value::Bool(true) => self.branch(*yes),
                Value::Bool(false) => self.branch(*no),
                other => Err(no_overload("_?_:_", &[&other])),
            },
            Node::Equal { left, right, negate } => {
                let left = self.eval(*left)?;
                let right = self.eval(*right)?;
                self.meter.charge(charge::least(&left, &right))?;
                Ok(Value::Bool(value::equal(&left, &right, self.meter)? != *negate))
            }
            Node::Call(call) => self.call(call),
            Node::Has { operand, field, is_first } => {
                let operand = self.eval(*operand)?;
                self.meter.charge(u64::from(*is_first))?;
                has(&operand, field).map(Value::Bool)
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Search(search) => self.search(search),
            other => self.rare(other),
        }
    }

    /// The steps that rules seldom contain, in a function of their own so that the frame of the common steps stays
    /// small.
    #[inline(never)]
    fn rare(&mut self, node: &'a Node) -> Result<Value<'a>, EvalError> {
        match node {
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::Struct(parts) => self.object(&parts.decl, &parts.fields),
            Node::Among { value, list } => self.among(*value, *list),
            Node::Bind { value, body } => self.bind(*value, *body),
            Node::OptMap { target, body, flat } => self.opt_map(*target, *body, *flat),
            Node::OptionalOr { optional, other, is_value } => self.optional_or(*optional, *other, *is_value),
            Node::OptionalSelect { operand, field, is_first } => self.optional_select(*operand, field, *is_first),
            _ => Err(EvalError::new("a step that cannot be evaluated")),
        }
    }

    fn list(&mut self, items: &'a [(u32, bool)]) -> Result<Value<'a>, EvalError> {
        let mut values = Vec::with_capacity(items.len());
        for (item, optional) in items {
            let value = self.eval(*item)?;
            values.extend(if *optional { unwrapped(value)? } else { Some(value) });
        }
        self.meter.charge(LIST)?;
        Ok(Value::list(values))
    }

    /// Membership in a constant list. Upstream looks the value up in a set, which costs nothing.
    fn among(&mut self, value: u32, list: u32) -> Result<Value<'a>, EvalError> {
        let value = self.eval(value)?;
        let Value::List(list) = self.eval(list)? else { return Err(EvalError::new("no such overload")) };
        for item in list.iter() {
            self.meter.visit()?;
            if value::equal(&value, &item?, self.meter)? {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    }

    fn map(&mut self, entries: &'a [(u32, u32, bool)]) -> Result<Value<'a>, EvalError> {
        let mut map = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.eval(*key)?;
            let value = self.eval(*value)?;
            let value = if *optional { unwrapped(value)? } else { Some(value) };
            let Some(value) = value else { continue };
            let name = key.type_name().to_owned();
            let key = Key::of(key).ok_or_else(|| EvalError::new(format!("unsupported key type: {name}")))?;
            map.insert(key, value);
        }
        self.meter.charge(MAP)?;
        Ok(Value::Map(Map(Entries::Values(Arc::new(map)))))
    }

    fn object(
        &mut self,
        decl: &'a Arc<ObjectDecl>,
        fields: &'a [(Arc<str>, u32, bool)],
    ) -> Result<Value<'a>, EvalError> {
        let mut map = BTreeMap::new();
        for (name, value, optional) in fields {
            let value = self.eval(*value)?;
            let value = if *optional { unwrapped(value)? } else { Some(value) };
            if let Some(value) = value {
                map.insert(Arc::clone(name), value);
            }
        }
        self.meter.charge(OBJECT)?;
        Ok(Value::Object(Object(Fields::Values(Arc::clone(decl), Arc::new(map)))))
    }

    fn bind(&mut self, value: u32, body: u32) -> Result<Value<'a>, EvalError> {
        self.meter.charge(LIST)?;
        let value = self.eval(value)?;
        self.locals.push(value);
        let value = self.eval(body);
        self.locals.pop();
        value
    }

    fn opt_map(&mut self, target: u32, body: u32, flat: bool) -> Result<Value<'a>, EvalError> {
        let before = self.meter.spent();
        let target = self.eval(target)?;
        let own = self.meter.spent() - before;
        let Value::Optional(optional) = target else { return Err(no_overload("hasValue", &[&target])) };
        // The cost of the test for a value, and of the absent result.
        self.meter.charge(1)?;
        let Some(inner) = optional else {
            self.meter.charge(1)?;
            return Ok(Value::Optional(None));
        };
        // Upstream evaluates the target a second time to bind its value.
        self.meter.charge(own + 1)?;
        self.locals.push((*inner).clone());
        let value = self.eval(body);
        self.locals.pop();
        let value = value?;
        if flat {
            return Ok(value);
        }
        self.meter.charge(1)?;
        Ok(Value::optional(Some(value)))
    }

    fn optional_or(&mut self, optional: u32, other: u32, is_value: bool) -> Result<Value<'a>, EvalError> {
        match self.eval(optional)? {
            Value::Optional(None) => self.eval(other),
            Value::Optional(Some(value)) if is_value => Ok((*value).clone()),
            optional @ Value::Optional(_) => Ok(optional),
            other => Err(no_overload(if is_value { "orValue" } else { "or" }, &[&other])),
        }
    }

    fn optional_select(&mut self, operand: u32, field: &str, is_first: bool) -> Result<Value<'a>, EvalError> {
        let operand = self.eval(operand)?;
        self.meter.charge(u64::from(is_first))?;
        let inner = match &operand {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => &**inner,
            other => other,
        };
        let found = field_of(inner, field)?.transpose()?;
        // An absent field costs nothing.
        self.meter.charge(u64::from(found.is_some()))?;
        Ok(Value::optional(found))
    }

    fn branch(&mut self, branch: Branch) -> Result<Value<'a>, EvalError> {
        let value = self.eval(branch.node)?;
        self.meter.refund(u64::from(branch.is_selection));
        Ok(value)
    }

    /// `&&` and `||`: a side that decides the result does so even if the other fails.
    fn logical(&mut self, left: u32, right: u32, decides: bool) -> Result<Value<'a>, EvalError> {
        let name = if decides { "_||_" } else { "_&&_" };
        let left = match self.eval(left) {
            Ok(Value::Bool(bool)) if bool == decides => return Ok(Value::Bool(decides)),
            Ok(Value::Bool(_)) => Ok(()),
            Ok(other) => Err(no_overload(name, &[&other])),
            Err(error) if error.is_budget() => return Err(error),
            Err(error) => Err(error),
        };
        match self.eval(right) {
            Ok(Value::Bool(bool)) if bool == decides => Ok(Value::Bool(decides)),
            Err(error) if error.is_budget() => Err(error),
            right => {
                left?;
                match right? {
                    Value::Bool(bool) => Ok(Value::Bool(bool)),
                    other => Err(no_overload(name, &[&other])),
                }
            }
        }
    }

    fn call(&mut self, call: &'a Call) -> Result<Value<'a>, EvalError> {
        match *call.args {
            [one] => {
                let args = [self.eval(one)?];
                self.apply(call, &args)
            }
            [one, other] => {
                let args = [self.eval(one)?, self.eval(other)?];
                self.apply(call, &args)
            }
            _ => {
                let args: Result<Vec<_>, _> = call.args.iter().map(|arg| self.eval(*arg)).collect();
                self.apply(call, &args?)
            }
        }
    }

    fn apply(&mut self, call: &'a Call, args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
        // Many functions read a whole text for a cost of one.
        for arg in args {
            self.meter.work(arg.text_bytes() / TEXT_BYTES_PER_WORK)?;
        }
        let result = match (call.implementation)(self.meter, args) {
            Some(result) => result?,
            None => return Err(no_overload(call.name, &args.iter().collect::<Vec<_>>())),
        };
        self.meter.charge(call.charge.cost(args, &result))?;
        Ok(result)
    }

    fn search(&mut self, node: &'a SearchNode) -> Result<Value<'a>, EvalError> {
        let text = self.eval(node.text)?;
        let pattern = self.eval(node.pattern)?;
        let limit = match node.limit {
            Some(limit) => Some(self.eval(limit)?),
            None => None,
        };
        let args = [text, pattern];
        let (Value::String(text), Value::String(pattern)) = (&args[0], &args[1]) else {
            let name = format!("{:?}", node.search).to_lowercase();
            return Err(no_overload(&name, &[&args[0], &args[1]]));
        };
        let limit = match limit {
            None => -1,
            Some(Value::Int(limit)) => limit,
            Some(other) => return Err(no_overload("findAll", &[&args[0], &args[1], &other])),
        };
        let compiled;
        let regex = match &node.regex {
            Some(regex) => regex,
            None => {
                compiled = Regex::at_run_time(pattern, self.meter)?;
                &compiled
            }
        };
        // Charged before the text is searched: the cost does not depend on the matches.
        self.meter.charge(node.charge.cost(&args, &Value::Null))?;
        regex.search(node.search, text, limit, self.meter)
    }

    fn truth(&mut self, id: u32, name: &str) -> Result<bool, EvalError> {
        match self.eval(id)? {
            Value::Bool(bool) => Ok(bool),
            other => Err(no_overload(name, &[&other])),
        }
    }

    #[inline(never)]
    fn fold(&mut self, fold: &'a FoldNode) -> Result<Value<'a>, EvalError> {
        let range = self.eval(fold.range)?;
        match fold.kind {
            FoldKind::All => self.quantify(fold, &range, true),
            FoldKind::Exists => self.quantify(fold, &range, false),
            FoldKind::ExistsOne => {
                let mut count = 0;
                self.each(fold, &range, &mut |this| {
                    if this.truth(fold.body, "_?_:_")? {
                        this.meter.charge(2)?;
                        count += 1;
                    }
                    Ok(true)
                })?;
                self.meter.charge(2)?;
                Ok(Value::Bool(count == 1))
            }
            FoldKind::List => {
                let mut values = Vec::new();
                let item = self.item_cost(fold);
                self.each(fold, &range, &mut |this| {
                    if this.passes(fold)? {
                        let value = this.eval(fold.body)?;
                        this.meter.charge(item)?;
                        values.push(value);
                    }
                    Ok(true)
                })?;
                self.meter.charge(1)?;
                Ok(Value::list(values))
            }
            FoldKind::Map | FoldKind::MapEntry => self.transform_map(fold, &range),
            FoldKind::SortBy => {
                let Value::List(list) = &range else { return Err(no_overload("@sortByAssociatedKeys", &[&range])) };
                let mut keys = Vec::with_capacity(list.len());
                let item = self.item_cost(fold);
                self.meter.charge(1)?;
                self.each(fold, &range, &mut |this| {
                    let key = this.eval(fold.body)?;
                    this.meter.charge(item)?;
                    keys.push(key);
                    Ok(true)
                })?;
                let keys = Value::list(keys);
                self.meter.charge(2)?;
                self.meter.charge(charge::self_compare(Some(&keys)))?;
                match &keys {
                    Value::List(keys) => lists::sort_by(self.meter, list, keys),
                    _ => Ok(range),
                }
            }
        }
    }

    /// The cost of appending an item to a list: a list of one item, which is made once if it is constant, and the
    /// concatenation.
    fn item_cost(&self, fold: &FoldNode) -> u64 {
        match self.plan.nodes[fold.body as usize] {
            Node::Const(_) => 2,
            _ => LIST + 2,
        }
    }

    /// Whether an element passes the filter, if there is one.
    fn passes(&mut self, fold: &'a FoldNode) -> Result<bool, EvalError> {
        let Some(filter) = fold.filter else { return Ok(true) };
        self.truth(filter, "_?_:_")
    }

    fn transform_map(&mut self, fold: &'a FoldNode, range: &Value<'a>) -> Result<Value<'a>, EvalError> {
        let mut map = BTreeMap::new();
        self.each(fold, range, &mut |this| {
            if !this.passes(fold)? {
                return Ok(true);
            }
            let value = this.eval(fold.body)?;
            let mut insert = |key: Value<'a>, value: Value<'a>| {
                let name = key.type_name().to_owned();
                let key = Key::of(key).ok_or_else(|| EvalError::new(format!("unsupported key type: {name}")))?;
                if map.contains_key(&key) {
                    return Err(EvalError::new(format!(
                        "insert failed: key {} already exists",
                        operators::shown(&key.to_value())
                    )));
                }
                map.insert(key, value);
                Ok(())
            };
            if fold.kind == FoldKind::Map {
                this.meter.charge(3)?;
                // The key is the first of the two variables.
                let key = this.locals.get(this.locals.len().wrapping_sub(2)).cloned();
                insert(key.unwrap_or(Value::Null), value)?;
            } else {
                this.meter.charge(2)?;
                let Value::Map(entries) = &value else { return Err(no_overload("cel.@mapInsert", &[&value])) };
                this.meter.work(entries.len() * 8)?;
                for (key, value) in entries.iter() {
                    insert(key, value?)?;
                }
            }
            Ok(true)
        })?;
        self.meter.charge(1)?;
        Ok(Value::Map(Map(Entries::Values(Arc::new(map)))))
    }

    /// `all` and `exists`: an element that decides the result does so even if others fail.
    fn quantify(&mut self, fold: &'a FoldNode, range: &Value<'a>, all: bool) -> Result<Value<'a>, EvalError> {
        let name = if all { "_&&_" } else { "_||_" };
        let test = if all { 2 } else { 3 };
        let mut failed: Option<EvalError> = None;
        let mut is_decided = false;
        self.each(fold, range, &mut |this| {
            this.meter.charge(test)?;
            if is_decided {
                return Ok(false);
            }
            this.meter.charge(1)?;
            match this.eval(fold.body) {
                Ok(Value::Bool(bool)) => is_decided = bool != all,
                Ok(other) => failed = failed.take().or_else(|| Some(no_overload(name, &[&other]))),
                Err(error) if error.is_budget() => return Err(error),
                Err(error) => failed = failed.take().or(Some(error)),
            }
            Ok(true)
        })?;
        self.meter.charge(1)?;
        match failed {
            _ if is_decided => Ok(Value::Bool(!all)),
            Some(error) => Err(error),
            None => Ok(Value::Bool(all)),
        }
    }

    /// Iterates over a list or a map with the variables of the macro set, until the step says to stop.
    fn each(
        &mut self,
        fold: &FoldNode,
        range: &Value<'a>,
        step: &mut dyn FnMut(&mut Self) -> Result<bool, EvalError>,
    ) -> Result<(), EvalError> {
        let depth = self.locals.len();
        match range {
            Value::List(list) => {
                for (at, item) in list.iter().enumerate() {
                    if fold.two {
                        self.locals.push(Value::Int(i64::try_from(at).unwrap_or(i64::MAX)));
                    }
                    self.locals.push(item?);
                    let goes_on = step(self);
                    self.locals.truncate(depth);
                    if !goes_on? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for (key, value) in map.iter() {
                    self.locals.push(key);
                    if fold.two {
                        self.locals.push(value?);
                    }
                    let goes_on = step(self);
                    self.locals.truncate(depth);
                    if !goes_on? {
                        break;
                    }
                }
            }
            other => {
                let message = match fold.two {
                    false => format!("got '{}', expected iterable type", other.go_type()),
                    true => format!("unsupported comprehension range type: {}", other.go_type()),
                };
                return Err(EvalError::new(message));
            }
        }
        Ok(())
    }
}

/// The value of an entry that is written as optional.
fn unwrapped<'a>(value: Value<'a>) -> Result<Option<Value<'a>>, EvalError> {
    match value {
        Value::Optional(optional) => Ok(optional.map(|value| (*value).clone())),
        other => Err(EvalError::new(format!("cannot initialize optional entry from non-optional value {other:?}"))),
    }
}

/// A field of a map or an object; none if it is not set, or if the value has no fields.
fn field_of<'a>(value: &Value<'a>, field: &str) -> Result<Option<Result<Value<'a>, EvalError>>, EvalError> {
    match value {
        Value::Map(map) => Ok(map.get_str(field)),
        Value::Object(object) => Ok(object.get(field)),
        Value::List(_) => Err(EvalError::new("unsupported index type 'string' in list")),
        _ => Ok(None),
    }
}

fn select<'a>(operand: &Value<'a>, field: &str) -> Result<Value<'a>, EvalError> {
    match operand {
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => field_of(inner, field)?.transpose().map(Value::optional),
        _ => field_of(operand, field)?.unwrap_or_else(|| Err(EvalError::no_key(field))),
    }
}

fn has(operand: &Value<'_>, field: &str) -> Result<bool, EvalError> {
    match operand {
        Value::Optional(None) => Ok(false),
        Value::Optional(Some(inner)) => has(inner, field),
        _ => Ok(field_of(operand, field)?.is_some()),
    }
}
