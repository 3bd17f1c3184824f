//! Two replicas of the Network operator on a real Neutron while everything around them fails: in the end Neutron has
//! exactly the declared networks, and while nothing happens it gets hardly any requests. With `STEERSMAN_LONG` there
//! are a thousand networks, twenty kills and outages of a minute; `STEERSMAN_CAMPAIGN_NETWORKS` sets another number of
//! networks.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::kubectl::{self, Kubectl};
use crate::support::neutron::Neutron;
use crate::support::plane::{Plane, steersman};
use crate::support::process::Process;
use crate::support::proxy::Proxy;

/// The size of the campaign.
struct Extent {
    n_networks: usize,
    n_kills: usize,
    /// The duration of the outage of Neutron, and then of the control plane.
    outage: Duration,
    /// The time limit for each state to be reached.
    patience: Duration,
    /// The time for which a killed leader blocks the other replica.
    lease: Duration,
    /// The interval at which the leader lists everything.
    interval: Duration,
    orphan_grace: Duration,
    quiet: Duration,
}

const SHORT: Extent = Extent {
    n_networks: 20,
    n_kills: 3,
    // Longer than the lease, so that a leader without a control plane gives up.
    outage: Duration::from_secs(5),
    patience: Duration::from_secs(240),
    lease: Duration::from_secs(3),
    interval: Duration::from_secs(2),
    orphan_grace: Duration::from_secs(3),
    quiet: Duration::from_secs(16),
};

const LONG: Extent = Extent {
    n_networks: 1000,
    n_kills: 20,
    outage: Duration::from_secs(60),
    patience: Duration::from_secs(3600),
    lease: Duration::from_secs(4),
    interval: Duration::from_secs(20),
    orphan_grace: Duration::from_secs(10),
    quiet: Duration::from_secs(120),
};

/// The page size of networks and subnets.
const PAGE: usize = 500;

/// A cluster of two replicas.
struct Campaign<'a> {
    home: &'a Path,
    extent: Extent,
    neutron: Neutron,
    proxy: Proxy,
    plane: Plane,
    kubectl: Kubectl,
    replicas: BTreeMap<String, Process>,
    n_started: usize,
}

fn name(index: usize) -> String {
    format!("n-{index:04}")
}

fn cidr(index: usize) -> String {
    format!("10.{}.{}.0/24", index / 250, index % 250)
}

fn manifest(index: usize) -> Value {
    let gateway = cidr(index).replace(".0/24", ".1");
    let spec = json!({"cidr": cidr(index), "gateway": gateway});
    json!({"apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": {"name": name(index)}, "spec": spec})
}

