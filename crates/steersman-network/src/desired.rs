//! The desired state: a spec, parsed and validated.

use crate::api::{Given, NetworkSpec};
use ipnet::IpNet;
use std::net::IpAddr;
use steersman_neutron::Gateway;

/// A spec that can be made real.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Desired {
    /// The subnet's addresses.
    pub cidr: IpNet,
    /// The subnet's gateway; the first address, where the spec names none.
    pub gateway: Option<IpAddr>,
}

/// A spec that cannot: one sentence that names the field, the value and the way out.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// A field that must be there is not.
    #[error("spec.{field} is missing: give it a value such as {example:?}")]
    Missing {
        /// Which.
        field: &'static str,
        /// What it could be.
        example: &'static str,
    },
    /// A field that should be a text is something else.
    #[error("spec.{field} is {json}, want a text such as {example:?}")]
    NotText {
        /// Which.
        field: &'static str,
        /// What it is.
        json: String,
        /// What it could be.
        example: &'static str,
    },
    /// The text is not a CIDR.
    #[error("spec.cidr {text:?} is no CIDR: want an address and a prefix length, such as \"192.168.0.0/16\"")]
    Cidr {
        /// What was given.
        text: String,
    },
    /// The cidr has bits behind its prefix.
    #[error("spec.cidr {text:?} has bits set behind its prefix: write {network}")]
    HostBits {
        /// What was given.
        text: String,
        /// What was meant.
        network: IpNet,
    },
    /// The cidr is too small for a gateway and a host.
    #[error("spec.cidr {cidr} has no room for a gateway and a host: want a shorter prefix")]
    TooSmall {
        /// What was given.
        cidr: IpNet,
    },
    /// The gateway is no address.
    #[error("spec.gateway {text:?} is no IP address: want one such as \"192.168.0.1\"")]
    Gateway {
        /// What was given.
        text: String,
    },
    /// The gateway is not in the cidr.
    #[error("spec.gateway {gateway} is outside spec.cidr {cidr}: want an address within it")]
    GatewayOutside {
        /// What was given.
        gateway: IpAddr,
        /// Where it should be.
        cidr: IpNet,
    },
    /// The gateway is the first or last address of the cidr, which no host can have.
    #[error("spec.gateway {gateway} is the {what} address of spec.cidr {cidr}: want another address within it")]
    GatewayReserved {
        /// What was given.
        gateway: IpAddr,
        /// What it is.
        what: &'static str,
        /// Of what.
        cidr: IpNet,
    },
}

const CIDR_EXAMPLE: &str = "192.168.0.0/16";
const GATEWAY_EXAMPLE: &str = "192.168.0.1";

impl Desired {
    /// Reads a spec.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(spec: &NetworkSpec) -> Result<Desired, Invalid> {
        let cidr = cidr(&spec.cidr)?;
        let gateway = match &spec.gateway {
            Given::Absent => return Ok(Desired { cidr, gateway: None }),
            Given::Other(json) => {
                return Err(Invalid::NotText { field: "gateway", json: json.clone(), example: GATEWAY_EXAMPLE });
            }
            Given::Text(text) => text.trim().parse().map_err(|_| Invalid::Gateway { text: text.clone() })?,
        };
        check_gateway(cidr, gateway)?;
        Ok(Desired { cidr, gateway: Some(gateway) })
    }

    /// The gateway as a request to Neutron says it.
    pub(crate) fn request_gateway(&self) -> Gateway {
        self.gateway.map_or(Gateway::Automatic, Gateway::Address)
    }
}

fn cidr(given: &Given) -> Result<IpNet, Invalid> {
    let text = match given {
        Given::Absent => return Err(Invalid::Missing { field: "cidr", example: CIDR_EXAMPLE }),
        Given::Other(json) => {
            return Err(Invalid::NotText { field: "cidr", json: json.clone(), example: CIDR_EXAMPLE });
        }
        Given::Text(text) => text,
    };
    let invalid = || Invalid::Cidr { text: text.clone() };
    let cidr: IpNet = text.trim().parse().map_err(|_| invalid())?;
    // What the parser lets pass with leading zeros, others read as octal.
    if matches!(cidr, IpNet::V4(_)) && cidr.to_string() != text.trim() {
        return Err(invalid());
    }
    if cidr.trunc() != cidr {
        return Err(Invalid::HostBits { text: text.clone(), network: cidr.trunc() });
    }
    if cidr.prefix_len() + 1 >= cidr.max_prefix_len() {
        return Err(Invalid::TooSmall { cidr });
    }
    Ok(cidr)
}

