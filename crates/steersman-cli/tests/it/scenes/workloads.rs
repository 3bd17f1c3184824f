//! Well-known scenes of a cluster, with stock kubectl, on simulated nodes: healing, roll-outs, roll-backs, a bad image,
//! CronJobs, a drain that respects a budget, and logs.

use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::Plane;
use crate::support::process::Process;

struct Scene {
    _home: tempfile::TempDir,
    plane: Plane,
    kubectl: Kubectl,
}

impl Scene {
    fn start(nodes: u32) -> Option<Scene> {
        let program = kubectl::program()?;
        let home = tempfile::tempdir().unwrap();
        let plane = Plane::server(home.path(), &["--in-memory", "--simulate-nodes", &nodes.to_string()]);
        let kubectl = Kubectl::new(program, &plane.kubeconfig());
        Some(Scene { _home: home, plane, kubectl })
    }

    /// Waits until a roll-out is complete.
    #[track_caller]
    fn rolled(&self, what: &str) {
        self.kubectl.ok(&format!("rollout status {what} --timeout=60s"));
    }

    /// The images of the Pods with a label that are not being deleted.
    #[track_caller]
    fn images(&self, selector: &str) -> Vec<String> {
        let list = self.kubectl.json(&format!("get pods -l {selector}"));
        let pods = list["items"].as_array().unwrap().iter();
        let live = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        live.map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn pods_that_are_deleted_come_back() {
    let Some(scene) = Scene::start(2) else { return };
    scene.kubectl.ok("create deployment web --image=web:1 --replicas=8");
    scene.rolled("deployment/web");
    let first = scene.kubectl.ok("get pods -l app=web -o name");
    assert_eq!(first.lines().count(), 8);
    scene.kubectl.ok("delete pods -l app=web --wait=true --timeout=60s");
    scene.kubectl.ok("wait deployment/web --for=jsonpath={.status.readyReplicas}=8 --timeout=60s");
    scene.rolled("deployment/web");
    let second = scene.kubectl.ok("get pods -l app=web -o name");
    assert!(second.lines().all(|pod| !first.contains(pod)), "{first}{second}");
    scene.plane.stop();
}

#[test]
fn a_deployment_is_updated_undone_restarted_paused_and_scaled() {
    let Some(scene) = Scene::start(1) else { return };
    let kubectl = &scene.kubectl;
    kubectl.ok("create deployment web --image=web:1 --replicas=4");
    scene.rolled("deployment/web");
    kubectl.ok("set image deployment/web web=web:2");
    scene.rolled("deployment/web");
    assert_eq!(scene.images("app=web"), ["web:2"; 4]);
    kubectl.ok("rollout undo deployment/web");
    scene.rolled("deployment/web");
    assert_eq!(scene.images("app=web"), ["web:1"; 4]);
    let history = kubectl.ok("rollout history deployment/web");
    let revisions: Vec<&str> = history.lines().filter_map(|line| line.split_whitespace().next()).skip(2).collect();
    assert_eq!(revisions, ["2", "3"], "{history}");

    kubectl.ok("rollout pause deployment/web");
    kubectl.ok("set image deployment/web web=web:3");
    kubectl.ok("wait deployment/web --for=jsonpath={.status.observedGeneration}=5 --timeout=60s");
    assert_eq!(scene.images("app=web"), ["web:1"; 4], "it is paused");
    kubectl.ok("rollout resume deployment/web");
    scene.rolled("deployment/web");
    assert_eq!(scene.images("app=web"), ["web:3"; 4]);

    let before = kubectl.ok("get pods -l app=web -o name");
    kubectl.ok("rollout restart deployment/web");
    scene.rolled("deployment/web");
    let after = kubectl.ok("get pods -l app=web -o name");
    assert!(before.lines().any(|pod| !after.contains(pod)), "{before}{after}");
    kubectl.ok("scale deployment/web --replicas=1");
    kubectl.ok("wait deployment/web --for=jsonpath={.status.replicas}=1 --timeout=60s");
    kubectl.ok("delete deployment web --cascade=foreground --timeout=60s");
    assert_eq!(kubectl.ok("get pods,replicasets -l app=web -o name"), "");
    scene.plane.stop();
}

/// The states of a Deployment from a watch that began before the change: available and total replicas of each.
fn states(watch: Process) -> Vec<(u64, u64)> {
    let ended = watch.end();
    let rows = ended.stdout.lines().filter_map(|line| {
        let mut counts = line.split_whitespace().map(|count| count.parse().unwrap_or(0));
        Some((counts.next()?, counts.next()?))
    });
    rows.collect()
}

#[test]
fn a_rolling_update_never_has_fewer_ready_than_allowed() {
    let Some(scene) = Scene::start(1) else { return };
    let kubectl = &scene.kubectl;
    kubectl.apply(
        "
kind: Deployment
apiVersion: apps/v1
metadata: {name: web}
spec:
  replicas: 10
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxUnavailable: 2, maxSurge: 3}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: 'web:1'}]}
",
    );
    scene.rolled("deployment/web");
    let columns = "custom-columns=AVAILABLE:.status.availableReplicas,TOTAL:.status.replicas";
    let mut watch = Process::start(&mut kubectl.command(&format!("get deployment web --watch -o {columns}")));
    assert!(watch.line().is_some_and(|header| header.starts_with("AVAILABLE")), "the watch has begun");
    kubectl.ok("set image deployment/web c=web:2");
    scene.rolled("deployment/web");
    watch.signal("TERM");
    let states = states(watch);
    assert!(states.len() > 3, "{states:?}");
    // The total in the status may exceed the wanted number for a moment, while Pods are ending.
    assert!(states.iter().all(|(available, _)| *available >= 8), "{states:?}");
    scene.plane.stop();
}

