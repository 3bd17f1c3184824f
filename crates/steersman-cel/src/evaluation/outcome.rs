//! The signature of implementations of functions.

use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::value::Value;

/// The result of a call.
pub(crate) type Outcome<'a> = Result<Value<'a>, EvalError>;

/// The implementation of a function. None: it has no overload for these values.
pub(crate) type Implementation = for<'a> fn(&mut Meter, &[Value<'a>]) -> Option<Outcome<'a>>;
