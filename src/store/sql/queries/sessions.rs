//! Sessions and what they remember. A key has at most one session that is not ended: the current one.

use futures_util::TryStreamExt as _;
use hookgate_adapters::{ChatMoved, ChatType};
use jiff::Timestamp;
use sqlx::AssertSqlSafe;

use super::{Conn, Db, Failure, Result, Tx, placeholders, runs, text};
use crate::session::{Remembered, Role, Session, SessionKey, TurnStatus};
use crate::store::{Accepted, NewMessage, Said};

/// A new id is tried this often before a defect is suspected: two of one second are alike once in 2³² times.
const ID_TRIES: usize = 16;

macro_rules! select_session {
    ($rest:literal) => {
        concat!(
            "select id, session_key, platform, chat_id, user_id, name, started_at, updated_at, ended_at, end_reason, \
             messages from sessions ",
            $rest
        )
    };
}

type Row = (String, String, String, String, Option<String>, Option<String>, i64, i64, Option<i64>, Option<String>, i64);

fn session_of(row: Row) -> Session {
    let (id, key, platform, chat_id, user_id, name, started_at, updated_at, ended_at, end_reason, messages) = row;
    Session {
        id,
        key: SessionKey(key),
        platform,
        chat_id,
        user_id,
        name,
        started_at,
        updated_at,
        ended_at,
        end_reason,
        messages,
    }
}

pub(in super::super) async fn current(conn: &mut Conn, key: &str) -> Result<Option<Session>> {
    let row: Option<Row> = sqlx::query_as::<Db, _>(select_session!("where session_key = $1 and ended_at is null"))
        .bind(text(key))
        .fetch_optional(conn)
        .await?;
    Ok(row.map(session_of))
}

async fn by_id(conn: &mut Conn, id: &str) -> Result<Option<Session>> {
    let row: Option<Row> =
        sqlx::query_as::<Db, _>(select_session!("where id = $1")).bind(text(id)).fetch_optional(conn).await?;
    Ok(row.map(session_of))
}

async fn last_of(conn: &mut Conn, key: &str) -> Result<Option<Session>> {
    let row: Option<Row> =
        sqlx::query_as::<Db, _>(select_session!("where session_key = $1 order by started_at desc, id desc limit 1"))
            .bind(text(key))
            .fetch_optional(conn)
            .await?;
    Ok(row.map(session_of))
}

pub(in super::super) async fn find(conn: &mut Conn, id_or_key: &str) -> Result<Option<Session>> {
    if let Some(session) = by_id(&mut *conn, id_or_key).await? {
        return Ok(Some(session));
    }
    if let Some(session) = current(&mut *conn, id_or_key).await? {
        return Ok(Some(session));
    }
    last_of(conn, id_or_key).await
}

pub(in super::super) async fn list(conn: &mut Conn, limit: i64) -> Result<Vec<Session>> {
    let rows: Vec<Row> = sqlx::query_as::<Db, _>(select_session!("order by updated_at desc, id desc limit $1"))
        .bind(limit)
        .fetch_all(conn)
        .await?;
    Ok(rows.into_iter().map(session_of).collect())
}

/// Gives the sessions of a chat the key and the chat they go on under.
pub(in super::super) async fn move_chat(tx: &mut Tx, moved: &ChatMoved) -> Result<u64> {
    let rows: Vec<Row> = sqlx::query_as::<Db, _>(select_session!("where platform = $1 and chat_id = $2"))
        .bind(moved.platform.as_str())
        .bind(text(&moved.from))
        .fetch_all(&mut tx.conn)
        .await?;
    let mut count = 0;
    for session in rows.into_iter().map(session_of) {
        let Some(key) = session.key.moved(&moved.from, &moved.to) else { continue };
        if session.ended_at.is_none() && current(&mut tx.conn, key.as_str()).await?.is_some() {
            continue;
        }
        sqlx::query("update sessions set session_key = $2, chat_id = $3 where id = $1")
            .bind(&session.id)
            .bind(text(key.as_str()))
            .bind(text(&moved.to))
            .execute(&mut tx.conn)
            .await?;
        count += 1;
    }
    Ok(count)
}

/// What a new session knows of its first message.
pub(in super::super) struct Opening {
    key: SessionKey,
    platform: &'static str,
    chat_id: String,
    user_id: Option<String>,
    name: Option<String>,
}

impl Opening {
    pub(in super::super) fn of(key: &SessionKey, accepted: &Accepted) -> Self {
        let source = &accepted.message.source;
        let (chat, user) = (source.chat_name.clone(), source.user_name.clone());
        Self {
            key: key.clone(),
            platform: source.platform.as_str(),
            chat_id: source.chat_id.clone(),
            user_id: source.user_id.clone(),
            name: if source.chat_type == ChatType::Dm { user.or(chat) } else { chat.or(user) },
        }
    }
}

/// The current session, or a new one (true).
pub(in super::super) async fn open(tx: &mut Tx, opening: &Opening) -> Result<(Session, bool)> {
    for _ in 0..ID_TRIES {
        if let Some(session) = current(&mut tx.conn, opening.key.as_str()).await? {
            return Ok((session, false));
        }
        let now = tx.now();
        let session = Session {
            id: new_id(now),
            key: opening.key.clone(),
            platform: opening.platform.to_owned(),
            chat_id: opening.chat_id.clone(),
            user_id: opening.user_id.clone(),
            name: opening.name.clone(),
            started_at: now,
            updated_at: now,
            ended_at: None,
            end_reason: None,
            messages: 0,
        };
        let made = sqlx::query(
            "insert into sessions (id, session_key, platform, chat_id, user_id, name, started_at, updated_at) \
             values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict do nothing",
        )
        .bind(&session.id)
        .bind(text(session.key.as_str()))
        .bind(&session.platform)
        .bind(text(&session.chat_id))
        .bind(session.user_id.as_deref().map(text))
        .bind(session.name.as_deref().map(text))
        .bind(session.started_at)
        .bind(session.updated_at)
        .execute(&mut tx.conn)
        .await?;
        if made.rows_affected() > 0 {
            return Ok((session, true));
        }
    }
    Err(Failure::Defect(format!("no free session id after {ID_TRIES} tries")))
}

