//! The [`Store`] on one database: its methods as work for the writer or reads beside it. This file and those below it are
//! compiled once for each database, with the `driver` of the module that names them.

pub(super) mod migrations;
mod queries;
mod retention;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hookgate_adapters::{ChatMoved, ChatTarget};
use sqlx::migrate::MigrateError;
use tokio::time::{Instant, sleep};

use self::queries::{cards, deliveries, inbox, outbox, rules, sessions, spending, status};
use self::writer::{Work, Writer};
use super::driver::{self, Conn, Place, Pool};
use crate::clock::Clock;
use crate::session::{Remembered, Session, SessionKey};
use crate::store::ids::Ids;
use crate::store::sql_store::OpenStore;
use crate::store::{
    Accepted, Admission, Counts, DeliveryAdmission, DeliveryRef, DeliveryRow, DeliveryWork, Failure, Fault, Finish,
    Finished, InboxId, InboxRow, NewDelivery, NewReply, NewRule, NextSend, OpenCard, OutboxId, Rule, Said, SendRecord,
    SentPart, SessionedMessage, Spent, Store, StoreError, UncertainSends, Unfinished,
};

/// How long opening waits for another process that holds the database.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(50);

/// A [`Store`] in a database. Reads go beside the one writer and never hold it up.
#[derive(Debug)]
pub(in super::super) struct Database {
    place: Place,
    clock: Clock,
    /// `None` when there is no database to read.
    readers: Option<Pool>,
    /// `None` when it was opened for reading only.
    writer: Option<Writer>,
}

impl Database {
    /// Opens the database for the one process that owns it, and brings its schema up to date.
    pub(super) async fn open(place: Place, clock: Clock) -> Result<Self, StoreError> {
        let (mut conn, last_id) = connect(&place).await?;
        let ids = Ids::after(last_id);
        place.own(&mut conn, ids.next(clock.now())).await.map_err(|error| place.explain(&error))?;
        let writer = Writer::start(place.clone(), conn, clock.clone(), Arc::new(ids)).await;
        let readers = Some(place.readers());
        Ok(Self { readers, writer: Some(writer), place, clock })
    }

    /// For listing only; without readers every listing is empty.
    pub(super) fn reading(place: Place, readers: Option<Pool>) -> Self {
        Self { readers, writer: None, clock: Clock::system(), place }
    }

    fn now(&self) -> i64 {
        self.clock.now()
    }

    async fn write<A, T>(&self, args: A, work: Work<A, T>) -> Result<T, StoreError>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.writer()?.write(args, work).await
    }

    fn writer(&self) -> Result<&Writer, StoreError> {
        self.writer.as_ref().ok_or_else(|| StoreError::Internal("the store was opened for reading only".to_owned()))
    }

    /// Reads beside the writer; `None` when there is no database.
    async fn read<T>(&self, read: impl AsyncFnOnce(&mut Conn) -> Result<T, Failure>) -> Result<Option<T>, StoreError> {
        let Some(readers) = &self.readers else { return Ok(None) };
        let result = match readers.acquire().await {
            Ok(mut conn) => read(&mut conn).await,
            Err(error) => Err(error.into()),
        };
        result.map(Some).map_err(|failure| {
            let error = explain(&self.place, &failure);
            if self.writer.is_some() && matches!(error, StoreError::Damaged(_)) {
                self.place.note_damage();
            }
            error
        })
    }
}

/// The error for callers of the store.
fn explain(place: &Place, failure: &Failure) -> StoreError {
    match failure {
        Failure::Sql(error) => place.explain(error),
        Failure::Defect(text) => StoreError::Internal(text.clone()),
        Failure::Refused(error) => error.clone(),
    }
}

/// Opens the writing connection on a database of the newest schema; with the largest id in it.
async fn connect(place: &Place) -> Result<(Conn, i64), StoreError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match try_connect(place).await {
            Err(Failure::Sql(error)) if driver::fault(&error) == Fault::Busy && Instant::now() < deadline => {
                sleep(PAUSE).await;
            }
            other => return other.map_err(|failure| explain(place, &failure)),
        }
    }
}

async fn try_connect(place: &Place) -> Result<(Conn, i64), Failure> {
    let mut conn = place.connect_writer().await?;
    let version = migrations::version(&mut conn).await?;
    migrations::refuse_newer(place, version)?;
    migrations::run(&mut conn).await.map_err(|error| match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => Failure::Sql(error),
        // What was released is never changed, so this database comes from a build that was not.
        other => Failure::Refused(StoreError::Unusable(format!(
            "{place} was written by another build of hookgate ({other}); use that build or restore a backup"
        ))),
    })?;
    let last_id = status::last_id(&mut conn).await?;
    Ok((conn, last_id))
}

fn stored(accepted: &Accepted) -> Result<String, StoreError> {
    serde_json::to_string(accepted)
        .map_err(|error| StoreError::Internal(format!("a message cannot be stored: {error}")))
}

