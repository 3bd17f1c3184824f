//! Every transition of every field: the document is what the code decides, and a real Neutron agrees.

use crate::neutron::{self, Role};
use crate::world::{Ready, World, id_of, plain};
use expect_test::expect_file;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use steersman::ObjectKey;
use steersman_network::Network;
use steersman_network::transitions::{Field, Verdict, document, fields, transition};
use steersman_neutron::{Cloud, Network as Made, NetworkCreate, RequestId, Simulated, Subnet, SubnetCreate};

#[test]
fn the_document_is_what_the_code_decides() {
    expect_file!["../../../../docs/network-transitions.md"].assert_eq(&document());
}

/// What an object has in Neutron.
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

async fn state(world: &World, object: &Network) -> Option<State> {
    object.status.as_ref()?.network_id.as_ref()?;
    let network = world.network(id_of(object)).await?;
    Some(State { subnets: world.subnets(network.id).await, network })
}

/// Whether the operator has done with a spec what it can do.
fn is_settled(ready: &Ready) -> bool {
    let is_refusal = matches!(
        ready.reason.as_str(),
        "InvalidSpec" | "ReplaceRequired" | "CIDROverlap" | "Differs" | "AdoptChanged" | "AdoptNotFound"
    );
    ready.status == "True" || is_refusal
}

/// One change, on an object that agrees with `from`; `present` is its spec now, if it is there.
async fn drive(world: &World, field: &Field, present: Option<Value>, from: &Value, to: &Value) {
    let row = format!("{}: {from} -> {to}", field.title);
    let name = "a";
    match present {
        Some(present) if present == field.spec(from) => {}
        Some(_) => drop(world.respec(name, field.spec(from)).await),
        None => drop(world.create(name, field.spec(from)).await),
    }
    let (before, _) = world.until(name, is_settled).await;
    let before_state = state(world, &before).await;
    world.respec(name, field.spec(to)).await;
    let (after, ready) = world.until(name, is_settled).await;
    let after_state = state(world, &after).await;

    let verdict = transition(&field.spec(from), &field.spec(to));
    match &verdict {
        Verdict::Invalid(sentence) => {
            assert_eq!((ready.reason.as_str(), &ready.message), ("InvalidSpec", sentence), "{row}");
            assert_eq!(after_state, before_state, "{row}");
        }
        Verdict::Refused(_) => {
            assert_eq!(ready.status, "False", "{row}: {ready:?}");
            assert_eq!(after_state, before_state, "{row}");
        }
        Verdict::Steps(steps) => {
            assert_eq!(ready.status, "True", "{row}: {ready:?}");
            let (before_state, after_state) = (before_state.clone(), after_state.unwrap());
            match before_state {
                Some(before_state) if steps.is_empty() => assert_eq!(after_state, before_state, "{row}"),
                // The network is never replaced.
                Some(before_state) => assert_eq!(after_state.network.id, before_state.network.id, "{row}"),
                None => {}
            }
            check(&row, &field.spec(to), &after_state);
        }
    }
}

/// Whether what the spec names is so in Neutron.
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
    if spec.get("adopt").is_none() {
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

/// Takes the object and all that it had away.
async fn remove(world: &World) {
    world.respec("a", plain()).await;
    world.api().delete("a", &Default::default()).await.unwrap();
    world.plane.until_gone::<Network>(&ObjectKey::namespaced("default", "a")).await;
    for network in world.networks().await {
        world.cloud.delete_network(RequestId::random(), network.id, None).await.unwrap();
    }
}

/// Takes every spec, so that the operator is what judges it.
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

async fn drive_field(cloud: Arc<dyn Cloud>, field: &Field) -> usize {
    let world = World::defined(cloud, DEFINITION).await;
    let operator = world.operate();
    let mut n_rows = 0;
    let mut present: Option<Value> = None;
    for (from, to) in field.pairs() {
        // What was there before matters where it cannot be left, where the first spec leads to nothing, and to what is adopted.
        let is_fresh =
            ["cidr", "adopt", "managementPolicy, with adopt"].contains(&field.title) || !is_valid(&field.spec(from));
        if is_fresh && present.take().is_some() {
            remove(&world).await;
        }
        if field.title == "adopt" || field.base.get("adopt").is_some() {
            make_theirs(&world.cloud).await;
        }
        drive(&world, field, present.take(), from, to).await;
        present = Some(field.spec(to));
        n_rows += 1;
        if is_fresh {
            remove(&world).await;
            present = None;
        }
    }
    operator.stop().await;
    n_rows
}

fn is_valid(spec: &Value) -> bool {
    !matches!(transition(&Value::Null, spec), Verdict::Invalid(_))
}

#[tokio::test(start_paused = true)]
async fn every_transition_is_as_the_document_says_on_the_double() {
    for field in fields() {
        drive_field(Arc::new(Simulated::in_memory()), &field).await;
    }
}

#[tokio::test]
async fn every_transition_is_as_the_document_says_on_a_real_neutron() {
    if neutron::cloud(Role::Member).is_none() {
        return;
    }
    let begun = tokio::time::Instant::now();
    let all = async {
        let mut tasks = tokio::task::JoinSet::new();
        for field in fields() {
            // A project each, so that they do not see each other. To share a network takes an administrator.
            let role = if field.name == "shared" { Role::Admin } else { Role::Member };
            let cloud = neutron::cloud(role).unwrap();
            tasks.spawn_local(async move { drive_field(cloud, &field).await });
        }
        tasks.join_all().await.into_iter().sum::<usize>()
    };
    let n_rows = tokio::task::LocalSet::new().run_until(all).await;
    let took: Duration = begun.elapsed();
    println!("{n_rows} transitions driven on a real Neutron in {} s", took.as_secs());
    assert_eq!(n_rows, fields().iter().map(|field| field.pairs().count()).sum::<usize>());
}
