//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy with their bindings, which validate or change writes with CEL.
//! Expressions must compile to the expected types.

use crate::builtin::cluster::admission_registration::{CATEGORIES, GROUP, rule};
use crate::builtin::kind::{Alias, Column, Compiles, Kind, RULES, SPEC_AND_METADATA, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use crate::builtin::rules::selector;
use crate::expressions::{Compiler, Names, Purpose};
use crate::strategy::Rules;
use jiff::Timestamp;
use std::collections::BTreeSet;
use steersman_cel::{DeclType, Type};
use steersman_machinery::field::Error;
use steersman_machinery::value::unless_set;
use steersman_machinery::{Value, name};
use steersman_schema::{JsonPath, json_path};

const ANNOTATIONS_MAX: usize = 20;
const ANNOTATION_BYTES_MAX: usize = 5 * 1024;
const MUTABLE_OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
/// Reserved words of CEL.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

pub const VALIDATING: Kind = Kind {
    kind: "ValidatingAdmissionPolicy",
    plural: "validatingadmissionpolicies",
    singular: "validatingadmissionpolicy",
    versions: &[Version {
        definition: "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::integer("Validations", "The number of validations."),
            Column::text("ParamKind", "The kind of the policy's parameters."),
            Column::AGE,
        ],
        cells: |policy, now| policy_cells(policy, "validations", now),
        ..POLICY_VERSION
    }],
    compiles: Compiles::Always,
    validate: &[Rule::new("", Check::By(validate_validating))],
    status_leaves: SPEC_AND_METADATA,
    validate_status: &[
        Rule::new(
            "status.typeChecking.expressionWarnings[]",
            Check::Rules(&[Rule::new("fieldRef", Check::By(field_ref)), Rule::required("warning", "")]),
        ),
        Rule::new("status.conditions[]", Check::Rules(rules::CONDITION)),
    ],
    ..POLICY
};

pub const MUTATING: Kind = Kind {
    kind: "MutatingAdmissionPolicy",
    plural: "mutatingadmissionpolicies",
    singular: "mutatingadmissionpolicy",
    versions: &[Version {
        definition: "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicy",
        columns: &[
            Column::NAME,
            Column::integer("Mutations", "The number of mutations."),
            Column::text("ParamKind", "The kind of the policy's parameters."),
            Column::AGE,
        ],
        cells: |policy, now| policy_cells(policy, "mutations", now),
        ..POLICY_VERSION
    }],
    aliases: &[
        Alias {
            name: "v1beta1",
            definition: "io.k8s.api.admissionregistration.v1beta1.MutatingAdmissionPolicy",
            deprecation: "",
        },
        Alias {
            name: "v1alpha1",
            definition: "io.k8s.api.admissionregistration.v1alpha1.MutatingAdmissionPolicy",
            deprecation: "admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicy is deprecated in v1.35+, unavailable in v1.38+",
        },
    ],
    compiles: Compiles::Always,
    validate: &[
        Rule::new("spec", Check::By(validate_mutating)),
        Rule::new("spec.reinvocationPolicy", Check::OneOf(&["IfNeeded", "Never"])).and_required(""),
    ],
    ..POLICY
};

pub const VALIDATING_BINDING: Kind = Kind {
    kind: "ValidatingAdmissionPolicyBinding",
    plural: "validatingadmissionpolicybindings",
    singular: "validatingadmissionpolicybinding",
    versions: &[Version {
        definition: "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBinding",
        ..BINDING_VERSION
    }],
    validate: &[
        Rule::new("spec", Check::Rules(BINDING)),
        Rule::new(
            "spec.validationActions[]",
            Check::Rules(&[Rule::new("", Check::OneOf(&["Audit", "Deny", "Warn"])), Rule::new("", Check::Unique)]),
        ),
        Rule::new("spec.validationActions", Check::By(contradictory_actions)),
        Rule::required("spec.validationActions", "at least one validation action is required"),
    ],
    ..POLICY
};

pub const MUTATING_BINDING: Kind = Kind {
    kind: "MutatingAdmissionPolicyBinding",
    plural: "mutatingadmissionpolicybindings",
    singular: "mutatingadmissionpolicybinding",
    versions: &[Version {
        definition: "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicyBinding",
        ..BINDING_VERSION
    }],
    aliases: &[
        Alias {
            name: "v1beta1",
            definition: "io.k8s.api.admissionregistration.v1beta1.MutatingAdmissionPolicyBinding",
            deprecation: "",
        },
        Alias {
            name: "v1alpha1",
            definition: "io.k8s.api.admissionregistration.v1alpha1.MutatingAdmissionPolicyBinding",
            deprecation: "admissionregistration.k8s.io/v1alpha1 MutatingAdmissionPolicyBinding is deprecated in v1.35+, unavailable in v1.38+",
        },
    ],
    validate: &[
        Rule::new("spec", Check::Rules(BINDING)),
        Rule::new("spec.matchResources.resourceRules[].operations[]", Check::OneOf(MUTABLE_OPERATIONS))
            .blaming("spec.matchResources.resourceRules.operations"),
    ],
    ..POLICY
};

