//! Evaluates rules on an object, within a budget.

use crate::crd::rules::compile::{Compiled, Node};
use crate::expressions::{BRIEF_COST, BRIEF_WORK};
use std::cell::OnceCell;
use std::collections::HashMap;
use steersman_cel::{Activation, EvalError, Meter, PER_CALL_LIMIT, Program, Value};
use steersman_machinery::Value as Json;
use steersman_machinery::field::{Error, Kind, Path};
use steersman_machinery::value::Map;

/// The maximum length of the message of a messageExpression.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// One walk through an object.
pub(super) struct Pass<'f, 'a> {
    /// The field of the object; none if it is the whole object.
    prefix: Option<&'f Path>,
    /// The path from there to the current value.
    way: Vec<Segment<'a>>,
    /// The remaining cost. `None`: no more rules are evaluated.
    budget: Option<u64>,
    work: u64,
    /// The cost of one evaluation.
    per_call: u64,
    errors: &'f mut Vec<Error>,
    warnings: Vec<String>,
}

#[derive(Clone, Copy)]
enum Segment<'a> {
    Child(&'a str),
    Index(usize),
    Key(&'a str),
}

/// A value with its old value.
#[derive(Clone, Copy)]
struct At<'a> {
    value: &'a Json,
    /// The matching value in the old object.
    old: Option<&'a Json>,
    /// The nearest ancestor with an old value, and that: if it has not changed, nothing in it has.
    around: Option<(&'a Json, &'a Json)>,
}

impl<'a> At<'a> {
    /// A part of this value.
    fn inner(self, value: &'a Json, old: Option<&'a Json>) -> At<'a> {
        let around = self.old.map(|old| (self.value, old)).or(self.around);
        // A null counts as absent.
        At { value, old: old.filter(|old| !old.is_null()), around }
    }

    fn is_unchanged(self) -> bool {
        self.old.map(|old| (self.value, old)).or(self.around).is_some_and(|(value, old)| value == old)
    }
}

impl<'f, 'a> Pass<'f, 'a> {
    pub(super) fn new(prefix: Option<&'f Path>, budget: u64, errors: &'f mut Vec<Error>) -> Pass<'f, 'a> {
        let work = Meter::object_work();
        Pass {
            prefix,
            way: Vec::new(),
            budget: Some(budget),
            work,
            per_call: PER_CALL_LIMIT,
            errors,
            warnings: Vec::new(),
        }
    }

    /// A pass that may end early: then `budget` is `None`, and the errors mean nothing.
    pub(super) fn brief(errors: &'f mut Vec<Error>) -> Pass<'f, 'a> {
        Pass { work: BRIEF_WORK, per_call: BRIEF_COST, ..Pass::new(None, BRIEF_COST, errors) }
    }

    /// Evaluates the rules on an object and on all parts of it.
    pub(super) fn object(&mut self, node: &'a Node, value: &'a Json, old: Option<&'a Json>) {
        self.value(node, At { value, old, around: None });
    }

    pub(super) fn into_warnings(self) -> Vec<String> {
        self.warnings
    }

    /// The remaining cost; none if rules were skipped because it was exhausted.
    pub(super) fn budget(&self) -> Option<u64> {
        self.budget
    }

