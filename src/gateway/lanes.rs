//! One ordered queue per session: a session's messages are handled one after the other, different sessions side by side.
//! A command is handled beside a busy lane, and what came after it waits for it. Lanes hold ids only; the messages stay in
//! the store. An empty lane costs nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::{CancellationToken, DropGuard};

use crate::session::SessionKey;
use crate::store::InboxId;

/// The queues of all sessions that have something to do.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Mutex<HashMap<SessionKey, Lane>>,
    /// Texts that hooks gave to messages which were put back into their lane.
    decided: Mutex<HashMap<InboxId, String>>,
    abort: CancellationToken,
}

#[derive(Debug)]
struct Lane {
    /// The message being handled.
    current: Current,
    /// Those behind it, in order of acceptance.
    waiting: VecDeque<InboxId>,
    /// Held while a message is handled. Fair: who asked first gets it first, so `/new` comes before the next message.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The commands handled beside the lane; cancelled when they are done.
    commands: Vec<(InboxId, CancellationToken)>,
    /// All commands that came behind the current message, done or not.
    commanded: Vec<InboxId>,
}

/// The message a lane is at.
#[derive(Debug, Clone)]
pub(super) struct Current {
    /// Which message.
    pub(super) id: InboxId,
    /// Cancelled to interrupt it.
    pub(super) stop: CancellationToken,
    /// Held while it is handled.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

/// What became of a pushed message.
#[derive(Debug)]
pub(super) enum Pushed {
    /// The lane was empty: the caller starts a worker at this message.
    Start(Current),
    /// It waits behind others.
    Waiting,
    /// Too many wait already; it was not queued.
    Full,
}

/// Where a command is handled.
#[derive(Debug)]
pub(super) enum Beside {
    /// The lane was empty: it is the lane's message, and the caller starts a worker at it.
    Start(Current),
    /// Beside the busy lane; the guard goes when it is done.
    Busy(DropGuard),
}

/// What a session is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Activity {
    /// A message is being handled.
    pub(super) busy: bool,
    /// So many wait behind it.
    pub(super) waiting: usize,
}

impl Lanes {
    /// Cancelling `abort` interrupts the current message of every lane.
    pub(super) fn new(abort: CancellationToken) -> Self {
        Self { lanes: Mutex::default(), decided: Mutex::default(), abort }
    }

    /// Queues a message behind those accepted before it.
    pub(super) fn push(&self, key: &SessionKey, id: InboxId, limit: usize) -> Pushed {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get_mut(key) {
            if lane.waiting.len() >= limit {
                return Pushed::Full;
            }
            // Two accepts may end in the other order than the store numbered them; the store's order counts.
            let place = lane.waiting.partition_point(|waiting| *waiting < id);
            lane.waiting.insert(place, id);
            return Pushed::Waiting;
        }
        Pushed::Start(self.open(&mut lanes, key, id))
    }

    /// Notes a command, which does not wait for what came before it.
    pub(super) fn push_command(&self, key: &SessionKey, id: InboxId) -> Beside {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(lane) = lanes.get_mut(key) else { return Beside::Start(self.open(&mut lanes, key, id)) };
        let done = CancellationToken::new();
        lane.commands.retain(|(_, done)| !done.is_cancelled());
        lane.commands.push((id, done.clone()));
        lane.commanded.push(id);
        Beside::Busy(done.drop_guard())
    }

    fn open(&self, lanes: &mut HashMap<SessionKey, Lane>, key: &SessionKey, id: InboxId) -> Current {
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        let current = Current { id, stop: self.abort.child_token(), turn: Arc::clone(&turn) };
        let lane = Lane {
            current: current.clone(),
            waiting: VecDeque::new(),
            turn,
            commands: Vec::new(),
            commanded: Vec::new(),
        };
        lanes.insert(key.clone(), lane);
        current
    }

    /// Waits until the commands that were accepted before `id` are done.
    pub(super) async fn commands_before(&self, key: &SessionKey, id: InboxId) {
        let before: Vec<CancellationToken> = {
            let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            let commands = lanes.get(key).map(|lane| lane.commands.as_slice()).unwrap_or_default();
            commands.iter().filter(|(command, _)| *command < id).map(|(_, done)| done.clone()).collect()
        };
        for done in before {
            done.cancelled().await;
        }
    }

