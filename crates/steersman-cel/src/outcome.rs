//! What implementations of functions take and give.

use crate::error::EvalError;
use crate::meter::Meter;
use crate::value::Value;

/// What a call gives.
pub(crate) type Outcome<'a> = Result<Value<'a>, EvalError>;

/// How a function is implemented. None: it is not for such values.
pub(crate) type Implementation = for<'a> fn(&mut Meter, &[Value<'a>]) -> Option<Outcome<'a>>;
