//! Functions of the authorizer: they build a check, and read the decision.

use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::data::authorizer::{
    Authorizer, Caller, Decision, GroupCheck, PathCheck, Resource, ResourceCheck, ServiceAccount, Target,
};
use crate::evaluation::outcome::{Implementation, Outcome};
use crate::evaluation::value::{Opaque, Value};
use std::sync::Arc;
use steersman_machinery::name;

impl<'a> Value<'a> {
    /// The variable `authorizer`.
    pub fn authorizer(authorizer: &'a dyn Authorizer) -> Value<'a> {
        Value::Opaque(Opaque::Authorizer(Caller { authorizer, service_account: None }))
    }

    /// The variable `authorizer.requestResource`.
    pub fn request_resource(authorizer: &'a dyn Authorizer, resource: Resource) -> Value<'a> {
        let caller = Caller { authorizer, service_account: None };
        Value::Opaque(Opaque::Resource(Arc::new(ResourceCheck { caller, resource })))
    }
}

pub(super) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "allowed" => |_, args| of_decision(args, |decision| Value::Bool(decision.allowed)),
        "check" => check,
        "error" => |_, args| of_decision(args, |decision| Value::text(decision.error.clone().unwrap_or_default())),
        "errored" => |_, args| of_decision(args, |decision| Value::Bool(decision.error.is_some())),
        "fieldSelector" => |_, args| with(args, |resource, text| resource.field_selector = Some(text)),
        "group" => |_, args| {
            let [Value::Opaque(Opaque::Authorizer(caller)), Value::String(group)] = args else { return None };
            let check = GroupCheck { caller: caller.clone(), group: (**group).to_owned() };
            Some(Ok(Value::Opaque(Opaque::Group(Arc::new(check)))))
        },
        "labelSelector" => |_, args| with(args, |resource, text| resource.label_selector = Some(text)),
        "name" => |_, args| with(args, |resource, text| resource.name = text),
        "namespace" => |_, args| with(args, |resource, text| resource.namespace = text),
        "path" => |_, args| {
            let [Value::Opaque(Opaque::Authorizer(caller)), Value::String(path)] = args else { return None };
            if path.is_empty() {
                return Some(Err(EvalError::new("path must not be empty")));
            }
            let check = PathCheck { caller: caller.clone(), path: (**path).to_owned() };
            Some(Ok(Value::Opaque(Opaque::Path(Arc::new(check)))))
        },
        "reason" => |_, args| of_decision(args, |decision| Value::text(&*decision.reason)),
        "resource" => |_, args| {
            let [Value::Opaque(Opaque::Group(group)), Value::String(resource)] = args else { return None };
            if resource.is_empty() {
                return Some(Err(EvalError::new("resource must not be empty")));
            }
            let resource =
                Resource { group: group.group.clone(), resource: (**resource).to_owned(), ..Resource::default() };
            let check = ResourceCheck { caller: group.caller.clone(), resource };
            Some(Ok(Value::Opaque(Opaque::Resource(Arc::new(check)))))
        },
        "serviceAccount" => service_account,
        "subresource" => |_, args| with(args, |resource, text| resource.subresource = text),
        _ => return None,
    })
}

fn of_decision<'a>(args: &[Value<'a>], what: fn(&Decision) -> Value<'a>) -> Option<Outcome<'a>> {
    match args {
        [Value::Opaque(Opaque::Decision(decision))] => Some(Ok(what(decision))),
        _ => None,
    }
}

/// The check with one more attribute.
fn with<'a>(args: &[Value<'a>], change: fn(&mut Resource, String)) -> Option<Outcome<'a>> {
    let [Value::Opaque(Opaque::Resource(check)), Value::String(text)] = args else { return None };
    let mut check = ResourceCheck::clone(check);
    change(&mut check.resource, (**text).to_owned());
    Some(Ok(Value::Opaque(Opaque::Resource(Arc::new(check)))))
}

fn check<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Value::Opaque(Opaque::Path(check)), Value::String(verb)] => {
            Some(Ok(Value::Opaque(Opaque::Decision(check.caller.ask(verb, Target::Path(&check.path))))))
        }
        [Value::Opaque(Opaque::Resource(check)), Value::String(verb)] => {
            Some(Ok(Value::Opaque(Opaque::Decision(check.caller.ask(verb, Target::Resource(&check.resource))))))
        }
        _ => None,
    }
}

fn service_account<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let [Value::Opaque(Opaque::Authorizer(caller)), Value::String(namespace), Value::String(account)] = args else {
        return None;
    };
    if !name::dns1123_subdomain(account).is_empty() {
        return Some(Err(EvalError::new("Invalid service account name")));
    }
    if !name::dns1123_label(namespace).is_empty() {
        return Some(Err(EvalError::new("Invalid service account namespace")));
    }
    let account = ServiceAccount { namespace: (**namespace).to_owned(), name: (**account).to_owned() };
    let caller = Caller { authorizer: caller.authorizer, service_account: Some(Arc::new(account)) };
    Some(Ok(Value::Opaque(Opaque::Authorizer(caller))))
}
