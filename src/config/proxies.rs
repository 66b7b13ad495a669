//! `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, of the process or of `.env`, in capitals or not.

use std::collections::BTreeMap;

use hookgate_adapters::{Proxies, proxy_address};
use secrecy::SecretString;

use super::Severity;
use super::env_file::Assignment;
use super::settings::Settings;

const HTTP: [&str; 2] = ["HTTP_PROXY", "http_proxy"];
const HTTPS: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
const ALL: [&str; 2] = ["ALL_PROXY", "all_proxy"];
const DIRECT: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Whether a variable holds a proxy's address.
pub(super) fn is_address(name: &str) -> bool {
    [HTTP, HTTPS, ALL].iter().flatten().any(|known| *known == name)
}

/// The proxies that the environment names. One that is no address is an error, told without it: it may hold a password.
pub(super) fn read(settings: &mut Settings, process: &BTreeMap<String, String>, assignments: &[Assignment]) -> Proxies {
    let mut address = |names| {
        let (found, value) = settings.first_variable(names, process, assignments)?;
        if proxy_address(&value).is_err() {
            let suggestion = "write `http://host:port`, `https://…`, `socks5://…` or `socks5h://…`".to_owned();
            settings.tell(Severity::Error, &found, "this is not the address of a proxy", Some(suggestion));
            return None;
        }
        Some(SecretString::from(value))
    };
    let (http, https, all) = (address(HTTP), address(HTTPS), address(ALL));
    let direct = settings.first_variable(DIRECT, process, assignments).map(|(_, value)| value);
    Proxies { http, https, all, direct: direct.unwrap_or_default() }
}
