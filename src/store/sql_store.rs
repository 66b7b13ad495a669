//! [`SqlStore`], the [`Store`] over a database: opening it with everything that can be wrong, and the trait's methods as
//! work for the writer or reads beside it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hookgate_adapters::{ChatMoved, ChatTarget};
use sqlx::migrate::MigrateError;
use tokio::time::{Instant, sleep};

use super::driver::{self, Conn, Fault, Place, Pool};
use super::ids::Ids;
use super::queries::{deliveries, inbox, outbox, sessions, status};
use super::writer::{Work, Writer};
use super::{
    Accepted, Admission, Counts, DeliveryAdmission, DeliveryRef, DeliveryRow, DeliveryWork, Failure, Finish, Finished,
    InboxId, InboxRow, NewDelivery, NextSend, OutboxId, Said, SendRecord, SentPart, SessionedMessage, Store,
    StoreError, UncertainSends, Unfinished, migrations, repair, retention,
};
use crate::clock::Clock;
use crate::session::{Remembered, Session, SessionKey};

/// How long opening waits for another process that holds the database.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(50);

/// How to open a database.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// `storage.url`: `sqlite:PATH`, relative to the home.
    pub url: String,
    /// The home directory; exists.
    pub home: PathBuf,
    /// What time it is.
    pub clock: Clock,
}

impl OpenOptions {
    /// The database `url` of a home, with the system's clock.
    pub fn new(home: impl Into<PathBuf>, url: impl Into<String>) -> Self {
        Self { url: url.into(), home: home.into(), clock: Clock::system() }
    }

    /// Another clock.
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }
}

/// An opened database.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: SqlStore,
    /// What a person should know: that the database was damaged, what was saved and where the old file lies. Sentences.
    pub notes: Vec<String>,
}

/// A [`Store`] in a database. Reads go beside the one writer and never hold it up.
#[derive(Debug)]
pub struct SqlStore {
    place: Place,
    clock: Clock,
    /// `None` when there is no database to read.
    readers: Option<Pool>,
    /// `None` when it was opened for reading only.
    writer: Option<Writer>,
    /// The file that was opened, to notice when another takes its place.
    identity: Option<(u64, u64)>,
}

impl SqlStore {
    /// Opens the database for the one process that owns it: makes it, brings its schema up to date, and repairs it when
    /// it is damaged (see [`Opened::notes`]). Needs a running tokio runtime.
    ///
    /// [`StoreError::Unusable`] for what a person must change, [`StoreError::Unavailable`] when another process keeps it
    /// locked for 15 seconds or the disk is full.
    pub async fn open(options: OpenOptions) -> Result<Opened, StoreError> {
        let OpenOptions { url, home, clock } = options;
        let place = Place::of(&url, &home)?;
        repair::complete(&place)?;
        place.prepare()?;
        let mut notes = Vec::new();
        if place.check_mark().exists() {
            notes.extend(repair::check(&place, &clock).await?);
        }
        let (conn, last_id) = match connect(&place).await {
            Err(StoreError::Damaged(why)) => {
                notes.push(repair::repair(&place, &clock, &why).await?);
                connect(&place).await?
            }
            other => other?,
        };
        let writer = Writer::start(place.clone(), conn, clock.clone(), Arc::new(Ids::after(last_id)));
        let store = Self {
            identity: place.identity(),
            readers: Some(place.readers(false)),
            writer: Some(writer),
            place,
            clock,
        };
        Ok(Opened { store, notes })
    }

    /// Opens the database for listing, also beside a running gateway: it writes nothing and takes no lock. Where there is
    /// no database, every listing is empty.
    pub async fn open_read_only(home: &Path, url: &str) -> Result<Self, StoreError> {
        let place = Place::of(url, home)?;
        let mut store = Self { identity: place.identity(), readers: None, writer: None, clock: Clock::system(), place };
        if !store.place.exists() {
            return Ok(store);
        }
        let mut readers = store.place.readers(false);
        let mut found = version_of(&readers).await;
        if found.as_ref().is_err_and(driver::cannot_open) && store.place.has_no_log() {
            readers = store.place.readers(true);
            found = version_of(&readers).await;
        }
        match found.map_err(|error| store.place.explain_reading(&error))? {
            0 => {}
            version if version < migrations::NEWEST => {
                return Err(StoreError::Unusable(format!(
                    "{} has the older schema {version}; start the gateway once to bring it to {}",
                    store.place.path().display(),
                    migrations::NEWEST
                )));
            }
            version => {
                refuse_newer(&store.place, version)?;
                store.readers = Some(readers);
            }
        }
        Ok(store)
    }

    /// Reads the whole database and tells whether it is sound; for `hookgate doctor`.
    pub async fn check(&self) -> Result<(), StoreError> {
        let verdict = self.read(async |conn| Ok(driver::integrity(conn).await?)).await?;
        verdict.flatten().map_or(Ok(()), |damage| Err(StoreError::Damaged(damage)))
    }

