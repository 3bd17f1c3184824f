//! The effect of a change of a spec: field by field, from every value to every other, as [`plan`] decides.
//!
//! `docs/network-transitions.md` is the output of [`document`]; a test compares the two, and another runs every row
//! against a real Neutron. A few lines here model the effect of a step on Neutron, so that a row has all the steps.

use serde_json::{Value, json};
use std::fmt::Write as _;
use steersman_network::api::{ManagementPolicy, NetworkSpec};
use steersman_network::desired::Desired;
use steersman_network::identity::Identity;
use steersman_network::plan::{Observed, Step, plan};
use steersman_neutron::{
    Gateway, Network, NetworkId, NetworkUpdate, Subnet, SubnetId, SubnetUpdate, default_gateway, default_pools,
};

/// A field with representative values, in a spec that is otherwise the same.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// Its name, and the other fields of the spec where they matter.
    pub(crate) title: &'static str,
    /// The field's name in the spec.
    pub(crate) name: &'static str,
    /// The rest of the spec.
    pub(crate) base: Value,
    /// The values; null stands for an absent field.
    pub(crate) values: Vec<Value>,
}

/// The effect of a change of a spec.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Effect {
    /// The new spec is invalid; Neutron stays unchanged.
    Invalid(String),
    /// The change is refused; Neutron stays unchanged.
    Refused(String),
    /// These steps are taken, in order.
    Steps(Vec<String>),
}

/// Ids in place of those that Neutron chooses; no row shows them.
const NETWORK: u128 = 1;
const SUBNETS: u128 = 100;

impl Field {
    /// The spec with this value of the field.
    pub(crate) fn spec(&self, value: &Value) -> Value {
        let mut spec = self.base.clone();
        spec[self.name] = value.clone();
        if let (Some(spec), true) = (spec.as_object_mut(), value.is_null()) {
            spec.remove(self.name);
        }
        spec
    }

    /// Every ordered pair of different values.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.values
            .iter()
            .flat_map(move |from| self.values.iter().filter(move |to| *to != from).map(move |to| (from, to)))
    }
}

/// Every field of the spec.
pub(crate) fn fields() -> Vec<Field> {
    let plain = || json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"});
    let of = |name: &'static str, values: Value| Field { title: name, name, base: plain(), values: list(values) };
    let cidrs = json!(["10.0.0.0/24", "10.0.0.0/25", "10.1.0.0/24", "10.0.0.5/24"]);
    let pool = |start: &str, end: &str| json!({"start": start, "end": end});
    vec![
        Field { title: "cidr", name: "cidr", base: json!({}), values: list(cidrs.clone()) },
        Field {
            title: "cidr, with replaceOnChange: true",
            name: "cidr",
            base: json!({"replaceOnChange": true}),
            values: list(cidrs),
        },
        of("gateway", json!([null, "10.0.0.1", "10.0.0.9", "10.1.0.1"])),
        of("dnsNameservers", json!([null, [], ["1.1.1.1"], ["8.8.8.8", "1.1.1.1"], ["1.1.1.1", "8.8.8.8"], ["dns"]])),
        of(
            "allocationPools",
            json!([
                null,
                [pool("10.0.0.10", "10.0.0.20")],
                [pool("10.0.0.10", "10.0.0.20"), pool("10.0.0.30", "10.0.0.40")],
                [pool("10.0.0.1", "10.0.0.20")]
            ]),
        ),
        of("enableDHCP", json!([null, true, false])),
        of("mtu", json!([null, 1400, 1300, 60])),
        of("shared", json!([null, true, false])),
        of("adminStateUp", json!([null, true, false])),
        of("description", json!([null, "one", "two", "network-controller:c:u"])),
        of("deletionPolicy", json!([null, "Delete", "Retain", "Keep"])),
        of("driftPolicy", json!([null, "Repair", "Report", "Ignore"])),
        of("replaceOnChange", json!([null, true, false])),
        of("managementPolicy", json!([null, "Managed", "Observed"])),
        Field {
            title: "managementPolicy, with adopt",
            name: "managementPolicy",
            base: json!({"cidr": "10.0.0.0/24", "adopt": {"tag": "theirs"}}),
            values: list(json!([null, "Managed", "Observed"])),
        },
        of("adopt", json!([null, {"tag": "theirs"}, {"tag": "others"}, {}])),
    ]
}

fn list(values: Value) -> Vec<Value> {
    match values {
        Value::Array(values) => values,
        other => vec![other],
    }
}