fn check_gateway(cidr: IpNet, gateway: IpAddr) -> Result<(), Invalid> {
    if !cidr.contains(&gateway) {
        return Err(Invalid::GatewayOutside { gateway, cidr });
    }
    // Of IPv6 the first address is the routers' own anycast address and no broadcast exists.
    let is_v4 = matches!(cidr, IpNet::V4(_));
    if is_v4 && gateway == cidr.network() {
        return Err(Invalid::GatewayReserved { gateway, what: "network", cidr });
    }
    if is_v4 && gateway == cidr.broadcast() {
        return Err(Invalid::GatewayReserved { gateway, what: "broadcast", cidr });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cidr: &str, gateway: &str, want: Result<(), &str>) {
        let given = |text: &str| if text.is_empty() { Given::Absent } else { Given::Text(text.to_owned()) };
        let got = Desired::parse(&NetworkSpec { cidr: given(cidr), gateway: given(gateway) });
        assert_eq!(got.map(|_| ()).map_err(|error| error.to_string()), want.map_err(str::to_owned));
    }

    #[test]
    fn good_specs_are_taken() {
        check("192.168.0.0/16", "192.168.0.1", Ok(()));
        check("192.168.0.0/16", "", Ok(()));
        check("10.0.0.0/30", "10.0.0.2", Ok(()));
        check("fd00::/64", "fd00::1", Ok(()));
    }

    #[test]
    fn bad_specs_are_told_what_and_how() {
        check("", "", Err("spec.cidr is missing: give it a value such as \"192.168.0.0/16\""));
        check(
            "not-a-cidr",
            "",
            Err("spec.cidr \"not-a-cidr\" is no CIDR: want an address and a prefix length, such as \"192.168.0.0/16\""),
        );
        for zeros in ["010.0.0.0/8", "10.0.0.0/08"] {
            let told = format!(
                "spec.cidr {zeros:?} is no CIDR: want an address and a prefix length, such as \"192.168.0.0/16\""
            );
            check(zeros, "", Err(&told));
        }
        check("10.0.0.5/24", "", Err("spec.cidr \"10.0.0.5/24\" has bits set behind its prefix: write 10.0.0.0/24"));
        check(
            "10.0.0.0/31",
            "",
            Err("spec.cidr 10.0.0.0/31 has no room for a gateway and a host: want a shorter prefix"),
        );
        check("10.0.0.0/24", "x", Err("spec.gateway \"x\" is no IP address: want one such as \"192.168.0.1\""));
        check(
            "10.0.0.0/24",
            "10.0.1.1",
            Err("spec.gateway 10.0.1.1 is outside spec.cidr 10.0.0.0/24: want an address within it"),
        );
        check(
            "10.0.0.0/24",
            "10.0.0.0",
            Err(
                "spec.gateway 10.0.0.0 is the network address of spec.cidr 10.0.0.0/24: want another address within it",
            ),
        );
        check(
            "10.0.0.0/24",
            "10.0.0.255",
            Err(
                "spec.gateway 10.0.0.255 is the broadcast address of spec.cidr 10.0.0.0/24: want another address within it",
            ),
        );
        check(
            "10.0.0.0/24",
            "fd00::1",
            Err("spec.gateway fd00::1 is outside spec.cidr 10.0.0.0/24: want an address within it"),
        );
        let spec = NetworkSpec { cidr: Given::Other("16".to_owned()), gateway: Given::Absent };
        assert_eq!(
            Desired::parse(&spec).unwrap_err().to_string(),
            "spec.cidr is 16, want a text such as \"192.168.0.0/16\""
        );
    }
}
