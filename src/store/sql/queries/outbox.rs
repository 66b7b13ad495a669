//! Parts of replies: `waiting → sending → sent | uncertain | dead | held`. `left_queue_at` is null for the first two.

use std::collections::HashMap;

use hookgate_adapters::{ChatTarget, Part, Platform};
use sqlx::{AssertSqlSafe, Row as _};

use super::{Conn, Db, Failure, Result, Row, Tx, deliveries, inbox, text};
use crate::session::SessionKey;
use crate::store::{
    DeliveryRef, NewReply, NextSend, OutboxId, OutboxRow, SendRecord, SentPart, UncertainSends, Unfinished,
};

/// No wait is stored for longer (no platform asks for more), so that a clock that jumped cannot silence a chat for good: one
/// day, in milliseconds.
const LONGEST_WAIT: i64 = 24 * 60 * 60 * 1000;

/// A part whose sends were cut off so often is not tried again.
const CUT_OFF_AT_MOST: i64 = 5;

/// Why a withdrawn part is given up.
const NOT_NEEDED: &str = "it is no longer needed";

/// Stores the parts of a reply, waiting; their ids. `name` and `delivery` are the delivery and the try of it that the reply
/// belongs to: what earlier tries said to this chat is not said again, and what they may have said is said marked.
pub(super) async fn insert(
    tx: &mut Tx,
    reply: &NewReply,
    name: Option<&DeliveryRef>,
    delivery: Option<i64>,
) -> Result<Vec<OutboxId>> {
    let earlier = match (name, delivery) {
        (Some(name), Some(delivery)) if !reply.parts.is_empty() => earlier_tries(tx, reply, name, delivery).await?,
        _ => Vec::new(),
    };
    if is_whole(&earlier) {
        return Ok(Vec::new());
    }
    let texts = reply.parts.iter().map(serde_json::to_string).collect::<std::result::Result<Vec<_>, _>>()?;
    // A model that is asked again answers in other words: then no part is the same, and all of it may be a repeat.
    let is_another_text = !earlier.iter().any(|earlier| texts.contains(&earlier.part));
    let now = tx.now();
    let mut stored: Vec<OutboxId> = Vec::with_capacity(reply.parts.len());
    let count = i64::try_from(reply.parts.len()).unwrap_or(i64::MAX);
    for (number, part) in (1_i64..).zip(texts) {
        let same = || earlier.iter().filter(|earlier| earlier.number == number && earlier.part == part);
        if same().any(|earlier| earlier.state == "sent") {
            continue;
        }
        let may_repeat = same().any(EarlierPart::may_have_arrived)
            || is_another_text && earlier.iter().any(EarlierPart::may_have_arrived);
        let id = tx.next_id();
        sqlx::query(
            "insert into outbox (id, reply, part_number, part_count, session_key, platform, account, chat_id, thread_id, \
             reply_to, part, state, marked, delivery, route, delivery_id, created_at) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'waiting', $12, $13, $14, $15, $16)",
        )
        .bind(id)
        .bind(stored.first().map_or(id, |first| first.0))
        .bind(number)
        .bind(count)
        .bind(reply.session_key.as_ref().map(|key| text(key.as_str())))
        .bind(reply.target.platform.as_str())
        .bind(text(&reply.target.account))
        .bind(text(&reply.target.chat_id))
        .bind(reply.target.thread_id.as_deref().map(text))
        .bind(reply.reply_to.as_deref().map(text))
        .bind(part)
        .bind(i64::from(may_repeat))
        .bind(delivery)
        .bind(name.map(|name| text(&name.route)))
        .bind(name.map(|name| text(&name.delivery_id)))
        .bind(now)
        .execute(&mut tx.conn)
        .await?;
        stored.push(OutboxId(id));
    }
    Ok(stored)
}

/// Stores the parts of a reply that does not end its message. No delivery follows it: it would be settled before the
/// answer is there, and at a retry the answer would be taken for said.
pub(in super::super) async fn send(tx: &mut Tx, reply: &NewReply) -> Result<Vec<OutboxId>> {
    insert(tx, reply, None, None).await
}

/// Nobody needs a reply any more: what waits or is held of it is `dead`, and what is being sent is not tried again.
pub(super) async fn withdraw(tx: &mut Tx, part: OutboxId) -> Result<()> {
    sqlx::query(
        "update outbox set withdrawn = 1, state = 'dead', error = $2, left_queue_at = $3 \
         where reply = (select reply from outbox where id = $1) and state in ('waiting', 'held')",
    )
    .bind(part.0)
    .bind(NOT_NEEDED)
    .bind(tx.now())
    .execute(&mut tx.conn)
    .await?;
    sqlx::query(
        "update outbox set withdrawn = 1 where reply = (select reply from outbox where id = $1) and state = 'sending'",
    )
    .bind(part.0)
    .execute(&mut tx.conn)
    .await?;
    Ok(())
}

