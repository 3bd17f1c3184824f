//! Determines which types can have a `Default`: those whose required fields all have one.

use crate::types::model::{Body, Field, Model, Presence, Type};

/// Sets `can_default` of every type and of the root.
pub(crate) fn find(model: &mut Model) {
    // Each round propagates one more step from a type to the types that need it; a type never needs, in turn, a type
    // that contains it.
    loop {
        let now: Vec<bool> = model.types.iter().map(|definition| definition.can_default).collect();
        let can = |ty: &Type| match ty {
            Type::Named(id) => now[id.0],
            Type::KubernetesType(known) => known.can_default(),
            Type::Quantity | Type::Time => false,
            _ => true,
        };
        let all_can = |fields: &[Field]| {
            fields.iter().all(|field| {
                matches!(field.presence, Presence::Optional | Presence::RequiredNullable) || can(&field.ty)
            })
        };
        let next: Vec<bool> = model
            .types
            .iter()
            .map(|definition| match &definition.body {
                Body::Enum(_) => false,
                Body::Struct { fields, .. } => all_can(fields),
            })
            .collect();
        model.root.can_default = all_can(&model.root.fields);
        if next == now {
            return;
        }
        for (definition, can_default) in model.types.iter_mut().zip(next) {
            definition.can_default = can_default;
        }
    }
}
