//! What an earlier run left unfinished is taken up again: messages in their order, replies that wait, and sends whose
//! outcome nobody knows (`spec/decisions.md` §6).

use hookgate_adapters::{ChatTarget, Platform};

use super::{Gateway, Order, order_of};
use crate::store::StoreError;

impl Gateway {
    /// Takes up what is unfinished on the platforms that run; the rest stays stored. Call once, before anything listens.
    pub async fn recover(&self) -> Result<(), StoreError> {
        let safe_for = |target: &ChatTarget| {
            let window = self.adapter(target).map(|adapter| adapter.repeat_is_safe_for());
            window.map_or(0, |window| i64::try_from(window.as_millis()).unwrap_or(i64::MAX))
        };
        self.work_off_backlog();
        let unfinished = self.0.store.recover(self.0.rules.uncertain_sends, &safe_for).await?;
        // Before anything is sent: a question of a turn that is gone is not repeated.
        self.recover_approvals().await?;
        if unfinished.uncertain > 0 {
            tracing::warn!(
                sends = unfinished.uncertain,
                "Some replies were being sent when the gateway ended; whether they arrived is unknown."
            );
        }
        if !unfinished.inbox.is_empty() {
            tracing::info!(messages = unfinished.inbox.len(), "Messages of the last run are handled now.");
        }
        for target in &unfinished.targets {
            self.send_waiting(target);
        }
        for (id, key) in unfinished.inbox {
            let row = match self.0.store.waiting(id).await {
                Ok(Some(row)) => row,
                Ok(None) => continue,
                Err(StoreError::Internal(error)) => {
                    tracing::error!(message = id.0, %error, "A stored message cannot be read and is left alone.");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let source = &row.accepted.message.source;
            let runs = match source.platform {
                Platform::Webhook => self.0.serves_webhooks,
                _ => self.adapter_of(source).is_some(),
            };
            if runs {
                // What was accepted once is never too many.
                let order = match order_of(&row.accepted) {
                    Order::Queued => Order::QueuedForSure,
                    order => order,
                };
                self.dispatch(id, &key, order);
            }
        }
        Ok(())
    }
}
