//! Deleting what is finished, a bounded number of rows at a time. What waits, runs, is being sent or is held stays.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::driver;
use super::status::set_mark;
use super::{Conn, Db, Result, Tx};

/// The most rows one transaction deletes.
pub(in super::super) const BATCH: i64 = 500;

/// What can be deleted, each kind by its own time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Kind {
    /// Messages that are done, by when they were done.
    Inbox,
    /// Parts that left the queue, are not held and are no open card, by when they left.
    Outbox,
    /// Settled deliveries, by when they came.
    Deliveries,
    /// Deliveries that never were settled and that nothing works on.
    LostDeliveries,
    /// What sessions remember that were last used before the time, and then the sessions.
    Sessions,
    /// The same for sessions that ended.
    EndedSessions,
    /// Remembered messages by their age, also of sessions in use.
    Messages,
    /// What was used up, by its day.
    Spending,
}

/// Deletes up to [`BATCH`] of the oldest rows of a kind that are older than the time; how many went.
pub(in super::super) async fn delete(tx: &mut Tx, (kind, before): &(Kind, i64)) -> Result<u64> {
    let statements: &[&'static str] = match kind {
        Kind::Inbox => &["delete from inbox where id in \
             (select id from inbox where done_at is not null and done_at < $1 order by done_at limit $2)"],
        Kind::Outbox => &["delete from outbox where id in \
             (select id from outbox where left_queue_at is not null and left_queue_at < $1 and state <> 'held' \
             and not exists (select 1 from open_cards where open_cards.id = outbox.id) order by left_queue_at limit $2)"],
        Kind::Deliveries => &["delete from deliveries where id in \
             (select id from deliveries where received_at < $1 and state <> 'accepted' order by received_at limit $2)"],
        Kind::LostDeliveries => &["delete from deliveries where id in \
             (select id from deliveries where received_at < $1 and state = 'accepted' \
             and not exists (select 1 from inbox where done_at is null and delivery = deliveries.id) \
             and not exists (select 1 from outbox where delivery = deliveries.id \
             and (left_queue_at is null or state = 'held')) \
             order by received_at limit $2)"],
        Kind::Sessions => &[
            "delete from messages where id in (select messages.id from sessions join messages \
             on messages.session_id = sessions.id where sessions.updated_at < $1 order by sessions.updated_at limit $2)",
            "delete from sessions where id in (select id from sessions where updated_at < $1 \
             and not exists (select 1 from messages where messages.session_id = sessions.id) \
             order by updated_at limit $2)",
        ],
        Kind::EndedSessions => &[
            "delete from messages where id in (select messages.id from sessions join messages \
             on messages.session_id = sessions.id where sessions.ended_at is not null and sessions.updated_at < $1 \
             order by sessions.updated_at limit $2)",
            "delete from sessions where id in (select id from sessions where ended_at is not null and updated_at < $1 \
             and not exists (select 1 from messages where messages.session_id = sessions.id) \
             order by updated_at limit $2)",
        ],
        Kind::Messages => return delete_messages(tx, *before).await,
        Kind::Spending => return delete_spending(tx, *before).await,
    };
    let mut went = 0;
    for statement in statements {
        let left = BATCH - i64::try_from(went).unwrap_or(BATCH);
        if left > 0 {
            went += sqlx::query(*statement).bind(before).bind(left).execute(&mut tx.conn).await?.rows_affected();
        }
    }
    keep_last_id(tx, went).await?;
    Ok(went)
}

/// Deletes the oldest messages of all sessions, and lets the sessions know.
async fn delete_messages(tx: &mut Tx, before: i64) -> Result<u64> {
    let gone: Vec<String> = sqlx::query_scalar::<Db, _>(
        "delete from messages where id in (select id from messages where at < $1 order by id limit $2) \
         returning session_id",
    )
    .bind(before)
    .bind(BATCH)
    .fetch_all(&mut tx.conn)
    .await?;
    let mut fewer: BTreeMap<&str, i64> = BTreeMap::new();
    for session_id in &gone {
        *fewer.entry(session_id).or_default() += 1;
    }
    for (session_id, count) in fewer {
        sqlx::query("update sessions set messages = messages - $2 where id = $1")
            .bind(session_id)
            .bind(count)
            .execute(&mut tx.conn)
            .await?;
    }
    let went = u64::try_from(gone.len()).unwrap_or(u64::MAX);
    keep_last_id(tx, went).await?;
    Ok(went)
}

/// Deletes what was used up on days before that of the time (UTC).
async fn delete_spending(tx: &mut Tx, before: i64) -> Result<u64> {
    let before = Timestamp::from_millisecond(before).unwrap_or(Timestamp::UNIX_EPOCH);
    let gone = sqlx::query(
        "delete from spent where (scope, day) in (select scope, day from spent where day < $1 order by day limit $2)",
    )
    .bind(before.strftime("%Y-%m-%d").to_string())
    .bind(BATCH)
    .execute(&mut tx.conn)
    .await?;
    Ok(gone.rows_affected())
}

/// The rows that went may have been the newest: ids go on from where they were.
async fn keep_last_id(tx: &mut Tx, went: u64) -> Result<()> {
    if went > 0 {
        let last = tx.last_id();
        set_mark(tx, "last_id", last).await?;
    }
    Ok(())
}

/// The time of the oldest row of a kind that could be deleted.
pub(in super::super) async fn oldest(conn: &mut Conn, kind: Kind) -> Result<Option<i64>> {
    let statement = match kind {
        Kind::Inbox => "select min(done_at) from inbox where done_at is not null",
        Kind::Outbox => {
            "select min(left_queue_at) from outbox where left_queue_at is not null and state <> 'held' \
             and not exists (select 1 from open_cards where open_cards.id = outbox.id)"
        }
        Kind::Deliveries => "select min(received_at) from deliveries where state <> 'accepted'",
        Kind::LostDeliveries | Kind::Spending => return Ok(None),
        Kind::Sessions => "select min(updated_at) from sessions",
        Kind::EndedSessions => "select min(updated_at) from sessions where ended_at is not null",
        Kind::Messages => "select min(at) from messages where id = (select min(id) from messages)",
    };
    Ok(sqlx::query_scalar::<Db, _>(statement).fetch_one(conn).await?)
}

/// When the newest rows were stored, whatever the clock says now.
pub(in super::super) async fn newest_stored(conn: &mut Conn) -> Result<Option<i64>> {
    let mut newest: Option<i64> = None;
    for statement in [
        "select accepted_at from inbox order by id desc limit 1",
        "select created_at from outbox order by id desc limit 1",
        "select at from messages order by id desc limit 1",
        "select received_at from deliveries order by id desc limit 1",
    ] {
        let at: Option<i64> = sqlx::query_scalar::<Db, _>(statement).fetch_optional(&mut *conn).await?;
        newest = newest.max(at);
    }
    Ok(newest)
}

/// Gives one step of free space back to the file system; whether there is more.
pub(in super::super) async fn give_back(tx: &mut Tx, _: &()) -> Result<bool> {
    Ok(driver::give_back(&mut tx.conn).await?)
}