/// A part of an earlier try of a delivery.
struct EarlierPart {
    reply: i64,
    number: i64,
    part: String,
    state: String,
    marked: i64,
}

impl EarlierPart {
    fn may_have_arrived(&self) -> bool {
        self.state == "uncertain" || self.marked != 0
    }
}

/// What earlier tries of a delivery had for the chat of this reply. A delivery that is so old that it is forgotten is
/// another one.
async fn earlier_tries(tx: &mut Tx, reply: &NewReply, name: &DeliveryRef, delivery: i64) -> Result<Vec<EarlierPart>> {
    let rows: Vec<(i64, i64, String, String, i64)> = sqlx::query_as::<Db, _>(
        "select reply, part_number, part, state, marked from outbox \
         where route = $1 and delivery_id = $2 and (delivery is null or delivery <> $3) \
         and platform = $4 and account = $5 and chat_id = $6 and coalesce(thread_id, '') = $7 and created_at >= $8 \
         order by reply, id",
    )
    .bind(text(&name.route))
    .bind(text(&name.delivery_id))
    .bind(delivery)
    .bind(reply.target.platform.as_str())
    .bind(text(&reply.target.account))
    .bind(text(&reply.target.chat_id))
    .bind(text(reply.target.thread_id.as_deref().unwrap_or_default()))
    .bind(tx.now().saturating_sub(deliveries::KNOWN_FOR))
    .fetch_all(&mut tx.conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(reply, number, part, state, marked)| EarlierPart { reply, number, part, state, marked })
        .collect())
}

/// Whether one of the tries said its reply as a whole: the delivery comes again because another of its targets failed.
fn is_whole(earlier: &[EarlierPart]) -> bool {
    earlier.chunk_by(|a, b| a.reply == b.reply).any(|reply| reply.iter().all(|part| part.state == "sent"))
}

/// Claims the oldest open part of the chat that is due, unless one is in flight. A wait further ahead than any that is
/// stored is no wait: the clock went back since.
const CLAIM: &str = "update outbox set state = 'sending', attempts = attempts + 1, \
     first_attempt_at = coalesce(first_attempt_at, $4) \
     where id = (select id from outbox where platform = $1 and account = $2 and chat_id = $3 and left_queue_at is null \
     order by id limit 1) \
     and (not_before <= $4 or not_before > $5) and (marked = 0 or $6 = 1) \
     and not exists (select 1 from outbox where platform = $1 and account = $2 and chat_id = $3 and state = 'sending') \
     returning id, reply, part_number, part_count, session_key, thread_id, reply_to, part, attempts, marked, route, \
     delivery_id, created_at, first_attempt_at";

async fn claim(tx: &mut Tx, target: &ChatTarget, now: i64, repeats: bool) -> Result<Option<Row>> {
    Ok(sqlx::query(CLAIM)
        .bind(target.platform.as_str())
        .bind(text(&target.account))
        .bind(text(&target.chat_id))
        .bind(now)
        .bind(now.saturating_add(LONGEST_WAIT))
        .bind(i64::from(repeats))
        .fetch_optional(&mut tx.conn)
        .await?)
}

/// `repeats`: whether a part that may have been said already is claimed, too.
pub(in super::super) async fn next_send(tx: &mut Tx, target: &ChatTarget, repeats: bool) -> Result<NextSend> {
    let now = tx.now();
    while let Some(row) = claim(tx, target, now, repeats).await? {
        match part_of(&row, target) {
            Ok(part) => return Ok(NextSend::Part(Box::new(part))),
            // One part that cannot be read must not silence its chat for good.
            Err(Failure::Defect(error)) => {
                let id = OutboxId(row.try_get("id")?);
                tracing::error!(platform = %target.platform, chat_id = %target.chat_id, %error, "A stored reply cannot be read; it is given up.");
                record_send(tx, &(id, SendRecord::Dead("the stored reply cannot be read".to_owned()))).await?;
            }
            Err(other) => return Err(other),
        }
    }
    let oldest: Option<(String, i64, i64)> = sqlx::query_as::<Db, _>(
        "select state, not_before, marked from outbox \
         where platform = $1 and account = $2 and chat_id = $3 and left_queue_at is null order by id limit 1",
    )
    .bind(target.platform.as_str())
    .bind(text(&target.account))
    .bind(text(&target.chat_id))
    .fetch_optional(&mut tx.conn)
    .await?;
    Ok(match oldest {
        Some((state, not_before, _)) if state == "waiting" && not_before > now => NextSend::NotBefore(not_before),
        Some((state, _, marked)) if state == "waiting" && marked != 0 && !repeats => NextSend::Repeat,
        _ => NextSend::Nothing,
    })
}