#[async_trait]
impl OpenStore for Database {
    async fn check(&self) -> Result<(), StoreError> {
        let verdict = self.read(async |conn| Ok(driver::integrity(conn).await?)).await?;
        verdict.flatten().map_or(Ok(()), |damage| Err(StoreError::Damaged(damage)))
    }

    fn commits(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::commits)
    }

    async fn limit_pages(&self, pages: Option<u32>) -> Result<(), StoreError> {
        self.write(pages, |tx, pages| Box::pin(status::limit_pages(tx, pages))).await
    }
}

#[async_trait]
impl Store for Database {
    async fn accept(&self, message: SessionedMessage) -> Result<Admission, StoreError> {
        let payload = stored(&message.accepted)?;
        let dedup_key = message.accepted.message.dedup_key;
        let offer = inbox::Offer { dedup_key, session_key: message.session_key, payload };
        self.writer()?.accept(offer).await
    }

    async fn accept_delivery(&self, delivery: NewDelivery) -> Result<DeliveryAdmission, StoreError> {
        let payload = match &delivery.work {
            DeliveryWork::Turn(turn) => stored(&turn.accepted)?,
            DeliveryWork::Ignore | DeliveryWork::Send(_) => String::new(),
        };
        let offer = deliveries::Offer { delivery, payload };
        self.writer()?.accept_delivery(offer).await
    }

    async fn known_delivery(
        &self,
        delivery: &DeliveryRef,
        body_hash: &str,
    ) -> Result<Option<DeliveryAdmission>, StoreError> {
        let now = self.now();
        Ok(self.read(async |conn| deliveries::known(conn, now, delivery, body_hash).await).await?.flatten())
    }

    async fn claim(&self, id: InboxId) -> Result<Option<InboxRow>, StoreError> {
        self.write(id, |tx, id| Box::pin(inbox::claim(tx, id))).await
    }

    async fn waiting(&self, id: InboxId) -> Result<Option<InboxRow>, StoreError> {
        Ok(self.read(async |conn| inbox::waiting(conn, id).await).await?.flatten())
    }

    async fn unclaim(&self, id: InboxId) -> Result<(), StoreError> {
        self.write(id, |tx, id| Box::pin(inbox::unclaim(tx, id))).await
    }

    async fn note_effect(&self, id: InboxId, what: &str) -> Result<(), StoreError> {
        self.write((id, what.to_owned()), |tx, args| Box::pin(inbox::note_effect(tx, args))).await
    }

    async fn finish(&self, id: InboxId, finish: Finish) -> Result<Option<Finished>, StoreError> {
        self.write((id, finish), |tx, args| Box::pin(inbox::finish(tx, args))).await
    }

    async fn open_session(&self, key: &SessionKey, accepted: &Accepted) -> Result<(Session, bool), StoreError> {
        if let Some(session) = self.current_session(key).await? {
            return Ok((session, false));
        }
        let opening = sessions::Opening::of(key, accepted);
        self.write(opening, |tx, opening| Box::pin(sessions::open(tx, opening))).await
    }

    async fn current_session(&self, key: &SessionKey) -> Result<Option<Session>, StoreError> {
        Ok(self.read(async |conn| sessions::current(conn, key.as_str()).await).await?.flatten())
    }

    async fn history(&self, session_id: &str, messages: u32, chars: usize) -> Result<Vec<Remembered>, StoreError> {
        let history = self.read(async |conn| sessions::history(conn, session_id, messages, chars).await).await?;
        Ok(history.unwrap_or_default())
    }

    async fn said_in(&self, key: &SessionKey, limit: u32) -> Result<Vec<Said>, StoreError> {
        let said = self.read(async |conn| sessions::said_in(conn, key.as_str(), i64::from(limit)).await).await?;
        Ok(said.unwrap_or_default())
    }

    async fn sessions(&self, limit: u32) -> Result<Vec<Session>, StoreError> {
        let listed = self.read(async |conn| sessions::list(conn, i64::from(limit)).await).await?;
        Ok(listed.unwrap_or_default())
    }

    async fn find_session(&self, id_or_key: &str) -> Result<Option<Session>, StoreError> {
        Ok(self.read(async |conn| sessions::find(conn, id_or_key).await).await?.flatten())
    }

    async fn end_session(&self, id_or_key: &str, reason: &'static str) -> Result<Option<Session>, StoreError> {
        let args = (id_or_key.to_owned(), reason);
        self.write(args, |tx, (id_or_key, reason)| Box::pin(sessions::end(tx, id_or_key, reason))).await
    }

    async fn end_sessions_before(&self, before: i64, reason: &'static str) -> Result<Vec<Session>, StoreError> {
        self.write((before, reason), |tx, (before, reason)| Box::pin(sessions::end_before(tx, *before, reason))).await
    }

    async fn move_chat(&self, moved: &ChatMoved) -> Result<u64, StoreError> {
        self.write(moved.clone(), |tx, moved| Box::pin(sessions::move_chat(tx, moved))).await
    }

    async fn send(&self, reply: NewReply) -> Result<Vec<OutboxId>, StoreError> {
        self.write(reply, |tx, reply| Box::pin(outbox::send(tx, reply))).await
    }

