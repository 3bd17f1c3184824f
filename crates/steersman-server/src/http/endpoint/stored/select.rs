//! The label and field selectors of a list or watch, checked against the kind and applied to objects.

use crate::http::endpoint::context::Context;
use crate::shared::compute::REQUIREMENT_BYTES;
use crate::shared::conversion::{self, ReadError};
use crate::shared::operation::Operation;
use crate::shared::request::options::List;
use crate::shared::status::Failure;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;
use steersman_kinds::catalog::Served;
use steersman_kinds::projection::Projection;
use steersman_machinery::selector::{FieldRequirement, Fields, Labels, Operator, Requirement};
use steersman_machinery::{Budget, Object, Value};
use steersman_schema::json_path::Step;
use steersman_storage::{Interest, Visibility};

/// The selectors of a list or watch.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    served: Served,
    labels: Labels,
    fields: Fields,
    /// The fields that objects have only after a webhook has converted them: [`Selection::refine`] looks at them.
    converted: Option<Fields>,
    /// Whether objects that wait for initializers are included.
    pub(crate) visibility: Visibility,
    /// Whether the stored bytes are in the requested version.
    is_stored_form: bool,
    /// The fields that are read from objects whose header does not have them.
    read: Option<Box<Projection>>,
}

/// The cost of reading a field that is not in the object's header, in bytes of objects that are read in the same time.
const READING_BYTES: usize = 1024;
/// The number of labels or requirements that a step pays for.
const LABELS_PER_STEP: usize = 4;

/// The overhead of an allocation.
const TEXT_OVERHEAD: usize = 16;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";
/// The built-in kinds of which upstream does not know the field of the namespace.
const WITHOUT_NAMESPACE: [&str; 4] = ["CertificateSigningRequest", "Namespace", "Node", "ResourceSlice"];

impl Selection {
    /// The selection of a request.
    ///
    /// # Errors
    /// 400 if a field is not selectable.
    pub(crate) fn new(cx: &Context<'_>, options: &List) -> Result<Selection, Failure> {
        let own = &cx.operation.version().selectable_fields;
        let resource = cx.operation.resource();
        let is_stored_form = cx.operation.strategy().is_stored_form(resource, cx.operation.version());
        let is_made_by_webhook = resource.strategy.converter().is_some() && !is_stored_form;
        let (mut fields, mut converted) = (Fields::default(), Fields::default());
        let mut read = Projection::nothing();
        for requirement in &options.fields.requirements {
            let field = requirement.field.as_str();
            let is_unknown =
                field == NAMESPACE && !resource.is_custom() && WITHOUT_NAMESPACE.contains(&&*resource.kind);
            if field == NAME || field == NAMESPACE && !is_unknown {
                fields.requirements.push(requirement.clone());
                continue;
            }
            if let Some(selectable) = own.iter().find(|one| &*one.name == field) {
                if is_made_by_webhook {
                    converted.requirements.push(requirement.clone());
                    continue;
                }
                fields.requirements.push(requirement.clone());
                for path in selectable.paths() {
                    let names = path.steps().iter().map_while(|step| match step {
                        Step::Field(name) => Some(&**name),
                        _ => None,
                    });
                    read.add(names, Projection::All);
                }
                continue;
            }
            return Err(Failure::bad_request(if own.is_empty() && !resource.is_custom() {
                format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            } else {
                format!("field label not supported: {field}")
            }));
        }
        let by_old_path = cx.target.name.as_deref().filter(|_| cx.target.has_name_in_path);
        if let Some(name) = by_old_path {
            fields.requirements.push(FieldRequirement { field: NAME.to_owned(), value: name.to_owned(), equal: true });
        }
        Ok(Selection {
            served: cx.operation.served.clone(),
            labels: options.labels.clone(),
            fields,
            converted: (!converted.is_everything()).then_some(converted),
            visibility: match cx.state.initializers.is_some() && !options.includes_uninitialized {
                true => Visibility::Initialized,
                false => Visibility::All,
            },
            is_stored_form,
            read: (read != Projection::nothing()).then(|| Box::new(read)),
        })
    }

