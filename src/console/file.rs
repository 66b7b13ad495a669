//! `console.json` in the home: how other commands find the running gateway. Mode 0600, written anew at every start.

use std::net::SocketAddr;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::error::UserError;

const NAME: &str = "console.json";

/// What the file holds. Its text has the token in it: never log it.
#[derive(Clone, Serialize, Deserialize)]
pub struct ConsoleFile {
    /// `http://127.0.0.1:8642`; `None` when the console is off.
    pub url: Option<String>,
    /// `http://127.0.0.1:8644`; `None` when no webhooks are received.
    #[serde(default)]
    pub webhook_url: Option<String>,
    /// The console's token.
    token: String,
    /// The process that wrote it.
    #[serde(default)]
    pub pid: Option<u32>,
}

impl ConsoleFile {
    /// A file without a console's address.
    pub fn new(token: &SecretString, webhooks: Option<SocketAddr>) -> Self {
        Self {
            url: None,
            webhook_url: webhooks.map(|address| format!("http://{}", reachable(address))),
            token: token.expose_secret().to_owned(),
            pid: Some(std::process::id()),
        }
    }

    /// The console is on, here.
    pub fn set_address(&mut self, address: SocketAddr) {
        self.url = Some(format!("http://{}", reachable(address)));
    }

    /// The page's address with the token.
    pub fn page(&self) -> Option<String> {
        self.url.as_ref().map(|url| format!("{url}/?token={}", self.token))
    }

    /// The token.
    pub fn token(&self) -> SecretString {
        SecretString::from(self.token.as_str())
    }

    /// Reads the file; `None` when there is none or it cannot be read.
    pub fn read(home: &Path) -> Option<Self> {
        serde_json::from_slice(&crate::files::read(&home.join(NAME)).ok()?).ok()
    }

    /// Writes the file in one step.
    pub fn write(&self, home: &Path) -> Result<(), UserError> {
        let path = home.join(NAME);
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from);
        let written = text.and_then(|text| crate::files::write_atomically(&path, &text));
        written.map_err(|error| UserError::unwritable(&path, &error))
    }
}

/// Where a listener on all interfaces is reached from this machine.
fn reachable(address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    let ip =
        if address.is_ipv4() { std::net::Ipv4Addr::LOCALHOST.into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
    SocketAddr::new(ip, address.port())
}

/// The console's token: the configured one, else the one of `console.json`, else a new one.
pub fn token(home: &Path, configured: Option<&SecretString>) -> SecretString {
    if let Some(token) = configured {
        return token.clone();
    }
    if let Some(file) = ConsoleFile::read(home).filter(|file| file.token.len() >= 16) {
        return file.token();
    }
    SecretString::from(URL_SAFE_NO_PAD.encode(rand::random::<[u8; 24]>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_token_is_made_once_and_kept_for_this_user_only() {
        let home = tempfile::tempdir().unwrap();
        let made = token(home.path(), None);
        assert_eq!(made.expose_secret().len(), 32);
        let mut file = ConsoleFile::new(&made, None);
        file.set_address("0.0.0.0:8642".parse().unwrap());
        file.write(home.path()).unwrap();
        assert_eq!(token(home.path(), None).expose_secret(), made.expose_secret());
        assert_eq!(token(home.path(), Some(&SecretString::from("mine"))).expose_secret(), "mine");
        let mode = fs::metadata(home.path().join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let page = ConsoleFile::read(home.path()).unwrap().page().unwrap();
        assert_eq!(page, format!("http://127.0.0.1:8642/?token={}", made.expose_secret()));
    }

    #[test]
    fn a_broken_file_leads_to_a_new_token() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(NAME), "{").unwrap();
        assert_eq!(token(home.path(), None).expose_secret().len(), 32);
    }
}
