//! Every transition of every field: the document agrees with the code, and a real Neutron with both.

mod effect;

use crate::environment::{Environment, Ready, id_of, plain};
use crate::neutron::{self, Role};
use crate::transitions::effect::{Effect, Field, document, fields, transition};
use expect_test::expect_file;
use serde_json::{Value, json};
use std::sync::Arc;
use steersman::ObjectKey;
use steersman_network::Network;
use steersman_neutron::{Cloud, Network as Made, NetworkCreate, RequestId, Simulated, Subnet, SubnetCreate};

#[test]
fn the_document_is_what_the_code_decides() {
    expect_file!["../../../../docs/network-transitions.md"].assert_eq(&document());
}

/// The name of the object.
const NAME: &str = "a";

/// The resources of an object in Neutron.
#[derive(Clone, Debug, PartialEq)]
struct State {
    network: Made,
    subnets: Vec<Subnet>,
}

/// The network that `adopt` may name.
async fn make_theirs(cloud: &dyn Cloud) {
    let request = RequestId::random();
    let create = NetworkCreate { name: Some("theirs".to_owned()), ..NetworkCreate::default() };
    let network = cloud.create_network(request, &create).await.unwrap();
    cloud.add_network_tag(request, network.id, "theirs").await.unwrap();
    let create = SubnetCreate {
        name: Some("theirs".to_owned()),
        ..SubnetCreate::new(network.id, "10.0.0.0/24".parse().unwrap())
    };
    cloud.create_subnet(request, &create).await.unwrap();
}

async fn state(environment: &Environment, object: &Network) -> Option<State> {
    object.status.as_ref()?.network_id.as_ref()?;
    let network = environment.network(id_of(object)).await?;
    Some(State { subnets: environment.subnets(network.id).await, network })
}

/// Whether the operator has done all that it can for a spec.
fn is_settled(ready: &Ready) -> bool {
    let is_refusal = matches!(
        ready.reason.as_str(),
        "InvalidSpec" | "ReplaceRequired" | "CIDROverlap" | "Differs" | "AdoptChanged" | "AdoptNotFound"
    );
    ready.status == "True" || is_refusal
}

/// One object, driven from value to value of a field.
struct Drive<'a> {
    environment: Environment,
    field: &'a Field,
    /// The object's current value; `None` without an object.
    present: Option<&'a Value>,
    /// The value that Neutron agrees with, if any.
    agreed: Option<&'a Value>,
    /// The object's resources in Neutron when last observed.
    state: Option<State>,
}

impl<'a> Drive<'a> {
    /// Runs one row of the document, and checks its effect.
    async fn row(&mut self, from: &'a Value, to: &'a Value) {
        let row = format!("{}: {from} -> {to}", self.field.title);
        self.start_at(from).await;
        let before_state = self.state.clone();
        let environment = &self.environment;
        environment.respec(NAME, self.field.spec(to)).await;
        let (after, ready) = environment.until(NAME, is_settled).await;
        let after_state = state(environment, &after).await;
        (self.present, self.state) = (Some(to), after_state.clone());

        match transition(&self.field.spec(from), &self.field.spec(to)) {
            Effect::Invalid(sentence) => {
                assert_eq!((ready.reason.as_str(), &ready.message), ("InvalidSpec", &sentence), "{row}");
                assert_eq!(after_state, before_state, "{row}");
            }
            Effect::Refused(_) => {
                assert_eq!(ready.status, "False", "{row}: {ready:?}");
                assert_eq!(after_state, before_state, "{row}");
            }
            Effect::Steps(steps) => {
                assert_eq!(ready.status, "True", "{row}: {ready:?}");
                let after_state = after_state.unwrap();
                match before_state {
                    Some(before_state) if steps.is_empty() => assert_eq!(after_state, before_state, "{row}"),
                    // The network is never replaced.
                    Some(before_state) => assert_eq!(after_state.network.id, before_state.network.id, "{row}"),
                    None => {}
                }
                check(&row, &self.field.spec(to), &after_state);
                self.agreed = Some(to);
            }
        }
    }

    /// Brings the object as close to a value as possible: from its current value, or as a new object.
    async fn start_at(&mut self, from: &'a Value) {
        if !self.can_go_to(from) {
            if self.present.take().is_some() {
                remove(&self.environment).await;
            }
            (self.agreed, self.state) = (None, None);
            if self.field.name == "adopt" || self.field.base.get("adopt").is_some() {
                make_theirs(&self.environment.cloud).await;
            }
        }
        match self.present {
            // Settled at the end of the previous row, which has checked it.
            Some(present) if present == from => return,
            Some(_) => drop(self.environment.respec(NAME, self.field.spec(from)).await),
            None => drop(self.environment.create(NAME, self.field.spec(from)).await),
        }
        let (object, ready) = self.environment.until(NAME, is_settled).await;
        self.state = state(&self.environment, &object).await;
        self.present = Some(from);
        if ready.status == "True" {
            self.agreed = Some(from);
        }
    }

    /// Whether the current object can serve for a row that begins with a value. Its history matters where its value
    /// cannot be left, where the new value has no effect, and for adopted networks.
    fn can_go_to(&self, from: &Value) -> bool {
        let Some(agreed) = self.agreed.filter(|_| is_valid(&self.field.spec(from))) else { return false };
        let is_reached = || matches!(transition(&self.field.spec(agreed), &self.field.spec(from)), Effect::Steps(_));
        agreed == from || (!needs_own(self.field) && is_reached())
    }
}

