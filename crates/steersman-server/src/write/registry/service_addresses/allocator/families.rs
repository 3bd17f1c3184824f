//! Decides the IP families of a Service, from its fields, the old Service, and the ranges of the server. Follows
//! `initIPFamilyFields` in kubernetes' `pkg/registry/core/service/storage/alloc.go`.

use crate::write::registry::service_addresses::allocator::range::Family;
use serde_json::json;
use std::net::IpAddr;
use steersman_kinds::builtin::network::service::{kind, validate};
use steersman_kinds::builtin::rules::field::Field;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, set_at, str_at};

const ADDRESSES: [&str; 2] = ["spec", "clusterIPs"];
const FAMILIES: [&str; 2] = ["spec", "ipFamilies"];
const POLICY: [&str; 2] = ["spec", "ipFamilyPolicy"];
const PREFER: &str = "PreferDualStack";
const REQUIRE: &str = "RequireDualStack";
const SINGLE: &str = "SingleStack";

/// The families of a Service.
pub(super) fn of(service: &Value) -> Vec<Family> {
    list(service, &FAMILIES).iter().filter_map(|name| Family::parse(name.as_str()?)).collect()
}

/// Completes the policy and the families of a Service; `configured` are the families of the server's ranges, the
/// default one first.
pub(super) fn complete_families(
    configured: &[Family],
    service: &mut Value,
    old: Option<&Value>,
    faults: &mut Vec<Error>,
) {
    if kind(service) == "ExternalName" || old.is_some_and(|old| stays_as_preferred(service, old)) {
        return;
    }
    let is_bare = str_at(service, &["spec", "clusterIP"]) == Some("None") && has_no_selector(service);
    // An empty one is given, and invalid.
    if at(service, &POLICY).is_none_or(Value::is_null) {
        let before = old.map(policy).filter(|policy| !policy.is_empty()).map(str::to_owned);
        let usual = if is_bare { REQUIRE } else { SINGLE };
        set_at(service, &POLICY, Value::from(before.unwrap_or_else(|| usual.to_owned())));
    }
    // The rest relies on valid fields.
    validate::addresses_and_families(&Field::root(service).field("spec"), faults);
    if !faults.is_empty() {
        return;
    }
    if let Some(old) = old {
        release_second(service, old, faults);
    }
    check_single(service, faults);
    infer_from_addresses(configured, service, faults);
    if !faults.is_empty() {
        return;
    }
    let mut families = of(service);
    if is_bare {
        // Its endpoints are managed by the user, in any family.
        complete(&mut families, configured, policy(service) != SINGLE);
    } else {
        check_configured(configured, service, faults);
        complete(&mut families, configured, policy(service) != SINGLE && configured.len() == 2);
    }
    let names: Vec<&str> = families.into_iter().map(Family::name).collect();
    set_at(service, &FAMILIES, json!(names));
}

/// Whether nothing relevant has changed: a Service that prefers two families neither gains nor loses one because the
/// server's ranges have changed.
fn stays_as_preferred(service: &Value, old: &Value) -> bool {
    let has_same = |path: &[&str]| at(service, path) == at(old, path);
    let has_addresses = matches!(kind(service), "ClusterIP" | "LoadBalancer" | "NodePort");
    has_addresses
        && kind(service) == kind(old)
        && [policy(service), policy(old)] == [PREFER; 2]
        && has_same(&ADDRESSES)
        && has_same(&FAMILIES)
}

/// A change to one family releases the second one, unless the client names other addresses or families.
fn release_second(service: &mut Value, old: &Value, faults: &mut Vec<Error>) {
    let is_single = policy(service) == SINGLE;
    for (path, what) in [(&ADDRESSES, "cluster IP"), (&FAMILIES, "IP family")] {
        let (n_new, n_old) = (list(service, path).len(), list(old, path).len());
        if is_single {
            if at(service, path) == at(old, path) && n_new > 1 {
                let first = list(service, path)[0].clone();
                set_at(service, path, json!([first]));
            }
        } else if n_new > 0 && n_new < n_old {
            let why = format!("must be 'SingleStack' to release the secondary {what}");
            faults.push(Field::root(service).at(&POLICY).invalid(why));
        }
    }
}

fn check_single(service: &Value, faults: &mut Vec<Error>) {
    if policy(service) != SINGLE {
        return;
    }
    for (path, what) in [(&ADDRESSES, "cluster IPs"), (&FAMILIES, "IP families")] {
        if list(service, path).len() == 2 {
            let why = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            faults.push(Field::root(service).at(&POLICY).invalid(why));
        }
    }
}

/// Derives families from the addresses that a client names.
fn infer_from_addresses(configured: &[Family], service: &mut Value, faults: &mut Vec<Error>) {
    let mut families = of(service);
    let addresses = Field::root(service).at(&ADDRESSES);
    for field in addresses.items().skip(families.len()) {
        let Ok(address) = field.text().parse::<IpAddr>() else { break };
        let family = Family::of(address);
        if configured.contains(&family) {
            families.push(family);
        } else {
            let why = format!("{} is not configured on this cluster", family.name());
            faults.push(Error::invalid(&field.path, addresses.value.clone(), why));
        }
    }
    let names: Vec<&str> = families.into_iter().map(Family::name).collect();
    if !names.is_empty() {
        set_at(service, &FAMILIES, json!(names));
    }
}

fn check_configured(configured: &[Family], service: &Value, faults: &mut Vec<Error>) {
    let service = Field::root(service);
    let policy = service.at(&POLICY);
    if policy.text() == REQUIRE && configured.len() < 2 {
        faults.push(policy.invalid("this cluster is not configured for dual-stack services"));
    }
    for family in service.at(&FAMILIES).items() {
        if !Family::parse(family.text()).is_some_and(|family| configured.contains(&family)) {
            faults.push(family.invalid("not configured on this cluster"));
        }
    }
}

/// Adds the default family to a Service without one, and the other one too if it should have both.
fn complete(families: &mut Vec<Family>, configured: &[Family], has_both: bool) {
    if families.is_empty() {
        families.extend(configured.first());
    }
    if let (true, [only]) = (has_both, &families[..]) {
        families.push(only.other());
    }
}

fn policy(service: &Value) -> &str {
    str_at(service, &POLICY).unwrap_or_default()
}

fn list<'a>(service: &'a Value, path: &[&str]) -> &'a [Value] {
    at(service, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn has_no_selector(service: &Value) -> bool {
    at(service, &["spec", "selector"]).and_then(Value::as_object).is_none_or(|selector| selector.is_empty())
}