impl Campaign<'_> {
    /// Starts a replica, as a Deployment would.
    fn start_replica(&mut self) {
        let name = format!("replica-{}", self.n_started);
        self.n_started += 1;
        let mut command = steersman(self.home);
        command
            .env("HOSTNAME", &name)
            .env("RUST_LOG", "warn")
            .arg("network")
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig());
        command.args(["--neutron-url", &self.proxy.url, "--neutron-auth", "none", "--leader-elect"]);
        let seconds = |duration: Duration| format!("{}s", duration.as_secs());
        command.args(["--leader-elect-namespace", "default"]);
        command.args(["--leader-elect-lease-duration", &seconds(self.extent.lease)]);
        command.args(["--drift-interval", &seconds(self.extent.interval)]);
        command.args(["--orphan-grace", &seconds(self.extent.orphan_grace)]);
        self.replicas.insert(name, Process::start(&mut command));
    }

    /// Replaces replicas that have ended, as one does that loses its lease.
    fn restart_ended(&mut self) {
        let ended: Vec<String> =
            self.replicas.iter_mut().filter_map(|(name, process)| (!process.runs()).then(|| name.clone())).collect();
        for name in ended {
            self.replicas.remove(&name);
            self.start_replica();
        }
    }

    fn kill(&mut self, name: &str) {
        let Some(process) = self.replicas.remove(name) else { return };
        process.signal("KILL");
        process.end();
    }

    /// The replica that holds the lease.
    fn leader(&mut self) -> String {
        self.eventually("a leader that runs", |campaign| {
            let lease = campaign.kubectl.run("get lease network-controller -o json");
            let lease: Value = serde_json::from_str(&lease.stdout).ok()?;
            let holder = lease["spec"]["holderIdentity"].as_str()?.split('_').next()?.to_owned();
            campaign.replicas.get_mut(&holder)?.runs().then_some(holder)
        })
    }

    #[track_caller]
    fn eventually<T>(&mut self, what: &str, mut question: impl FnMut(&mut Self) -> Option<T>) -> T {
        let deadline = Instant::now() + self.extent.patience;
        loop {
            self.restart_ended();
            if let Some(answer) = question(self) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{what}: not within {:?}", self.extent.patience);
            std::thread::park_timeout(Duration::from_millis(500));
        }
    }

    /// The difference between the declared networks and those in Neutron.
    fn difference(&self) -> Result<(), String> {
        let listed = self.kubectl.run("get networks -o json");
        let objects: Value = serde_json::from_str(&listed.stdout).map_err(|error| format!("no list: {error}"))?;
        let objects = objects["items"].as_array().ok_or("no list")?;
        let (networks, subnets) = (self.neutron.networks(), self.neutron.subnets());
        let counts = [objects.len(), networks.len(), subnets.len()];
        if counts != [objects.len(); 3] {
            return Err(format!("{counts:?} objects, networks and subnets"));
        }
        let of = |items: &[Value]| -> BTreeMap<String, Value> {
            items.iter().map(|item| (item["id"].as_str().unwrap_or_default().to_owned(), item.clone())).collect()
        };
        let (networks, subnets) = (of(&networks), of(&subnets));
        for object in objects {
            let (meta, status) = (&object["metadata"], &object["status"]);
            let name = meta["name"].as_str().unwrap_or_default();
            let network = status["networkID"].as_str().and_then(|id| networks.get(id));
            let network = network.ok_or_else(|| format!("{name} has no network: {status}"))?;
            let subnet = status["subnetID"].as_str().and_then(|id| subnets.get(id));
            let subnet = subnet.ok_or_else(|| format!("{name} has no subnet: {status}"))?;
            let marker = network["description"].as_str().unwrap_or_default();
            let is_marked = marker.starts_with("network-controller:")
                && marker.ends_with(meta["uid"].as_str().unwrap_or("?"))
                && network["tags"] == json!([marker])
                && subnet["description"] == json!(marker);
            let is_named = network["name"] == json!(format!("default/{name}")) && subnet["name"] == network["name"];
            let is_pair = subnet["network_id"] == network["id"] && subnet["cidr"] == object["spec"]["cidr"];
            let is_up = network["admin_state_up"] == json!(true) && subnet["gateway_ip"] == object["spec"]["gateway"];
            if !(is_marked && is_named && is_pair && is_up) {
                return Err(format!("{name}: {network} with {subnet}"));
            }
        }
        Ok(())
    }

    fn agree(&mut self, after: &str) {
        let begun = Instant::now();
        let deadline = begun + self.extent.patience;
        loop {
            self.restart_ended();
            let Err(difference) = self.difference() else { break };
            assert!(Instant::now() < deadline, "after {after} they do not agree: {difference}");
            // Each check costs Neutron two listings.
            std::thread::park_timeout(self.extent.outage / 6);
        }
        println!(
            "after {after}: agreed within {} s, {} requests so far",
            begun.elapsed().as_secs(),
            self.proxy.n_requests()
        );
    }

    /// Changes networks behind the operator's back.
    fn meddle(&self, indices: impl IntoIterator<Item = usize>) {
        let listed = self.kubectl.run("get networks -o json");
        let Ok(listed) = serde_json::from_str::<Value>(&listed.stdout) else { return };
        let objects = listed["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        for index in indices {
            let object = objects.iter().find(|object| object["metadata"]["name"] == json!(name(index)));
            if let Some(id) = object.and_then(|object| object["status"]["networkID"].as_str()) {
                self.meddle_with(index, id);
            }
        }
    }

    fn meddle_with(&self, index: usize, id: &str) {
        let change = match index % 4 {
            0 => return self.neutron.delete(&format!("/v2.0/networks/{id}")),
            1 => json!({"network": {"description": "edited by hand"}}),
            2 => json!({"network": {"name": "renamed by hand"}}),
            _ => json!({"network": {"name": "by hand", "description": "by hand", "admin_state_up": false}}),
        };
        self.neutron.put(&format!("/v2.0/networks/{id}"), &change);
    }
}