    /// How many transactions were committed since it was opened.
    pub fn commits(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::commits)
    }

    /// For tests: behaves as on a full disk, with no room beyond this many pages of 4 KiB (at least what is used now);
    /// `None` makes room again.
    #[doc(hidden)]
    pub async fn limit_pages(&self, pages: Option<u32>) -> Result<(), StoreError> {
        self.write(pages, |tx, pages| Box::pin(status::limit_pages(tx, pages))).await
    }

    pub(super) fn now(&self) -> i64 {
        self.clock.now()
    }

    pub(super) async fn write<A, T>(&self, args: A, work: Work<A, T>) -> Result<T, StoreError>
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
    pub(super) async fn read<T>(
        &self,
        read: impl AsyncFnOnce(&mut Conn) -> Result<T, Failure>,
    ) -> Result<Option<T>, StoreError> {
        let Some(readers) = &self.readers else { return Ok(None) };
        let result = match readers.acquire().await {
            Ok(mut conn) => read(&mut conn).await,
            Err(error) => Err(error.into()),
        };
        result.map(Some).map_err(|failure| {
            let error = failure.to_store_error();
            if self.writer.is_some() && matches!(error, StoreError::Damaged(_)) {
                repair::leave_mark(self.place.check_mark());
            }
            error
        })
    }
}

/// Opens the writing connection on a database of the newest schema; with the largest id in it.
async fn connect(place: &Place) -> Result<(Conn, i64), StoreError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match try_connect(place).await {
            Err(Refusal::Failed(error)) if driver::fault(&error) == Fault::Busy && Instant::now() < deadline => {
                sleep(PAUSE).await;
            }
            Err(Refusal::Failed(error)) => return Err(place.explain(&error)),
            Err(Refusal::Final(error)) => return Err(error),
            Ok(opened) => return Ok(opened),
        }
    }
}

enum Refusal {
    Failed(sqlx::Error),
    Final(StoreError),
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error)
    }
}

async fn try_connect(place: &Place) -> Result<(Conn, i64), Refusal> {
    let mut conn = place.connect_writer().await?;
    let version = migrations::version(&mut conn).await?;
    refuse_newer(place, version).map_err(Refusal::Final)?;
    migrations::run(&mut conn).await.map_err(|error| match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => Refusal::Failed(error),
        // What was released is never changed, so this database comes from a build that was not.
        other => Refusal::Final(StoreError::Unusable(format!(
            "{} was written by another build of hookgate ({other}); use that build or restore a backup",
            place.path().display()
        ))),
    })?;
    let last_id = status::last_id(&mut conn).await?;
    Ok((conn, last_id))
}

/// The sentence for a database of a later hookgate.
pub(super) fn refuse_newer(place: &Place, version: i64) -> Result<(), StoreError> {
    if version <= migrations::NEWEST {
        return Ok(());
    }
    let name = place.path().file_name().unwrap_or(place.path().as_os_str()).to_string_lossy();
    Err(StoreError::Unusable(format!(
        "{name} was written by a newer hookgate (schema {version}, this build knows {}); upgrade hookgate or restore a \
         backup",
        migrations::NEWEST
    )))
}

async fn version_of(readers: &Pool) -> Result<i64, sqlx::Error> {
    migrations::version(&mut *readers.acquire().await?).await
}

fn stored(accepted: &Accepted) -> Result<String, StoreError> {
    inbox::payload_of(accepted).map_err(|failure| failure.to_store_error())
}

#[async_trait]
impl Store for SqlStore {
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

    async fn move_chat(&self, moved: &ChatMoved) -> Result<u64, StoreError> {
        self.write(moved.clone(), |tx, moved| Box::pin(sessions::move_chat(tx, moved))).await
    }

    async fn next_send(&self, target: &ChatTarget) -> Result<NextSend, StoreError> {
        self.write(target.clone(), |tx, target| Box::pin(outbox::next_send(tx, target))).await
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

    async fn counts(&self) -> Result<Counts, StoreError> {
        Ok(self.read(status::counts).await?.unwrap_or_default())
    }

    async fn deliveries(&self, route: Option<&str>, limit: u32) -> Result<Vec<DeliveryRow>, StoreError> {
        let listed = self.read(async |conn| deliveries::list(conn, route, i64::from(limit)).await).await?;
        Ok(listed.unwrap_or_default())
    }

    async fn probe(&self) -> Result<(), StoreError> {
        // A file that was deleted can still be written, and is lost with the process.
        if self.place.identity() != self.identity {
            let path = self.place.path().display();
            return Err(StoreError::Unavailable(format!("{path} was deleted or replaced while it was in use")));
        }
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
