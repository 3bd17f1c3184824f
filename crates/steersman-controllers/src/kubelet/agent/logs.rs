//! The log of a container of a simulated Pod: one line that describes the container, written when it starts.
//!
//! Which containers have a log, and the messages for the others, follow `validateContainerLogStatus` of kubernetes'
//! `pkg/kubelet/kubelet_pods.go`.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, Pod};

/// The options of a log request, from the query that a kubelet gets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Options {
    is_previous: bool,
    has_timestamps: bool,
    is_of_stderr: bool,
    tail_lines: Option<u64>,
    limit_bytes: Option<usize>,
    since: Option<Timestamp>,
}

/// The logged parts of a container: its image, and its command if it has one.
struct Spec<'a> {
    image: &'a str,
    command: Vec<&'a str>,
}

// === impl Options ===

impl Options {
    /// Reads a query, which the server has checked. Unknown parameters are ignored; so is `follow`, because the only
    /// line exists from the start.
    pub(crate) fn parse(query: &str) -> Options {
        let mut options = Options::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "previous" => options.is_previous = value == "true",
                "timestamps" => options.has_timestamps = value == "true",
                "stream" => options.is_of_stderr = value == "Stderr",
                "tailLines" => options.tail_lines = value.parse().ok(),
                "limitBytes" => options.limit_bytes = value.parse().ok(),
                "sinceTime" => options.since = value.parse().ok(),
                _ => {}
            }
        }
        options
    }

    /// The requested part of a line that was written at a time.
    fn apply(&self, line: &str, at: Option<Timestamp>) -> String {
        let is_too_old = self.since.zip(at).is_some_and(|(since, at)| at < since);
        if is_too_old || self.is_of_stderr || self.tail_lines == Some(0) {
            return String::new();
        }
        let mut text = match at.filter(|_| self.has_timestamps) {
            Some(at) => format!("{at:.9} {line}"),
            None => line.to_owned(),
        };
        if let Some(limit) = self.limit_bytes {
            text.truncate(text.floor_char_boundary(limit));
        }
        text
    }
}

/// The status code and the text of the answer. A Pod that is unknown here counts as not started: the server may have
/// seen it earlier.
pub(crate) fn of(pod: Option<&Pod>, name: &str, container: &str, options: &Options) -> (u16, String) {
    let waits = |reason: &str| (400, format!("container {container:?} in pod {name:?} is waiting to start: {reason}"));
    let Some((pod, spec)) = pod.and_then(|pod| Some((pod, spec(pod, container)?))) else {
        return waits("ContainerCreating");
    };
    let statuses = pod.status.iter().flat_map(|status| {
        let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
        lists.into_iter().flatten().flatten()
    });
    let status = statuses.into_iter().find(|status| status.name == container);
    let state = status.and_then(|status| status.state.as_ref());
    let last = status.and_then(|status| status.last_state.as_ref()?.terminated.as_ref());
    let began = |terminated: &k8s_openapi::api::core::v1::ContainerStateTerminated| {
        terminated.started_at.as_ref().map(|time| time.0)
    };
    let at = match (options.is_previous, state, last) {
        (true, _, None) => {
            return (400, format!("previous terminated container {container:?} in pod {name:?} not found"));
        }
        (true, _, Some(last)) => began(last),
        (false, Some(state), last) => match (&state.running, &state.terminated, last) {
            (Some(running), ..) => running.started_at.as_ref().map(|time| time.0),
            (None, Some(ended), _) | (None, None, Some(ended)) => began(ended),
            (None, None, None) => {
                return match waiting_for(Some(state)) {
                    Some("ErrImagePull") => waits("image can't be pulled"),
                    Some("ImagePullBackOff") => waits("trying and failing to pull image"),
                    reason => waits(reason.unwrap_or("ContainerCreating")),
                };
            }
        },
        (false, None, _) => return waits("ContainerCreating"),
    };
    // The number is that of the current or last run. While a container waits for a restart, the last run is shown.
    let is_crashed = waiting_for(state) == Some("CrashLoopBackOff");
    let is_earlier = if state.is_some_and(|state| state.waiting.is_some()) { !is_crashed } else { options.is_previous };
    let n_restarts = status.map_or(0, |status| status.restart_count).saturating_sub(i32::from(is_earlier));
    (200, options.apply(&line(&spec, n_restarts), at))
}

/// Why a container waits.
fn waiting_for(state: Option<&ContainerState>) -> Option<&str> {
    state?.waiting.as_ref()?.reason.as_deref()
}