/// A part as it is while the attempt runs that just claimed it.
fn part_of(row: &Row, target: &ChatTarget) -> Result<OutboxRow> {
    let number: i64 = row.try_get("part_number")?;
    let count: i64 = row.try_get("part_count")?;
    let attempts: i64 = row.try_get("attempts")?;
    let route: Option<String> = row.try_get("route")?;
    let delivery_id: Option<String> = row.try_get("delivery_id")?;
    let reply_to: Option<String> = row.try_get("reply_to")?;
    let first_attempt_at: Option<i64> = row.try_get("first_attempt_at")?;
    Ok(OutboxRow {
        id: OutboxId(row.try_get("id")?),
        reply: OutboxId(row.try_get("reply")?),
        target: ChatTarget { thread_id: row.try_get("thread_id")?, ..target.clone() },
        reply_to,
        part: serde_json::from_str(row.try_get("part")?)?,
        attempts,
        marked: row.try_get::<i64, _>("marked")? != 0,
        delivery: route.zip(delivery_id).map(|(route, delivery_id)| DeliveryRef { route, delivery_id }),
        created_at: row.try_get("created_at")?,
        // This attempt's own time is none before it.
        first_attempt_at: first_attempt_at.filter(|_| attempts > 1),
        number: u32::try_from(number).unwrap_or(1),
        of: u32::try_from(count).unwrap_or(u32::MAX),
        session_key: row.try_get::<Option<String>, _>("session_key")?.map(SessionKey),
    })
}

/// What the follow-up of an attempt needs to know of the part.
struct Attempted {
    id: i64,
    reply: i64,
    delivery: Option<i64>,
    withdrawn: bool,
}

/// What an attempt at a part with a delivery settled.
type Settled = Option<(DeliveryRef, std::result::Result<(), String>)>;

pub(in super::super) async fn record_send(tx: &mut Tx, (id, record): &(OutboxId, SendRecord)) -> Result<Settled> {
    let part = match record {
        SendRecord::Sent(platform_id) => sent(tx, *id, platform_id).await?,
        _ => in_flight_part(tx, *id).await?,
    };
    let Some(part) = part else { return Ok(None) };
    match record {
        SendRecord::Sent(_) => {}
        _ if part.withdrawn => leave(tx, part.id, "dead", NOT_NEEDED).await?,
        SendRecord::Again { not_before, error } => wait(tx, part.id, *not_before, error, false).await?,
        SendRecord::AgainMarked { not_before, error } => wait(tx, part.id, *not_before, error, true).await?,
        SendRecord::Uncertain(error) => leave(tx, part.id, "uncertain", error).await?,
        SendRecord::Held(error) => hold(tx, &part, error).await?,
        SendRecord::Dead(error) => {
            leave(tx, part.id, "dead", error).await?;
            leave_later(tx, &part, "dead", "an earlier part of the reply could not be sent").await?;
        }
    }
    follow(tx, &part).await
}

/// `sending → sent`, in one statement, since it is what happens to nearly every part.
async fn sent(tx: &mut Tx, id: OutboxId, platform_id: &str) -> Result<Option<Attempted>> {
    let now = tx.now();
    let found: Option<(i64, Option<i64>)> = sqlx::query_as::<Db, _>(
        "update outbox set state = 'sent', platform_id = $2, error = null, left_queue_at = $3 \
         where id = $1 and state = 'sending' returning reply, delivery",
    )
    .bind(id.0)
    .bind(text(platform_id))
    .bind(now)
    .fetch_optional(&mut tx.conn)
    .await?;
    Ok(found.map(|(reply, delivery)| Attempted { id: id.0, reply, delivery, withdrawn: false }))
}

async fn in_flight_part(tx: &mut Tx, id: OutboxId) -> Result<Option<Attempted>> {
    let found: Option<(i64, Option<i64>, i64)> =
        sqlx::query_as::<Db, _>("select reply, delivery, withdrawn from outbox where id = $1 and state = 'sending'")
            .bind(id.0)
            .fetch_optional(&mut tx.conn)
            .await?;
    Ok(found.map(|(reply, delivery, withdrawn)| Attempted { id: id.0, reply, delivery, withdrawn: withdrawn != 0 }))
}

