//! Webhook deliveries: what was seen, what it led to and how it ended. A delivery's row gets a new id when it is taken
//! again after a failure; inbox and outbox rows name the try they belong to by that id.

use std::collections::{HashMap, HashSet};

use sqlx::AssertSqlSafe;

use super::{Conn, Db, Result, Tx, driver, inbox, outbox, placeholders, runs, text};
use crate::store::{DeliveryAdmission, DeliveryRef, DeliveryRow, DeliveryWork, InboxId, NewDelivery};

/// How long a settled delivery is remembered (`spec/decisions.md` §5): seven days, in milliseconds.
pub(in super::super) const KNOWN_FOR: i64 = 7 * 24 * 60 * 60 * 1000;

/// A delivery with the message it leads to, as that is stored.
pub(in super::super) struct Offer {
    pub(in super::super) delivery: NewDelivery,
    /// For [`DeliveryWork::Turn`]: the message as JSON.
    pub(in super::super) payload: String,
}

/// Takes deliveries that came together, with one statement for many. Their answers are as if they had come one by one.
pub(in super::super) async fn accept(tx: &mut Tx, offers: &[&Offer]) -> Result<Vec<DeliveryAdmission>> {
    let mut answers = Vec::with_capacity(offers.len());
    let mut rest = offers;
    while !rest.is_empty() {
        let (together, after) = rest.split_at(independent(rest));
        answers.extend(accept_independent(tx, together).await?);
        rest = after;
    }
    Ok(answers)
}

/// How many of the first offers do not depend on each other: no two of the same id, and those that are guarded alone.
fn independent(offers: &[&Offer]) -> usize {
    let mut seen = HashSet::with_capacity(offers.len());
    let count =
        offers.iter().take_while(|offer| !offer.delivery.replay_guard && seen.insert(&offer.delivery.delivery)).count();
    count.max(1)
}

async fn accept_independent(tx: &mut Tx, offers: &[&Offer]) -> Result<Vec<DeliveryAdmission>> {
    if let [offer] = offers
        && offer.delivery.replay_guard
        && is_replay(tx, &offer.delivery).await?
    {
        // The id itself comes first: what is a duplicate stays one.
        let now = tx.now();
        let known = known(&mut tx.conn, now, &offer.delivery.delivery, &offer.delivery.body_hash).await?;
        return Ok(vec![known.unwrap_or(DeliveryAdmission::Replay)]);
    }
    let rows: Vec<(i64, &Offer)> = offers.iter().map(|offer| (tx.next_id(), *offer)).collect();
    let taken = upsert(tx, &rows).await?;
    let messages = store_messages(tx, &rows, &taken).await?;
    let mut answers = Vec::with_capacity(rows.len());
    for (row, offer) in rows {
        let new = &offer.delivery;
        if !taken.contains(&row) {
            answers.push(refuse(tx, new).await?);
            continue;
        }
        let mut stored = Vec::new();
        if let DeliveryWork::Send(replies) = &new.work {
            for reply in replies {
                stored.extend(outbox::insert(tx, reply, Some(&new.delivery), Some(row)).await?);
            }
            if stored.is_empty() && replies.iter().any(|reply| !reply.parts.is_empty()) {
                // Earlier tries said all of it: those that failed were for targets the route no longer has.
                settle(tx, row, None).await?;
            }
        }
        answers.push(DeliveryAdmission::New { inbox: messages.get(&row).copied(), outbox: stored });
    }
    Ok(answers)
}

/// Records deliveries whose ids rise; those of them that were taken. A known row changes only where the delivery may come
/// again: after a failure, or when it is forgotten.
async fn upsert(tx: &mut Tx, rows: &[(i64, &Offer)]) -> Result<HashSet<i64>> {
    const COLUMNS: usize = 10;
    let now = tx.now();
    let mut taken = HashSet::with_capacity(rows.len());
    for run in runs(rows) {
        let sql = format!(
            "insert into deliveries (id, route, delivery_id, body_hash, event, target, state, received_at, attempts, guarded) \
             values {} \
             on conflict (route, delivery_id) do update set id = excluded.id, body_hash = excluded.body_hash, \
             event = excluded.event, target = excluded.target, state = excluded.state, guarded = excluded.guarded, error = null, \
             received_at = excluded.received_at, attempts = deliveries.attempts + 1 \
             where (deliveries.state = 'failed' and deliveries.body_hash = excluded.body_hash) \
             or (deliveries.state <> 'accepted' and deliveries.received_at < {})",
            placeholders(run.len(), COLUMNS),
            driver::parameter(run.len() * COLUMNS + 1)
        );
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for (row, offer) in run {
            let new = &offer.delivery;
            query = query
                .bind(*row)
                .bind(text(&new.delivery.route))
                .bind(text(&new.delivery.delivery_id))
                .bind(text(&new.body_hash))
                .bind(text(&new.event))
                .bind(text(&new.target))
                .bind(first_state(&new.work))
                .bind(now)
                .bind(1_i64)
                .bind(i64::from(new.replay_guard));
        }
        let count = query.bind(now.saturating_sub(KNOWN_FOR)).execute(&mut tx.conn).await?.rows_affected();
        if count == run.len() as u64 {
            taken.extend(run.iter().map(|(row, _)| *row));
        } else if let ([(first, _), ..], [.., (last, _)]) = (run, run) {
            let ids: Vec<i64> = sqlx::query_scalar::<Db, _>("select id from deliveries where id between $1 and $2")
                .bind(first)
                .bind(last)
                .fetch_all(&mut tx.conn)
                .await?;
            taken.extend(ids);
        }
    }
    Ok(taken)
}

