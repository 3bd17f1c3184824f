//! IP addresses and CIDRs.

use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::data::address;
use crate::evaluation::data::cidr::Cidr;
use crate::evaluation::outcome::{Implementation, Outcome};
use crate::evaluation::value::{Opaque, Value};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "cidr" => |_, args| {
            let cidr = to_cidr(args.first()?.as_str()?).map_err(|error| twice(&error));
            Some(cidr.map(|cidr| Value::Opaque(Opaque::Cidr(cidr))))
        },
        "containsCIDR" => contains_cidr,
        "containsIP" => contains_ip,
        "family" => |_, args| of_ip(args, |ip| Value::Int(if ip.is_ipv4() { 4 } else { 6 })),
        "ip" => ip,
        "ip.isCanonical" => |_, args| {
            let text = args.first()?.as_str()?;
            Some(to_ip(text).map(|ip| Value::Bool(ip.to_string() == text)))
        },
        "isCIDR" => |_, args| Some(Ok(Value::Bool(to_cidr(args.first()?.as_str()?).is_ok()))),
        "isGlobalUnicast" => |_, args| of_ip(args, |ip| Value::Bool(is_global_unicast(ip))),
        "isIP" => |_, args| Some(Ok(Value::Bool(to_ip(args.first()?.as_str()?).is_ok()))),
        "isLinkLocalMulticast" => |_, args| of_ip(args, |ip| Value::Bool(is_link_local_multicast(ip))),
        "isLinkLocalUnicast" => |_, args| of_ip(args, |ip| Value::Bool(is_link_local_unicast(ip))),
        "isLoopback" => |_, args| of_ip(args, |ip| Value::Bool(ip.is_loopback())),
        "isUnspecified" => |_, args| of_ip(args, |ip| Value::Bool(ip.is_unspecified())),
        "masked" => |_, args| match args {
            [Value::Opaque(Opaque::Cidr(cidr))] => Some(Ok(Value::Opaque(Opaque::Cidr(masked(cidr))))),
            _ => None,
        },
        "prefixLength" => |_, args| match args {
            [Value::Opaque(Opaque::Cidr(cidr))] => Some(Ok(Value::Int(i64::from(cidr.prefix)))),
            _ => None,
        },
        _ => return None,
    })
}

fn of_ip<'a>(args: &[Value<'a>], what: fn(IpAddr) -> Value<'a>) -> Option<Outcome<'a>> {
    match args {
        [Value::Opaque(Opaque::Ip(ip))] => Some(Ok(what(*ip))),
        _ => None,
    }
}

fn ip<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Value::Opaque(Opaque::Cidr(cidr))] => Some(Ok(Value::Opaque(Opaque::Ip(cidr.address)))),
        [Value::String(text)] => Some(to_ip(text).map(|ip| Value::Opaque(Opaque::Ip(ip)))),
        _ => None,
    }
}

fn to_ip(text: &str) -> Result<IpAddr, EvalError> {
    let zone = text.split_once('%').filter(|(address, zone)| address.parse::<Ipv6Addr>().is_ok() && !zone.is_empty());
    match text.parse::<IpAddr>() {
        Ok(ip) => not_mapped(text, ip),
        Err(_) if zone.is_some() => Err(EvalError::new(format!("IP address {text:?} with zone value is not allowed"))),
        Err(_) => {
            let fault = address::fault(text);
            Err(EvalError::new(format!("IP Address {text:?} parse error during conversion from string: {fault}")))
        }
    }
}

/// Refuses IPv4-mapped IPv6 addresses.
fn not_mapped(text: &str, ip: IpAddr) -> Result<IpAddr, EvalError> {
    match ip {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(EvalError::new(format!("IPv4-mapped IPv6 address {text:?} is not allowed")))
        }
        _ => Ok(ip),
    }
}

/// Upstream's functions prepend the same words to an error that already begins with them.
fn twice(error: &EvalError) -> EvalError {
    EvalError::new(format!("network address parse error during conversion from string: {error}"))
}

fn to_cidr(text: &str) -> Result<Cidr, EvalError> {
    let bad = |why: String| {
        EvalError::new(format!(
            "network address parse error during conversion from string: netip.ParsePrefix({text:?}): {why}"
        ))
    };
    let (written, bits) = text.rsplit_once('/').ok_or_else(|| bad("no '/'".to_owned()))?;
    let address: IpAddr = match written.parse() {
        Ok(address) => address,
        Err(_) if written.split_once('%').is_some_and(|(address, _)| address.parse::<Ipv6Addr>().is_ok()) => {
            return Err(bad("IPv6 zones cannot be present in a prefix".to_owned()));
        }
        Err(_) => return Err(bad(address::fault(written))),
    };
    let is_number = bits.bytes().all(|byte| byte.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
    let prefix = bits.parse::<i64>().ok().filter(|_| is_number);
    let prefix = prefix.ok_or_else(|| bad(format!("bad bits after slash: {bits:?}")))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let prefix = u8::try_from(prefix).ok().filter(|prefix| *prefix <= most);
    let prefix = prefix.ok_or_else(|| bad("prefix length out of range".to_owned()))?;
    not_mapped(text, address).map(|address| Cidr { address, prefix })
}

pub(crate) fn cidr_text(cidr: &Cidr) -> String {
    format!("{}/{}", cidr.address, cidr.prefix)
}

fn masked(cidr: &Cidr) -> Cidr {
    let address = match cidr.address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(cidr.prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(cidr.prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    };
    Cidr { address, prefix: cidr.prefix }
}

fn contains(cidr: &Cidr, ip: IpAddr) -> bool {
    let same_family = cidr.address.is_ipv4() == ip.is_ipv4();
    same_family && masked(&Cidr { address: ip, prefix: cidr.prefix }).address == masked(cidr).address
}

fn contains_ip<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let [Value::Opaque(Opaque::Cidr(cidr)), other] = args else { return None };
    let ip = match other {
        Value::Opaque(Opaque::Ip(ip)) => Ok(*ip),
        Value::String(text) => to_ip(text),
        _ => return None,
    };
    Some(ip.map(|ip| Value::Bool(contains(cidr, ip))))
}

fn contains_cidr<'a>(_: &mut Meter, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let [Value::Opaque(Opaque::Cidr(cidr)), other] = args else { return None };
    let other = match other {
        Value::Opaque(Opaque::Cidr(other)) => Ok(*other),
        Value::String(text) => to_cidr(text).map_err(|error| twice(&error)),
        _ => return None,
    };
    Some(other.map(|other| Value::Bool(cidr.prefix <= other.prefix && contains(cidr, other.address))))
}

fn is_link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_global_unicast(ip: IpAddr) -> bool {
    let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(ip.is_unspecified() || is_broadcast || ip.is_loopback() || ip.is_multicast() || is_link_local_unicast(ip))
}