#[test]
fn an_image_that_cannot_be_pulled_stops_the_roll_out_and_the_old_pods_stay() {
    let Some(scene) = Scene::start(1) else { return };
    let kubectl = &scene.kubectl;
    kubectl.ok("create deployment web --image=web:1 --replicas=4");
    scene.rolled("deployment/web");
    kubectl.ok("patch deployment web --type=merge -p {\"spec\":{\"progressDeadlineSeconds\":2}}");
    kubectl.ok("set image deployment/web web=web:missing");
    let failure = kubectl.fails("rollout status deployment/web --timeout=60s");
    assert!(failure.contains("exceeded its progress deadline"), "{failure}");
    let list = kubectl.json("get pods -l app=web");
    let waiting = list["items"].as_array().unwrap().iter().filter_map(|pod| {
        let reason = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
        reason.as_str().map(str::to_owned)
    });
    let waiting: Vec<String> = waiting.collect();
    assert!(!waiting.is_empty() && waiting.iter().all(|reason| reason.contains("ImagePull")), "{waiting:?}");
    assert_eq!(kubectl.json("get deployment web")["status"]["availableReplicas"], 3);
    kubectl.ok("rollout undo deployment/web");
    scene.rolled("deployment/web");
    assert_eq!(scene.images("app=web"), ["web:1"; 4]);
    scene.plane.stop();
}

#[test]
fn a_drain_waits_for_the_budget_and_leaves_an_empty_node() {
    let Some(scene) = Scene::start(2) else { return };
    let kubectl = &scene.kubectl;
    kubectl.ok("create deployment web --image=web:1 --replicas=4");
    scene.rolled("deployment/web");
    kubectl.ok("create poddisruptionbudget web --selector=app=web --min-available=3");
    kubectl.ok("wait poddisruptionbudget/web --for=jsonpath={.status.disruptionsAllowed}=1 --timeout=60s");
    kubectl.ok("drain node-1 --timeout=100s");
    let on_first = kubectl.json("get pods -l app=web --field-selector=spec.nodeName=node-1");
    assert_eq!(on_first["items"].as_array().unwrap().len(), 0, "{on_first:#}");
    scene.rolled("deployment/web");
    // No Pod may be evicted: the drain reports that, and does not end.
    kubectl.ok("patch poddisruptionbudget web --type=merge -p {\"spec\":{\"minAvailable\":4}}");
    kubectl.ok("wait poddisruptionbudget/web --for=jsonpath={.status.disruptionsAllowed}=0 --timeout=60s");
    let refused = kubectl.fails("drain node-2 --timeout=1s");
    assert!(refused.contains("violate the pod's disruption budget"), "{refused}");
    scene.plane.stop();
}

#[test]
fn jobs_complete_and_logs_say_what_would_run() {
    let Some(scene) = Scene::start(1) else { return };
    let kubectl = &scene.kubectl;
    kubectl.ok("create job pi --image=perl:5 -- perl -e 1");
    kubectl.ok("wait job/pi --for=condition=complete --timeout=60s");
    assert!(kubectl.ok("logs job/pi").contains("perl"), "{}", kubectl.ok("logs job/pi"));
    kubectl.ok("create cronjob tick --image=busybox --schedule=@yearly");
    kubectl.ok("create job now --from=cronjob/tick");
    kubectl.ok("wait job/now --for=condition=complete --timeout=60s");
    scene.plane.stop();
}

