//! The desired state: a spec, parsed and validated.

mod addresses;
mod invalid;

use crate::api::{Adopt, DeletionPolicy, DriftPolicy, Lenient, ManagementPolicy, NetworkSpec};
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use steersman_neutron::{AllocationPool, Gateway, Network, NetworkId};

pub use crate::reconcile::desired::invalid::Invalid;

/// A valid spec. `None` stands for a field that the spec does not set: Neutron's default applies to a network that the
/// operator created, and an adopted network stays unchanged.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The existing network to adopt.
    pub adopt: Option<Target>,
    /// Whether the network should carry traffic.
    pub admin_state_up: Option<bool>,
    /// The ranges from which ports get their addresses, sorted.
    pub allocation_pools: Option<Vec<AllocationPool>>,
    /// The subnet's addresses.
    pub cidr: IpNet,
    /// Whether the network is deleted or kept when the object is deleted.
    pub deletion_policy: DeletionPolicy,
    /// The network's description.
    pub description: Option<String>,
    /// The name servers, in the order of preference.
    pub dns_nameservers: Option<Vec<IpAddr>>,
    /// Whether a change that somebody made in Neutron is undone or reported.
    pub drift_policy: DriftPolicy,
    /// Whether DHCP is enabled.
    pub enable_dhcp: Option<bool>,
    /// The subnet's gateway; the first address, where the spec names none.
    pub gateway: Option<IpAddr>,
    /// Whether the operator may write to Neutron.
    pub management_policy: ManagementPolicy,
    /// The MTU, in bytes.
    pub mtu: Option<u32>,
    /// Whether a subnet that cannot be changed in place may be deleted and created again.
    pub replace_on_change: bool,
    /// Whether every project may use the network.
    pub shared: Option<bool>,
}

/// A network to adopt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Target {
    /// By its id.
    Id(NetworkId),
    /// By a tag that no other network has.
    Tag(String),
}

impl Target {
    /// Whether `network` is the one to adopt.
    pub fn is(&self, network: &Network) -> bool {
        match self {
            Target::Id(id) => network.id == *id,
            Target::Tag(tag) => network.tags.contains(tag),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Id(id) => write!(f, "with the id {id}"),
            Target::Tag(tag) => write!(f, "with the tag {tag:?}"),
        }
    }
}

/// The longest description, in characters.
const DESCRIPTION_CHARS_MAX: usize = 255;
/// The smallest MTU: every host of the version of IP must accept packets of this size.
const MTU_MIN_V4: u32 = 68;
const MTU_MIN_V6: u32 = 1280;

impl Desired {
    /// Parses and validates a spec.
    ///
    /// # Errors
    /// The first fault of the spec.
    pub fn parse(spec: &NetworkSpec) -> Result<Desired, Invalid> {
        let cidr = addresses::cidr(&spec.cidr)?;
        let gateway = addresses::gateway(cidr, &spec.gateway)?;
        let adopt =
            given(&spec.adopt, "adopt", "{\"id\": \"<UUID>\"} or {\"tag\": \"<tag>\"}")?.map(target).transpose()?;
        let management_policy = given(&spec.management_policy, "managementPolicy", "Managed or Observed")?;
        let deletion_policy = given(&spec.deletion_policy, "deletionPolicy", "Delete or Retain")?.copied();
        let by_default = if adopt.is_some() { DeletionPolicy::Retain } else { DeletionPolicy::Delete };
        let desired = Desired {
            admin_state_up: boolean(&spec.admin_state_up, "adminStateUp")?,
            allocation_pools: addresses::pools(cidr, gateway, &spec.allocation_pools)?,
            cidr,
            deletion_policy: deletion_policy.unwrap_or(by_default),
            description: description(&spec.description)?,
            dns_nameservers: addresses::nameservers(cidr, &spec.dns_nameservers)?,
            drift_policy: given(&spec.drift_policy, "driftPolicy", "Repair or Report")?.copied().unwrap_or_default(),
            enable_dhcp: boolean(&spec.enable_dhcp, "enableDHCP")?,
            gateway,
            management_policy: management_policy.copied().unwrap_or_default(),
            mtu: mtu(cidr, &spec.mtu)?,
            replace_on_change: boolean(&spec.replace_on_change, "replaceOnChange")?.unwrap_or_default(),
            shared: boolean(&spec.shared, "shared")?,
            adopt,
        };
        if desired.management_policy == ManagementPolicy::Observed && desired.adopt.is_none() {
            return Err(Invalid::NothingToObserve);
        }
        Ok(desired)
    }

    /// The gateway for a create request.
    pub(crate) fn request_gateway(&self) -> Gateway {
        self.gateway.map_or(Gateway::Automatic, Gateway::Address)
    }
}

/// Identifies a spec: equal specs have equal fingerprints, and in practice only those.
pub(crate) fn fingerprint(spec: &NetworkSpec) -> String {
    // FNV-1a, because every version of the program must compute the same number from the same bytes.
    let bytes = serde_json::to_vec(spec).unwrap_or_default();
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

/// The value of a field, if it is set and has the right type.
fn given<'a, T>(field: &'a Lenient<T>, name: &'static str, want: &'static str) -> Result<Option<&'a T>, Invalid> {
    match field {
        Lenient::Absent => Ok(None),
        Lenient::Valid(value) => Ok(Some(value)),
        Lenient::Invalid(json) => Err(Invalid::Type { field: name, json: json.clone(), want }),
    }
}

fn boolean(field: &Lenient<bool>, name: &'static str) -> Result<Option<bool>, Invalid> {
    Ok(given(field, name, "true or false")?.copied())
}

fn target(adopt: &Adopt) -> Result<Target, Invalid> {
    match (&adopt.id, &adopt.tag) {
        (Some(id), None) => id.parse().map(Target::Id).map_err(|_| Invalid::AdoptId { text: id.clone() }),
        (None, Some(tag)) if tag.is_empty() || tag.contains(',') => Err(Invalid::AdoptTag { text: tag.clone() }),
        (None, Some(tag)) => Ok(Target::Tag(tag.clone())),
        (None, None) | (Some(_), Some(_)) => Err(Invalid::AdoptNotOne),
    }
}

fn description(field: &Lenient<String>) -> Result<Option<String>, Invalid> {
    let Some(text) = given(field, "description", "a text")? else { return Ok(None) };
    let chars = text.chars().count();
    if DESCRIPTION_CHARS_MAX < chars {
        return Err(Invalid::DescriptionTooLong { chars, chars_max: DESCRIPTION_CHARS_MAX });
    }
    // With another object's marker as its description, a network would count as that object's.
    if crate::identity::is_marker(text) {
        return Err(Invalid::DescriptionIsMarker { text: text.clone() });
    }
    Ok(Some(text.clone()))
}

fn mtu(cidr: IpNet, field: &Lenient<u32>) -> Result<Option<u32>, Invalid> {
    let Some(&mtu) = given(field, "mtu", "a number of bytes such as 1400")? else { return Ok(None) };
    let mtu_min = if matches!(cidr, IpNet::V4(_)) { MTU_MIN_V4 } else { MTU_MIN_V6 };
    if mtu < mtu_min {
        return Err(Invalid::MtuTooSmall { mtu, mtu_min, cidr });
    }
    Ok(Some(mtu))
}

#[cfg(test)]
mod tests;