/// Where a delivery stands once it is recorded.
fn first_state(work: &DeliveryWork) -> &'static str {
    match work {
        DeliveryWork::Ignore => "ignored",
        DeliveryWork::Send(replies) if replies.iter().all(|reply| reply.parts.is_empty()) => "delivered",
        DeliveryWork::Turn(_) | DeliveryWork::Send(_) => "accepted",
    }
}

/// Stores the messages of the taken deliveries that lead to a turn; by the delivery's row.
async fn store_messages(tx: &mut Tx, rows: &[(i64, &Offer)], taken: &HashSet<i64>) -> Result<HashMap<i64, InboxId>> {
    let turns: Vec<_> = rows
        .iter()
        .filter(|(row, _)| taken.contains(row))
        .filter_map(|(row, offer)| match &offer.delivery.work {
            // Unique by the try's own id: this table has decided already that it is not a duplicate. The ids rise, so that
            // the keys of many lie side by side.
            DeliveryWork::Turn(turn) => Some((*row, &turn.session_key, &offer.payload, format!("webhook:{row}"))),
            DeliveryWork::Ignore | DeliveryWork::Send(_) => None,
        })
        .collect();
    let messages: Vec<inbox::NewRow<'_>> = turns
        .iter()
        .map(|(row, session_key, payload, dedup_key)| inbox::NewRow {
            id: tx.next_id(),
            dedup_key,
            session_key,
            payload,
            delivery: Some(*row),
        })
        .collect();
    inbox::insert(tx, &messages).await?;
    Ok(messages.iter().filter_map(|message| Some((message.delivery?, InboxId(message.id)))).collect())
}

/// The answer to a delivery that was not taken.
async fn refuse(tx: &mut Tx, new: &NewDelivery) -> Result<DeliveryAdmission> {
    let hash: String =
        sqlx::query_scalar::<Db, _>("select body_hash from deliveries where route = $1 and delivery_id = $2")
            .bind(text(&new.delivery.route))
            .bind(text(&new.delivery.delivery_id))
            .fetch_one(&mut tx.conn)
            .await?;
    Ok(if hash == new.body_hash { DeliveryAdmission::Duplicate } else { DeliveryAdmission::Conflict })
}

/// Whether the route has seen the body under another id that did not fail, since it guards.
async fn is_replay(tx: &mut Tx, new: &NewDelivery) -> Result<bool> {
    let since = tx.now().saturating_sub(KNOWN_FOR);
    let seen: Option<i64> = sqlx::query_scalar::<Db, _>(
        "select id from deliveries where route = $1 and body_hash = $2 and guarded = 1 and delivery_id <> $3 and state <> 'failed' \
         and received_at >= $4 limit 1",
    )
    .bind(text(&new.delivery.route))
    .bind(text(&new.body_hash))
    .bind(text(&new.delivery.delivery_id))
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
    .bind(text(&delivery.route))
    .bind(text(&delivery.delivery_id))
    .bind(now.saturating_sub(KNOWN_FOR))
    .fetch_optional(conn)
    .await?;
    Ok(hash.map(|hash| if hash == body_hash { DeliveryAdmission::Duplicate } else { DeliveryAdmission::Conflict }))
}

/// The present try of a delivery.
pub(super) async fn row_of(tx: &mut Tx, delivery: &DeliveryRef) -> Result<Option<i64>> {
    Ok(sqlx::query_scalar::<Db, _>("select id from deliveries where route = $1 and delivery_id = $2")
        .bind(text(&delivery.route))
        .bind(text(&delivery.delivery_id))
        .fetch_optional(&mut tx.conn)
        .await?)
}

/// Records how a delivery ended; the delivery when this settled it. One that failed, or of which nobody knows, may come
/// again: what may have been said is then said marked.
pub(super) async fn settle(tx: &mut Tx, row: i64, error: Option<&str>) -> Result<Option<DeliveryRef>> {
    let settled: Option<(String, String)> = sqlx::query_as::<Db, _>(
        "update deliveries set state = $2, error = $3 where id = $1 and state = 'accepted' returning route, delivery_id",
    )
    .bind(row)
    .bind(if error.is_some() { "failed" } else { "delivered" })
    .bind(error.map(text))
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
            .bind(text(route))
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