const POLICY: Kind = Kind {
    group: GROUP,
    categories: CATEGORIES,
    generation: &[&["spec"]],
    rules: Rules { updates_unconditionally: false, requires_qualified_finalizers: false, ..RULES },
    ..Kind::CLUSTER
};

const POLICY_VERSION: Version = Version {
    default: |policy| {
        let Some(spec) = policy.get_mut("spec").and_then(Value::as_object_mut) else { return };
        unless_set(spec, "failurePolicy", "Fail");
        default_resources(spec.get_mut("matchConstraints"));
    },
    ..Version::V1
};

const BINDING_VERSION: Version = Version {
    columns: &[
        Column::NAME,
        Column::text("PolicyName", "The policy that is bound."),
        Column::text("ParamRef", "The parameters it gets."),
        Column::AGE,
    ],
    cells: binding_cells,
    default: |binding| default_resources(binding.pointer_mut("/spec/matchResources")),
    ..Version::V1
};

fn default_resources(resources: Option<&mut Value>) {
    if let Some(resources) = resources.and_then(Value::as_object_mut) {
        rule::default_match(resources);
        rule::default(resources, "resourceRules");
        rule::default(resources, "excludeResourceRules");
    }
}

// === policies ===

/// The rules of policies of both kinds, before those of expressions.
pub(in crate::builtin) const POLICY_RULES: &[Rule] = &[
    Rule::new("failurePolicy", Check::OneOf(&["Fail", "Ignore"])),
    Rule::new("paramKind", Check::By(param_kind)).if_present(),
    Rule::new(
        "matchConstraints",
        Check::Rules(&[Rule::new("", Check::Rules(rule::RESOURCES)), Rule::required("resourceRules", "")]),
    )
    .and_present(""),
];

/// Validates the fields that policies of both kinds have, and adds the variables to the compiler.
fn validate_policy(spec: &Field<'_>, compiler: &mut Compiler, errors: &mut Vec<Error>) {
    check_field(POLICY_RULES, spec, errors);
    rule::validate_conditions(&spec.field("matchConditions"), names(spec), errors);
    for variable in spec.field("variables").items() {
        let (variable_name, expression) = (variable.field("name"), variable.field("expression"));
        if variable_name.text().trim().is_empty() {
            errors.push(variable_name.required("name is not specified"));
        } else if !is_identifier(variable_name.text()) {
            errors.push(variable_name.invalid("must be a valid CEL identifier"));
        }
        if specified(&expression, errors) {
            let detail = compiler.add(variable_name.text(), expression.text());
            errors.extend(detail.map(|detail| expression.invalid(detail)));
        }
    }
}

/// The expression must not be empty. Returns whether it is not.
fn specified(expression: &Field<'_>, errors: &mut Vec<Error>) -> bool {
    let is_specified = !expression.text().trim().is_empty();
    if !is_specified {
        let field = expression.path.as_str().rsplit('.').next().unwrap_or_default();
        errors.push(expression.required(&format!("{field} is not specified")));
    }
    is_specified
}

/// The expression must compile to one of these types.
fn compiles(expression: &Field<'_>, compiler: &Compiler, wanted: &[Type], errors: &mut Vec<Error>) {
    let detail = compiler.fault(expression.text(), Purpose::Value, wanted);
    errors.extend(detail.map(|detail| expression.invalid(detail)));
}

fn is_identifier(text: &str) -> bool {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_word && !text.starts_with(|first: char| first.is_ascii_digit()) && !RESERVED.contains(&text)
}

fn param_kind(kind: &Field<'_>, errors: &mut Vec<Error>) {
    let (api_version, kind) = (kind.field("apiVersion"), kind.field("kind"));
    match api_version.text().split('/').collect::<Vec<&str>>().as_slice() {
        [""] => errors.push(api_version.required("")),
        ["", ""] => errors.push(api_version.invalid("version must be specified")),
        [version] => param_version(&api_version, "", version, errors),
        [group, version] => param_version(&api_version, group, version, errors),
        _ => errors.push(api_version.invalid(format!("unexpected GroupVersion string: {}", api_version.text()))),
    }
    if kind.is_empty() {
        return errors.push(kind.required(""));
    }
    let wrong = name::dns1035_label(&kind.text().to_lowercase());
    if !wrong.is_empty() {
        errors.push(kind.invalid(format!("may have mixed case, but should otherwise match: {}", wrong.join(","))));
    }
}