    /// Keeps the text a message goes on with when its turn comes.
    pub(super) fn keep_decided(&self, id: InboxId, text: String) {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner).insert(id, text);
    }

    /// The text that was kept for a message.
    pub(super) fn take_decided(&self, id: InboxId) -> Option<String> {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }

    /// The message behind the current one.
    pub(super) fn behind(&self, key: &SessionKey) -> Option<InboxId> {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.get(key).and_then(|lane| lane.waiting.front().copied())
    }

    /// Takes the message behind the current one out of the lane, if it still is `id` and no command came between them.
    pub(super) fn take_behind(&self, key: &SessionKey, id: InboxId) -> bool {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(lane) = lanes.get_mut(key) else { return false };
        let (from, commanded) = (lane.current.id, &lane.commanded);
        let is_next = lane.waiting.front() == Some(&id);
        if commanded.iter().any(|command| from < *command && *command < id) {
            return false;
        }
        is_next && lane.waiting.pop_front().is_some()
    }

    /// The worker is done with its message: the next one, or `None` and the lane is gone.
    pub(super) fn next(&self, key: &SessionKey) -> Option<Current> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.get_mut(key)?;
        match lane.waiting.pop_front() {
            Some(id) => {
                lane.commanded.retain(|command| *command > id);
                lane.current = Current { id, stop: self.abort.child_token(), turn: Arc::clone(&lane.turn) };
                Some(lane.current.clone())
            }
            None => {
                lanes.remove(key);
                None
            }
        }
    }

    /// The message a session is at.
    pub(super) fn current(&self, key: &SessionKey) -> Option<Current> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).get(key).map(|lane| lane.current.clone())
    }

    /// How many messages accepted before `id` are not begun yet; `begun` is the one that was.
    pub(super) fn waiting_before(&self, key: &SessionKey, id: InboxId, begun: InboxId) -> usize {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.get(key).map_or(0, |lane| {
            let next = lane.current.id != begun && lane.current.id < id;
            lane.waiting.iter().filter(|waiting| **waiting < id).count() + usize::from(next)
        })
    }

    /// What a session is doing.
    pub(super) fn activity(&self, key: &SessionKey) -> Activity {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.get(key).map_or_else(Activity::default, |lane| Activity { busy: true, waiting: lane.waiting.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SessionKey {
        SessionKey("agent:main:telegram:dm:7".into())
    }

    #[test]
    fn messages_wait_in_the_order_of_the_store_and_the_lane_goes_when_it_is_empty() {
        let lanes = Lanes::new(CancellationToken::new());
        assert!(matches!(lanes.push(&key(), InboxId(1), 9), Pushed::Start(current) if current.id == InboxId(1)));
        assert!(matches!(lanes.push(&key(), InboxId(3), 9), Pushed::Waiting));
        assert!(matches!(lanes.push(&key(), InboxId(2), 9), Pushed::Waiting));
        assert_eq!(lanes.activity(&key()), Activity { busy: true, waiting: 2 });
        assert_eq!(lanes.next(&key()).map(|current| current.id), Some(InboxId(2)));
        assert_eq!(lanes.next(&key()).map(|current| current.id), Some(InboxId(3)));
        assert!(lanes.next(&key()).is_none());
        assert_eq!(lanes.activity(&key()), Activity::default());
        assert!(lanes.lanes.lock().unwrap().is_empty());
    }

    #[test]
    fn only_what_came_before_and_is_not_begun_counts_as_waiting_before() {
        let lanes = Lanes::new(CancellationToken::new());
        for id in 1..=5 {
            lanes.push(&key(), InboxId(id), 9);
        }
        assert_eq!(lanes.waiting_before(&key(), InboxId(4), InboxId(1)), 2);
        lanes.next(&key());
        assert_eq!(lanes.waiting_before(&key(), InboxId(4), InboxId(1)), 2, "2 is next but not begun");
        assert_eq!(lanes.waiting_before(&key(), InboxId(4), InboxId(2)), 1);
    }

    #[tokio::test]
    async fn what_came_after_a_command_waits_for_it_and_what_came_before_does_not() {
        let lanes = Lanes::new(CancellationToken::new());
        assert!(matches!(lanes.push_command(&key(), InboxId(1)), Beside::Start(current) if current.id == InboxId(1)));
        let Beside::Busy(command) = lanes.push_command(&key(), InboxId(3)) else { panic!("the lane is busy") };
        lanes.commands_before(&key(), InboxId(2)).await;
        let key = key();
        let mut after = std::pin::pin!(lanes.commands_before(&key, InboxId(4)));
        assert!(futures_util::poll!(after.as_mut()).is_pending());
        drop(command);
        after.await;
    }

    #[test]
    fn a_full_lane_takes_no_more() {
        let lanes = Lanes::new(CancellationToken::new());
        lanes.push(&key(), InboxId(1), 1);
        assert!(matches!(lanes.push(&key(), InboxId(2), 1), Pushed::Waiting));
        assert!(matches!(lanes.push(&key(), InboxId(3), 1), Pushed::Full));
    }

    #[test]
    fn other_sessions_do_not_share_a_lane() {
        let lanes = Lanes::new(CancellationToken::new());
        lanes.push(&key(), InboxId(1), 9);
        assert!(matches!(lanes.push(&SessionKey("other".into()), InboxId(2), 9), Pushed::Start(_)));
    }
}
