//! Which places of the web a model may look at: none that only we can reach. Pure: nothing is asked here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use reqwest::Url;
use url::Host;

/// Networks that are nobody's on the public internet, or not to be asked. The length of the prefix after the address.
const NOT_PUBLIC: [(Ipv4Addr, u32); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // What a virtual machine of Azure asks about itself, at an address that looks public.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Names that mean this machine, its network or its cloud, with all names below them.
const OUR_OWN: [&str; 5] = ["localhost", "local", "internal", "localdomain", "home.arpa"];

/// Whether an address belongs to somebody on the public internet.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let is_in = |(network, length): &(Ipv4Addr, u32)| (address.to_bits() ^ network.to_bits()) >> (32 - length) == 0;
    !NOT_PUBLIC.iter().any(is_in)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_public_v4(mapped);
    }
    let parts = address.segments();
    let embedded = |at: usize| Ipv4Addr::from_bits(u32::from(parts[at]) << 16 | u32::from(parts[at + 1]));
    // Over NAT64, the only way to IPv4 that some networks have.
    if parts[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
        return is_public_v4(embedded(6));
    }
    // All that is given out lies in 2000::/3: neither `::1`, the compatible addresses, nor local ones do.
    if parts[0] & 0xe000 != 0x2000 {
        return false;
    }
    let is_isatap = parts[4] & !0x0200 == 0 && parts[5] == 0x5efe;
    match parts {
        // Teredo, benchmarking, ORCHID and others that are no hosts.
        [0x2001, second, ..] if second < 0x200 => false,
        // Documentation.
        [0x2001, 0x0db8, ..] => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // 6to4.
        [0x2002, ..] => is_public_v4(embedded(1)),
        _ => !is_isatap || is_public_v4(embedded(6)),
    }
}

/// How an address of the web may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only where its host is on the public internet.
    Public,
    /// Wherever it is: the configuration names this host and port.
    Exempt,
}

/// Whether a URL may be asked at all. What its name resolves to is still to be checked for [`Access::Public`].
///
/// `allow_private` holds `host:port`, IPv6 in brackets.
///
/// # Errors
/// One sentence for the model.
pub fn check_url(url: &Url, allow_private: &[String]) -> Result<Access, String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("only http and https addresses can be read, not `{}`", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the address must not hold a user name or password".to_owned());
    }
    let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
        return Err("the address names no host".to_owned());
    };
    // Names are lower case and numbers are addresses by now, however they were written.
    let name = host.to_string();
    let name = name.trim_end_matches('.');
    let place = format!("{name}:{port}");
    if allow_private.iter().any(|allowed| allowed.trim().eq_ignore_ascii_case(&place)) {
        return Ok(Access::Exempt);
    }
    let is_refused = match host {
        Host::Ipv4(address) => !is_public_v4(address),
        Host::Ipv6(address) => !is_public_v6(address),
        Host::Domain(_) => is_our_own(name),
    };
    if is_refused { Err(not_public(name)) } else { Ok(Access::Public) }
}

/// What the model is told of a host that it may not ask.
pub fn not_public(host: &str) -> String {
    format!("`{host}` is not on the public internet, and only the public internet can be read")
}

fn is_our_own(name: &str) -> bool {
    // All dots and nothing else is no name.
    name.is_empty()
        || OUR_OWN.iter().any(|own| name.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

#[cfg(test)]
mod tests;
