//! A value before and after a write.

use crate::builtin::rules::field::Field;
use steersman_machinery::Value;

/// A value as a write leaves it, and as it was before. Both have the same path, unless a rule of the old object is meant.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    pub new: Field<'a>,
    /// Null for a new object, and for a field that the old object does not have.
    pub old: Field<'a>,
}

impl<'a> Change<'a> {
    /// The creation of an object.
    pub fn creation(new: &'a Value) -> Change<'a> {
        Change::update(new, &Value::Null)
    }

    /// The update of an object.
    pub fn update(new: &'a Value, old: &'a Value) -> Change<'a> {
        Change { new: Field::root(new), old: Field::root(old) }
    }

    /// Both values of a field.
    pub fn field(&self, name: &str) -> Change<'a> {
        Change { new: self.new.field(name), old: self.old.field(name) }
    }

    /// Both values at a path of fields.
    pub fn at(&self, names: &[&str]) -> Change<'a> {
        Change { new: self.new.at(names), old: self.old.at(names) }
    }

    /// Whether the value differs from what it was.
    pub fn is_changed(&self) -> bool {
        self.new.value != self.old.value
    }
}