/// The effect of a change from one spec to another, where Neutron agrees with the first as far as possible.
pub(crate) fn transition(from: &Value, to: &Value) -> Effect {
    let mut cloud_model = CloudModel::with_theirs();
    if let Ok(from) = read(from) {
        cloud_model.settle(&from);
    }
    match read(to) {
        Err(invalid) => Effect::Invalid(invalid),
        Ok(to) => cloud_model.settle(&to),
    }
}

fn read(spec: &Value) -> Result<Desired, String> {
    let spec: NetworkSpec = serde_json::from_value(spec.clone()).map_err(|error| error.to_string())?;
    Desired::parse(&spec).map_err(|invalid| invalid.to_string())
}

/// The table of all transitions, as Markdown.
pub(crate) fn document() -> String {
    let mut text = String::from(
        "# What a change of a Network leads to\n\n\
         Generated from the code that decides (`plan` in `crates/steersman-network`); `UPDATE_EXPECT=1 cargo test -p steersman-network\n\
         transitions` writes it anew. A test drives every row on a real Neutron. \"none\" is a field that the spec does not have, or\n\
         null. Invalid and refused changes leave Neutron as it is; the condition Ready says the sentence below, and the change back\n\
         heals it. The network itself is never replaced, so its id stays. Where `adopt` plays a part, a network with the tag `theirs`\n\
         is there before the object, named \"theirs\" and with a subnet 10.0.0.0/24.\n",
    );
    for field in fields() {
        // Writing to a String does not fail.
        let _ = write!(text, "\n## {}\n\n| from | to | what happens |\n|---|---|---|\n", field.title);
        for (from, to) in field.pairs() {
            let effect = transition(&field.spec(from), &field.spec(to));
            let _ = writeln!(text, "| {} | {} | {effect} |", show(from), show(to));
        }
    }
    text
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        value => format!("`{value}`"),
    }
}

impl std::fmt::Display for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Effect::Invalid(sentence) => write!(f, "invalid: {sentence}"),
            Effect::Refused(sentence) => write!(f, "refused: {sentence}"),
            Effect::Steps(steps) if steps.is_empty() => f.write_str("nothing"),
            Effect::Steps(steps) => f.write_str(&steps.join("; then ")),
        }
    }
}

/// A model of the resources in Neutron.
struct CloudModel {
    identity: Identity,
    observed: Observed,
    /// A network that existed before any object, which `adopt` may name.
    theirs: Observed,
    n_subnets: u128,
}

impl CloudModel {
    fn with_theirs() -> CloudModel {
        let identity = Identity {
            marker: "network-controller:c:u".to_owned(),
            marker_adopted: "network-controller:c:u:adopted".to_owned(),
            marker_0_1: "network-controller/u".to_owned(),
            name: "default/a".to_owned(),
        };
        let mut cloud_model =
            CloudModel { identity, observed: Observed::default(), theirs: Observed::default(), n_subnets: 0 };
        let network = Network { name: "theirs".to_owned(), tags: vec!["theirs".to_owned()], ..blank_network() };
        let subnet = json!({
            "id": uuid(SUBNETS - 1), "network_id": network.id, "cidr": "10.0.0.0/24", "name": "theirs", "enable_dhcp": true,
            "gateway_ip": "10.0.0.1", "allocation_pools": [{"start": "10.0.0.2", "end": "10.0.0.254"}]
        });
        cloud_model.theirs.networks.push(network);
        cloud_model.theirs.subnets.extend(serde_json::from_value::<Subnet>(subnet));
        cloud_model
    }

    /// Takes steps as the operator does, until nothing is left to do or it stops.
    fn settle(&mut self, desired: &Desired) -> Effect {
        let mut steps = Vec::new();
        if let (Some(target), true) = (&desired.adopt, self.observed.networks.is_empty()) {
            if !self.theirs.networks.iter().any(|network| target.is(network)) {
                return Effect::Refused(format!("there is no network {target} that these credentials can see"));
            }
            self.observed = self.theirs.clone();
        }
        loop {
            let step = plan(desired, &self.identity, &self.observed);
            match &step {
                Step::Done(_, subnet) => {
                    self.observed.known_subnet = Some(*subnet);
                    return Effect::Steps(steps);
                }
                Step::Refuse(refusal) => return Effect::Refused(without_ids(&refusal.to_string())),
                step if desired.management_policy == ManagementPolicy::Observed => {
                    return Effect::Refused(without_ids(&format!(
                        "Neutron has something else, and spec.managementPolicy is Observed: to agree would be to {step}"
                    )));
                }
                step => {
                    steps.push(without_ids(&step.to_string()));
                    self.take(desired, step);
                }
            }
        }
    }