/// `20261130_190813_0a1b2c3d`, UTC.
fn new_id(now: i64) -> String {
    let at = Timestamp::from_millisecond(now).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{}_{:08x}", at.strftime("%Y%m%d_%H%M%S"), rand::random::<u32>())
}

/// Adds messages. A session that retention has deleted meanwhile remembers nothing.
pub(super) async fn remember(tx: &mut Tx, session_id: &str, messages: &[NewMessage]) -> Result<()> {
    let now = tx.now();
    let found = sqlx::query("update sessions set updated_at = $2, messages = messages + $3 where id = $1")
        .bind(text(session_id))
        .bind(now)
        .bind(i64::try_from(messages.len()).unwrap_or(i64::MAX))
        .execute(&mut tx.conn)
        .await?;
    if found.rows_affected() == 0 {
        return Ok(());
    }
    for run in runs(messages) {
        let sql = format!(
            "insert into messages (id, session_id, role, text, status, at) values {}",
            placeholders(run.len(), 6)
        );
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for message in run {
            query = query
                .bind(tx.next_id())
                .bind(text(session_id))
                .bind(message.role.as_str())
                .bind(text(&message.text))
                .bind(message.status.as_str())
                .bind(now);
        }
        query.execute(&mut tx.conn).await?;
    }
    Ok(())
}

/// Ends a session that is current, named by its id or its key.
pub(in super::super) async fn end(tx: &mut Tx, id_or_key: &str, reason: &str) -> Result<Option<Session>> {
    let ended: Option<String> = sqlx::query_scalar::<Db, _>(
        "update sessions set ended_at = $2, end_reason = $3 where (id = $1 or session_key = $1) and ended_at is null \
         returning id",
    )
    .bind(text(id_or_key))
    .bind(tx.now())
    .bind(reason)
    .fetch_optional(&mut tx.conn)
    .await?;
    match ended {
        Some(id) => by_id(&mut tx.conn, &id).await,
        None => Ok(None),
    }
}

/// Ends sessions that rested, at most so many at once.
pub(in super::super) async fn end_before(tx: &mut Tx, before: i64, reason: &str) -> Result<Vec<Session>> {
    let resting: Vec<Row> = sqlx::query_as::<Db, _>(select_session!(
        "where ended_at is null and updated_at < $1 and not exists (select 1 from inbox \
         where inbox.session_key = sessions.session_key and inbox.done_at is null) order by updated_at limit 100"
    ))
    .bind(before)
    .fetch_all(&mut tx.conn)
    .await?;
    let mut ended = Vec::with_capacity(resting.len());
    for session in resting.into_iter().map(session_of) {
        ended.extend(end(tx, &session.id, reason).await?);
    }
    Ok(ended)
}

/// The newest messages, oldest first, within both limits. Whole messages only, and none left out in between.
pub(in super::super) async fn history(
    conn: &mut Conn,
    session_id: &str,
    messages: u32,
    chars: usize,
) -> Result<Vec<Remembered>> {
    let mut newest = sqlx::query_as::<Db, (String, String, String, i64)>(
        "select role, text, status, at from messages where session_id = $1 order by id desc limit $2",
    )
    .bind(text(session_id))
    .bind(i64::from(messages))
    .fetch(conn);
    let mut left = chars;
    let mut history = Vec::new();
    while let Some((role, text, status, at)) = newest.try_next().await? {
        let Some(rest) = left.checked_sub(text.chars().count()) else { break };
        left = rest;
        history.push(Remembered { role: role_of(&role)?, text, status: status_of(&status)?, at });
    }
    history.reverse();
    Ok(history)
}

/// The newest things a person said under a key, oldest first.
pub(in super::super) async fn said_in(conn: &mut Conn, key: &str, limit: i64) -> Result<Vec<Said>> {
    let newest: Vec<(i64, String, i64)> = sqlx::query_as::<Db, _>(
        "select m.id, m.text, m.at from messages m join sessions s on s.id = m.session_id \
         where s.session_key = $1 and m.role = 'user' order by m.id desc limit $2",
    )
    .bind(text(key))
    .bind(limit)
    .fetch_all(conn)
    .await?;
    Ok(newest.into_iter().rev().map(|(id, said, at)| Said { id, text: said, at }).collect())
}

fn role_of(name: &str) -> Result<Role> {
    [Role::User, Role::Assistant]
        .into_iter()
        .find(|role| role.as_str() == name)
        .ok_or_else(|| Failure::Defect(format!("unknown role {name:?} of a message")))
}

fn status_of(name: &str) -> Result<TurnStatus> {
    [TurnStatus::Completed, TurnStatus::Failed, TurnStatus::Interrupted]
        .into_iter()
        .find(|status| status.as_str() == name)
        .ok_or_else(|| Failure::Defect(format!("unknown status {name:?} of a message")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_tell_their_start_in_utc() {
        let id = new_id(1_796_065_693_999);
        let (start, random) = id.split_at(16);
        assert_eq!(start, "20261130_190813_");
        assert!(random.len() == 8 && random.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert!(new_id(i64::MAX).starts_with("19700101_000000_"));
    }
}
