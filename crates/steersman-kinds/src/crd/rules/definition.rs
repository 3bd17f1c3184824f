//! Validates the validation rules of a definition.

use crate::crd::rules::compile::{Compiled, Environments, Node, property_decl};
use crate::crd::rules::evaluate::Pass;
use crate::crd::rules::has_rules;
use crate::expressions::{COMPILING_STEPS, COMPILING_STEPS_PER_BYTE};
use serde_json::Value as Json;
use std::borrow::Cow;
use steersman_cel::{DeclType, RULE_COST_LIMIT, SCHEMA_COST_LIMIT, factor_over};
use steersman_machinery::budget::Budget;
use steersman_machinery::field::{Error, Path};
use steersman_schema::Schema;
use steersman_schema::schema::{List, Type};
use steersman_schema::structural::DefaultOf;

/// The steps that evaluating takes for what costs one.
const STEPS_PER_COST: usize = 4;

/// The most expressions that are named as those that cost too much together.
const DEAREST_MAX: usize = 4;

/// A schema in a definition.
pub(crate) struct SchemaContext<'p> {
    pub path: &'p Path,
    /// The errors of its keywords: the rules of a schema are not compiled if a keyword in it has an error.
    pub keywords: &'p [Error],
    /// Whether the old definition had the same schema, so that the cost of its single rules was already checked.
    pub(in crate::crd) is_unchanged: bool,
    /// The budget of the request. Nothing more is compiled once it is exceeded.
    pub(in crate::crd) budget: &'p Budget,
}

/// The errors of all rules of a schema that is structural and whose defaults are valid.
pub(crate) fn errors(schema: &Schema, place: &SchemaContext<'_>) -> Vec<Error> {
    if !has_rules(schema) {
        return Vec::new();
    }
    let mut walk = Walk { place, errors: Vec::new(), total: 0, dearest: Vec::new() };
    let decl = DeclType::from_resource_schema(schema).map(Cow::Owned);
    walk.schema(schema, &Here { path: Cow::Borrowed(place.path), decl, times: Some(1), no_old: None });
    if let Some(factor) = factor_over(walk.total, SCHEMA_COST_LIMIT) {
        for (_, path) in std::mem::take(&mut walk.dearest) {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            walk.errors.push(Error::forbidden(&path, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        walk.errors.push(Error::forbidden(place.path, too_dear(what, &factor)));
    }
    walk.errors
}

/// The errors that rules find in a default. All defaults of a schema share what rules may cost, and those of all schemas the budget of the
/// request.
pub(in crate::crd) fn judge_default(
    schema: &Schema,
    default: &Json,
    path: &Path,
    default_of: DefaultOf,
    cost: &mut Option<u64>,
    budget: &Budget,
) -> Vec<Error> {
    let mut errors = Vec::new();
    let (Some(left), true) = (*cost, has_rules(schema)) else { return errors };
    if !compiles_within(schema, budget) {
        return errors;
    }
    let decl = match default_of {
        DefaultOf::Field => DeclType::from_schema(schema),
        DefaultOf::Resource => DeclType::from_resource_schema(schema),
    };
    if let Some(node) = decl.and_then(|decl| Node::compile(schema, &decl)) {
        let mut pass = Pass::new(Some(path), left, &mut errors);
        // The default is also the old value, so that transition rules are evaluated too.
        pass.object(&node, default, Some(default));
        *cost = pass.budget();
        let spent = left - cost.unwrap_or_default();
        // The registry finds a refused charge when it checks the budget.
        let _ = budget.work(usize::try_from(spent).unwrap_or(usize::MAX).saturating_mul(STEPS_PER_COST));
    }
    errors
}

/// Charges the compilation of all rules of a schema. False if the budget is exceeded.
fn compiles_within(schema: &Schema, budget: &Budget) -> bool {
    let is_own_affordable = schema.rules.iter().all(|rule| budget.work(compiling_steps(rule)).is_ok());
    is_own_affordable
        && schema.item().is_none_or(|item| compiles_within(item, budget))
        && schema.values().is_none_or(|values| compiles_within(values, budget))
        && schema.properties.iter().all(|(_, property)| compiles_within(property, budget))
}

/// The steps that compiling a rule takes.
fn compiling_steps(rule: &Json) -> usize {
    let length = |key: &str| rule.get(key).and_then(Json::as_str).map_or(0, str::len);
    COMPILING_STEPS + (length("rule") + length("messageExpression")) * COMPILING_STEPS_PER_BYTE
}

/// A schema on the way.
struct Here<'h> {
    path: Cow<'h, Path>,
    /// The declaration of its values for expressions; none if they cannot be declared.
    decl: Option<Cow<'h, DeclType>>,
    /// The number of its values in an object, where that is bounded.
    times: Option<u64>,
    /// The path of an ancestor whose parts cannot be matched with their old values, if there is one.
    no_old: Option<&'h Path>,
}

struct Walk<'w> {
    place: &'w SchemaContext<'w>,
    errors: Vec<Error>,
    /// The estimated cost of all rules together.
    total: u64,
    /// The most expensive expressions, in descending order.
    dearest: Vec<(u64, Path)>,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Schema, here: &Here<'_>) {
        if let Some(values) = schema.values() {
            let element = here.decl.as_deref().and_then(DeclType::element).map(Cow::Borrowed);
            self.inner(values, here.path.child("additionalProperties"), element, times(schema, here), here.no_old);
        }
        for (name, property) in schema.properties.iter() {
            let decl = here.decl.as_deref().and_then(|decl| property_decl(decl, name, property));
            self.inner(property, here.path.child("properties").key(name), decl, times(schema, here), here.no_old);
        }
        if let Some(items) = schema.item() {
            let element = here.decl.as_deref().and_then(DeclType::element).map(Cow::Borrowed);
            let is_matched = matches!(schema.list(), List::Map(_));
            let no_old = here.no_old.or(if is_matched { None } else { Some(&*here.path) });
            self.inner(items, here.path.child("items"), element, times(schema, here), no_old);
        }
        if !schema.rules.is_empty() && !self.has_keyword_error(&here.path) {
            self.rules(schema, here);
        }
    }

    fn inner(
        &mut self,
        schema: &Schema,
        path: Path,
        decl: Option<Cow<'_, DeclType>>,
        times: Option<u64>,
        no_old: Option<&Path>,
    ) {
        if has_rules(schema) {
            self.schema(schema, &Here { path: Cow::Owned(path), decl, times, no_old });
        }
    }

    /// Whether a keyword here or deeper has an error.
    fn has_keyword_error(&self, path: &Path) -> bool {
        if self.place.budget.work(self.place.keywords.len()).is_err() {
            return true;
        }
        self.place.keywords.iter().any(|error| {
            let behind = error.field.strip_prefix(path.as_str());
            behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(['.', '[']))
        })
    }

    fn rules(&mut self, schema: &Schema, here: &Here<'_>) {
        let path = here.path.child("x-kubernetes-validations");
        let Some(decl) = here.decl.as_deref() else {
            let detail = "internal error: failed to retrieve type information for x-kubernetes-validations";
            return self.errors.push(Error::internal(&path, detail));
        };
        let environments = Environments::new(decl);
        let times = here.times.unwrap_or_else(|| decl.occurrences_max());
        for (index, written) in schema.rules.iter().enumerate() {
            if self.place.budget.work(compiling_steps(written)).is_err() {
                return;
            }
            let path = path.index(index);
            let compiled = Compiled::new(written, schema, &environments);
            self.rule(&compiled, written, &path, times);
            self.use_of_old(&compiled, written, &path, here.no_old);
        }
    }

    fn rule(&mut self, compiled: &Compiled, written: &Json, path: &Path, times: u64) {
        match &compiled.program {
            Ok(program) => {
                let cost = program.cost().max.saturating_mul(times);
                self.observe("estimated rule cost", cost, path.child("rule"));
            }
            Err(why) => self.errors.push(whole_rule(&path.child("rule"), written, why)),
        }
        match &compiled.message_expression {
            Some(Ok(program)) => {
                let what = "estimated messageExpression cost";
                self.observe(what, program.cost().max, path.child("messageExpression"));
            }
            Some(Err(why)) => self.errors.push(whole_rule(&path.child("messageExpression"), written, why)),
            None => {}
        }
    }

    fn use_of_old(&mut self, compiled: &Compiled, written: &Json, path: &Path, no_old: Option<&Path>) {
        let optional = written.get("optionalOldSelf").filter(|optional| optional.is_boolean());
        match (compiled.uses_old, no_old, optional) {
            (true, Some(within), _) => {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                let rule = written.get("rule").cloned().unwrap_or_default();
                self.errors.push(Error::invalid(&path.child("rule"), rule, detail));
            }
            (false, _, Some(optional)) => {
                let detail = "may not be set if oldSelf is not used in rule";
                self.errors.push(Error::invalid(&path.child("optionalOldSelf"), optional.clone(), detail));
            }
            _ => {}
        }
    }

    /// Adds the estimated cost of an expression, and reports an error if it is too high.
    fn observe(&mut self, what: &str, cost: u64, path: Path) {
        if let Some(factor) = factor_over(cost, RULE_COST_LIMIT).filter(|_| !self.place.is_unchanged) {
            self.errors.push(Error::forbidden(&path, too_dear(what, &factor)));
        }
        self.total = self.total.saturating_add(cost);
        // Expressions that hardly contribute are not named.
        if SCHEMA_COST_LIMIT / 100 <= cost {
            self.dearest.push((cost, path));
            self.dearest.sort_by(|(a, _), (b, _)| b.cmp(a));
            self.dearest.truncate(DEAREST_MAX);
        }
    }
}

