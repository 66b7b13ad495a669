//! Whether the store works. A failure turns the gateway's readiness to `down`; a probe turns it back by itself.

use tokio::sync::watch;

use crate::store::StoreError;

/// What is known of the store's state.
#[derive(Debug, Clone)]
pub struct StoreHealth(watch::Sender<State>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    error: Option<String>,
    damaged: bool,
}

impl Default for StoreHealth {
    fn default() -> Self {
        Self(watch::Sender::new(State::default()))
    }
}

impl StoreHealth {
    /// Notes whether a call worked, and passes its outcome on. A change is logged once.
    pub fn watch<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        match &outcome {
            Ok(_) => self.set(State::default()),
            Err(StoreError::Unavailable(_) | StoreError::Unusable(_)) => {
                self.set(State { error: outcome.as_ref().err().map(ToString::to_string), damaged: false });
            }
            Err(StoreError::Damaged(_) | StoreError::Lost(_)) => {
                self.set(State { error: outcome.as_ref().err().map(ToString::to_string), damaged: true });
            }
            Err(StoreError::Internal(error)) => tracing::error!(%error, "The store failed."),
        }
        outcome
    }

    fn set(&self, new: State) {
        let error = new.error.clone();
        let changed = self.0.send_if_modified(|old| {
            // Damage stays until the database is opened anew.
            if old.damaged || old.error.is_some() == new.error.is_some() && !new.damaged {
                return false;
            }
            *old = new;
            true
        });
        match (changed, error) {
            (true, Some(error)) => {
                tracing::error!(%error, "The store failed; new messages stay with their platforms until it works again.");
            }
            (true, None) => tracing::info!("The store works again."),
            (false, _) => {}
        }
    }

    /// Why the store does not work; `None` while it does.
    pub fn error(&self) -> Option<String> {
        self.0.borrow().error.clone()
    }

    /// Waits until the store has failed.
    pub async fn failed(&self) {
        let _ = self.0.subscribe().wait_for(|state| state.error.is_some()).await;
    }

    /// Waits until the database turned out to be damaged or another's: the process must open it anew.
    pub async fn damaged(&self) {
        let _ = self.0.subscribe().wait_for(|state| state.damaged).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_until_a_call_works_again() {
        let health = StoreHealth::default();
        let _ = health.watch::<()>(Err(StoreError::Unavailable("disk full".into())));
        assert_eq!(health.error().as_deref(), Some("the store cannot write now: disk full"));
        let _ = health.watch(Ok(()));
        assert_eq!(health.error(), None);
    }

    #[tokio::test]
    async fn damage_stays() {
        for error in [StoreError::Damaged("page 7".into()), StoreError::Lost("another has it".into())] {
            let health = StoreHealth::default();
            let _ = health.watch::<()>(Err(error));
            let _ = health.watch(Ok(()));
            health.damaged().await;
            assert!(health.error().is_some());
        }
    }
}
