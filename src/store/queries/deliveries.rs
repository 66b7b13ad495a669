//! Webhook deliveries: what was seen, what it led to and how it ended. A delivery's row gets a new id when it is taken
//! again after a failure; inbox and outbox rows name the try they belong to by that id.

use super::super::{DeliveryAdmission, DeliveryRef, DeliveryRow, DeliveryWork, InboxId, NewDelivery};
use super::{Conn, Db, Result, Tx, inbox, outbox};

/// How long a settled delivery is remembered (`spec/decisions.md` §5): seven days, in milliseconds.
pub(in super::super) const KNOWN_FOR: i64 = 7 * 24 * 60 * 60 * 1000;

/// A delivery with the message it leads to, as that is stored.
pub(in super::super) struct Offer {
    pub(in super::super) delivery: NewDelivery,
    /// For [`DeliveryWork::Turn`]: the message as JSON.
    pub(in super::super) payload: String,
}

pub(in super::super) async fn accept(tx: &mut Tx, offer: &Offer) -> Result<DeliveryAdmission> {
    let new = &offer.delivery;
    let now = tx.now();
    if new.replay_guard && is_replay(tx, new).await? {
        // The id itself comes first: what is a duplicate stays one.
        let known = known(&mut tx.conn, now, &new.delivery, &new.body_hash).await?;
        return Ok(known.unwrap_or(DeliveryAdmission::Conflict));
    }
    let has_parts = |replies: &[super::super::NewReply]| replies.iter().any(|reply| !reply.parts.is_empty());
    let state = match &new.work {
        DeliveryWork::Ignore => "ignored",
        DeliveryWork::Send(replies) if !has_parts(replies) => "delivered",
        DeliveryWork::Turn(_) | DeliveryWork::Send(_) => "accepted",
    };
    let row = tx.next_id();
    // The row changes only where the delivery may come again: after a failure, or when it is forgotten.
    let taken = sqlx::query(
        "insert into deliveries (id, route, delivery_id, body_hash, event, target, state, received_at, attempts) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, 1) \
         on conflict (route, delivery_id) do update set id = excluded.id, body_hash = excluded.body_hash, \
         event = excluded.event, target = excluded.target, state = excluded.state, error = null, \
         received_at = excluded.received_at, attempts = deliveries.attempts + 1 \
         where (deliveries.state = 'failed' and deliveries.body_hash = excluded.body_hash) \
         or (deliveries.state <> 'accepted' and deliveries.received_at < $9)",
    )
    .bind(row)
    .bind(&new.delivery.route)
    .bind(&new.delivery.delivery_id)
    .bind(&new.body_hash)
    .bind(&new.event)
    .bind(&new.target)
    .bind(state)
    .bind(now)
    .bind(now.saturating_sub(KNOWN_FOR))
    .execute(&mut tx.conn)
    .await?;
    if taken.rows_affected() == 0 {
        let hash: String =
            sqlx::query_scalar::<Db, _>("select body_hash from deliveries where route = $1 and delivery_id = $2")
                .bind(&new.delivery.route)
                .bind(&new.delivery.delivery_id)
                .fetch_one(&mut tx.conn)
                .await?;
        return Ok(if hash == new.body_hash { DeliveryAdmission::Duplicate } else { DeliveryAdmission::Conflict });
    }
    let mut stored = Vec::new();
    let mut message = None;
    match &new.work {
        DeliveryWork::Ignore => {}
        DeliveryWork::Turn(turn) => {
            let id = tx.next_id();
            // Unique by the try's own id: this table has decided already that it is not a duplicate.
            let dedup_key = format!("webhook:{}:{}:{row}", new.delivery.route, new.delivery.delivery_id);
            inbox::insert(tx, id, &dedup_key, &turn.session_key, &offer.payload, Some(row)).await?;
            message = Some(InboxId(id));
        }
        DeliveryWork::Send(replies) => {
            for reply in replies {
                outbox::insert(tx, reply, Some(&new.delivery), Some(row), &mut stored).await?;
            }
        }
    }
    Ok(DeliveryAdmission::New { inbox: message, outbox: stored })
}

