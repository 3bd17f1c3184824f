//! Validation of a pod's status.

use crate::builtin::kind::Request;
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use std::net::IpAddr;
use steersman_machinery::field::Error;
use steersman_machinery::name;

/// Validates a change through `/status`.
pub(super) fn validate(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (status, old) = (Field::root(request.new).field("status"), Field::root(request.old).field("status"));
    let nominated = status.field("nominatedNodeName");
    if !nominated.is_empty() {
        rules::named(&nominated, name::dns1123_subdomain, errors);
    }
    let is_bound = !Field::root(request.old).at(&["spec", "nodeName"]).is_empty();
    if is_bound && !nominated.is_empty() && nominated.text() != old.field("nominatedNodeName").text() {
        errors.push(nominated.forbidden("may not be set on pods that are already bound to a node"));
    }
    rules::immutable(&status.field("qosClass"), &old.field("qosClass"), errors);
    for list in ["hostIPs", "podIPs"] {
        for address in status.field(list).items() {
            let field = Field { path: address.path.clone(), ..address.field("ip") };
            rules::ip(&field, errors);
        }
    }
    for addresses in ["hostIPs", "podIPs"].map(|list| status.field(list)) {
        let ips: Vec<IpAddr> =
            addresses.items().filter_map(|address| rules::sloppy_ip(address.field("ip").text())).collect();
        let n_v4 = ips.iter().filter(|ip| ip.is_ipv4()).count();
        if n_v4 > 1 || ips.len() - n_v4 > 1 {
            errors.push(addresses.invalid("may specify no more than one IP for each IP family"));
        }
    }
    if let Some(first) = status.field("hostIPs").items().next().map(|first| first.field("ip"))
        && first.text() != status.field("hostIP").text()
    {
        errors.push(first.invalid("must be equal to `hostIP`"));
    }
    let policy = Field::root(request.new).at(&["spec", "restartPolicy"]);
    if policy.text() != "Always" {
        for list in ["containerStatuses", "initContainerStatuses"] {
            stays_ended(&status.field(list), &old.field(list), policy.text(), errors);
        }
    }
}

/// A container that has terminated for good must not run again.
fn stays_ended(new: &Field<'_>, old: &Field<'_>, restart_policy: &str, errors: &mut Vec<Error>) {
    for before in old.items() {
        let terminated = before.at(&["state", "terminated"]);
        let failed = terminated.field("exitCode").number().unwrap_or(0) != 0;
        if terminated.is_absent() || (failed && restart_policy == "OnFailure") {
            continue;
        }
        let same = |status: &Field<'_>| status.field("name").text() == before.field("name").text();
        if let Some(after) = new.items().find(same)
            && after.at(&["state", "terminated"]).is_absent()
        {
            errors.push(after.field("state").forbidden("may not be transitioned to non-terminated state"));
        }
    }
}