fn param_version(field: &Field<'_>, group: &str, version: &str, errors: &mut Vec<Error>) {
    let wrong = if group.is_empty() { Vec::new() } else { name::dns1123_subdomain(group) };
    if !wrong.is_empty() {
        errors.push(Error::invalid(&field.path, group, wrong.join(",")));
    }
    let wrong = name::dns1035_label(version);
    if version.is_empty() {
        errors.push(field.invalid("version must be specified"));
    } else if !wrong.is_empty() {
        errors.push(Error::invalid(&field.path, version, wrong.join(",")));
    }
}

/// The variables of a policy's expressions.
fn names(spec: &Field<'_>) -> Names {
    Names { params: spec.field("paramKind").is_present(), authorizer: true }
}

fn validate_validating(policy: &Field<'_>, errors: &mut Vec<Error>) {
    let spec = policy.field("spec");
    let mut compiler = Compiler::validating(names(&spec));
    validate_policy(&spec, &mut compiler, errors);
    let (validations, annotations) = (spec.field("validations"), spec.field("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.extend([validations.required(why), annotations.required(why)]);
        return;
    }
    validations.items().for_each(|validation| validate_validation(&validation, &compiler, errors));
    let policy_name = policy.at(&["metadata", "name"]).text();
    if annotations.items().count() > ANNOTATIONS_MAX {
        errors.push(annotations.invalid(format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations")));
    }
    let mut keys = BTreeSet::new();
    for annotation in annotations.items() {
        let (key, value) = (annotation.field("key"), annotation.field("valueExpression"));
        let full = format!("{policy_name}/{}", key.text());
        errors.extend(name::qualified(&full).into_iter().map(|detail| Error::invalid(&key.path, &*full, detail)));
        if specified(&value, errors) {
            compiles(&value, &compiler, &[Type::String, Type::Null], errors);
        }
        if value.text().trim().len() > ANNOTATION_BYTES_MAX {
            errors.push(value.required(&format!("must not exceed {ANNOTATION_BYTES_MAX} bytes in length")));
        }
        if !keys.insert(key.text()) {
            errors.push(key.duplicate());
        }
    }
}

fn validate_validation(validation: &Field<'_>, compiler: &Compiler, errors: &mut Vec<Error>) {
    let expression = validation.field("expression");
    if specified(&expression, errors) {
        compiles(&expression, compiler, &[Type::Bool], errors);
    }
    for field in ["messageExpression", "message"] {
        let text = validation.field(field);
        if !text.is_empty() && text.text().trim().is_empty() {
            errors.push(text.invalid("must be non-empty if specified"));
        }
    }
    let said = validation.field("messageExpression");
    if !said.text().trim().is_empty() {
        let detail = compiler.fault(said.text(), Purpose::Message, &[Type::String]);
        errors.extend(detail.map(|detail| said.invalid(detail)));
    }
    let message = validation.field("message");
    if message.text().trim().contains(['\n', '\r']) {
        errors.push(message.invalid("must not contain line breaks"));
    }
    let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    rules::one_of_if_present(&validation.field("reason"), &reasons, errors);
}

fn validate_mutating(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let mut compiler = Compiler::mutating(names(spec));
    validate_policy(spec, &mut compiler, errors);
    check_field(MUTABLE, spec, errors);
    let mutations = spec.field("mutations");
    if mutations.is_empty() {
        errors.push(mutations.required("mutations must contain at least one item"));
    }
    mutations.items().for_each(|mutation| validate_mutation(&mutation, &compiler, errors));
}

/// The operations must have an object that can be changed.
pub(in crate::builtin) const MUTABLE: &[Rule] =
    &[Rule::new("matchConstraints.resourceRules[].operations[]", Check::OneOf(MUTABLE_OPERATIONS))
        .blaming("matchConstraints.resourceRules.operations")];

fn validate_mutation(mutation: &Field<'_>, compiler: &Compiler, errors: &mut Vec<Error>) {
    const TYPES: [(&str, &str); 2] = [("ApplyConfiguration", "applyConfiguration"), ("JSONPatch", "jsonPatch")];
    let kind = mutation.field("patchType");
    if kind.is_empty() {
        return errors.push(kind.required(""));
    }
    if !TYPES.iter().any(|(name, _)| *name == kind.text()) {
        return errors.push(kind.not_supported(&TYPES.map(|(name, _)| name)));
    }
    for (wanted, name) in TYPES {
        let field = mutation.field(name);
        match (wanted == kind.text(), field.is_present()) {
            (true, true) => {
                let expression = field.field("expression");
                if specified(&expression, errors) {
                    compiles(&expression, compiler, &[mutation_type(wanted)], errors);
                }
            }
            (true, false) => errors.push(field.required(&format!("must be specified when patchType is {wanted}"))),
            (false, true) => {
                let why = format!("must not be specified when patchType is {}", kind.text());
                errors.push(Error::invalid(&field.path, format!("{{{name}}}"), why));
            }
            (false, false) => {}
        }
    }
}

/// The type of the expression of a mutation.
fn mutation_type(kind: &str) -> Type {
    let object = |name| DeclType::object_of(name, []).type_of();
    match kind {
        "JSONPatch" => Type::list(object("JSONPatch")),
        _ => object("Object"),
    }
}

// === bindings ===

const BINDING: &[Rule] = &[
    Rule::new("policyName", Check::Format(name::dns1123_subdomain)).and_required(""),
    Rule::new("paramRef", Check::Rules(PARAM_REF)).if_present(),
    Rule::new("matchResources", Check::Rules(rule::RESOURCES)).if_present(),
];

const PARAM_REF: &[Rule] = &[
    Rule::new("name", Check::Format(name::path_segment)).unless_empty(),
    Rule::new("selector", Check::By(selector::validate)),
    Rule::new("", Check::By(param_ref)),
    Rule::new("parameterNotFoundAction", Check::OneOf(&["Deny", "Allow"])).and_required(""),
];

fn param_ref(reference: &Field<'_>, errors: &mut Vec<Error>) {
    const EITHER: &str = "name and selector are mutually exclusive";
    let (param_name, labels) = (reference.field("name"), reference.field("selector"));
    match (param_name.is_empty(), labels.is_absent()) {
        (false, false) => errors.extend([param_name.forbidden(EITHER), labels.forbidden(EITHER)]),
        (true, true) => errors.push(reference.required("one of name or selector must be specified")),
        _ => {}
    }
}

/// Validates the path of the expression that a warning is about, such as `spec.validations[0].expression`.
fn field_ref(path: &Field<'_>, errors: &mut Vec<Error>) {
    let text = path.text().trim();
    if text.is_empty() {
        return errors.push(path.required(""));
    }
    let fault = parse_field_ref(text).err();
    // Upstream takes several paths too, with spaces between them.
    if let Some(error) = fault.filter(|_| text.split(' ').any(|part| parse_field_ref(part).is_err())) {
        errors.push(Error::invalid(&path.path, text, format!("invalid JSONPath: {error}")));
    }
}

/// Parses a path from the root, from the current object, or from a first field without a dot.
fn parse_field_ref(text: &str) -> Result<(), json_path::ParseError> {
    // A path that begins with a digit is read as a number, up to the first character that is not part of one.
    let number = text.split(|char: char| char != '.' && !char.is_ascii_digit()).next().unwrap_or_default();
    if text.starts_with(|first: char| first.is_ascii_digit()) && number.parse::<f64>().is_err() {
        return Err(json_path::ParseError::BadStep { text: text.to_owned(), offset: 0 });
    }
    let steps = match text.strip_prefix(['$', '@']) {
        Some(steps) => steps.to_owned(),
        None if text.starts_with(|first: char| first == '_' || first.is_alphanumeric()) => format!(".{text}"),
        None => text.to_owned(),
    };
    if steps.is_empty() { Ok(()) } else { JsonPath::parse(&steps).map(drop) }
}

fn contradictory_actions(actions: &Field<'_>, errors: &mut Vec<Error>) {
    let has = |wanted: &str| actions.items().any(|action| action.text() == wanted);
    if has("Deny") && has("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(actions.invalid(why));
    }
}

// === printing ===

const UNSET: &str = "<unset>";

fn policy_cells(policy: &Value, list: &str, now: Timestamp) -> Vec<Value> {
    let kind = Field::root(policy).at(&["spec", "paramKind"]);
    let params = match kind.is_present() {
        true => format!("{}/{}", kind.field("apiVersion").text(), kind.field("kind").text()),
        false => UNSET.to_owned(),
    };
    let count = cells::count(policy, &[&["spec", list]]);
    vec![cells::name(policy), count, Value::from(params), cells::age(policy, now)]
}

fn binding_cells(binding: &Value, now: Timestamp) -> Vec<Value> {
    let reference = Field::root(binding).at(&["spec", "paramRef"]);
    let (param_name, namespace) = (reference.field("name").text(), reference.field("namespace").text());
    let params = match (param_name, namespace) {
        ("", _) if reference.field("selector").is_present() => selector::text(reference.field("selector").value),
        ("", _) => UNSET.to_owned(),
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    };
    vec![
        cells::name(binding),
        cells::text(binding, &["spec", "policyName"]),
        Value::from(params),
        cells::age(binding, now),
    ]
}
