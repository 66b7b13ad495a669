//! Whether the gateway can do its job, told the same way by `/ready`, the start and `gateway status`.

use std::collections::BTreeMap;
use std::sync::Arc;

use hookgate_adapters::{Adapter, AdapterState, Platform};
use serde::{Deserialize, Serialize};

use crate::gateway::Gateway;

/// The body of `/ready` (`spec/decisions.md` §1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The whole.
    pub status: Overall,
    /// Every platform there is, enabled or not; an account with a name as `telegram@support`.
    pub platforms: BTreeMap<String, PlatformStatus>,
    /// `ok` or `failed`.
    pub store: String,
    /// The gateway is stopping.
    pub draining: bool,
}

/// The whole gateway's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overall {
    /// Everything enabled works.
    Ok,
    /// Something enabled does not work.
    Degraded,
    /// The store failed, the gateway stops, or no enabled platform works.
    Down,
}

/// One platform's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformStatus {
    /// `connected`, `connecting`, `failed` or `disabled`.
    pub state: String,
    /// Why it is not connected.
    pub error: Option<String>,
}

impl Ready {
    /// Whether the answer is 503.
    pub fn is_down(&self) -> bool {
        self.status == Overall::Down
    }
}

/// Where the status comes from.
pub(crate) struct StatusSource {
    gateway: Gateway,
    adapters: Vec<Arc<dyn Adapter>>,
    webhooks: bool,
}

impl StatusSource {
    pub(crate) fn new(gateway: Gateway, adapters: Vec<Arc<dyn Adapter>>, webhooks: bool) -> Self {
        Self { gateway, adapters, webhooks }
    }

    /// The state now.
    pub(crate) fn ready(&self) -> Ready {
        let disabled = || PlatformStatus { state: "disabled".into(), error: None };
        let mut platforms: BTreeMap<String, PlatformStatus> =
            [Platform::Telegram, Platform::Webhook, Platform::Local].map(|name| (name.to_string(), disabled())).into();
        for adapter in &self.adapters {
            let status = adapter.status();
            let state = match status.state {
                AdapterState::Connected => "connected",
                AdapterState::Connecting => "connecting",
                AdapterState::Failed => "failed",
            };
            let name = adapter.platform().with_account(adapter.account());
            platforms.insert(name, PlatformStatus { state: state.into(), error: status.error });
        }
        if self.webhooks {
            let state = PlatformStatus { state: "connected".into(), error: None };
            platforms.insert(Platform::Webhook.to_string(), state);
        }
        let store_failed = self.gateway.store_health().error().is_some();
        let draining = self.gateway.is_draining();
        let enabled = || platforms.values().filter(|platform| platform.state != "disabled");
        let works = |platform: &PlatformStatus| platform.state == "connected";
        let status = if store_failed || draining || !enabled().any(works) {
            Overall::Down
        } else if enabled().all(works) {
            Overall::Ok
        } else {
            Overall::Degraded
        };
        Ready { status, store: if store_failed { "failed" } else { "ok" }.into(), draining, platforms }
    }
}