    /// Whether it selects all visible objects.
    pub(crate) fn is_everything_visible(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything() && self.converted.is_none()
    }

    /// Announces that it will be applied to so many objects. Must be awaited before that.
    pub(crate) async fn expect(&self, operation: &Operation<'_>, n_objects: usize) {
        if self.is_everything_visible() {
            return;
        }
        let reading = if self.reads_objects() { READING_BYTES } else { 0 };
        let of_object = reading + (1 + self.n_requirements() / LABELS_PER_STEP) * REQUIREMENT_BYTES;
        operation.load.expect_work(n_objects.saturating_mul(of_object)).await;
    }

    /// Whether an object is selected, charged to a budget. No object is selected once the budget is exceeded.
    pub(crate) fn selects_within(&self, object: &Object, budget: &Budget) -> bool {
        if self.is_everything_visible() {
            return self.selects(object);
        }
        // A tree of an object has many times its bytes, each of which is looked at more than once.
        let reading = self.n_read(object);
        let passed = (self.n_requirements() + self.n_passed(object)) / LABELS_PER_STEP;
        budget.work(1 + passed + reading).is_ok() && self.selects(object)
    }

    /// Keeps the objects whose fields are selected after a webhook has converted them, too. The webhook is called for all that
    /// are not stored in the requested version; the budget is charged for reading each.
    ///
    /// # Errors
    /// When an object cannot be read or converted to that version now, or the budget is exceeded.
    pub(crate) async fn refine(&self, objects: Vec<Arc<Object>>, budget: &Budget) -> Result<Vec<Arc<Object>>, Failure> {
        let Some(fields) = &self.converted else { return Ok(objects) };
        let mut selected = Vec::new();
        let mut rest = &objects[..];
        while !rest.is_empty() {
            let few;
            (few, rest) = rest.split_at(conversion::batch_len(rest));
            let read = conversion::read_within(&self.served, few, budget, &Budget::unlimited()).await;
            let read = read.map_err(|error| match error {
                ReadError::Budget(error) => error.into(),
                ReadError::Failed(failure) => failure,
            })?;
            let kept =
                few.iter().zip(&read).filter(|(_, read)| fields.matches(|field| self.text_of(field, Some(read))));
            selected.extend(kept.map(|(object, _)| object.clone()));
        }
        Ok(selected)
    }

    /// Announces that objects will be refined. Must be awaited before that.
    pub(crate) async fn expect_refining(&self, operation: &Operation<'_>, objects: &[Arc<Object>]) {
        if self.is_refined() {
            operation.load.expect(objects.iter().map(|object| object.json().len()).sum()).await;
        }
    }

    /// Whether objects must pass [`Selection::refine`].
    pub(crate) fn is_refined(&self) -> bool {
        self.converted.is_some()
    }

    /// The number of requirements that an object is held against.
    fn n_requirements(&self) -> usize {
        self.labels.requirements().len() + self.fields.requirements.len()
    }

    /// About how many bytes the selectors take.
    pub(crate) fn bytes(&self) -> usize {
        let text = |text: &String| size_of::<String>() + TEXT_OVERHEAD + text.len();
        let of_label = |requirement: &Requirement| {
            let values = match &requirement.operator {
                Operator::In(values) | Operator::NotIn(values) => values.iter().map(text).sum(),
                Operator::DoesNotExist | Operator::Exists | Operator::GreaterThan(_) | Operator::LessThan(_) => 0,
            };
            size_of::<Requirement>() + text(&requirement.key) + values
        };
        let of_field = |requirement: &FieldRequirement| text(&requirement.field) + text(&requirement.value);
        let labels: usize = self.labels.requirements().iter().map(of_label).sum();
        let fields =
            self.fields.requirements.iter().chain(self.converted.iter().flat_map(|fields| &fields.requirements));
        labels + fields.map(of_field).sum::<usize>()
    }