#[test]
fn a_cron_job_fires_when_its_time_has_come() {
    let Some(scene) = Scene::start(1) else { return };
    let kubectl = &scene.kubectl;
    kubectl.apply(
        "
kind: CronJob
apiVersion: batch/v1
metadata: {name: nightly}
spec:
  schedule: 0 0 * * *
  timeZone: Etc/UTC
  jobTemplate:
    spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
",
    );
    assert_eq!(kubectl.ok("get jobs -o name"), "", "midnight has not come since it was made");
    // Now two midnights have passed for the CronJob.
    let before = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(48);
    let status = format!(r#"{{"status":{{"lastScheduleTime":"{}"}}}}"#, before.strftime("%Y-%m-%dT%H:%M:%SZ"));
    kubectl.ok(&format!("patch cronjob nightly --subresource=status --type=merge -p {status}"));
    kubectl.ok("wait cronjob/nightly --for=jsonpath={.status.lastSuccessfulTime} --timeout=60s");
    let jobs = kubectl.ok("get jobs -o name");
    assert_eq!(jobs.lines().count(), 1, "only the last of them is made up for: {jobs}");
    assert!(jobs.starts_with("job.batch/nightly-"), "{jobs}");
    assert!(kubectl.ok("describe cronjob nightly").contains("SuccessfulCreate"));
    scene.plane.stop();
}

#[test]
fn a_stateful_set_gets_its_volumes_and_a_daemon_set_a_pod_for_each_node() {
    let Some(scene) = Scene::start(3) else { return };
    let kubectl = &scene.kubectl;
    kubectl.apply(
        "
kind: StatefulSet
apiVersion: apps/v1
metadata: {name: db}
spec:
  replicas: 3
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: 'db:1', volumeMounts: [{name: data, mountPath: /data}]}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
kind: DaemonSet
apiVersion: apps/v1
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: 'agent:1'}]}
",
    );
    scene.rolled("statefulset/db");
    scene.rolled("daemonset/agent");
    let claims = kubectl.json("get persistentvolumeclaims");
    let bound = claims["items"].as_array().unwrap().iter().filter(|claim| claim["status"]["phase"] == "Bound").count();
    assert_eq!(bound, 3, "{claims:#}");
    let agents = kubectl.json("get pods -l app=agent");
    let nodes: std::collections::BTreeSet<String> = agents["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(nodes.len(), 3, "{nodes:?}");
    scene.plane.stop();
}

/// The words of each line but the first.
fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn top_shows_what_pods_and_nodes_use() {
    let Some(scene) = Scene::start(1) else { return };
    let kubectl = &scene.kubectl;
    // Containers that have just started have no metrics yet. The last Pod is ready when enough are known.
    kubectl.apply(
        "
kind: Pod
apiVersion: v1
metadata:
  name: a
  labels: {app: a}
  annotations: {simulate.steersman.dev/cpu-usage: 250m, simulate.steersman.dev/memory-usage: 64Mi}
spec: {containers: [{name: c, image: i}, {name: d, image: i}]}
",
    );
    kubectl.ok("wait pod/a --for=condition=Ready --timeout=60s");
    kubectl.apply(
        "
kind: Pod
apiVersion: v1
metadata: {name: b, annotations: {simulate.steersman.dev/ready-delay: 12s, simulate.steersman.dev/cpu-usage: '2'}}
spec: {containers: [{name: c, image: i}]}
",
    );
    kubectl.ok("wait pod/b --for=condition=Ready --timeout=60s");
    assert_eq!(rows(&kubectl.ok("top pods")), [["a", "500m", "128Mi"], ["b", "2000m", "10Mi"]]);
    assert_eq!(rows(&kubectl.ok("top pods -l app=a")), [["a", "500m", "128Mi"]]);
    assert_eq!(rows(&kubectl.ok("top pods -A --sort-by=cpu"))[0], ["default", "b", "2000m", "10Mi"]);
    let containers = kubectl.ok("top pod a --containers");
    assert_eq!(rows(&containers), [["a", "c", "250m", "64Mi"], ["a", "d", "250m", "64Mi"]]);
    assert_eq!(rows(&kubectl.ok("top nodes")), [["node-1", "2500m", "7%", "138Mi", "0%"]]);
    assert_eq!(rows(&kubectl.ok("top node node-1")), [["node-1", "2500m", "7%", "138Mi", "0%"]]);

    let table = kubectl.ok("get podmetrics");
    let heading: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(heading, ["NAME", "CPU", "MEMORY", "WINDOW"]);
    assert_eq!(rows(&table)[0][..3], ["a", "500m", "128Mi"]);
    assert_eq!(rows(&kubectl.ok("get nodemetrics node-1"))[0][..3], ["node-1", "2500m", "138Mi"]);
    assert!(kubectl.ok("get --raw /apis/metrics.k8s.io/v1beta1/nodes").contains("\"kind\":\"NodeMetricsList\""));
    assert!(kubectl.ok("explain podmetrics.containers").contains("ContainerMetrics"));
    // The short names still belong to the core group.
    assert_eq!(kubectl.json("get pods a")["kind"], "Pod");
    assert!(kubectl.ok("describe node node-1").contains("Allocated resources"));
    let refused = kubectl.fails("top pod none");
    assert!(refused.contains("pods \"none\" not found"), "{refused}");
    scene.plane.stop();
}
