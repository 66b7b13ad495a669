//! Whoever sends webhooks: signs as GitHub does and tells what was answered.

use std::time::Duration;

use anyhow::{Context as _, Result};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::Sha256;

use super::world::SECRET;

/// Sends requests to one listener.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    http: reqwest::Client,
    base_url: String,
}

/// What was answered.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.text).with_context(|| format!("{} {}", self.status, self.text))
    }

    /// Status and body together, for comparisons.
    pub(crate) fn parts(&self) -> (u16, Value) {
        (self.status, serde_json::from_str(&self.text).unwrap_or_else(|_| Value::String(self.text.clone())))
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// `sha256=…` over a body.
pub(crate) fn github_signature(secret: &str, body: &[u8]) -> String {
    let mut mac = <Hmac<Sha256>>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

impl Sender {
    pub(crate) fn new(base_url: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap();
        Self { http, base_url: base_url.to_owned() }
    }

    /// Where the listener is.
    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// GETs a path.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer> {
        answer(self.http.get(format!("{}{path}", self.base_url))).await
    }

    /// POSTs bytes to a route with these headers, unsigned.
    pub(crate) async fn post(&self, route: &str, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Result<Answer> {
        let mut request = self.http.post(format!("{}/webhooks/{route}", self.base_url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(request.body(body.into())).await
    }

    /// POSTs a body signed with the world's secret, with these headers.
    pub(crate) async fn signed(
        &self,
        route: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Result<Answer> {
        let body = body.into();
        let signature = github_signature(SECRET, &body);
        let headers = [headers, &[("x-hub-signature-256", signature.as_str())]].concat();
        self.post(route, &headers, body).await
    }

    /// Delivers an event as GitHub does, signed with the world's secret.
    pub(crate) async fn github(&self, route: &str, event: &str, id: &str, body: &Value) -> Result<Answer> {
        let body = body.to_string();
        let signature = github_signature(SECRET, body.as_bytes());
        let headers = [
            ("content-type", "application/json"),
            ("x-github-event", event),
            ("x-github-delivery", id),
            ("x-hub-signature-256", signature.as_str()),
        ];
        self.post(route, &headers, body).await
    }
}

async fn answer(request: reqwest::RequestBuilder) -> Result<Answer> {
    let response = request.send().await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Ok(Answer { status, headers, text: response.text().await? })
}
