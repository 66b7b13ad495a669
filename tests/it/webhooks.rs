//! Webhooks through the running gateway: what a sender is answered, what becomes of a delivery, what it reads like.

mod live_file;
mod repeats;
mod requests;
mod targets;
mod texts;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use hmac::{Hmac, KeyInit as _, Mac as _};
use hookgate::store::{DeliveryRow, SqlStore};
use hookgate_hooks::{Directive, Event, Hook, HookError};
use serde_json::Value;
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::support::sender::{Answer, github_signature};
use crate::support::world::{SECRET, Town, World};

/// A route with the world's secret and these fields, `name: {…}`.
fn route(name: &str, fields: &str) -> String {
    format!("{name}: {{secret: {SECRET}, {fields}}}")
}

/// A world whose only platform is the local chat, with these routes.
fn quiet_world(routes: &[String]) -> World {
    routes.iter().fold(World::default().without_telegram(), |world, route| world.route(route))
}

/// What the store says of a route's deliveries, newest first.
async fn records(t: &Town, route: &str) -> Result<Vec<DeliveryRow>> {
    let store = SqlStore::open_read_only(t.home(), "sqlite:hookgate.db").await?;
    Ok(store.deliveries(Some(route), 100).await?)
}

/// The states of a route's deliveries, newest first.
async fn states(t: &Town, route: &str) -> Result<Vec<String>> {
    Ok(records(t, route).await?.into_iter().map(|record| record.state).collect())
}

/// Every answer of ours in JSON says so in the same words.
fn assert_json(answer: &Answer) {
    assert_eq!(answer.header("content-type"), Some("application/json; charset=utf-8"), "{}", answer.text);
}

/// Speaks HTTP byte by byte.
struct Wire(TcpStream);

impl Wire {
    async fn connect(t: &Town) -> Result<Self> {
        let address = t.webhooks.base_url().strip_prefix("http://").context("an address")?;
        Ok(Self(TcpStream::connect(address).await?))
    }

    async fn sends(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.0.write_all(bytes.as_ref()).await?;
        Ok(())
    }

    /// All that comes until the other side closes.
    async fn hears(mut self) -> Result<String> {
        let mut all = Vec::new();
        tokio::time::timeout(Duration::from_secs(10), self.0.read_to_end(&mut all)).await.context("no end came")??;
        Ok(String::from_utf8_lossy(&all).into_owned())
    }
}

/// The head of a signed POST whose body is still to come.
fn head(route: &str, length: &str, signed: &[u8]) -> String {
    let signature = github_signature(SECRET, signed);
    format!(
        "POST /webhooks/{route} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Hub-Signature-256: {signature}\r\n{length}\r\n\r\n"
    )
}

/// HMAC-SHA256.
fn mac(secret: &str, signed: &str) -> Vec<u8> {
    let mut mac = <Hmac<Sha256>>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// A policy that answers what begins with `skip` itself.
struct Sentry;

#[async_trait]
impl Hook for Sentry {
    fn name(&self) -> &str {
        "sentry"
    }

    fn subscriptions(&self) -> &[String] {
        static NAMES: std::sync::LazyLock<[String; 1]> =
            std::sync::LazyLock::new(|| ["pre_gateway_dispatch".to_owned()]);
        &*NAMES
    }

    fn decides(&self) -> bool {
        true
    }

    async fn decide(&self, _event: &Event, payload: Arc<Value>) -> Result<Option<Directive>, HookError> {
        let skips = payload["event"]["text"].as_str().is_some_and(|text| text.starts_with("skip"));
        Ok(skips.then(|| Directive::Skip { reply: Some("Not today.".to_owned()) }))
    }
}

/// A hook that writes down what it is told.
#[derive(Default)]
struct Recorder {
    told: Mutex<Vec<(String, Value)>>,
    news: Notify,
}

impl Recorder {
    /// Waits for so many events in all.
    async fn hears(&self, count: usize) -> Result<Vec<(String, Value)>> {
        let enough = async {
            loop {
                let news = self.news.notified();
                let told = self.told.lock().unwrap().clone();
                if told.len() >= count {
                    return told;
                }
                news.await;
            }
        };
        let told = tokio::time::timeout(Duration::from_secs(5), enough).await;
        told.with_context(|| format!("only {:?}", self.told.lock().unwrap()))
    }
}

/// The recorder as the registry takes it.
struct Ear(Arc<Recorder>, Vec<String>);

impl Ear {
    fn on(recorder: &Arc<Recorder>) -> Arc<dyn Hook> {
        Arc::new(Self(Arc::clone(recorder), vec!["webhook:*".to_owned()]))
    }
}

#[async_trait]
impl Hook for Ear {
    fn name(&self) -> &str {
        "recorder"
    }

    fn subscriptions(&self) -> &[String] {
        &self.1
    }

    async fn observe(&self, event: &Event, payload: Arc<Value>) -> Result<(), HookError> {
        self.0.told.lock().unwrap().push((event.as_str().to_owned(), payload.as_ref().clone()));
        self.0.news.notify_one();
        Ok(())
    }
}