    async fn send_card(&self, reply: NewReply) -> Result<Vec<OutboxId>, StoreError> {
        self.write(reply, |tx, reply| Box::pin(cards::send(tx, reply))).await
    }

    async fn close_card(&self, id: OutboxId) -> Result<(), StoreError> {
        self.write(id, |tx, id| Box::pin(cards::close(tx, id))).await
    }

    async fn open_cards(&self) -> Result<Vec<OpenCard>, StoreError> {
        Ok(self.read(cards::open).await?.unwrap_or_default())
    }

    async fn next_send(&self, target: &ChatTarget) -> Result<NextSend, StoreError> {
        self.write(target.clone(), |tx, target| Box::pin(outbox::next_send(tx, target, true))).await
    }

    async fn next_new_send(&self, target: &ChatTarget) -> Result<NextSend, StoreError> {
        self.write(target.clone(), |tx, target| Box::pin(outbox::next_send(tx, target, false))).await
    }

    async fn record_send(
        &self,
        id: OutboxId,
        record: SendRecord,
    ) -> Result<Option<(DeliveryRef, Result<(), String>)>, StoreError> {
        self.write((id, record), |tx, args| Box::pin(outbox::record_send(tx, args))).await
    }

    async fn sent_to(&self, target: &ChatTarget, limit: u32) -> Result<Vec<SentPart>, StoreError> {
        let sent = self.read(async |conn| outbox::sent_to(conn, target, i64::from(limit)).await).await?;
        Ok(sent.unwrap_or_default())
    }

    async fn sent_id(&self, id: OutboxId) -> Result<Option<String>, StoreError> {
        Ok(self.read(async |conn| outbox::sent_id(conn, id).await).await?.flatten())
    }

    async fn replies_of(
        &self,
        dedup_key: &str,
        target: &ChatTarget,
        message_id: &str,
    ) -> Result<Option<usize>, StoreError> {
        let count = self
            .read(async |conn| match inbox::is_done(conn, dedup_key).await? {
                true => Ok(Some(outbox::replies_to(conn, target, message_id).await?)),
                false => Ok(None),
            })
            .await?;
        Ok(count.flatten().map(|count| usize::try_from(count).unwrap_or_default()))
    }

    async fn recover(
        &self,
        policy: UncertainSends,
        repeat_is_safe_ms: &(dyn for<'a> Fn(&'a ChatTarget) -> i64 + Send + Sync),
    ) -> Result<Unfinished, StoreError> {
        let in_flight = self.read(outbox::in_flight).await?.unwrap_or_default();
        let repeat_is_safe_ms = in_flight.iter().map(|(id, target)| (*id, repeat_is_safe_ms(target))).collect();
        let recovery = outbox::Recovery { policy, repeat_is_safe_ms };
        self.write(recovery, |tx, recovery| Box::pin(outbox::recover(tx, recovery))).await
    }

    async fn allow(&self, rule: NewRule) -> Result<(), StoreError> {
        self.write(rule, |tx, rule| Box::pin(rules::allow(tx, rule))).await
    }

    async fn rules(&self) -> Result<Vec<Rule>, StoreError> {
        Ok(self.read(rules::list).await?.unwrap_or_default())
    }

    async fn revoke(&self, id: i64) -> Result<Option<Rule>, StoreError> {
        self.write(id, |tx, id| Box::pin(rules::revoke(tx, id))).await
    }

    async fn spend(&self, scopes: &[String], day: &str, spent: Spent) -> Result<(), StoreError> {
        let spending = spending::Spending { scopes: scopes.to_vec(), day: day.to_owned(), spent };
        self.write(spending, |tx, spending| Box::pin(spending::spend(tx, spending))).await
    }

    async fn spent(&self, scopes: &[String], day: &str) -> Result<Vec<Spent>, StoreError> {
        let spent = self.read(async |conn| spending::spent(conn, scopes, day).await).await?;
        Ok(spent.unwrap_or_else(|| vec![Spent::default(); scopes.len()]))
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        Ok(self.read(status::counts).await?.unwrap_or_default())
    }

    async fn deliveries(&self, route: Option<&str>, limit: u32) -> Result<Vec<DeliveryRow>, StoreError> {
        let listed = self.read(async |conn| deliveries::list(conn, route, i64::from(limit)).await).await?;
        Ok(listed.unwrap_or_default())
    }

    async fn probe(&self) -> Result<(), StoreError> {
        let written = self.write((), |tx, nothing| Box::pin(status::probe(tx, nothing))).await?;
        match self.read(status::probed).await? {
            Some(read) if read >= written => Ok(()),
            _ => Err(StoreError::Unavailable("what was written could not be read back".to_owned())),
        }
    }

    async fn retain(&self, days: u32, max_bytes: u64) -> Result<u64, StoreError> {
        retention::retain(self, days, max_bytes).await
    }

    async fn close(&self) {
        // The writer goes last, so that it can move the log into the file.
        if let Some(readers) = &self.readers {
            readers.close().await;
        }
        if let Some(writer) = &self.writer {
            writer.close().await;
        }
    }
}