#[test]
fn two_replicas_keep_a_real_neutron_in_agreement_whatever_fails() {
    let Some(program) = kubectl::program() else { return };
    let mut extent = if std::env::var_os("STEERSMAN_LONG").is_some() { LONG } else { SHORT };
    if let Ok(n_networks) = std::env::var("STEERSMAN_CAMPAIGN_NETWORKS") {
        extent.n_networks = n_networks.parse().expect("STEERSMAN_CAMPAIGN_NETWORKS is a number");
    }
    let Some(neutron) = Neutron::start_with(&[
        ("NEUTRON_QUOTA_NETWORK", "5000"),
        ("NEUTRON_QUOTA_SUBNET", "5000"),
        ("NEUTRON_VNI_RANGES", "1:9000"),
    ]) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("apply -f manifests/crd/network-v1.yaml");
    let proxy = Proxy::start(&neutron.url);
    let mut campaign =
        Campaign { home: home.path(), extent, neutron, proxy, plane, kubectl, replicas: BTreeMap::new(), n_started: 0 };
    campaign.start_replica();
    campaign.start_replica();

    let n = campaign.extent.n_networks;
    let all: Vec<String> = (0..n).map(|index| manifest(index).to_string()).collect();
    campaign.kubectl.apply(&all.join("\n---\n"));
    // The leader is killed while it creates the networks, and while it repairs the changes made to them.
    for round in 0..campaign.extent.n_kills {
        let leader = campaign.leader();
        campaign.meddle((0..4).map(|step| (round * 4 + step) % n));
        campaign.kill(&leader);
        campaign.start_replica();
    }
    println!("{} kills of the leader", campaign.extent.n_kills);
    campaign.agree("kills and meddling");

    campaign.proxy.set_away(true);
    campaign.meddle(0..4);
    campaign.kubectl.ok(&format!("delete network {} --wait=false", name(4)));
    std::thread::park_timeout(campaign.extent.outage);
    campaign.proxy.set_away(false);
    campaign.agree("Neutron was away");

    let listen = campaign.plane.listen().to_owned();
    campaign = campaign.without_plane(&listen);
    campaign.agree("the control plane was away");

    // Two objects are deleted while no operator runs: one keeps its finalizer and waits, the other's finalizer has been
    // removed.
    for name in campaign.replicas.keys().cloned().collect::<Vec<_>>() {
        campaign.kill(&name);
    }
    let (waits, forced) = (name(5), name(6));
    campaign.kubectl.ok(&format!("delete network {waits} {forced} --wait=false"));
    campaign.kubectl.ok(&format!("patch network {forced} --type=merge -p {{\"metadata\":{{\"finalizers\":null}}}}"));
    campaign.meddle([7]);
    campaign.start_replica();
    campaign.start_replica();
    campaign.agree("objects were deleted while no operator ran");
    let left: Value = campaign.kubectl.json("get networks");
    assert_eq!(left["items"].as_array().unwrap().len(), n - 3);

    // Work in progress ends within an interval or two.
    std::thread::park_timeout(3 * campaign.extent.interval);
    let (before, begun) = (campaign.proxy.n_requests(), Instant::now());
    std::thread::park_timeout(campaign.extent.quiet);
    let (n_requests, took) = (campaign.proxy.n_requests() - before, begun.elapsed().as_secs_f64());
    let n_pages = 2 * (n - 3).div_ceil(PAGE);
    let least = took / campaign.extent.interval.as_secs_f64() * n_pages as f64;
    println!("quiet: {n_requests} requests in {took:.0} s, the least is {least:.0}");
    assert!(n_requests as f64 <= 1.5 * least, "{n_requests} requests in {took:.0} s, the least is {least:.0}");
    campaign.agree("a quiet time");
}

impl Campaign<'_> {
    /// The control plane is killed, stays down for a while, and comes back at the same address with the same data.
    fn without_plane(mut self, listen: &str) -> Self {
        let home = self.home;
        self.plane.kill();
        for index in 8..12 {
            let networks = self.neutron.networks();
            if let Some(id) = networks.get(index).and_then(|network| network["id"].as_str()) {
                let change = json!({"network": {"description": "edited while nobody looked"}});
                self.neutron.put(&format!("/v2.0/networks/{id}"), &change);
            }
        }
        std::thread::park_timeout(self.extent.outage);
        self.plane = Plane::server_at(home, listen, &[]);
        self
    }
}
