//! The expressions that select devices: what they may read of a device, and what they may cost. Follows
//! dynamic-resource-allocation's `cel/compile.go`.

use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use std::sync::LazyLock;
use steersman_cel::{DeclType, Environment, Type};
use steersman_machinery::field::Error;

/// The most selectors of a list.
pub(super) const SELECTORS_MAX: usize = 32;
const EXPRESSION_BYTES_MAX: usize = 10 * 1024;
const COST_MAX: u64 = 1_000_000;

/// The longest names and values of a device, and the most attributes that it may have.
const DRIVER_LENGTH_MAX: u64 = 63;
const VALUE_LENGTH_MAX: u64 = 64;
const ATTRIBUTES_MAX: u64 = 32;

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    let by_name = |value| DeclType::map(DeclType::map(value, ATTRIBUTES_MAX), ATTRIBUTES_MAX);
    let device = DeclType::object(
        "kubernetes.DRADevice",
        [
            ("driver", DeclType::string().up_to(DRIVER_LENGTH_MAX)),
            ("allowMultipleAllocations", DeclType::boolean().up_to(1)),
            ("attributes", by_name(DeclType::dynamic().up_to(VALUE_LENGTH_MAX))),
            ("capacity", by_name(DeclType::quantity())),
        ],
    );
    Environment::new().declare("device", device).with_bind()
});

/// The rules of a selector.
pub(super) const SELECTOR: &[Rule] =
    &[Rule::new("cel", Check::Rules(&[Rule::new("expression", Check::By(expression))])).and_present("")];

fn expression(expression: &Field<'_>, errors: &mut Vec<Error>) {
    let text = expression.text();
    if text.len() > EXPRESSION_BYTES_MAX {
        return errors.push(Error::too_long(&expression.path, EXPRESSION_BYTES_MAX));
    }
    let detail = match ENVIRONMENT.compile(text) {
        Err(error) => format!("compilation failed: {error}"),
        Ok(program) if !matches!(program.output(), Type::Bool | Type::Dyn) => {
            format!("must evaluate to bool or the unknown type, not {}", program.output())
        }
        Ok(program) if program.cost().max > COST_MAX => {
            return errors.push(expression.forbidden("too complex, exceeds cost limit"));
        }
        Ok(_) => return,
    };
    errors.push(Error::invalid(&expression.path, text, detail));
}
