//! Messages on their way through the gateway: `waiting → running → done`.

use std::collections::HashSet;

use sqlx::AssertSqlSafe;

use super::{Conn, Db, Result, Tx, deliveries, outbox, placeholders, runs, sessions, text};
use crate::session::SessionKey;
use crate::store::{Accepted, Admission, Closed, Failure, Finish, Finished, InboxId, InboxRow};

/// The most that a row keeps of what its turn did; the oldest goes first.
const EFFECTS: usize = 100;

/// Key, attempts, [`Accepted`] as JSON, when it was stored, what its turns did as JSON.
type Stored = (String, i64, String, i64, Option<String>);

/// A message as it is stored.
pub(in super::super) struct Offer {
    pub(in super::super) dedup_key: String,
    pub(in super::super) session_key: SessionKey,
    /// [`Accepted`] as JSON.
    pub(in super::super) payload: String,
}

/// Stores messages that came together, with one statement for many.
pub(in super::super) async fn accept(tx: &mut Tx, offers: &[&Offer]) -> Result<Vec<Admission>> {
    let rows: Vec<NewRow<'_>> = offers
        .iter()
        .map(|offer| NewRow {
            id: tx.next_id(),
            dedup_key: &offer.dedup_key,
            session_key: &offer.session_key,
            payload: &offer.payload,
            delivery: None,
        })
        .collect();
    let stored = insert(tx, &rows).await?;
    Ok(rows
        .iter()
        .map(|row| if stored.contains(&row.id) { Admission::New(InboxId(row.id)) } else { Admission::Duplicate })
        .collect())
}

/// A message to be stored, waiting.
pub(super) struct NewRow<'a> {
    pub(super) id: i64,
    pub(super) dedup_key: &'a str,
    pub(super) session_key: &'a SessionKey,
    pub(super) payload: &'a str,
    /// The try of a delivery that it belongs to.
    pub(super) delivery: Option<i64>,
}

