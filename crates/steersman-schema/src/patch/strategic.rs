//! Strategic merge patch: JSON merge patch with lists that merge by a key and keep a defined order.
//!
//! [`apply`] applies the body of a PATCH; [`create_two_way`] and [`create_three_way`] compute patches as clients do,
//! the second like `kubectl apply`. Keys and strategies come from the schema. A patch contains directives: `$patch`
//! (replace, delete) in a map or as an item of a list, `$retainKeys`, `$setElementOrder/LIST` and
//! `$deleteFromPrimitiveList/LIST`.
//!
//! Results, including the order of merged lists, are those of apimachinery's `strategicpatch`.

mod diff;
mod merge;
mod order;

use crate::model::schema::Schema;
use steersman_machinery::{Value, value};

pub use crate::patch::strategic::diff::{create_three_way, create_two_way};
pub use crate::patch::strategic::merge::apply;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

/// Why a patch cannot be applied or made. Display gives the message for the client.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A `$patch` with an unknown directive.
    #[error("unknown $patch directive {directive}: want \"delete\" or \"replace\"")]
    Directive {
        /// The directive, as JSON.
        directive: String,
    },
    /// A list within a list that merges.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// `$patch: merge` in a list.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirective,
    /// An item without the merge key of its list.
    #[error("an item of the list lacks its merge key {key:?}: {item}")]
    MergeKey {
        /// The item, as JSON.
        item: String,
        /// The merge key.
        key: String,
    },
    /// A list with items of several types.
    #[error("a list that merges has items of several types: {0} and {1}")]
    MixedList(&'static str, &'static str),
    /// A value other than an object where only an object is allowed.
    #[error("a strategic merge patch is an object, not {0}")]
    NotAnObject(&'static str),
    /// The list of a patch is not in the order of its `$setElementOrder`.
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
    /// `$retainKeys` that is not a list.
    #[error("invalid patch format of retainKeys")]
    RetainKeysFormat,
    /// `$setElementOrder` without the name of a list or without a list of items.
    #[error("invalid patch format of setElementOrder list")]
    SetOrderFormat,
    /// A value of another type than its field has.
    #[error("expected an {expected}, not {received}")]
    Type {
        /// The type of the field.
        expected: &'static str,
        /// The type of the value.
        received: &'static str,
    },
    /// Maps in a list that merges without a merge key.
    #[error("a list of {0} cannot be merged: it has no merge key")]
    Unkeyed(String),
}

/// The class of an error, which decides the status code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// The patch is malformed.
    Malformed,
    /// The patch is well-formed and contradicts itself.
    Unprocessable,
}

/// How a field merges.
#[derive(Clone, Copy)]
struct Rule<'s> {
    /// The schema of the field.
    schema: Option<&'s Schema>,
    /// Whether lists merge.
    merge: bool,
    /// Whether maps are replaced.
    replace: bool,
    retain_keys: bool,
    merge_key: Option<&'s str>,
}

// === impl Error ===

impl Error {
    /// The class of the error, which decides the status code.
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
    /// The rule for a field of an object of this schema. Without a schema maps merge and lists are replaced.
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
