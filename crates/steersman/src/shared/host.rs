//! The name of the host, for identities that people read: in a cluster, the name of the Pod.

/// `HOSTNAME`, which a Pod has, or the system's host name; `steersman` without either.
pub(crate) fn name() -> String {
    first_of([std::env::var("HOSTNAME").ok(), of_the_system()])
}

fn first_of(names: [Option<String>; 2]) -> String {
    let said = names.into_iter().flatten().map(|name| name.trim().to_owned()).find(|name| !name.is_empty());
    said.unwrap_or_else(|| "steersman".to_owned())
}

/// A shell may have `HOSTNAME` without exporting it to its programs.
#[cfg(unix)]
fn of_the_system() -> Option<String> {
    Some(rustix::system::uname().nodename().to_str().ok()?.to_owned())
}

#[cfg(not(unix))]
fn of_the_system() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_its_own_name_and_any_other_process_that_of_its_host() {
        let said = |name: &str| Some(name.to_owned());
        assert_eq!(first_of([said("my-operator-7d9f"), said("node-1")]), "my-operator-7d9f");
        assert_eq!(first_of([None, said("node-1\n")]), "node-1");
        assert_eq!(first_of([said(""), None]), "steersman");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_knows_the_name_of_the_host() {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(of_the_system().as_deref(), Some(name.trim()));
    }
}
