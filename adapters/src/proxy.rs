//! The proxies of HTTP clients, as `HTTPS_PROXY` and its like name them. Told, not read: `.env` counts too, and it is not
//! part of the process environment.

use reqwest::{ClientBuilder, NoProxy, Proxy, Url};
use secrecy::{ExposeSecret as _, SecretString};

/// Which proxy is asked for which address. With none of them a client is left to the process environment.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    /// `HTTP_PROXY`: for `http` addresses.
    pub http: Option<SecretString>,
    /// `HTTPS_PROXY`: for `https` addresses.
    pub https: Option<SecretString>,
    /// `ALL_PROXY`: for those without one of their own.
    pub all: Option<SecretString>,
    /// `NO_PROXY`: hosts, domains and networks that are asked directly.
    pub direct: String,
}

/// An address that no proxy can have. It may hold a password, so it is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not the address of a proxy")]
pub struct NotAProxy;

impl Proxies {
    /// The same with one proxy for everything, where there is one.
    #[must_use]
    pub fn or_through(&self, proxy: Option<&SecretString>) -> Self {
        match proxy {
            Some(proxy) => Self { all: Some(proxy.clone()), direct: self.direct.clone(), ..Self::default() },
            None => self.clone(),
        }
    }

    /// Lets a client use them.
    pub fn apply(&self, mut client: ClientBuilder) -> Result<ClientBuilder, NotAProxy> {
        if self.direct.trim() == "*" {
            return Ok(client.no_proxy());
        }
        type Make = fn(Url) -> reqwest::Result<Proxy>;
        let makes: [(&Option<SecretString>, Make); 3] =
            [(&self.http, Proxy::http), (&self.https, Proxy::https), (&self.all, Proxy::all)];
        for (address, make) in makes {
            let Some(address) = address else { continue };
            let proxy = make(proxy_address(address.expose_secret())?).map_err(|_| NotAProxy)?;
            client = client.proxy(proxy.no_proxy(NoProxy::from_string(&self.direct)));
        }
        Ok(client)
    }
}

/// Reads a proxy's address: `http`, `https` or one of the four kinds of `socks` (`socks` alone is `socks5h`); `host:port`
/// alone is `http`.
pub fn proxy_address(text: &str) -> Result<Url, NotAProxy> {
    let text = text.trim();
    // Desktops set ALL_PROXY so.
    let socks = text.strip_prefix("socks://").map(|rest| format!("socks5h://{rest}"));
    let text = socks.as_deref().unwrap_or(text);
    let url = if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) };
    let mut url = url.map_err(|_| NotAProxy)?;
    let known = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];
    if !known.contains(&url.scheme()) || !url.has_host() {
        return Err(NotAProxy);
    }
    if url.scheme().starts_with("socks") && url.port().is_none() {
        url.set_port(Some(1080)).map_err(|()| NotAProxy)?;
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, read) in [
            ("http://proxy:3128", "http://proxy:3128/"),
            (" proxy:3128 ", "http://proxy:3128/"),
            ("localhost:3128", "http://localhost:3128/"),
            ("user:pass@10.0.0.1", "http://user:pass@10.0.0.1/"),
            ("socks5h://proxy", "socks5h://proxy:1080"),
            ("socks4://proxy:9", "socks4://proxy:9"),
            ("socks://proxy:1080/", "socks5h://proxy:1080/"),
        ] {
            assert_eq!(proxy_address(text).unwrap().as_str(), read, "{text}");
        }
        for text in ["", "http://", "ftp://proxy", "not an address", "http://a b"] {
            assert_eq!(proxy_address(text), Err(NotAProxy), "{text}");
        }
    }

    #[test]
    fn one_proxy_for_everything_takes_the_place_of_the_others() {
        let both = Proxies { http: Some("a:1".into()), direct: "x.example".to_owned(), ..Proxies::default() };
        let through = both.or_through(Some(&"b:2".into()));
        assert_eq!((through.http.is_none(), through.direct.as_str()), (true, "x.example"));
        assert_eq!(through.all.unwrap().expose_secret(), "b:2");
        assert!(both.or_through(None).http.is_some());
        let none = Proxies { all: Some("ftp://h".into()), direct: " * ".to_owned(), ..Proxies::default() };
        assert!(none.apply(reqwest::Client::builder()).is_ok(), "no address goes through it");
        let broken = Proxies { all: Some("ftp://user:pass-word@h".into()), ..Proxies::default() };
        let error = broken.apply(reqwest::Client::builder()).unwrap_err();
        assert!(!error.to_string().contains("pass-word"));
    }
}
