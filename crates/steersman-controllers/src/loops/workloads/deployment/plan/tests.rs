//! Plans for single states, and for whole rollouts in a small simulated model with random events.

use super::*;
use crate::loops::workloads::deployment::revision::TEMPLATE_HASH;
use k8s_openapi::api::apps::v1::ReplicaSetStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Deployments, ReplicaSets and Pods, without a server.
#[derive(Debug)]
struct Model {
    deployment: Deployment,
    sets: Vec<Owner>,
    n_made: i64,
    events: Vec<String>,
}

#[derive(Debug)]
struct Owner {
    set: ReplicaSet,
    /// The readiness of each of its Pods.
    pods: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
enum Happening {
    BreakPod(usize),
    MakeReady(usize),
    PlanDeployment,
    Scale(i32),
    SetTemplate(u8),
    WorkAtSet(usize),
}

impl Model {
    fn new(replicas: i32, strategy: Value) -> Model {
        let value = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1},
            "spec": {
                "replicas": replicas, "strategy": strategy, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 1,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "0"}]}},
            },
        });
        let deployment = serde_json::from_value(value).expect("a Deployment");
        Model { deployment, sets: Vec::new(), n_made: 0, events: Vec::new() }
    }

    fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn plan(&self) -> Plan {
        let running = self.sets.iter().filter(|owner| !owner.pods.is_empty());
        plan(&State {
            deployment: self.deployment.clone(),
            sets: self.sets.iter().map(|owner| owner.set.clone()).collect(),
            running: running.filter_map(|owner| owner.set.metadata.uid.clone()).collect(),
            now: Model::now(),
        })
    }

    /// Executes a plan. Returns whether there was anything to do.
    fn work_at_deployment(&mut self) -> bool {
        let plan = self.plan();
        let is_idle = plan.sets.is_empty() && matches!(plan.deployment, DeploymentWrite::Nothing);
        for write in plan.sets {
            match write {
                SetWrite::Create(set) => self.create(*set),
                SetWrite::Delete(set) => {
                    let owner = self.sets.iter().position(|owner| owner.set.metadata.name == set.metadata.name);
                    let owner = self.sets.remove(owner.expect("what is deleted is there"));
                    assert!(owner.pods.is_empty(), "a set with Pods is deleted");
                }
                SetWrite::Update(set, notes) => {
                    let owner = self.sets.iter_mut().find(|owner| owner.set.metadata.name == set.metadata.name);
                    let known = &mut owner.expect("what is changed is there").set;
                    let status = known.status.take();
                    let generation =
                        known.metadata.generation.map(|generation| generation + i64::from(known.spec != set.spec));
                    *known = *set;
                    (known.status, known.metadata.generation) = (status, generation);
                    self.events.extend(notes.into_iter().map(|note| note.text));
                }
            }
        }
        match plan.deployment {
            DeploymentWrite::Nothing => {}
            DeploymentWrite::Status(deployment) => self.deployment = *deployment,
            DeploymentWrite::Whole(deployment) => {
                self.deployment = *deployment;
                self.deployment.metadata.generation = self.deployment.metadata.generation.map(|one| one + 1);
            }
        }
        self.events.extend(plan.events.into_iter().map(|note| note.text));
        !is_idle
    }

    fn create(&mut self, mut set: ReplicaSet) {
        assert!(self.sets.iter().all(|owner| owner.set.metadata.name != set.metadata.name), "made twice");
        self.n_made += 1;
        let at = Timestamp::from_second(self.n_made).expect("a time");
        set.metadata.creation_timestamp = Some(Time(at));
        set.metadata.generation = Some(1);
        set.metadata.uid = Some(self.n_made.to_string());
        set.status = Some(ReplicaSetStatus::default());
        self.sets.push(Owner { set, pods: Vec::new() });
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::BreakPod(which) => self.mark(which, false),
            Happening::MakeReady(which) => self.mark(which, true),
            Happening::PlanDeployment => drop(self.work_at_deployment()),
            Happening::Scale(replicas) => {
                self.deployment.spec.replicas = Some(replicas);
                self.deployment.metadata.generation = self.deployment.metadata.generation.map(|one| one + 1);
            }
            Happening::SetTemplate(number) => {
                let spec = self.deployment.spec.template.spec.as_mut().expect("a template");
                spec.containers[0].image = Some(number.to_string());
                self.deployment.metadata.generation = self.deployment.metadata.generation.map(|one| one + 1);
            }
            Happening::WorkAtSet(which) => {
                if let Some(n_sets) = self.sets.len().checked_sub(1) {
                    self.sets[which % (n_sets + 1)].work();
                }
            }
        }
    }

    /// Sets the readiness of one Pod.
    fn mark(&mut self, which: usize, is_ready: bool) {
        let mut pods: Vec<&mut bool> = self.sets.iter_mut().flat_map(|owner| &mut owner.pods).collect();
        if !pods.is_empty() {
            let at = which % pods.len();
            *pods[at] = is_ready;
        }
    }

    fn n_ready(&self) -> usize {
        self.sets.iter().flat_map(|owner| &owner.pods).filter(|is_ready| **is_ready).count()
    }

    fn total_wanted(&self) -> i32 {
        bounds::total(self.sets.iter().map(|owner| &owner.set))
    }

    /// Runs all controllers, with every Pod becoming ready, until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            let mut is_idle = !self.work_at_deployment();
            for owner in &mut self.sets {
                is_idle &= !owner.work();
                is_idle &= owner.pods.iter().all(|is_ready| *is_ready);
                owner.pods.fill(true);
            }
            if is_idle {
                return;
            }
        }
        panic!("it does not come to an end: {self:#?}");
    }

    fn sizes(&self) -> Vec<(Option<i64>, i32, usize)> {
        let mut sizes: Vec<_> = self
            .sets
            .iter()
            .map(|owner| (revision::of(&owner.set), bounds::size(&owner.set), owner.pods.len()))
            .collect();
        sizes.sort_unstable();
        sizes
    }

    fn reason(&self) -> Option<&str> {
        let progressing = status::condition(self.deployment.status.as_ref()?, status::PROGRESSING)?;
        progressing.reason.as_deref()
    }
}