    fn take(&mut self, desired: &Desired, step: &Step) {
        let marker = self.identity.marker.clone();
        match step {
            Step::AddTag(_) => {
                let tag = if desired.adopt.is_some() { self.identity.marker_adopted.clone() } else { marker };
                self.observed.networks.iter_mut().for_each(|network| network.tags.push(tag.clone()));
            }
            Step::CreateNetwork => {
                let mut network = Network { name: self.identity.name.clone(), description: marker, ..blank_network() };
                network.admin_state_up = Some(desired.admin_state_up.unwrap_or(true));
                network.shared = Some(desired.shared.unwrap_or(false));
                network.mtu = desired.mtu.or(network.mtu);
                self.observed.networks.push(network);
            }
            Step::CreateSubnet(network) => {
                let subnet = self.made(desired, *network);
                self.observed.subnets.extend(subnet);
            }
            Step::DeleteDuplicate(id) => self.observed.networks.retain(|network| network.id != *id),
            Step::DeleteSubnet(id) => self.observed.subnets.retain(|subnet| subnet.id != *id),
            Step::UpdateNetwork(id, update) => {
                self.observed.networks.iter_mut().filter(|network| network.id == *id).for_each(|it| set(it, update));
            }
            Step::UpdateSubnet(id, update) => {
                self.observed
                    .subnets
                    .iter_mut()
                    .filter(|subnet| subnet.id == *id)
                    .for_each(|it| set_subnet(it, update));
            }
            Step::Done(..) | Step::Refuse(_) => {}
        }
    }

    /// The subnet that a create makes.
    fn made(&mut self, desired: &Desired, network: NetworkId) -> Option<Subnet> {
        self.n_subnets += 1;
        let gateway = desired.gateway.or_else(|| default_gateway(desired.cidr));
        let pools = desired.allocation_pools.clone().unwrap_or_else(|| default_pools(desired.cidr, gateway));
        serde_json::from_value(json!({
            "id": uuid(SUBNETS + self.n_subnets), "network_id": network, "cidr": desired.cidr.to_string(),
            "name": self.identity.name, "description": self.identity.marker, "gateway_ip": gateway,
            "enable_dhcp": desired.enable_dhcp.unwrap_or(true), "allocation_pools": pools,
            "dns_nameservers": desired.dns_nameservers.clone().unwrap_or_default()
        }))
        .ok()
    }
}

fn blank_network() -> Network {
    Network {
        id: uuid(NETWORK).parse().expect("invariant: the text has the form of a UUID"),
        name: String::new(),
        description: String::new(),
        project_id: None,
        status: None,
        admin_state_up: Some(true),
        mtu: Some(1450),
        shared: Some(false),
        external: None,
        subnets: Vec::new(),
        tags: Vec::new(),
        revision: None,
        created_at: None,
        updated_at: None,
    }
}

fn set(network: &mut Network, update: &NetworkUpdate) {
    let NetworkUpdate { name, description, admin_state_up, mtu, shared } = update.clone();
    network.name = name.unwrap_or(std::mem::take(&mut network.name));
    network.description = description.unwrap_or(std::mem::take(&mut network.description));
    network.admin_state_up = admin_state_up.or(network.admin_state_up);
    network.mtu = mtu.or(network.mtu);
    network.shared = shared.or(network.shared);
}

fn set_subnet(subnet: &mut Subnet, update: &SubnetUpdate) {
    let update = update.clone();
    subnet.name = update.name.unwrap_or(std::mem::take(&mut subnet.name));
    subnet.description = update.description.unwrap_or(std::mem::take(&mut subnet.description));
    match update.gateway {
        Gateway::Address(address) => subnet.gateway_ip = Some(address),
        Gateway::Automatic => {}
        Gateway::Disabled => subnet.gateway_ip = None,
    }
    subnet.enable_dhcp = update.enable_dhcp.or(subnet.enable_dhcp);
    subnet.allocation_pools = update.allocation_pools.unwrap_or(std::mem::take(&mut subnet.allocation_pools));
    subnet.dns_nameservers = update.dns_nameservers.unwrap_or(std::mem::take(&mut subnet.dns_nameservers));
}

fn uuid(number: u128) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

/// A sentence without the ids of the model.
fn without_ids(sentence: &str) -> String {
    let is_id = |word: &&str| word.trim_end_matches([',', ':']).parse::<SubnetId>().is_ok();
    let words: Vec<String> = sentence
        .split(' ')
        .filter_map(|word| match is_id(&word) {
            true if word.ends_with([',', ':']) => Some(word[word.len() - 1..].to_owned()),
            true => None,
            false => Some(word.to_owned()),
        })
        .collect();
    words.join(" ").replace(" ,", ",").replace(" :", ":")
}