fn spec<'a>(pod: &'a Pod, container: &str) -> Option<Spec<'a>> {
    let spec = pod.spec.as_ref()?;
    let words = |command: &'a Option<Vec<String>>, args: &'a Option<Vec<String>>| {
        command.iter().chain(args).flatten().map(String::as_str).collect()
    };
    let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut ephemeral = spec.ephemeral_containers.iter().flatten();
    let found = all.find(|one| one.name == container);
    found
        .map(|one| (one.image.as_deref(), words(&one.command, &one.args)))
        .or_else(|| {
            let one = ephemeral.find(|one| one.name == container)?;
            Some((one.image.as_deref(), words(&one.command, &one.args)))
        })
        .map(|(image, command)| Spec { image: image.unwrap_or_default(), command })
}

fn line(spec: &Spec<'_>, n_restarts: i32) -> String {
    let words: String = spec.command.iter().map(|word| format!(" {word:?}")).collect();
    let again = match n_restarts {
        ..=0 => String::new(),
        1 => ", begun again once".to_owned(),
        n => format!(", begun again {n} times"),
    };
    format!("simulated: {}{words} would run here{again}\n", spec.image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStateWaiting};
    use serde_json::{Value, json};

    const LINE: &str = "simulated: nginx \"sh\" \"-c\" would run here\n";

    fn pod(state: Value) -> Pod {
        serde_json::from_value(json!({
            "spec": {
                "containers": [{"name": "c", "image": "nginx", "command": ["sh", "-c"]}],
                "ephemeralContainers": [{"name": "e", "image": "busybox"}],
            },
            "status": {"containerStatuses": [{
                "name": "c", "image": "nginx", "imageID": "", "ready": false, "restartCount": 0, "state": state,
            }]},
        }))
        .unwrap()
    }

    fn running() -> Pod {
        pod(json!({"running": {"startedAt": "2026-01-02T03:04:05Z"}}))
    }

    #[track_caller]
    fn check(pod: Option<&Pod>, container: &str, query: &str, want: (u16, &str)) {
        let (code, text) = of(pod, "p", container, &Options::parse(query));
        assert_eq!((code, text.as_str()), want, "{query}");
    }

    #[test]
    fn the_line_is_cut_dated_and_left_out_as_the_options_say() {
        let pod = running();
        let logs = |query, want: &str| check(Some(&pod), "c", query, (200, want));
        logs("", LINE);
        logs("tailLines=1&follow=true&stream=Stdout", LINE);
        logs("tailLines=0", "");
        logs("stream=Stderr", "");
        logs("limitBytes=9", "simulated");
        logs("timestamps=true", &format!("2026-01-02T03:04:05.000000000Z {LINE}"));
        logs("sinceTime=2026-01-02T03:04:05Z", LINE);
        logs("sinceTime=2026-01-02T03:04:06Z", "");
    }

    #[test]
    fn a_log_says_how_often_its_container_had_begun_again() {
        let mut pod = running();
        let status = pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap().first_mut().unwrap();
        let ended = ContainerStateTerminated { exit_code: 1, ..ContainerStateTerminated::default() };
        status.last_state = Some(ContainerState { terminated: Some(ended), ..ContainerState::default() });
        status.restart_count = 1;
        let again = LINE.replace("here", "here, begun again once");
        check(Some(&pod), "c", "", (200, &again));
        check(Some(&pod), "c", "previous=true", (200, LINE));
        pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].restart_count = 3;
        check(Some(&pod), "c", "previous=true", (200, &LINE.replace("here", "here, begun again 2 times")));
        for (reason, times) in [("CrashLoopBackOff", 3), ("ContainerCreating", 2)] {
            let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message: None };
            let state = ContainerState { waiting: Some(waiting), ..ContainerState::default() };
            pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].state = Some(state);
            let line = LINE.replace("here", &format!("here, begun again {times} times"));
            check(Some(&pod), "c", "", (200, &line));
            check(Some(&pod), "c", "previous=true", (200, &line));
        }
    }

    #[test]
    fn what_has_not_begun_is_said_to_wait_and_for_what() {
        let waits = |reason: &str| pod(json!({"waiting": {"reason": reason}}));
        let check = |pod: Option<&Pod>, container: &str, reason: &str| {
            let want = format!("container {container:?} in pod \"p\" is waiting to start: {reason}");
            check(pod, container, "", (400, &want));
        };
        check(None, "c", "ContainerCreating");
        check(Some(&running()), "e", "ContainerCreating");
        check(Some(&running()), "added", "ContainerCreating");
        check(Some(&waits("PodInitializing")), "c", "PodInitializing");
        check(Some(&waits("ErrImagePull")), "c", "image can't be pulled");
        check(Some(&waits("ImagePullBackOff")), "c", "trying and failing to pull image");
    }

    proptest::proptest! {
        #[test]
        fn no_query_makes_it_panic(query in ".*", limit in 0_usize..100) {
            let _ = of(Some(&running()), "p", "c", &Options::parse(&query));
            let _ = Options { limit_bytes: Some(limit), ..Options::default() }.apply("äöü\n", None);
        }
    }
}
