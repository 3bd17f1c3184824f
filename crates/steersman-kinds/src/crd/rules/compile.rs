//! Compiled rules, in a tree with the shape of the schema, reduced to the branches that have rules.

use serde_json::Value as Json;
use std::borrow::Cow;
use steersman_cel::{CompileError, DeclType, Environment, Program, Type, escape};
use steersman_machinery::field::{Kind, Path};
use steersman_schema::json_path::{JsonPath, Step};
use steersman_schema::schema::{self, List, Schema};

/// The rules of a value and of the values in it.
#[derive(Debug)]
pub(super) struct Node {
    pub rules: Box<[Compiled]>,
    pub decl: DeclType,
    /// The type, as messages show it.
    pub type_name: &'static str,
    /// Whether it is an object or a list, whose value messages do not show.
    pub is_composed: bool,
    /// The properties that have rules, sorted by name.
    pub properties: Box<[(Box<str>, Node)]>,
    /// The rules of the values of a map.
    pub values: Option<Box<Node>>,
    pub items: Option<Box<Node>>,
    /// The keys that match items of the list with their old values; empty if items are not matched.
    pub keys: Box<[Box<str>]>,
}

/// One rule.
#[derive(Debug)]
pub(super) struct Compiled {
    /// The rule, or why it cannot be run.
    pub program: Result<Program, String>,
    /// The messageExpression, or why it cannot be run.
    pub message_expression: Option<Result<Program, String>>,
    /// Whether the rule uses `oldSelf`.
    pub uses_old: bool,
    /// Whether `oldSelf` is an optional, so that the rule is evaluated without an old value too.
    pub has_optional_old: bool,
    /// The type of the validation error, from the rule's `reason`.
    pub kind: Kind,
    /// The `fieldPath`, as errors show it.
    pub field: Option<Box<str>>,
    message: Box<str>,
    /// The rule as written.
    text: Box<str>,
    /// The messageExpression as written.
    pub expression: Box<str>,
}

impl Node {
    /// The rules in a schema; none if it has none.
    pub(super) fn compile(schema: &Schema, decl: &DeclType) -> Option<Node> {
        let mut properties: Vec<(Box<str>, Node)> = Vec::new();
        for (name, property) in schema.properties.iter() {
            let decl = property_decl(decl, name, property);
            if let Some(node) = decl.and_then(|decl| Node::compile(property, &decl)) {
                properties.push((name.into(), node));
            }
        }
        let element = |schema: Option<&Schema>| Some(Box::new(Node::compile(schema?, decl.element()?)?));
        let (items, values) = (element(schema.item()), element(schema.values()));
        let is_empty = schema.rules.is_empty() && properties.is_empty() && items.is_none() && values.is_none();
        if is_empty {
            return None;
        }
        let keys = match schema.list() {
            List::Map(keys) => keys.clone(),
            List::Atomic | List::Set => Box::default(),
        };
        let environments = Environments::new(decl);
        let value_type = schema.value_type();
        Some(Node {
            rules: schema.rules.iter().map(|rule| Compiled::new(rule, schema, &environments)).collect(),
            decl: decl.clone(),
            type_name: if value_type == schema::Type::IntOrString { "" } else { value_type.name() },
            is_composed: matches!(value_type, schema::Type::Array | schema::Type::Object),
            properties: properties.into(),
            values,
            items,
            keys,
        })
    }

    pub(super) fn property(&self, name: &str) -> Option<&Node> {
        let at = self.properties.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }
}

/// The declaration of a property. A property whose name cannot be written in an expression may still have rules of its
/// own.
pub(super) fn property_decl<'d>(decl: &'d DeclType, name: &str, property: &Schema) -> Option<Cow<'d, DeclType>> {
    match escape(name) {
        Some(_) => decl.property(name).map(Cow::Borrowed),
        None => DeclType::from_schema(property).map(Cow::Owned),
    }
}

/// The environments in which the rules of one schema are compiled.
pub(super) struct Environments {
    plain: Environment,
    /// An environment with an `oldSelf` that may be absent.
    optional: Environment,
}

impl Environments {
    pub(super) fn new(decl: &DeclType) -> Environments {
        let own = Environment::new().declare("self", decl.clone());
        let optional = own.clone().declare("oldSelf", decl.clone().optional());
        Environments { plain: own.declare("oldSelf", decl.clone()), optional }
    }
}

impl Compiled {
    /// Compiles a rule as written in a schema.
    pub(super) fn new(rule: &Json, schema: &Schema, environments: &Environments) -> Compiled {
        let said = |key: &str| rule.get(key).and_then(Json::as_str).unwrap_or_default();
        let has_optional_old = rule.get("optionalOldSelf").and_then(Json::as_bool).unwrap_or_default();
        let environment = if has_optional_old { &environments.optional } else { &environments.plain };
        let failed = |error: CompileError| match error.is_of_instantiation() {
            true => format!("program instantiation failed: {error}"),
            false => format!("compilation failed: {error}"),
        };
        let program = match environment.compile(said("rule")).map_err(failed) {
            Ok(program) if *program.output() != Type::Bool => Err("cel expression must evaluate to a bool".to_owned()),
            other => other,
        };
        let expression = said("messageExpression");
        let message_expression = match environment.compile(expression) {
            _ if expression.is_empty() || program.is_err() => None,
            Err(error) if error.is_of_instantiation() => {
                Some(Err(format!("messageExpression instantiation failed: {error}")))
            }
            Err(error) => Some(Err(format!("messageExpression compilation failed: {error}"))),
            Ok(program) if *program.output() != Type::String => {
                Some(Err("messageExpression must evaluate to a string".to_owned()))
            }
            Ok(program) => Some(Ok(program)),
        };
        Compiled {
            uses_old: program.as_ref().is_ok_and(|program| program.uses("oldSelf")),
            program,
            message_expression,
            has_optional_old,
            kind: match said("reason") {
                "FieldValueDuplicate" => Kind::Duplicate,
                "FieldValueForbidden" => Kind::Forbidden,
                "FieldValueRequired" => Kind::Required,
                _ => Kind::Invalid,
            },
            field: field(schema, said("fieldPath")),
            message: said("message").trim().into(),
            text: said("rule").trim().into(),
            expression: expression.into(),
        }
    }

    /// The message for the client, unless the messageExpression gives one.
    pub(super) fn message(&self) -> String {
        if self.message.is_empty() { format!("failed rule: {}", self.text) } else { self.message.to_string() }
    }

    /// The rule as shown by errors of its evaluation.
    pub(super) fn shown(&self) -> &str {
        if self.message.is_empty() { &self.text } else { &self.message }
    }
}

/// A `fieldPath` as errors show it: `spec.labels[some key]`.
fn field(schema: &Schema, written: &str) -> Option<Box<str>> {
    if written.is_empty() {
        return None;
    }
    let parsed = JsonPath::parse(written).ok()?;
    let mut path = Path::root();
    let mut here = schema;
    for step in parsed.steps() {
        let Step::Field(name) = step else { return None };
        (path, here) = match here.property(name) {
            Some(property) => (path.child(name), property),
            None => (path.key(name), here.values()?),
        };
    }
    Some(path.as_str().into())
}