/// How many elements of a value can occur in an object.
fn times(schema: &Schema, here: &Here<'_>) -> Option<u64> {
    let bounds = schema.bounds.as_deref();
    let each = match schema.value_type() {
        Type::Object if schema.values().is_some() => bounds?.properties_max?,
        Type::Array => bounds?.items_max?,
        _ => 1,
    };
    here.times.map(|times| times.saturating_mul(each))
}

fn too_dear(what: &str, factor: &str) -> String {
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength \
         where arrays, maps, and strings are declared)"
    )
}

/// An error that shows the whole rule, as upstream prints its type.
fn whole_rule(path: &Path, written: &Json, why: &str) -> Error {
    let text = |key: &str| quoted(written.get(key).and_then(Json::as_str).unwrap_or_default());
    let other = |key: &str| match written.get(key) {
        Some(Json::String(text)) if !text.is_empty() => quoted(text),
        Some(Json::Bool(flag)) => flag.to_string(),
        _ => "null".to_owned(),
    };
    let fields = [
        ("Rule", text("rule")),
        ("Message", text("message")),
        ("MessageExpression", text("messageExpression")),
        ("Reason", other("reason")),
        ("FieldPath", text("fieldPath")),
        ("OptionalOldSelf", other("optionalOldSelf")),
    ];
    let fields = fields.map(|(name, value)| format!("{name:?}:{value}")).join(",");
    Error::invalid_without_value(path, format!("{{{fields}}}: {why}"))
}

/// A string as Go's encoder writes it.
fn quoted(text: &str) -> String {
    let escapes =
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    let plain = Json::from(text).to_string();
    escapes.iter().fold(plain, |text, (char, escape)| text.replace(*char, escape))
}