/// Whether the route has seen the body under another id that did not fail.
async fn is_replay(tx: &mut Tx, new: &NewDelivery) -> Result<bool> {
    let since = tx.now().saturating_sub(KNOWN_FOR);
    let seen: Option<i64> = sqlx::query_scalar::<Db, _>(
        "select id from deliveries where route = $1 and body_hash = $2 and delivery_id <> $3 and state <> 'failed' \
         and received_at >= $4 limit 1",
    )
    .bind(&new.delivery.route)
    .bind(&new.body_hash)
    .bind(&new.delivery.delivery_id)
    .bind(since)
    .fetch_optional(&mut tx.conn)
    .await?;
    Ok(seen.is_some())
}

pub(in super::super) async fn known(
    conn: &mut Conn,
    now: i64,
    delivery: &DeliveryRef,
    body_hash: &str,
) -> Result<Option<DeliveryAdmission>> {
    let hash: Option<String> = sqlx::query_scalar::<Db, _>(
        "select body_hash from deliveries where route = $1 and delivery_id = $2 and state <> 'failed' \
         and (state = 'accepted' or received_at >= $3)",
    )
    .bind(&delivery.route)
    .bind(&delivery.delivery_id)
    .bind(now.saturating_sub(KNOWN_FOR))
    .fetch_optional(conn)
    .await?;
    Ok(hash.map(|hash| if hash == body_hash { DeliveryAdmission::Duplicate } else { DeliveryAdmission::Conflict }))
}

/// The present try of a delivery.
pub(super) async fn row_of(tx: &mut Tx, delivery: &DeliveryRef) -> Result<Option<i64>> {
    Ok(sqlx::query_scalar::<Db, _>("select id from deliveries where route = $1 and delivery_id = $2")
        .bind(&delivery.route)
        .bind(&delivery.delivery_id)
        .fetch_optional(&mut tx.conn)
        .await?)
}

/// `accepted → delivered`, or `failed` with why; the delivery when this settled it.
pub(super) async fn settle(tx: &mut Tx, row: i64, error: Option<&str>) -> Result<Option<DeliveryRef>> {
    let settled: Option<(String, String)> = sqlx::query_as::<Db, _>(
        "update deliveries set state = $2, error = $3 where id = $1 and state = 'accepted' returning route, delivery_id",
    )
    .bind(row)
    .bind(if error.is_some() { "failed" } else { "delivered" })
    .bind(error)
    .fetch_optional(&mut tx.conn)
    .await?;
    Ok(settled.map(|(route, delivery_id)| DeliveryRef { route, delivery_id }))
}

pub(super) async fn settle_named(
    tx: &mut Tx,
    delivery: &DeliveryRef,
    outcome: &std::result::Result<(), String>,
) -> Result<()> {
    if let Some(row) = row_of(tx, delivery).await? {
        settle(tx, row, outcome.as_ref().err().map(String::as_str)).await?;
    }
    Ok(())
}

type ListedRow = (String, String, String, String, String, Option<String>, i64);

/// Newest first.
pub(in super::super) async fn list(conn: &mut Conn, route: Option<&str>, limit: i64) -> Result<Vec<DeliveryRow>> {
    let rows: Vec<ListedRow> =
        match route {
            Some(route) => sqlx::query_as::<Db, _>(
                "select route, delivery_id, event, target, state, error, received_at from deliveries where route = $1 \
                 order by id desc limit $2",
            )
            .bind(route)
            .bind(limit)
            .fetch_all(conn)
            .await?,
            None => {
                sqlx::query_as::<Db, _>(
                    "select route, delivery_id, event, target, state, error, received_at from deliveries \
                 order by id desc limit $1",
                )
                .bind(limit)
                .fetch_all(conn)
                .await?
            }
        };
    Ok(rows
        .into_iter()
        .map(|(route, delivery_id, event, target, state, error, received_at)| DeliveryRow {
            route,
            delivery_id,
            event,
            target,
            state,
            error,
            received_at,
        })
        .collect())
}