/// The rows of a field. Where values can be left, most rows begin with the last value of the previous row, and rows
/// from values without an effect come last; otherwise rows with the same first value follow each other. Either way few
/// rows need an object of their own, or two changes.
fn rows(field: &Field) -> Vec<(&Value, &Value)> {
    let all = || field.pairs();
    if needs_own(field) {
        return all().collect();
    }
    let (valid, invalid): (Vec<&Value>, Vec<&Value>) =
        field.values.iter().partition(|value| is_valid(&field.spec(value)));
    let mut rows = Vec::new();
    for (i, &from) in valid.iter().enumerate() {
        rows.extend(invalid.iter().map(|to| (from, *to)));
        rows.extend(valid.iter().skip(i + 2).flat_map(|&to| [(from, to), (to, from)]));
        rows.extend(valid.get(i + 1).map(|&to| (from, to)));
    }
    rows.extend((1..valid.len()).rev().map(|i| (valid[i], valid[i - 1])));
    rows.extend(all().filter(|(from, _)| invalid.contains(from)));
    assert!(rows.len() == all().count() && all().all(|row| rows.contains(&row)), "{}: {rows:?}", field.title);
    rows
}

/// Whether the history of an object matters: a value cannot be left, or the network existed before the object.
fn needs_own(field: &Field) -> bool {
    ["cidr", "adopt", "managementPolicy, with adopt"].contains(&field.title)
}

/// Checks that Neutron agrees with the fields of the spec.
fn check(row: &str, spec: &Value, state: &State) {
    let State { network, subnets } = state;
    let cidr = spec["cidr"].as_str().unwrap();
    let [subnet] = subnets.as_slice() else { panic!("{row}: {subnets:?}") };
    assert_eq!(subnet.cidr.to_string(), cidr, "{row}");
    let seen = [
        ("gateway", json!(subnet.gateway_ip)),
        ("dnsNameservers", json!(subnet.dns_nameservers)),
        ("allocationPools", {
            let mut pools = subnet.allocation_pools.clone();
            pools.sort_unstable();
            json!(pools)
        }),
        ("enableDHCP", json!(subnet.enable_dhcp)),
        ("mtu", json!(network.mtu)),
        ("shared", json!(network.shared)),
        ("adminStateUp", json!(network.admin_state_up)),
        ("description", json!(network.description)),
    ];
    for (name, seen) in seen {
        if let Some(wanted) = spec.get(name) {
            assert_eq!(&seen, wanted, "{row}: {name}");
        }
    }
    // An adopted network stays adopted when the spec no longer names it.
    if !network.tags.iter().any(|tag| tag.ends_with(":adopted")) {
        let by_default = [
            ("dnsNameservers", json!(subnet.dns_nameservers), json!([])),
            ("enableDHCP", json!(subnet.enable_dhcp), json!(true)),
            ("shared", json!(network.shared), json!(false)),
            ("adminStateUp", json!(network.admin_state_up), json!(true)),
        ];
        for (name, seen, default) in by_default {
            if spec.get(name).is_none() {
                assert_eq!(seen, default, "{row}: {name}, which the spec does not have");
            }
        }
        assert!(network.name.starts_with("default/"), "{row}: {network:?}");
    }
}

/// Removes the object and its resources.
async fn remove(environment: &Environment) {
    environment.respec(NAME, plain()).await;
    environment.api().delete(NAME, &Default::default()).await.unwrap();
    environment.plane.until_gone::<Network>(&ObjectKey::namespaced("default", NAME)).await;
    for network in environment.networks().await {
        environment.cloud.delete_network(RequestId::random(), network.id, None).await.unwrap();
    }
}

/// A definition that accepts every spec, so that the operator judges it.
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: networks.samplecrd.k8s.io
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: samplecrd.k8s.io
  scope: Namespaced
  names: {kind: Network, plural: networks}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

async fn drive_field(cloud: Arc<dyn Cloud>, field: &Field) -> (usize, u64) {
    let environment = Environment::defined(cloud, DEFINITION).await;
    let operator = environment.operate();
    let mut drive = Drive { environment, field, present: None, agreed: None, state: None };
    let rows = rows(field);
    for (from, to) in &rows {
        drive.row(from, to).await;
    }
    operator.stop().await;
    (rows.len(), drive.environment.cloud.n_calls())
}

fn is_valid(spec: &Value) -> bool {
    !matches!(transition(&Value::Null, spec), Effect::Invalid(_))
}

#[tokio::test(start_paused = true)]
async fn every_transition_is_as_the_document_says_on_the_double() {
    for field in fields() {
        drive_field(Arc::new(Simulated::in_memory()), &field).await;
    }
}

#[tokio::test]
async fn every_transition_is_as_the_document_says_on_a_real_neutron() {
    let begun = tokio::time::Instant::now();
    // A Neutron uses one core, and the time goes into its work.
    let Some(servers) = neutron::two() else { return };
    let all = async {
        let mut tasks = tokio::task::JoinSet::new();
        for (field, server) in fields().into_iter().zip(servers.into_iter().cycle()) {
            // Each field has a project of its own, so that they do not see each other. Sharing a network takes an
            // administrator.
            let role = if field.name == "shared" { Role::Admin } else { Role::Member };
            let cloud = neutron::cloud_in(server, role);
            tasks.spawn_local(async move { drive_field(cloud, &field).await });
        }
        tasks.join_all().await.into_iter().fold((0, 0), |sum, (n_rows, n_calls)| (sum.0 + n_rows, sum.1 + n_calls))
    };
    let (n_rows, n_calls) = tokio::task::LocalSet::new().run_until(all).await;
    let seconds = begun.elapsed().as_secs();
    println!("{n_rows} transitions driven on a real Neutron with {n_calls} calls in {seconds} s");
    assert_eq!(n_rows, fields().iter().map(|field| field.pairs().count()).sum::<usize>());
}