    fn value(&mut self, node: &'a Node, at: At<'a>) {
        // A null value is not validated.
        if self.budget.is_none() || at.value.is_null() {
            return;
        }
        self.rules(node, at);
        match at.value {
            Json::Array(items) => self.items(node, items, at),
            Json::Object(fields) => self.fields(node, fields, at),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }

    fn fields(&mut self, node: &'a Node, fields: &'a Map, at: At<'a>) {
        let former = |name: &str| at.old.and_then(|old| old.as_object()?.get(name));
        if let Some(values) = node.values.as_deref() {
            for (name, value) in fields {
                self.inside(Segment::Key(name), values, at.inner(value, former(name)));
            }
        }
        // Iterates over the shorter of the two, because most fields have no rules.
        if node.properties.len() < fields.len() {
            for (name, property) in &node.properties {
                if let Some(value) = fields.get(&**name) {
                    self.inside(Segment::Child(name), property, at.inner(value, former(name)));
                }
            }
            return;
        }
        for (name, value) in fields {
            if let Some(property) = node.property(name) {
                self.inside(Segment::Child(name), property, at.inner(value, former(name)));
            }
        }
    }

    fn items(&mut self, node: &'a Node, items: &'a [Json], at: At<'a>) {
        let Some(item_node) = node.items.as_deref() else { return };
        let former = Former::new(&node.keys, at.old);
        for (index, item) in items.iter().enumerate() {
            self.inside(Segment::Index(index), item_node, at.inner(item, former.of(index, item)));
        }
    }

    fn inside(&mut self, segment: Segment<'a>, node: &'a Node, at: At<'a>) {
        self.way.push(segment);
        self.value(node, at);
        self.way.pop();
    }

    // === the rules of one value ===

    fn rules(&mut self, node: &'a Node, at: At<'a>) {
        if node.rules.is_empty() {
            return;
        }
        if self.budget == Some(0) {
            return self.stop(node, format!("validation failed due to {OUT_OF_COST}"));
        }
        let own = Value::declared(at.value, &node.decl);
        let old = at.old.map(|old| Value::declared(old, &node.decl));
        let (mut plain, mut with_optional) = (None, None);
        for rule in &node.rules {
            let is_skipped = rule.uses_old && old.is_none() && !rule.has_optional_old;
            if self.budget.is_none() || is_skipped {
                continue;
            }
            let program = match &rule.program {
                Ok(program) => program,
                Err(why) => {
                    self.fail(node, format!("rule compile error: {why}"));
                    continue;
                }
            };
            let slot = if rule.has_optional_old { &mut with_optional } else { &mut plain };
            if slot.is_none() {
                match activation(&own, old.as_ref(), rule.has_optional_old) {
                    Ok(made) => *slot = Some(made),
                    Err(error) => {
                        self.fail(node, format!("{error} evaluating rule: {}", rule.shown()));
                        continue;
                    }
                }
            }
            let Some(variables) = slot else { continue };
            let holds = match self.run(program, variables) {
                Ok(value) => value.as_bool() == Some(true),
                Err(Stopped::Budget) => return self.stop(node, format!("validation failed due to {OUT_OF_COST}")),
                Err(Stopped::Error(error)) => {
                    if !self.explain(node, rule, &error) {
                        return;
                    }
                    continue;
                }
            };
            if !holds {
                // Upstream evaluates messages with the plain `oldSelf`, whatever the rule says.
                if plain.is_none() {
                    plain = activation(&own, old.as_ref(), false).ok();
                }
                self.refuse(node, rule, at, plain.as_mut());
            }
        }
    }

    /// Evaluates a program within the remaining budget.
    fn run(&mut self, program: &'a Program, variables: &mut Activation<'a>) -> Result<Value<'a>, Stopped> {
        let mut meter = Meter::sharing(self.per_call, self.work);
        let outcome = program.evaluate(variables, &mut meter);
        self.work = meter.work_left(self.work);
        match self.budget.and_then(|budget| budget.checked_sub(meter.spent())) {
            Some(left) => self.budget = Some(left),
            None => return Err(Stopped::Budget),
        }
        outcome.map_err(Stopped::Error)
    }