    /// Whether all objects must be read to see whether they are selected.
    fn reads_objects(&self) -> bool {
        self.read.is_some() && !self.is_stored_form
    }

    /// The bytes of JSON that are read to see whether an object is selected: none if its header has all that is asked for.
    pub(crate) fn n_read(&self, object: &Object) -> usize {
        let is_in_header = |requirement: &FieldRequirement| {
            let field = requirement.field.as_str();
            field == NAME || field == NAMESPACE || object.meta().field(field).is_some()
        };
        let is_read =
            self.read.is_some() && !(self.is_stored_form && self.fields.requirements.iter().all(is_in_header));
        if is_read { object.json().len() } else { 0 }
    }

    /// The labels that are passed to see whether an object is selected.
    pub(crate) fn n_passed(&self, object: &Object) -> usize {
        if self.labels.is_everything() { 0 } else { object.meta().n_labels() }
    }

    /// Whether it selects all objects.
    pub(crate) fn is_everything(&self) -> bool {
        self.visibility == Visibility::All && self.is_everything_visible()
    }

    /// The interest of a watch: the one requirement that probably matches the fewest objects. It matches at least the
    /// selected ones.
    pub(crate) fn interest(&self) -> Interest {
        if let Some(name) = self.fields.exact(NAME) {
            return Interest { name: Some(name.into()), ..Interest::ALL };
        }
        // The header has the fields of the storage version.
        let own = self.served.version().selectable_fields.iter().filter(|_| self.is_stored_form);
        let field = own.filter_map(|one| Some((one.name.clone(), self.fields.exact(&one.name)?.into()))).next();
        let label = self.labels.requirements().iter().find_map(|requirement| match &requirement.operator {
            Operator::In(values) => match &values[..] {
                [value] => Some((requirement.key.as_str().into(), value.as_str().into())),
                _ => None,
            },
            _ => None,
        });
        Interest { name: None, field, label }
    }

    /// Whether an object is selected. Its JSON is read only for fields that its header does not have.
    pub(crate) fn selects(&self, object: &Object) -> bool {
        if self.visibility == Visibility::Initialized && object.meta().is_uninitialized() {
            return false;
        }
        if !self.labels.matches_sorted(object.meta().labels()) {
            return false;
        }
        if self.fields.is_everything() {
            return true;
        }
        let read = OnceCell::new();
        self.fields.matches(|field| match field {
            NAME => Cow::Borrowed(&*object.key.name),
            NAMESPACE => Cow::Borrowed(object.key.namespace.as_deref().unwrap_or("")),
            _ => match object.meta().field(field).filter(|_| self.is_stored_form) {
                Some(text) => Cow::Borrowed(text),
                None => self.text_of(field, read.get_or_init(|| self.requested(object)).as_ref()),
            },
        })
    }

    /// The needed fields of the object, in the requested form. An object that cannot be read has none. One that a
    /// webhook would have to convert, until it is rewritten in the storage version, is read as if only the name of its
    /// version differed.
    fn requested(&self, object: &Object) -> Option<Value> {
        let read = self.read.as_ref()?;
        if self.is_stored_form {
            return read.read(object.json()).ok();
        }
        let (resource, version) = (&self.served.resource, self.served.version());
        let stored = conversion::parse(object).ok()?;
        Some(resource.strategy.present(version, resource.strategy.load(resource, version, stored).ok()?))
    }

    /// The value of a selectable field as a text.
    fn text_of(&self, field: &str, object: Option<&Value>) -> Cow<'static, str> {
        let selectable = self.served.version().selectable_fields.iter().find(|one| &*one.name == field);
        let Some(selectable) = selectable else { return Cow::Borrowed("") };
        Cow::Owned(selectable.text(object.unwrap_or(&Value::Null)).into_owned())
    }
}