impl Owner {
    /// Acts as the ReplicaSet controller: creates and deletes Pods, and writes a status of the state before. Returns
    /// whether there was anything to do.
    fn work(&mut self) -> bool {
        let (n_pods, n_ready) = (self.pods.len(), self.pods.iter().filter(|is_ready| **is_ready).count());
        let wanted = usize::try_from(bounds::size(&self.set)).unwrap_or(0);
        // Pods that are not ready are deleted first.
        self.pods.sort_unstable_by_key(|is_ready| !is_ready);
        self.pods.resize(wanted, false);
        let count = |n: usize| i32::try_from(n).ok();
        let status = ReplicaSetStatus {
            available_replicas: count(n_ready),
            observed_generation: self.set.metadata.generation,
            ready_replicas: count(n_ready),
            replicas: count(n_pods).unwrap_or(0),
            terminating_replicas: Some(0),
            ..ReplicaSetStatus::default()
        };
        let is_idle = n_pods == wanted && self.set.status.as_ref() == Some(&status);
        self.set.status = Some(status);
        !is_idle
    }
}

fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

/// A Deployment with a completed rollout.
fn settled(replicas: i32, strategy: Value) -> Model {
    let mut model = Model::new(replicas, strategy);
    model.settle();
    model.events.clear();
    model
}

#[test]
fn a_deployment_makes_its_set_with_all_its_annotations() {
    let mut model = Model::new(3, rolling(json!("25%"), json!("25%")));
    model.work_at_deployment();
    let set = &model.sets[0].set;
    let hash = set.metadata.labels.as_ref().expect("labels")[TEMPLATE_HASH].clone();
    assert_eq!(set.metadata.name, Some(format!("web-{hash}")));
    assert_eq!(set.spec.selector.match_labels.as_ref().expect("a selector")[TEMPLATE_HASH], hash);
    assert_eq!(
        json!(set.metadata.annotations),
        json!({revision::REVISION: "1", revision::DESIRED_REPLICAS: "3", revision::MAX_REPLICAS: "4"})
    );
    assert_eq!((bounds::size(set), model.reason()), (3, Some("NewReplicaSetCreated")));
    assert_eq!(model.events, [format!("Scaled up replica set web-{hash} from 0 to 3")]);
    model.settle();
    assert_eq!(model.reason(), Some("NewReplicaSetAvailable"));
    let status = model.deployment.status.clone().expect("a status");
    assert_eq!(
        (status.available_replicas, status.unavailable_replicas, status.observed_generation),
        (Some(3), None, Some(1))
    );
}