async fn wait(tx: &mut Tx, id: i64, not_before: i64, error: &str, mark: bool) -> Result<()> {
    let latest = tx.now().saturating_add(LONGEST_WAIT);
    sqlx::query(
        "update outbox set state = 'waiting', not_before = $2, error = $3, \
         marked = case when $4 = 1 then 1 else marked end where id = $1",
    )
    .bind(id)
    .bind(not_before.min(latest))
    .bind(text(error))
    .bind(i64::from(mark))
    .execute(&mut tx.conn)
    .await?;
    Ok(())
}

async fn leave(tx: &mut Tx, id: i64, state: &str, error: &str) -> Result<()> {
    sqlx::query("update outbox set state = $2, error = $3, left_queue_at = $4 where id = $1")
        .bind(id)
        .bind(state)
        .bind(text(error))
        .bind(tx.now())
        .execute(&mut tx.conn)
        .await?;
    Ok(())
}

async fn leave_later(tx: &mut Tx, part: &Attempted, state: &str, error: &str) -> Result<()> {
    sqlx::query(
        "update outbox set state = $3, error = $4, left_queue_at = $5 where reply = $1 and id > $2 and state = 'waiting'",
    )
    .bind(part.reply)
    .bind(part.id)
    .bind(state)
    .bind(text(error))
    .bind(tx.now())
    .execute(&mut tx.conn)
    .await?;
    Ok(())
}

/// Holds a part that may have arrived, and with it what would follow it.
async fn hold(tx: &mut Tx, part: &Attempted, error: &str) -> Result<()> {
    leave(tx, part.id, "held", error).await?;
    sqlx::query("update outbox set marked = 1 where id = $1").bind(part.id).execute(&mut tx.conn).await?;
    leave_later(tx, part, "held", "an earlier part of the reply is held").await
}

/// Settles the delivery when none of its parts is open any more.
async fn follow(tx: &mut Tx, part: &Attempted) -> Result<Settled> {
    let Some(delivery) = part.delivery else { return Ok(None) };
    let open: i64 =
        sqlx::query_scalar::<Db, _>("select count(*) from outbox where delivery = $1 and left_queue_at is null")
            .bind(delivery)
            .fetch_one(&mut tx.conn)
            .await?;
    if open > 0 {
        return Ok(None);
    }
    let worst: Option<(String, Option<String>)> = sqlx::query_as::<Db, _>(
        "select state, error from outbox where delivery = $1 and state in ('dead', 'held', 'uncertain') order by state, id limit 1",
    )
    .bind(delivery)
    .fetch_optional(&mut tx.conn)
    .await?;
    let error = worst.map(|(state, error)| match (state.as_str(), error.unwrap_or_default()) {
        ("dead", error) => error,
        ("held", error) => format!("it may or may not have arrived, and is held: {error}"),
        (_, error) => format!("it may or may not have arrived: {error}"),
    });
    let settled = deliveries::settle(tx, delivery, error.as_deref()).await?;
    Ok(settled.map(|delivery| (delivery, error.map_or(Ok(()), Err))))
}

/// The newest parts that were sent to a chat, oldest first.
pub(in super::super) async fn sent_to(conn: &mut Conn, target: &ChatTarget, limit: i64) -> Result<Vec<SentPart>> {
    let newest: Vec<(i64, String, Option<String>, i64)> = sqlx::query_as::<Db, _>(
        "select id, part, reply_to, created_at from outbox \
         where platform = $1 and account = $2 and chat_id = $3 and state = 'sent' order by id desc limit $4",
    )
    .bind(target.platform.as_str())
    .bind(text(&target.account))
    .bind(text(&target.chat_id))
    .bind(limit)
    .fetch_all(conn)
    .await?;
    newest
        .into_iter()
        .rev()
        .map(|(id, part, reply_to, at)| {
            let part: Part = serde_json::from_str(&part)?;
            Ok(SentPart { id: OutboxId(id), text: part.plain, buttons: part.buttons, reply_to, at })
        })
        .collect()
}

/// The platform's id of a part that was sent.
pub(in super::super) async fn sent_id(conn: &mut Conn, id: OutboxId) -> Result<Option<String>> {
    let found: Option<Option<String>> =
        sqlx::query_scalar::<Db, _>("select platform_id from outbox where id = $1 and state = 'sent'")
            .bind(id.0)
            .fetch_optional(conn)
            .await?;
    Ok(found.flatten())
}

