//! Deliveries with conversations of their own, which wait until a turn has a place: a flood of them costs a few bytes each
//! and no work on the store, so that what floods in is accepted first. They are stored; only their ids wait here.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use super::lanes::Pushed;
use super::{Busy, Gateway};
use crate::session::SessionKey;
use crate::store::InboxId;

/// One that waits, and counts as something under way.
type Waiting = (InboxId, SessionKey, Busy);

/// First in, first out; others that wait for a place take turns with it.
#[derive(Debug)]
pub(super) struct Backlog {
    waiting_tx: mpsc::UnboundedSender<Waiting>,
    /// Taken by the one who works it off.
    waiting_rx: Mutex<Option<mpsc::UnboundedReceiver<Waiting>>>,
}

impl Default for Backlog {
    fn default() -> Self {
        let (waiting_tx, waiting_rx) = mpsc::unbounded_channel();
        Self { waiting_tx, waiting_rx: Mutex::new(Some(waiting_rx)) }
    }
}

impl Backlog {
    /// Puts one behind the others. Once the gateway stops it is left to the next start.
    pub(super) fn push(&self, id: InboxId, key: SessionKey, busy: Busy) {
        let _ = self.waiting_tx.send((id, key, busy));
    }
}

impl Gateway {
    /// Begins what waits, one after the other, each when a turn has a place; until the gateway stops.
    pub(super) fn work_off_backlog(&self) {
        let receiver = self.0.backlog.waiting_rx.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut waiting_rx) = receiver else { return };
        let gateway = self.clone();
        self.0.tasks.spawn(async move {
            let begin = async {
                while let Some((id, key, busy)) = waiting_rx.recv().await {
                    let Ok(place) = Arc::clone(&gateway.0.turns).acquire_owned().await else { return };
                    if let Pushed::Start(current) = gateway.0.lanes.push(&key, id, usize::MAX) {
                        gateway.work_through(key, current, Some(place));
                    }
                    drop(busy);
                }
            };
            // What is left goes with the receiver, and the next start finds it in the store.
            tokio::select! {
                () = begin => {}
                () = gateway.0.draining.cancelled() => {}
            }
        });
    }
}