/// Stores waiting messages whose ids rise; the ids of those whose keys were not known.
pub(super) async fn insert(tx: &mut Tx, rows: &[NewRow<'_>]) -> Result<HashSet<i64>> {
    let now = tx.now();
    let mut stored = HashSet::with_capacity(rows.len());
    for run in runs(rows) {
        let sql = format!(
            "insert into inbox (id, dedup_key, session_key, state, payload, delivery, accepted_at) values {} \
             on conflict (dedup_key) do nothing",
            placeholders(run.len(), 7)
        );
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for row in run {
            query = query
                .bind(row.id)
                .bind(text(row.dedup_key))
                .bind(text(row.session_key.as_str()))
                .bind("waiting")
                .bind(row.payload)
                .bind(row.delivery)
                .bind(now);
        }
        let count = query.execute(&mut tx.conn).await?.rows_affected();
        if count == run.len() as u64 {
            stored.extend(run.iter().map(|row| row.id));
        } else if let ([first, ..], [.., last]) = (run, run) {
            // Ids are given here and nowhere else, so what lies between is from this run.
            let ids: Vec<i64> = sqlx::query_scalar::<Db, _>("select id from inbox where id between $1 and $2")
                .bind(first.id)
                .bind(last.id)
                .fetch_all(&mut tx.conn)
                .await?;
            stored.extend(ids);
        }
    }
    Ok(stored)
}

pub(in super::super) async fn claim(tx: &mut Tx, id: &InboxId) -> Result<Option<InboxRow>> {
    let row: Option<Stored> = sqlx::query_as::<Db, _>(
        "update inbox set state = 'running', attempts = attempts + 1 where id = $1 and state = 'waiting' \
         returning session_key, attempts, payload, accepted_at, effects",
    )
    .bind(id.0)
    .fetch_optional(&mut tx.conn)
    .await?;
    row.map(|row| row_of(*id, row)).transpose()
}

pub(in super::super) async fn waiting(conn: &mut Conn, id: InboxId) -> Result<Option<InboxRow>> {
    let row: Option<Stored> = sqlx::query_as::<Db, _>(
        "select session_key, attempts, payload, accepted_at, effects from inbox where id = $1 and state = 'waiting'",
    )
    .bind(id.0)
    .fetch_optional(conn)
    .await?;
    row.map(|row| row_of(id, row)).transpose()
}

fn row_of(id: InboxId, (session_key, attempts, payload, accepted_at, effects): Stored) -> Result<InboxRow> {
    let accepted: Accepted = serde_json::from_str(&payload)?;
    let effects = effects_of(effects.as_deref())?;
    let session_key = SessionKey(session_key);
    Ok(InboxRow { id, session_key, attempts, accepted, accepted_at, effects, joined: Vec::new() })
}

fn effects_of(stored: Option<&str>) -> Result<Vec<String>> {
    Ok(stored.map(serde_json::from_str).transpose()?.unwrap_or_default())
}

pub(in super::super) async fn note_effect(tx: &mut Tx, (id, what): &(InboxId, String)) -> Result<()> {
    let stored: Option<Option<String>> =
        sqlx::query_scalar::<Db, _>("select effects from inbox where id = $1 and state = 'running'")
            .bind(id.0)
            .fetch_optional(&mut tx.conn)
            .await?;
    // Not passed over: whoever asked goes on to do it once this is noted.
    let stored = stored.ok_or_else(|| Failure::Defect(format!("message {} has no turn that could do it", id.0)))?;
    let mut effects = effects_of(stored.as_deref())?;
    effects.push(what.clone());
    let kept = effects.get(effects.len().saturating_sub(EFFECTS)..).unwrap_or_default();
    sqlx::query("update inbox set effects = $2 where id = $1")
        .bind(id.0)
        .bind(serde_json::to_string(kept)?)
        .execute(&mut tx.conn)
        .await?;
    Ok(())
}

/// Whether a message is known and through.
pub(in super::super) async fn is_done(conn: &mut Conn, dedup_key: &str) -> Result<bool> {
    let done: Option<Option<i64>> = sqlx::query_scalar::<Db, _>("select done_at from inbox where dedup_key = $1")
        .bind(text(dedup_key))
        .fetch_optional(conn)
        .await?;
    Ok(done.flatten().is_some())
}

pub(in super::super) async fn unclaim(tx: &mut Tx, id: &InboxId) -> Result<()> {
    sqlx::query("update inbox set state = 'waiting', attempts = attempts - 1 where id = $1 and state = 'running'")
        .bind(id.0)
        .execute(&mut tx.conn)
        .await?;
    Ok(())
}

pub(in super::super) async fn finish(tx: &mut Tx, (id, finish): &(InboxId, Finish)) -> Result<Option<Finished>> {
    let key: Option<String> = sqlx::query_scalar::<Db, _>(
        "update inbox set state = 'done', done_at = $2, payload = '', effects = null where id = $1 and done_at is null \
         returning session_key",
    )
    .bind(id.0)
    .bind(tx.now())
    .fetch_optional(&mut tx.conn)
    .await?;
    let Some(key) = key.map(SessionKey) else { return Ok(None) };
    for also in &finish.also {
        sqlx::query("update inbox set state = 'done', done_at = $2, payload = '', effects = null where id = $1 and done_at is null")
            .bind(also.0)
            .bind(tx.now())
            .execute(&mut tx.conn)
            .await?;
    }
    let mut finished = Finished::default();
    if let Some((session_id, messages)) = &finish.remember {
        sessions::remember(tx, session_id, messages).await?;
    }
    for reply in &finish.replies {
        let delivery = match &reply.delivery {
            Some(delivery) => deliveries::row_of(tx, delivery).await?,
            None => None,
        };
        finished.outbox.extend(outbox::insert(tx, reply, reply.delivery.as_ref(), delivery).await?);
    }
    if let Some((delivery, outcome)) = &finish.delivery {
        // With replies under way, success is theirs to tell.
        if finished.outbox.is_empty() || outcome.is_err() {
            deliveries::settle_named(tx, delivery, outcome).await?;
        }
    }
    if let Some(reason) = finish.end_session {
        finished.ended_session = sessions::end(tx, key.as_str(), reason).await?.map(|session| session.id);
    }
    if finish.close_waiting_before {
        finished.closed = close_waiting_before(tx, &key, *id).await?;
    }
    Ok(Some(finished))
}

async fn close_waiting_before(tx: &mut Tx, key: &SessionKey, before: InboxId) -> Result<Vec<Closed>> {
    // Read first: the update empties what was stored.
    let mut closed: Vec<(i64, Option<i64>, String)> = sqlx::query_as::<Db, _>(
        "select id, delivery, payload from inbox \
         where session_key = $1 and done_at is null and state = 'waiting' and id < $2",
    )
    .bind(text(key.as_str()))
    .bind(before.0)
    .fetch_all(&mut tx.conn)
    .await?;
    sqlx::query(
        "update inbox set state = 'done', done_at = $3, payload = '', effects = null \
         where session_key = $1 and done_at is null and state = 'waiting' and id < $2",
    )
    .bind(text(key.as_str()))
    .bind(before.0)
    .bind(tx.now())
    .execute(&mut tx.conn)
    .await?;
    closed.sort_unstable();
    for (_, delivery, _) in &closed {
        if let Some(delivery) = delivery {
            deliveries::settle(tx, *delivery, Some("the conversation was reset before it was its turn")).await?;
        }
    }
    let message = |payload: &str| Some(Box::new(serde_json::from_str::<Accepted>(payload).ok()?.message));
    Ok(closed.iter().map(|(id, _, payload)| Closed { id: InboxId(*id), message: message(payload) }).collect())
}

/// At start: what ran waits again. All that wait, in order.
pub(super) async fn recover(tx: &mut Tx) -> Result<Vec<(InboxId, SessionKey)>> {
    sqlx::query("update inbox set state = 'waiting', leased_by = null, lease_until = null where done_at is null and state = 'running'")
        .execute(&mut tx.conn)
        .await?;
    // Ordered here: ordered by the database it would walk all messages instead of the open ones.
    let mut rows: Vec<(i64, String)> =
        sqlx::query_as::<Db, _>("select id, session_key from inbox where done_at is null and state = 'waiting'")
            .fetch_all(&mut tx.conn)
            .await?;
    rows.sort_unstable_by_key(|(id, _)| *id);
    Ok(rows.into_iter().map(|(id, key)| (InboxId(id), SessionKey(key))).collect())
}
