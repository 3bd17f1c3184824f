//! The addresses and ports of Services. The flags are those of kube-apiserver, with its limits.

use crate::Failure;
use clap::Args as ClapArgs;
use ipnet::IpNet;
use std::ops::RangeInclusive;
use steersman_server::Ranges;

/// The most bits for the addresses of a range.
const BITS_MAX: u8 = 64;
const FLAG: &str = "--service-cluster-ip-range";

#[derive(ClapArgs, Clone, Debug)]
pub(crate) struct ServiceOptions {
    /// The range of the addresses of Services; with a comma, one of IPv4 and one of IPv6, of which the first is the
    /// default. The value at the first start stays in force; later ones may add the second range. ServiceCIDR objects
    /// add further ranges.
    #[arg(long, default_value = "10.96.0.0/16", value_delimiter = ',', value_parser = range, value_name = "CIDR,CIDR")]
    pub(crate) service_cluster_ip_range: Vec<IpNet>,
    /// The range of node ports for Services, both ends included: 30000-32767, or 30000+2767.
    #[arg(long, default_value = "30000-32767", value_parser = ports, value_name = "FROM-TO")]
    pub(crate) service_node_port_range: RangeInclusive<u16>,
}

impl ServiceOptions {
    /// The ranges, at most one for each family.
    pub(crate) fn ranges(&self) -> Result<Ranges, Failure> {
        let addresses = self.service_cluster_ip_range.clone();
        let refused = |why: &str| Err(Failure::Refused(format!("{FLAG} {why}")));
        match &addresses[..] {
            [_] => {}
            [first, second] if first.network().is_ipv4() != second.network().is_ipv4() => {}
            [_, _] => return refused("has two ranges of one family: give one of IPv4 and one of IPv6"),
            _ => return refused("takes one range, or one of IPv4 and one of IPv6"),
        }
        Ok(Ranges { addresses, node_ports: self.service_node_port_range.clone() })
    }
}

fn range(text: &str) -> Result<IpNet, String> {
    let range: IpNet = text.trim().parse().map_err(|_| "want a range such as 10.96.0.0/16 or fd00::/112".to_owned())?;
    let bits = range.max_prefix_len() - range.prefix_len();
    match bits {
        0 => Err("want a range with more than one address".to_owned()),
        1..=BITS_MAX => Ok(range.trunc()),
        _ => Err(format!("it is too large: for IPv6, the mask must be at least {}", range.max_prefix_len() - BITS_MAX)),
    }
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let number = |text: &str| text.trim().parse::<u16>().ok();
    let ends = match (text.split_once('-'), text.split_once('+')) {
        (Some((first, last)), _) => number(first).zip(number(last)),
        (None, Some((first, more))) => {
            number(first).zip(number(more)).and_then(|(first, more)| Some((first, first.checked_add(more)?)))
        }
        (None, None) => number(text).map(|only| (only, only)),
    };
    match ends {
        Some((first, last)) if 1 <= first && first <= last => Ok(first..=last),
        _ => Err("want two ports, such as 30000-32767".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ranges: &[&str], want: Result<usize, &str>) {
        let read = || {
            let parsed: Result<Vec<IpNet>, String> = ranges.iter().map(|text| range(text)).collect();
            let options = ServiceOptions { service_cluster_ip_range: parsed?, service_node_port_range: 1..=2 };
            options.ranges().map(|ranges| ranges.addresses.len()).map_err(|failure| match failure {
                Failure::Refused(why) => why,
                _ => panic!("it is refused"),
            })
        };
        assert_eq!(read(), want.map_err(str::to_owned));
    }

    #[test]
    fn there_is_one_range_of_a_family() {
        check(&["10.0.0.0/24"], Ok(1));
        check(&["10.0.0.0/24", "fd00::/112"], Ok(2));
        check(&["fd00::/64", "10.0.0.0/8"], Ok(2));
        check(
            &["10.0.0.0/24", "10.0.1.0/24"],
            Err("--service-cluster-ip-range has two ranges of one family: give one of IPv4 and one of IPv6"),
        );
        check(
            &["10.0.0.0/24", "fd00::/112", "10.0.1.0/24"],
            Err("--service-cluster-ip-range takes one range, or one of IPv4 and one of IPv6"),
        );
        check(&["fd00::/48"], Err("it is too large: for IPv6, the mask must be at least 64"));
        check(&["10.0.0.1/32"], Err("want a range with more than one address"));
        check(&["here"], Err("want a range such as 10.96.0.0/16 or fd00::/112"));
    }

    #[test]
    fn ports_are_given_by_both_ends_or_by_how_many_follow() {
        assert_eq!(ports("30000-32767"), Ok(30_000..=32_767));
        assert_eq!(ports("30000+67"), Ok(30_000..=30_067));
        assert_eq!(ports("80"), Ok(80..=80));
        for wrong in ["", "2-1", "0-5", "65535+1", "a-b", "1-70000"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
    }
}