/// How many replies to a message of a chat are on their way or were sent.
pub(in super::super) async fn replies_to(conn: &mut Conn, target: &ChatTarget, message_id: &str) -> Result<i64> {
    let count = |condition: &str| {
        format!(
            "select count(distinct reply) from outbox where platform = $1 and account = $2 and chat_id = $3 \
             and reply_to = $4 and {condition}"
        )
    };
    let mut replies = 0;
    // Two questions, so that each finds its index.
    for condition in ["left_queue_at is null", "state = 'sent'"] {
        replies += sqlx::query_scalar::<Db, i64>(AssertSqlSafe(count(condition)))
            .bind(target.platform.as_str())
            .bind(text(&target.account))
            .bind(text(&target.chat_id))
            .bind(text(message_id))
            .fetch_one(&mut *conn)
            .await?;
    }
    Ok(replies)
}

/// The parts whose sends were cut off, with their chats.
pub(in super::super) async fn in_flight(conn: &mut Conn) -> Result<Vec<(OutboxId, ChatTarget)>> {
    let rows: Vec<(i64, String, String, String, Option<String>)> = sqlx::query_as::<Db, _>(
        "select id, platform, account, chat_id, thread_id from outbox where state = 'sending' order by id",
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|(id, platform, account, chat_id, thread_id)| {
            Ok((OutboxId(id), ChatTarget { platform: platform_of(&platform)?, account, chat_id, thread_id }))
        })
        .collect()
}

/// How [`recover`] treats sends that were cut off.
pub(in super::super) struct Recovery {
    pub(in super::super) policy: UncertainSends,
    /// How many milliseconds after the first attempt a repeat of this part needs no mark.
    pub(in super::super) repeat_is_safe_ms: HashMap<OutboxId, i64>,
}

/// Id, reply, delivery, how often it was cut off before, whether it is marked, first attempt.
type CutOffRow = (i64, i64, Option<i64>, i64, i64, Option<i64>);

pub(in super::super) async fn recover(tx: &mut Tx, recovery: &Recovery) -> Result<Unfinished> {
    let inbox = inbox::recover(tx).await?;
    let now = tx.now();
    sqlx::query(
        "update outbox set state = 'dead', error = $1, left_queue_at = $2 where state = 'sending' and withdrawn = 1",
    )
    .bind(NOT_NEEDED)
    .bind(now)
    .execute(&mut tx.conn)
    .await?;
    let cut_off: Vec<CutOffRow> = sqlx::query_as::<Db, _>(
        "select id, reply, delivery, cut_off, marked, first_attempt_at from outbox where state = 'sending' order by id",
    )
    .fetch_all(&mut tx.conn)
    .await?;
    let mut uncertain = 0;
    sqlx::query("update outbox set cut_off = cut_off + 1 where state = 'sending'").execute(&mut tx.conn).await?;
    for (id, reply, delivery, before, marked, first_attempt_at) in cut_off {
        let part = Attempted { id, reply, delivery, withdrawn: false };
        let safe_ms = recovery.repeat_is_safe_ms.get(&OutboxId(id)).copied().unwrap_or(0);
        // A first attempt in the future tells nothing of its age.
        let is_safe = first_attempt_at.is_some_and(|first| first <= now && now - first < safe_ms);
        const CUT_OFF: &str = "the gateway stopped while it was being sent";
        uncertain += 1;
        if is_safe {
            wait(tx, id, now, CUT_OFF, false).await?;
        } else if recovery.policy == UncertainSends::Hold {
            hold(tx, &part, CUT_OFF).await?;
            follow(tx, &part).await?;
        } else if marked != 0 && before + 1 >= CUT_OFF_AT_MOST {
            leave(tx, id, "uncertain", CUT_OFF).await?;
            follow(tx, &part).await?;
        } else {
            wait(tx, id, now, CUT_OFF, true).await?;
        }
    }
    let targets: Vec<(String, String, String)> = sqlx::query_as::<Db, _>(
        "select platform, account, chat_id from outbox where left_queue_at is null group by platform, account, chat_id \
         order by min(id)",
    )
    .fetch_all(&mut tx.conn)
    .await?;
    let targets = targets
        .into_iter()
        .map(|(platform, account, chat_id)| {
            Ok(ChatTarget { platform: platform_of(&platform)?, account, chat_id, thread_id: None })
        })
        .collect::<Result<_>>()?;
    Ok(Unfinished { inbox, targets, uncertain })
}

fn platform_of(name: &str) -> Result<Platform> {
    name.parse().map_err(Failure::Defect)
}