#[test]
fn an_update_goes_one_by_one_where_one_may_be_added_and_none_be_missing() {
    let mut model = settled(3, rolling(json!("25%"), json!("25%")));
    model.happen(Happening::SetTemplate(1));
    model.settle();
    assert_eq!(model.sizes(), [(Some(1), 0, 0), (Some(2), 3, 3)]);
    let steps: Vec<&str> =
        model.events.iter().filter_map(|text| text.split_once(" from ").map(|(_, step)| step)).collect();
    assert_eq!(steps, ["0 to 1", "3 to 2", "1 to 2", "2 to 1", "2 to 3", "1 to 0"]);
    // With a third template, the first set is over the history limit.
    model.happen(Happening::SetTemplate(2));
    model.settle();
    assert_eq!(model.sizes(), [(Some(2), 0, 0), (Some(3), 3, 3)]);
    // The second template again: its set is reused.
    model.happen(Happening::SetTemplate(1));
    model.settle();
    assert_eq!(model.sizes(), [(Some(3), 0, 0), (Some(4), 3, 3)]);
    let newest = model.sets.iter().find(|owner| bounds::size(&owner.set) > 0).expect("the newest");
    assert_eq!(revision::annotation(&newest.set, "deployment.kubernetes.io/revision-history"), Some("2"));
}

#[test]
fn all_old_pods_end_before_the_first_new_one_begins() {
    let mut model = settled(2, json!({"type": "Recreate"}));
    model.happen(Happening::SetTemplate(1));
    model.work_at_deployment();
    assert_eq!(model.sizes(), [(Some(1), 0, 2)]);
    model.work_at_deployment();
    assert_eq!(model.sets.len(), 1, "its Pods run yet");
    model.settle();
    assert_eq!(model.sizes(), [(Some(1), 0, 0), (Some(2), 2, 2)]);
}

#[test]
fn a_paused_deployment_is_scaled_but_not_updated() {
    let mut model = settled(2, rolling(json!(1), json!(0)));
    model.deployment.spec.paused = Some(true);
    model.happen(Happening::SetTemplate(1));
    model.happen(Happening::Scale(3));
    model.settle();
    assert_eq!((model.sizes(), model.reason()), (vec![(Some(1), 3, 3)], Some("DeploymentPaused")));
    model.deployment.spec.paused = None;
    model.work_at_deployment();
    assert_eq!(model.reason(), Some("NewReplicaSetCreated"));
    model.settle();
    assert_eq!(model.sizes(), [(Some(1), 0, 0), (Some(2), 3, 3)]);
}

#[test]
fn scaling_in_the_middle_of_an_update_shares_the_pods_out() {
    let mut model = settled(3, rolling(json!("25%"), json!("25%")));
    model.happen(Happening::SetTemplate(1));
    model.work_at_deployment();
    model.sets.iter_mut().for_each(|owner| _ = owner.work());
    assert_eq!(model.sizes(), [(Some(1), 3, 3), (Some(2), 1, 1)]);
    model.happen(Happening::Scale(6));
    model.work_at_deployment();
    assert_eq!(model.sizes(), [(Some(1), 6, 3), (Some(2), 2, 1)]);
    let max = |owner: &Owner| revision::annotation(&owner.set, revision::MAX_REPLICAS).map(str::to_owned);
    assert!(model.sets.iter().all(|owner| max(owner).as_deref() == Some("8")));
}

#[test]
fn a_rollout_without_progress_is_said_to_have_failed_and_looked_at_in_time() {
    let mut model = settled(1, rolling(json!(1), json!(0)));
    model.happen(Happening::SetTemplate(1));
    model.work_at_deployment();
    model.sets.iter_mut().for_each(|owner| _ = owner.work());
    model.sets.iter_mut().for_each(|owner| _ = owner.work());
    while model.work_at_deployment() {}
    assert_eq!(model.plan().next_look.map(|wait| wait.as_secs()), Some(600));
    let state = State {
        deployment: model.deployment.clone(),
        sets: model.sets.iter().map(|owner| owner.set.clone()).collect(),
        running: HashSet::new(),
        now: Model::now() + jiff::SignedDuration::from_secs(601),
    };
    let DeploymentWrite::Status(deployment) = plan(&state).deployment else { panic!("the status is written") };
    let progressing =
        status::condition(deployment.status.as_ref().expect("a status"), status::PROGRESSING).expect("one");
    let name = model.sets[1].set.metadata.name.clone().expect("a name");
    assert_eq!(
        (progressing.status.as_deref(), progressing.reason.as_deref(), progressing.message.as_deref()),
        (
            Some("False"),
            Some("ProgressDeadlineExceeded"),
            Some(&*format!("ReplicaSet {name:?} has timed out progressing."))
        )
    );
}