    /// Reports a rule that could not be evaluated. False if no more rules are to be evaluated.
    fn explain(&mut self, node: &Node, rule: &Compiled, error: &EvalError) -> bool {
        let shown = rule.shown();
        if error.is_budget() {
            let limit = "no further validation rules will be run due to call cost exceeds limit for rule";
            self.stop(node, format!("'{error}': {limit}: {shown}"));
            return false;
        }
        let is_overload = error.to_string().starts_with("no such overload");
        self.fail(node, match is_overload {
            true => format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
            ),
            false => format!("{error} evaluating rule: {shown}"),
        });
        true
    }

    /// Reports a rule that does not hold.
    fn refuse(&mut self, node: &'a Node, rule: &'a Compiled, at: At<'a>, variables: Option<&mut Activation<'a>>) {
        let here = self.field();
        let path = match (&rule.field, self.is_at_root()) {
            (Some(field), true) => Path::new(&**field),
            (Some(field), false) => here.child(field),
            (None, _) => here,
        };
        let said = match (&rule.message_expression, variables) {
            (Some(Ok(expression)), Some(variables)) => self.message(rule, expression, variables),
            _ => Ok(None),
        };
        let (error, is_last) = match said {
            Ok(said) => {
                let detail = said.unwrap_or_else(|| rule.message());
                // These kinds do not show the value.
                let is_shown = !node.is_composed && !matches!(rule.kind, Kind::Forbidden | Kind::Required);
                let detail = if rule.kind == Kind::Duplicate { String::new() } else { detail };
                let value = is_shown.then(|| at.value.clone());
                (Error { kind: rule.kind, field: path.as_str().to_owned(), value, detail }, false)
            }
            Err(why) => (Error::invalid(&path, node.type_name, why), true),
        };
        // A default is its own old value, and is not ratcheted.
        let is_forgiving = self.prefix.is_none() && !rule.uses_old;
        if is_forgiving && at.is_unchanged() {
            self.warnings.push(error.to_string());
        } else {
            self.errors.push(error);
        }
        if is_last {
            self.budget = None;
        }
    }

    /// The message of a messageExpression; none if it is not valid. The error ends the evaluation of rules.
    fn message(
        &mut self,
        rule: &Compiled,
        expression: &'a Program,
        variables: &mut Activation<'a>,
    ) -> Result<Option<String>, String> {
        match self.run(expression, variables) {
            Ok(value) => {
                let message = value.as_str().unwrap_or_default().trim();
                let is_usable = !message.is_empty() && message.len() <= MESSAGE_BYTES_MAX && !message.contains('\n');
                Ok(is_usable.then(|| message.to_owned()))
            }
            Err(Stopped::Error(error)) if error.is_budget() => {
                let limit =
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression";
                Err(format!("{limit}: {:?}", rule.expression))
            }
            Err(Stopped::Error(_)) => Ok(None),
            Err(Stopped::Budget) => Err(format!("messageExpression evaluation failed due to {OUT_OF_COST}")),
        }
    }

    // === messages ===

    fn fail(&mut self, node: &Node, detail: String) {
        let field = self.field();
        self.errors.push(Error::invalid(&field, node.type_name, detail));
    }

    fn stop(&mut self, node: &Node, detail: String) {
        self.fail(node, detail);
        self.budget = None;
    }

    fn is_at_root(&self) -> bool {
        self.prefix.is_none() && self.way.is_empty()
    }

    /// The path of the current field. The whole object has none; upstream prints the nil pointer.
    fn field(&self) -> Path {
        if self.is_at_root() {
            return Path::new("<nil>");
        }
        let start = self.prefix.cloned().unwrap_or_default();
        self.way.iter().fold(start, |path, segment| match segment {
            Segment::Child(name) => path.child(name),
            Segment::Index(index) => path.index(*index),
            Segment::Key(name) => path.key(name),
        })
    }
}

const OUT_OF_COST: &str = "running out of cost budget, no further validation rules will be run";

enum Stopped {
    /// The budget of all rules together is exhausted.
    Budget,
    Error(EvalError),
}

/// The variables of a rule.
fn activation<'a>(
    own: &Result<Value<'a>, EvalError>,
    old: Option<&Result<Value<'a>, EvalError>>,
    is_optional: bool,
) -> Result<Activation<'a>, EvalError> {
    let old = old.cloned().transpose()?;
    let activation = Activation::new().with("self", own.clone()?);
    Ok(match (is_optional, old) {
        (true, old) => activation.with("oldSelf", Value::optional(old)),
        (false, Some(old)) => activation.with("oldSelf", old),
        (false, None) => activation,
    })
}

/// The old items of a list, by their keys.
struct Former<'a> {
    keys: &'a [Box<str>],
    old: &'a [Json],
    /// Built when an item is at another index than before.
    by_keys: OnceCell<HashMap<String, &'a Json>>,
}

impl<'a> Former<'a> {
    fn new(keys: &'a [Box<str>], old: Option<&'a Json>) -> Former<'a> {
        let old = old.and_then(Json::as_array).map(Vec::as_slice);
        Former { keys, old: old.filter(|_| !keys.is_empty()).unwrap_or_default(), by_keys: OnceCell::new() }
    }

    /// The old value of an item; none if the item is new, or items have no keys.
    fn of(&self, index: usize, item: &Json) -> Option<&'a Json> {
        let is_same = |other: &Json| self.keys.iter().all(|key| other.get(&**key) == item.get(&**key));
        if let Some(there) = self.old.get(index).filter(|other| is_same(other)) {
            return Some(there);
        }
        if self.old.is_empty() {
            return None;
        }
        let by_keys = self.by_keys.get_or_init(|| {
            let mut by_keys = HashMap::with_capacity(self.old.len());
            for other in self.old {
                by_keys.entry(self.key(other)).or_insert(other);
            }
            by_keys
        });
        by_keys.get(&self.key(item)).copied()
    }

    fn key(&self, item: &Json) -> String {
        let values = self.keys.iter().map(|key| item.get(&**key).map_or_else(String::new, Json::to_string));
        values.collect::<Vec<String>>().join(",")
    }
}
