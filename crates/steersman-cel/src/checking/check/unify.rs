//! Unification of types: type variables, their bindings, and whether one type is assignable to another.

use crate::checking::types::Type;
use std::sync::Arc;

/// The maximum depth to which types are compared: expressions nest no deeper, and variables cannot contain themselves.
const DEPTH_MAX: u16 = 600;

/// The bindings of the type variables of a check.
#[derive(Default)]
pub(super) struct Unifier {
    bound: Vec<Option<Type>>,
    /// Earlier bindings, to be restored when an attempt fails.
    trail: Vec<(u32, Option<Type>)>,
}

impl Unifier {
    pub(super) fn fresh(&mut self) -> Type {
        Type::Param(self.fresh_many(1))
    }

    /// Adds this number of variables, and returns the number of the first.
    pub(super) fn fresh_many(&mut self, count: u32) -> u32 {
        let first = u32::try_from(self.bound.len()).unwrap_or(u32::MAX);
        self.bound.resize(self.bound.len() + count as usize, None);
        first
    }

    /// The type of an overload with its parameters numbered from `first` on.
    pub(super) fn instantiated(of: &Type, first: u32) -> Type {
        map_parameters(of, &mut |number| Type::Param(first + number))
    }

    /// A type with its variables replaced by their bindings. Free ones stay.
    pub(super) fn substitute(&self, of: &Type) -> Type {
        self.replaced(of, &Type::Param)
    }

    /// A type with its variables replaced by their bindings, and free ones by `dyn`.
    pub(super) fn substitute_or_dyn(&self, of: &Type) -> Type {
        self.replaced(of, &|_| Type::Dyn)
    }

    fn replaced(&self, of: &Type, free: &dyn Fn(u32) -> Type) -> Type {
        map_parameters(of, &mut |number| match self.bound.get(number as usize) {
            Some(Some(bound)) => self.replaced(bound, free),
            _ => free(number),
        })
    }

    /// Whether the types unify; if they do, variables are bound.
    pub(super) fn try_assign(&mut self, one: &Type, other: &Type) -> bool {
        self.try_assign_all(std::slice::from_ref(one), std::slice::from_ref(other))
    }

    pub(super) fn try_assign_all(&mut self, ones: &[Type], others: &[Type]) -> bool {
        self.trail.clear();
        let fits = ones.len() == others.len()
            && ones.iter().zip(others).all(|(one, other)| self.assign(one, other, DEPTH_MAX));
        if !fits {
            while let Some((number, earlier)) = self.trail.pop() {
                self.bound[number as usize] = earlier;
            }
        }
        fits
    }

    fn bind(&mut self, number: u32, of: Type) {
        let slot = &mut self.bound[number as usize];
        self.trail.push((number, slot.replace(of)));
    }

    fn assign(&mut self, one: &Type, other: &Type, depth: u16) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        if let Type::Param(number) = other {
            match self.bind_to(one, *number, depth) {
                Some(fits) => return fits,
                // The type contains the variable: try to bind the other way round.
                None if matches!(one, Type::Param(_)) => {}
                None => return false,
            }
        }
        if let Type::Param(number) = one {
            return self.bind_to(other, *number, depth).unwrap_or(false);
        }
        if one.is_dyn_or_error() || other.is_dyn_or_error() {
            return true;
        }
        match (one, other) {
            // Null is assignable to types whose values may be absent.
            (Type::Null, Type::Object(_) | Type::Opaque(..) | Type::Duration | Type::Timestamp | Type::Null)
            | (Type::Object(_) | Type::Opaque(..) | Type::Duration | Type::Timestamp, Type::Null)
            | (Type::Type(_), Type::Type(_)) => true,
            (Type::List(item), Type::List(other)) => self.assign(item, other, depth),
            (Type::Map(key, value), Type::Map(other_key, other_value)) => {
                self.assign(key, other_key, depth) && self.assign(value, other_value, depth)
            }
            (Type::Opaque(name, parameters), Type::Opaque(other_name, others)) => {
                name == other_name
                    && parameters.len() == others.len()
                    && parameters.iter().zip(others.iter()).all(|(one, other)| self.assign(one, other, depth))
            }
            _ => one == other,
        }
    }

    /// Binds a variable to a type. None if the type contains the variable.
    fn bind_to(&mut self, of: &Type, number: u32, depth: u16) -> Option<bool> {
        if let Some(bound) = self.bound[number as usize].clone() {
            if *of == bound {
                return Some(true);
            }
            if !self.assign(of, &bound, depth) {
                return Some(false);
            }
            let general = self.most_general(of, &bound);
            if general != Type::Param(number) {
                self.bind(number, general);
            }
            return Some(true);
        }
        if *of == Type::Param(number) {
            return Some(true);
        }
        if self.contains(of, number, depth) {
            return None;
        }
        self.bind(number, of.clone());
        Some(true)
    }

    fn contains(&self, of: &Type, number: u32, depth: u16) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return true };
        match of {
            Type::Param(inner) if *inner == number => true,
            Type::Param(inner) => {
                self.bound[*inner as usize].as_ref().is_some_and(|bound| self.contains(bound, number, depth))
            }
            Type::List(item) => self.contains(item, number, depth),
            Type::Map(key, value) => self.contains(key, number, depth) || self.contains(value, number, depth),
            Type::Opaque(_, parameters) => parameters.iter().any(|of| self.contains(of, number, depth)),
            Type::Type(of) => self.contains(of, number, depth),
            _ => false,
        }
    }

    /// The more general of two types that unify.
    pub(super) fn most_general(&self, one: &Type, other: &Type) -> Type {
        if less_specific(one, other) { one.clone() } else { other.clone() }
    }
}

fn less_specific(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Dyn | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Param(_)) => false,
        (Type::List(one), Type::List(other)) => less_specific(one, other),
        (Type::Map(key, value), Type::Map(other_key, other_value)) => {
            less_specific(key, other_key) && less_specific(value, other_value)
        }
        (Type::Opaque(name, ones), Type::Opaque(other_name, others)) => {
            name == other_name
                && ones.len() == others.len()
                && ones.iter().zip(others.iter()).all(|(one, other)| less_specific(one, other))
        }
        (Type::Type(_), Type::Type(_)) => true,
        // Null is assignable to the other type.
        (_, Type::Null) => true,
        _ => one == other,
    }
}

fn map_parameters(of: &Type, replace: &mut dyn FnMut(u32) -> Type) -> Type {
    match of {
        Type::List(item) => Type::list(map_parameters(item, replace)),
        Type::Map(key, value) => {
            let key = map_parameters(key, replace);
            Type::map(key, map_parameters(value, replace))
        }
        Type::Opaque(name, parameters) if !parameters.is_empty() => {
            Type::Opaque(name, parameters.iter().map(|of| map_parameters(of, replace)).collect())
        }
        Type::Param(number) => replace(*number),
        Type::Type(inner) => Type::Type(Arc::new(map_parameters(inner, replace))),
        _ => of.clone(),
    }
}
