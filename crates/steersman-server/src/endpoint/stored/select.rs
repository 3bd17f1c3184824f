//! The selectors of a list or watch, checked against the kind and applied to objects.

use crate::conversion;
use crate::endpoint::context::Context;
use crate::options::List;
use crate::status::Failure;
use std::borrow::Cow;
use steersman_machinery::selector::{Fields, Labels};
use steersman_machinery::{Object, Value};

/// What a list or watch is narrowed to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    labels: Labels,
    fields: Fields,
    /// Whether a field other than name and namespace is asked for, for which the object must be read.
    reads_objects: bool,
}

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

impl Selection {
    /// The selection of a request.
    ///
    /// # Errors
    /// 400 if the kind cannot be selected by a field.
    pub(crate) fn new(cx: &Context<'_>, options: &List) -> Result<Selection, Failure> {
        let own = &cx.operation.version().selectable_fields;
        let mut reads_objects = false;
        for requirement in &options.fields.requirements {
            let field = requirement.field.as_str();
            if field == NAME || field == NAMESPACE {
                continue;
            }
            reads_objects = true;
            if own.iter().any(|one| &*one.name == field) {
                continue;
            }
            return Err(Failure::bad_request(if own.is_empty() && !cx.operation.resource().is_custom() {
                format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            } else {
                format!("field label not supported: {field}")
            }));
        }
        let mut fields = options.fields.clone();
        let by_old_path = cx.target.name.as_deref().filter(|_| cx.target.has_name_in_path);
        if let Some(name) = by_old_path {
            fields.requirements.push(steersman_machinery::selector::FieldRequirement {
                field: NAME.to_owned(),
                value: name.to_owned(),
                equal: true,
            });
        }
        Ok(Selection { labels: options.labels.clone(), fields, reads_objects })
    }

    /// Whether it selects everything.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Whether an object is selected.
    pub(crate) fn selects(&self, cx: &Context<'_>, object: &Object) -> bool {
        if !self.labels.matches(|key| object.label(key)) {
            return false;
        }
        if self.fields.is_everything() {
            return true;
        }
        let read = if self.reads_objects { self.requested(cx, object) } else { None };
        self.fields.matches(|field| match field {
            NAME => Cow::Borrowed(&*object.key.name),
            NAMESPACE => Cow::Borrowed(object.key.namespace.as_deref().unwrap_or("")),
            _ => value_of(cx, field, read.as_ref()),
        })
    }

    /// The object in the requested form; an object that cannot be read has no fields.
    fn requested(&self, cx: &Context<'_>, object: &Object) -> Option<Value> {
        let stored = conversion::parse(object).ok()?;
        let strategy = cx.operation.strategy();
        if strategy.is_stored_form(cx.operation.resource(), cx.operation.version()) {
            return Some(stored);
        }
        Some(
            strategy.present(
                cx.operation.version(),
                strategy.load(cx.operation.resource(), cx.operation.version(), stored),
            ),
        )
    }
}

/// The text of a field of an object.
fn value_of(cx: &Context<'_>, field: &str, object: Option<&Value>) -> Cow<'static, str> {
    let Some(selectable) = cx.operation.version().selectable_fields.iter().find(|one| &*one.name == field) else {
        return Cow::Borrowed("");
    };
    match object.and_then(|object| selectable.path.get(object)) {
        None | Some(Value::Null) => Cow::Owned(selectable.absent.to_string()),
        Some(Value::String(text)) => Cow::Owned(text.clone()),
        Some(other) => Cow::Owned(other.to_string()),
    }
}