#[test]
fn clients_of_old_versions_roll_back_with_an_annotation() {
    let mut model = settled(1, rolling(json!(1), json!(0)));
    model.happen(Happening::SetTemplate(1));
    model.settle();
    let ask = |model: &mut Model, revision: &str| {
        let annotations = model.deployment.metadata.annotations.get_or_insert_default();
        annotations.insert(revision::ROLLBACK_TO.to_owned(), revision.to_owned());
        model.events.clear();
        model.settle();
    };
    ask(&mut model, "0");
    assert!(model.events.contains(&"Rolled back deployment \"web\" to revision 1".to_owned()), "{:?}", model.events);
    assert_eq!(model.sizes(), [(Some(2), 0, 0), (Some(3), 1, 1)]);
    ask(&mut model, "3");
    assert_eq!(model.events, ["The rollback revision contains the same template as current deployment \"web\""]);
    ask(&mut model, "7");
    assert_eq!(model.events, ["Unable to find the revision to rollback to."]);
}

#[test]
fn a_long_name_is_cut_off_before_the_hash() {
    assert_eq!(set_name("web", "abc"), "web-abc");
    let name = set_name(&"w".repeat(253), "abcdefghij");
    assert_eq!((name.len(), name.ends_with("w-abcdefghij")), (253, true));
}

fn happening() -> impl Strategy_<Value = Happening> {
    prop_oneof![
        4 => any::<usize>().prop_map(Happening::MakeReady),
        5 => Just(Happening::PlanDeployment),
        1 => (0_u8..4).prop_map(Happening::SetTemplate),
        6 => any::<usize>().prop_map(Happening::WorkAtSet),
    ]
}

use proptest::strategy::Strategy as Strategy_;

fn fraction() -> impl Strategy_<Value = Value> {
    prop_oneof![(0..4_i32).prop_map(|n| json!(n)), (0..=100_u8).prop_map(|n| json!(format!("{n}%")))]
}

proptest! {
    /// With events in any order, an update never exceeds its surge, and never deletes a Pod that has to stay available.
    #[test]
    fn an_update_keeps_within_its_bounds_and_ends(
        replicas in 0..12_i32,
        surge in fraction(),
        unavailable in fraction(),
        happenings in prop::collection::vec(happening(), 0..120),
    ) {
        let mut model = settled(replicas, rolling(surge, unavailable));
        let most = bounds::max_total(&model.deployment);
        let least = usize::try_from(replicas - bounds::max_unavailable(&model.deployment)).unwrap_or(0);
        for happening in happenings {
            model.happen(happening);
            prop_assert!(model.total_wanted() <= most, "{} Pods are wanted: {:?}", model.total_wanted(), model.sizes());
            prop_assert!(least <= model.n_ready(), "{} Pods are ready after {happening:?}", model.n_ready());
        }
        model.settle();
        let n_left: i32 = model.sizes().iter().map(|(_, size, _)| size).sum();
        prop_assert_eq!((n_left, model.n_ready()), (replicas, usize::try_from(replicas).unwrap_or(0)));
        prop_assert!(model.sets.iter().filter(|owner| !owner.pods.is_empty()).count() <= 1);
        prop_assert_eq!(model.reason(), Some("NewReplicaSetAvailable"));
    }

    /// A Deployment that is scaled and whose Pods fail at any time reaches the desired state in the end.
    #[test]
    fn whatever_happens_it_comes_to_what_is_wanted(
        recreates in any::<bool>(),
        happenings in prop::collection::vec(
            prop_oneof![
                6 => happening(),
                1 => (0..20_i32).prop_map(Happening::Scale),
                2 => any::<usize>().prop_map(Happening::BreakPod),
            ],
            0..120,
        ),
    ) {
        let strategy = if recreates { json!({"type": "Recreate"}) } else { rolling(json!("25%"), json!("25%")) };
        let mut model = settled(5, strategy);
        let mut most = bounds::max_total(&model.deployment);
        for happening in happenings {
            model.happen(happening);
            most = most.max(bounds::max_total(&model.deployment));
            prop_assert!(model.total_wanted() <= most, "{} Pods are wanted of {most}", model.total_wanted());
        }
        model.settle();
        let wanted = bounds::wanted(&model.deployment);
        prop_assert_eq!(model.total_wanted(), wanted);
        prop_assert_eq!(model.n_ready(), usize::try_from(wanted).unwrap_or(0));
    }
}
