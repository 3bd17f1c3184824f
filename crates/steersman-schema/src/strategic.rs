//! Strategic merge patch: JSON merge patch that knows which lists merge, by what key, and in what order.
//!
//! [`apply`] is what a PATCH does; [`create_two_way`] and [`create_three_way`] are what clients compute, the second being
//! `kubectl apply`'s. Keys and strategies come from the schema. The patch steers with directives: `$patch` (replace, delete)
//! in a map or as an item of a list, `$retainKeys`, `$setElementOrder/LIST` and `$deleteFromPrimitiveList/LIST`.
//!
//! Outcomes, the order of merged lists among them, are those of apimachinery's `strategicpatch`.

mod diff;
mod merge;
mod order;

use crate::schema::Schema;
use steersman_machinery::{Value, value};

pub use crate::strategic::diff::{create_three_way, create_two_way};
pub use crate::strategic::merge::apply;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

/// Why a patch cannot be applied or made. What is displayed is the message for the client.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A `$patch` that says something unknown.
    #[error("unknown $patch directive {directive}: want \"delete\" or \"replace\"")]
    Directive {
        /// What it says, as JSON.
        directive: String,
    },
    /// A list within a list that merges.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// `$patch: merge` in a list.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirective,
    /// An item without the field by which its list merges.
    #[error("an item of the list lacks its merge key {key:?}: {item}")]
    MergeKey {
        /// The item, as JSON.
        item: String,
        /// The field it lacks.
        key: String,
    },
    /// A list with items of several types.
    #[error("a list that merges has items of several types: {0} and {1}")]
    MixedList(&'static str, &'static str),
    /// Not an object where only an object makes sense.
    #[error("a strategic merge patch is an object, not {0}")]
    NotAnObject(&'static str),
    /// The list of a patch is in another order than its `$setElementOrder` says.
    #[error("the list {list} is in another order than its $setElementOrder {order}")]
    Order {
        /// The list, as JSON.
        list: String,
        /// The order, as JSON.
        order: String,
    },
    /// `$deleteFromPrimitiveList` without the name of a list or without a list of items.
    #[error("invalid patch format of primitive list")]
    PrimitiveListFormat,
    /// A patch sets a field that it does not retain.
    #[error("patch content doesn't match retainKeys list")]
    RetainKeysContent,
    /// `$retainKeys` that is no list.
    #[error("invalid patch format of retainKeys")]
    RetainKeysFormat,
    /// `$setElementOrder` without the name of a list or without a list of items.
    #[error("invalid patch format of setElementOrder list")]
    SetOrderFormat,
    /// A value of another type than its place has.
    #[error("expected an {expected}, not {received}")]
    Type {
        /// What there should be.
        expected: &'static str,
        /// What there is.
        received: &'static str,
    },
    /// Maps in a list that merges, but not by any key.
    #[error("a list of {0} cannot be merged: it has no merge key")]
    Unkeyed(String),
}

/// What an error means to the client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// The patch is not written as patches are.
    Malformed,
    /// The patch is well written and contradicts itself.
    Unprocessable,
}

/// How a field merges.
#[derive(Clone, Copy)]
struct Rule<'s> {
    /// Of the field.
    schema: Option<&'s Schema>,
    /// Lists merge.
    merge: bool,
    /// Maps are replaced.
    replace: bool,
    retain_keys: bool,
    merge_key: Option<&'s str>,
}

// === impl Error ===

impl Error {
    /// What the error means to the client.
    pub fn class(&self) -> Class {
        match self {
            Error::ListOfLists | Error::RetainKeysContent => Class::Unprocessable,
            Error::Directive { .. }
            | Error::MergeDirective
            | Error::MergeKey { .. }
            | Error::MixedList(..)
            | Error::NotAnObject(_)
            | Error::Order { .. }
            | Error::PrimitiveListFormat
            | Error::RetainKeysFormat
            | Error::SetOrderFormat
            | Error::Type { .. }
            | Error::Unkeyed(_) => Class::Malformed,
        }
    }

    fn expected(expected: &'static str, received: &Value) -> Error {
        Error::Type { expected, received: value::type_name(received) }
    }
}

// === impl Rule ===

impl<'s> Rule<'s> {
    /// How a field of an object of a schema merges. Where there is no schema maps merge and lists are replaced.
    fn of(schema: Option<&'s Schema>, field: &str) -> Rule<'s> {
        let schema = schema.and_then(|schema| schema.field(field));
        let patch = schema.and_then(Schema::patch);
        Rule {
            schema,
            merge: patch.is_some_and(|patch| patch.merge),
            replace: patch.is_some_and(|patch| patch.replace),
            retain_keys: patch.is_some_and(|patch| patch.retain_keys),
            merge_key: patch.and_then(|patch| patch.merge_key.as_deref()),
        }
    }

    /// The schema of the items of a list.
    fn item(&self) -> Option<&'s Schema> {
        self.schema.and_then(Schema::item)
    }
}

#[cfg(test)]
mod tests;
