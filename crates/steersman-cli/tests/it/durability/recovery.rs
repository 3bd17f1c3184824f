//! kill -9 in the middle of a control loop's work: the next process reaches the same state as an undisturbed one.
//!
//! A few rounds, or fifty for each story with STEERSMAN_LONG. The number of events before the kill is drawn from a
//! seed, which a failure prints.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::support::eventually;
use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::Plane;
use crate::support::process::Process;

const FLAGS: [&str; 2] = ["--simulate-nodes", "1"];

/// A story: the initial objects, the work that begins, and the required final state.
struct Story {
    before: fn(&Kubectl),
    begin: fn(&Kubectl),
    end: fn(&Kubectl),
    /// The arguments of a watch that shows the progress.
    watch: &'static str,
    /// The number of objects that the watch lists first.
    n_before: u32,
    /// At least this many events occur; the process is killed after fewer.
    n_events: u32,
}

#[track_caller]
fn play(story: &Story) {
    let Some(program) = kubectl::program() else { return };
    let rounds = if std::env::var_os("STEERSMAN_LONG").is_some() { 50 } else { 3 };
    let seed =
        std::env::var("STEERSMAN_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(rand::random::<u64>);
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..rounds {
        let home = tempfile::tempdir().unwrap();
        let plane = Plane::server(home.path(), &FLAGS);
        let kubectl = Kubectl::new(program.clone(), &plane.kubeconfig());
        (story.before)(&kubectl);
        let mut watch = Process::start(&mut kubectl.command(&format!("get {} --watch -o name", story.watch)));
        // The watch has begun when it has listed the existing objects.
        for _ in 0..story.n_before {
            watch.line();
        }
        (story.begin)(&kubectl);
        for _ in 0..random.random_range(0..story.n_events) {
            watch.line();
        }
        plane.kill();
        // Its connection is broken, so it ends.
        watch.end();
        let plane = Plane::server(home.path(), &FLAGS);
        (story.end)(&Kubectl::new(program.clone(), &plane.kubeconfig()));
        plane.stop();
    }
}

#[test]
fn a_roll_out_that_is_killed_is_finished() {
    play(&Story {
        before: |kubectl| {
            kubectl.ok("create deployment web --image=web:1 --replicas=10");
            kubectl.ok("rollout status deployment/web --timeout=60s");
        },
        begin: |kubectl| {
            kubectl.ok("set image deployment/web web=web:2");
        },
        end: |kubectl| {
            kubectl.ok("rollout status deployment/web --timeout=60s");
            eventually("ten Pods of the new image, and no others", || {
                let pods = kubectl.ok("get pods -l app=web -o jsonpath={.items[*].spec.containers[0].image}");
                (pods == ["web:2"; 10].join(" ")).then_some(())
            });
            let sets = kubectl.ok("get replicasets -l app=web -o jsonpath={.items[*].spec.replicas}");
            let mut sets: Vec<&str> = sets.split(' ').collect();
            sets.sort_unstable();
            assert_eq!(sets, ["0", "10"], "one set for each template");
        },
        watch: "pods -l app=web",
        n_before: 10,
        n_events: 30,
    });
}

#[test]
fn the_end_of_a_namespace_that_is_killed_goes_on() {
    play(&Story {
        before: |kubectl| {
            kubectl.ok("create namespace doomed");
            kubectl.ok("-n doomed create deployment web --image=web:1 --replicas=10");
            let configs: String = (0..40)
                .map(|n| {
                    format!("kind: ConfigMap\napiVersion: v1\nmetadata: {{name: c-{n}, namespace: doomed}}\n---\n")
                })
                .collect();
            kubectl.apply(&configs);
            kubectl.ok("wait --for=create configmap/kube-root-ca.crt -n doomed --timeout=60s");
        },
        begin: |kubectl| {
            kubectl.ok("delete namespace doomed --wait=false");
        },
        end: |kubectl| {
            kubectl.ok("wait --for=delete namespace/doomed --timeout=60s");
            assert_eq!(kubectl.ok("get pods,configmaps,deployments -n doomed -o name"), "");
        },
        watch: "configmaps -n doomed",
        n_before: 41,
        n_events: 30,
    });
}

#[test]
fn garbage_that_was_being_collected_is_collected_and_nothing_else() {
    play(&Story {
        before: |kubectl| {
            kubectl.apply("kind: ConfigMap\napiVersion: v1\nmetadata: {name: owner}");
            let uid = kubectl.ok("get configmap owner -o jsonpath={.metadata.uid}");
            let owned: String = (0..60)
                .map(|n| {
                    format!(
                        "kind: Secret\napiVersion: v1\nmetadata: {{name: owned-{n}, ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: owner, uid: {uid}}}]}}\n---\nkind: Secret\napiVersion: v1\nmetadata: {{name: free-{n}}}\n---\n"
                    )
                })
                .collect();
            kubectl.apply(&owned);
        },
        begin: |kubectl| {
            kubectl.ok("delete configmap owner");
        },
        end: |kubectl| {
            eventually("what was owned is gone", || {
                let left = kubectl.ok("get secrets -o name");
                (!left.contains("owned-")).then_some(())
            });
            let left = kubectl.ok("get secrets -o name");
            assert_eq!(left.lines().filter(|name| name.contains("free-")).count(), 60, "{left}");
        },
        watch: "secrets",
        n_before: 120,
        n_events: 50,
    });
}
