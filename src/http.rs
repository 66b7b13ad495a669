//! The HTTP client for our own listeners on this machine: never through a proxy.

use std::time::Duration;

/// A client for loopback addresses with a time limit for everything but the body.
pub(crate) fn loopback_client(timeout: Duration) -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .connect_timeout(timeout)
        .timeout(timeout)
        .build()
        .expect("a client without TLS files or proxies can always be built")
}
