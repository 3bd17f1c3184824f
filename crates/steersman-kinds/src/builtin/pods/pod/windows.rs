//! Validation of the Windows options of a pod.

use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use regex::Regex;
use std::sync::LazyLock;
use steersman_machinery::field::Error;
use steersman_machinery::{Value, name};

/// The rules of the options of a pod or a container.
pub(super) const OPTIONS: &[Rule] = &[
    Rule::new("gmsaCredentialSpecName", Check::Format(name::dns1123_subdomain)).if_present(),
    Rule::new("gmsaCredentialSpec", Check::By(credentials)).if_present(),
    Rule::new("runAsUserName", Check::By(user)).if_present(),
];

fn credentials(text: &Field<'_>, errors: &mut Vec<Error>) {
    const LENGTH_MAX: usize = 64 * 1024;
    if text.is_empty() {
        errors.push(text.invalid("gmsaCredentialSpec cannot be an empty string"));
    } else if LENGTH_MAX < text.text().len() {
        errors.push(text.invalid("gmsaCredentialSpec size must be under 64 KiB"));
    }
}

/// A name of a user, or `DOMAIN\\USER`.
fn user(field: &Field<'_>, errors: &mut Vec<Error>) {
    let text = field.text();
    if text.is_empty() {
        return errors.push(field.invalid("runAsUserName cannot be an empty string"));
    }
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return errors.push(field.invalid("runAsUserName cannot contain control characters"));
    }
    let (domain, user) = match text.split('\\').collect::<Vec<_>>().as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return errors.push(field.invalid("runAsUserName cannot contain more than one backslash")),
    };
    domain.into_iter().for_each(|domain| check_domain(field, domain, errors));
    check_user(field, user, errors);
}

fn check_domain(field: &Field<'_>, domain: &str, errors: &mut Vec<Error>) {
    const LENGTH_MAX: usize = 255;
    static NET_BIOS: LazyLock<Regex> = LazyLock::new(|| {
        let form = r#"^[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}$"#;
        Regex::new(form).expect("invariant: the pattern is a constant")
    });
    if LENGTH_MAX < domain.len() {
        errors.push(field.invalid("runAsUserName's Domain length must be under 256 characters"));
    }
    if !NET_BIOS.is_match(domain) && !name::dns1123_subdomain(domain).is_empty() {
        errors.push(field.invalid("runAsUserName's Domain doesn't match the NetBios nor the DNS format"));
    }
}

fn check_user(field: &Field<'_>, user: &str, errors: &mut Vec<Error>) {
    const LENGTH_MAX: usize = 104;
    const NOT_ALLOWED: &str = r#""/\:;|=,+*?<>@[]"#;
    if user.is_empty() {
        errors.push(field.invalid("runAsUserName's User cannot be empty"));
    } else if LENGTH_MAX < user.len() {
        errors.push(field.invalid("runAsUserName's User length must not be longer than 104 characters"));
    }
    if !user.is_empty() && user.bytes().all(|byte| matches!(byte, b'.' | b' ')) {
        errors.push(field.invalid("runAsUserName's User cannot contain only periods or spaces"));
    }
    if user.contains(|letter| NOT_ALLOWED.contains(letter)) {
        errors.push(
            field.invalid(format!("runAsUserName's User cannot contain the following characters: {NOT_ALLOWED}")),
        );
    }
}

/// If one container is a process of its host, all are, and they use the network of the host.
pub(super) fn host_processes(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let of_pod = spec.at(&["securityContext", "windowsOptions", "hostProcess"]);
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let containers: Vec<Field<'_>> = lists.iter().flat_map(|list| spec.field(list).items()).collect();
    let mut n_on_host = 0;
    for container in &containers {
        let own = container.at(&["securityContext", "windowsOptions", "hostProcess"]);
        if own.is_present() && of_pod.is_present() && own.flag() != of_pod.flag() {
            let why = format!("pod hostProcess value must be identical if both are specified, was {}", of_pod.flag());
            errors.push(own.invalid(why));
        }
        n_on_host += usize::from(if own.is_present() { own.flag() } else { of_pod.flag() });
    }
    if n_on_host == 0 {
        return;
    }
    if n_on_host != containers.len() {
        let why = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(Error::invalid(&spec.path, Value::from(""), why));
    }
    if !spec.field("hostNetwork").flag() {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(Error::invalid(&spec.path.child("hostNetwork"), false, why));
    }
}
