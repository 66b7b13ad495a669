//! A damaged SQLite file: kept as it is under another name, with everything that can still be read carried over into a
//! new one. A kill at any moment leaves either the damaged file or the finished new one in place.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use futures_util::TryStreamExt as _;
use hookgate_adapters::{ChatTarget, Part, Platform};
use jiff::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _, TypeInfo as _, ValueRef as _};

use super::database::migrations;
use super::driver::{Conn, Place, check_mark, fault, integrity as verdict_on, is_no_database, store_error};
use crate::clock::Clock;
use crate::store::{Accepted, Fault, StoreError};

/// The tables in the order in which they can be filled.
const TABLES: [&str; 9] =
    ["sessions", "messages", "deliveries", "inbox", "outbox", "open_cards", "approval_rules", "spent", "marks"];
/// Rows per transaction of the new database.
const CHUNK: usize = 500;
/// A table with more unreadable places than this is given up at that point.
const MAX_GAPS: u32 = 10_000;

/// Leaves word in a home that its database must be checked at the next start, for a caller that met
/// [`StoreError::Damaged`]. The store does so by itself too.
pub fn mark_damaged(home: &Path) {
    leave_mark(&check_mark(home));
}

/// Best effort: the disk may be what is wrong.
pub(super) fn leave_mark(mark: &Path) {
    if let Err(error) = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(mark) {
        tracing::warn!(%error, "cannot leave the mark that the database must be checked at the next start");
    }
}

/// For a database that was marked: checks it, and repairs it when it is damaged. A note for people either way.
pub(super) async fn check(place: &Place, clock: &Clock) -> Result<Option<String>, StoreError> {
    match integrity(place).await {
        Ok(None) => {
            remove(place.check_mark())?;
            Ok(Some(
                "The last run met what looked like damage to the database; it was checked and is intact.".to_owned(),
            ))
        }
        Ok(Some(damage)) => repair(place, clock, &damage).await.map(Some),
        Err(error) if fault(&error) == Fault::Damaged => repair(place, clock, &error.to_string()).await.map(Some),
        Err(error) => Err(place.explain(&error)),
    }
}

/// The first thing found wrong.
async fn integrity(place: &Place) -> Result<Option<String>, sqlx::Error> {
    let mut conn = place.connect().await?;
    let verdict = verdict_on(&mut conn).await?;
    conn.close().await?;
    Ok(verdict)
}

/// Keeps the damaged file, carries over what can be read, and says so in one or two sentences.
pub(super) async fn repair(place: &Place, clock: &Clock, why: &str) -> Result<String, StoreError> {
    let name = place.path().display();
    let draft = place.sibling(place.beside(".repair"));
    for suffix in ["", "-wal", "-shm", "-journal"] {
        remove(&draft.beside(suffix))?;
    }
    let carried = salvage(place, &draft).await?;
    let kept = keep(place, clock)?;
    fs::rename(draft.path(), finished(place)).map_err(|error| cannot("finish the repair of", place.path(), &error))?;
    complete(place)?;
    tracing::warn!(database = %name, kept = %kept.display(), why, "the database was damaged and has been made anew");
    let carried = match carried {
        Some(rows) => format!("{rows} rows that could still be read were carried over into a new one"),
        None => "nothing in it could be read, so a new and empty one was made".to_owned(),
    };
    Ok(format!("The database {name} was damaged ({why}): {carried}. The damaged file is kept as {}.", kept.display()))
}

/// The name of a new database that only has to be put in place.
fn finished(place: &Place) -> PathBuf {
    place.beside(".repaired")
}

/// Puts a finished new database in place, also when a kill came between. Nothing to do otherwise.
pub(super) fn complete(place: &Place) -> Result<(), StoreError> {
    let new = finished(place);
    if !new.exists() {
        return Ok(());
    }
    // The old log must be gone before the new file has its name: it would be read as the new one's.
    remove(&place.beside("-wal"))?;
    remove(&place.beside("-shm"))?;
    let placed = fs::rename(&new, place.path()).and_then(|()| match place.path().parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    });
    placed.map_err(|error| cannot("put in place the repaired", place.path(), &error))?;
    remove(place.check_mark())
}

/// Gives the damaged file and its log a second name, `hookgate.db.damaged-<UTC time>`.
fn keep(place: &Place, clock: &Clock) -> Result<PathBuf, StoreError> {
    let at = Timestamp::from_millisecond(clock.now()).unwrap_or(Timestamp::UNIX_EPOCH).strftime("%Y%m%dT%H%M%SZ");
    let free = (0..1000).map(|n| if n == 0 { format!(".damaged-{at}") } else { format!(".damaged-{at}.{n}") });
    let kept = free.map(|suffix| place.beside(&suffix)).find(|path| !path.exists()).ok_or_else(|| {
        StoreError::Unusable(format!("too many damaged copies lie beside {}", place.path().display()))
    })?;
    let kept_place = place.sibling(kept);
    // The log's index is made anew from the log.
    for suffix in ["", "-wal"] {
        let (from, to) = (place.beside(suffix), kept_place.beside(suffix));
        let linked = match fs::hard_link(&from, &to) {
            // Some file systems have no links.
            Err(error) if error.kind() != io::ErrorKind::NotFound => fs::copy(&from, &to).map(drop),
            other => other,
        };
        match linked {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !suffix.is_empty() => {}
            other => other.map_err(|error| cannot("keep a copy of the damaged", &from, &error))?,
        }
    }
    Ok(kept_place.path().to_owned())
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot("remove", path, &error)),
        _ => Ok(()),
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("cannot {what} {}: {error}", path.display()))
}

/// Fills a new database with every row of the damaged one that can be read; `None` when none of it can.
async fn salvage(damaged: &Place, draft: &Place) -> Result<Option<u64>, StoreError> {
    let mut old = match open_damaged(damaged).await {
        Ok(conn) => Some(conn),
        Err(error) if is_no_database(&error) || fault(&error) == Fault::Damaged => None,
        Err(error) => return Err(damaged.explain(&error)),
    };
    if let Some(conn) = &mut old
        && let Ok(version) = migrations::version(conn).await
    {
        migrations::refuse_newer(damaged, version)?;
    }
    if old.is_none() && !looks_like_ours(damaged.path()) {
        return Err(StoreError::Unusable(format!(
            "{} is not a SQLite database; change storage.url or move the file away",
            damaged.path().display()
        )));
    }
    draft.prepare()?;
    let mut new = draft.connect().await.map_err(|error| store_error(&error))?;
    migrations::run(&mut new)
        .await
        .map_err(|error| StoreError::Unavailable(format!("cannot make a new database: {error}")))?;
    let mut carried = 0;
    if let Some(old) = &mut old {
        for table in TABLES {
            carried += salvage_table(old, &mut new, table).await.map_err(|error| store_error(&error))?;
        }
        recount(&mut new).await.map_err(|error| store_error(&error))?;
    }
    new.close().await.map_err(|error| store_error(&error))?;
    if let Some(old) = old {
        // Only reading: there is nothing that could fail to be kept.
        let _ = old.close().await;
    }
    Ok((carried > 0).then_some(carried))
}

/// Before anything is moved away: a name that people give to databases.
fn looks_like_ours(path: &Path) -> bool {
    path.extension().is_some_and(|ext| ["db", "sqlite", "sqlite3"].iter().any(|known| ext.eq_ignore_ascii_case(known)))
}

async fn open_damaged(place: &Place) -> Result<Conn, sqlx::Error> {
    let mut conn = place.options().read_only(true).connect().await?;
    // Lets a file be read that is shorter than its header says.
    sqlx::query("pragma writable_schema = on").execute(&mut conn).await?;
    sqlx::query("select count(*) from sqlite_master").execute(&mut conn).await?;
    Ok(conn)
}

#[derive(Debug, Clone)]
enum Value {
    Null,
    Int(i64),
    Text(String),
}

/// Columns of the new table that the old one has too.
async fn shared_columns(old: &mut Conn, new: &mut Conn, table: &str) -> Result<Vec<String>, sqlx::Error> {
    const COLUMNS: &str = "select name from pragma_table_info($1)";
    let there: HashSet<String> =
        sqlx::query_scalar(COLUMNS).bind(table).fetch_all(old).await.unwrap_or_default().into_iter().collect();
    let here: Vec<String> = sqlx::query_scalar(COLUMNS).bind(table).fetch_all(new).await?;
    Ok(here.into_iter().filter(|name| there.contains(name)).collect())
}

/// Walks the table by its row numbers and steps over what cannot be read. Errors are those of the new database.
async fn salvage_table(old: &mut Conn, new: &mut Conn, table: &str) -> Result<u64, sqlx::Error> {
    let columns = shared_columns(old, new, table).await?;
    if columns.is_empty() {
        return Ok(0);
    }
    let names = columns.join(", ");
    let places = (1..=columns.len()).map(|n| format!("${n}")).collect::<Vec<_>>().join(", ");
    // Names of tables and columns are those of our own schema.
    let select = format!("select rowid, {names} from {table} where rowid > $1 order by rowid limit {CHUNK}");
    let insert = format!("insert into {table} ({names}) values ({places}) on conflict do nothing");
    let mut carried = 0;
    let mut last = i64::MIN;
    let mut gaps = 0;
    loop {
        let (rows, broken) = read_chunk(old, &select, &mut last, columns.len()).await;
        let is_end = rows.len() < CHUNK && !broken;
        carried += insert_rows(new, table, &columns, &insert, rows).await?;
        if is_end {
            return Ok(carried);
        }
        if broken {
            gaps += 1;
            match next_readable(old, table, last).await {
                Some(next) if gaps <= MAX_GAPS => last = next,
                _ => return Ok(carried),
            }
        }
    }
}

/// Reads on from `last`; whether an unreadable place stopped it. Rows with impossible values are left out.
async fn read_chunk(old: &mut Conn, select: &str, last: &mut i64, columns: usize) -> (Vec<Vec<Value>>, bool) {
    let mut stream = sqlx::query(AssertSqlSafe(select)).bind(*last).fetch(old);
    let mut rows = Vec::new();
    loop {
        match stream.try_next().await {
            Ok(Some(row)) => {
                let Ok(rowid) = row.try_get::<i64, _>(0) else { return (rows, true) };
                if rowid <= *last {
                    return (rows, true);
                }
                *last = rowid;
                // An unusable row keeps its place, so that a full chunk is known as one.
                rows.push(values_of(&row, columns).unwrap_or_default());
            }
            Ok(None) => return (rows, false),
            Err(_) => return (rows, true),
        }
    }
}

fn values_of(row: &SqliteRow, columns: usize) -> Option<Vec<Value>> {
    (1..=columns)
        .map(|index| {
            let raw = row.try_get_raw(index).ok()?;
            if raw.is_null() {
                return Some(Value::Null);
            }
            match raw.type_info().name() {
                "INTEGER" => row.try_get_unchecked::<i64, _>(index).ok().map(Value::Int),
                // As bytes first: damaged text need not be UTF-8.
                "TEXT" => {
                    let bytes = row.try_get_unchecked::<Vec<u8>, _>(index).ok()?;
                    String::from_utf8(bytes).ok().map(Value::Text)
                }
                _ => None,
            }
        })
        .collect()
}

/// Stores what passes the schema's rules and can be understood; how many did.
async fn insert_rows(
    new: &mut Conn,
    table: &str,
    columns: &[String],
    insert: &str,
    rows: Vec<Vec<Value>>,
) -> Result<u64, sqlx::Error> {
    let mut carried = 0;
    sqlx::query("begin immediate").execute(&mut *new).await?;
    for values in rows.into_iter().filter(|values| is_sound(table, columns, values)) {
        let mut query = sqlx::query(AssertSqlSafe(insert));
        for value in values {
            query = match value {
                Value::Null => query.bind(None::<i64>),
                Value::Int(value) => query.bind(value),
                Value::Text(value) => query.bind(value),
            };
        }
        match query.execute(&mut *new).await {
            Ok(done) => carried += done.rows_affected(),
            // The row breaks a rule of the schema, so it is part of the damage.
            Err(error) if fault(&error) == Fault::Defect => {}
            Err(error) => return Err(error),
        }
    }
    sqlx::query("commit").execute(&mut *new).await?;
    Ok(carried)
}

/// Whether the store could work with the row.
fn is_sound(table: &str, columns: &[String], values: &[Value]) -> bool {
    if values.is_empty() {
        return false;
    }
    let text = |name: &str| {
        let index = columns.iter().position(|column| column == name)?;
        match values.get(index)? {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        }
    };
    match table {
        "inbox" => {
            text("payload").is_some_and(|payload| {
                (payload.is_empty() && text("state") == Some("done"))
                    || serde_json::from_str::<Accepted>(payload).is_ok()
            }) && text("effects").is_none_or(|effects| serde_json::from_str::<Vec<String>>(effects).is_ok())
        }
        "outbox" => {
            text("part").is_some_and(|part| serde_json::from_str::<Part>(part).is_ok())
                && text("platform").is_some_and(|platform| platform.parse::<Platform>().is_ok())
        }
        "open_cards" => text("target").is_some_and(|target| serde_json::from_str::<ChatTarget>(target).is_ok()),
        _ => true,
    }
}

/// The first row number after `last` from which reading works again; `None` when there is none. Looks at growing
/// distances, then narrows the last one down.
async fn next_readable(old: &mut Conn, table: &str, last: i64) -> Option<i64> {
    let probe = format!("select rowid from {table} where rowid > $1 order by rowid limit 1");
    let mut broken = 0_u64;
    let mut readable = 1_u64;
    loop {
        let from = last.checked_add_unsigned(readable)?;
        if reads_from(old, &probe, from).await {
            break;
        }
        broken = readable;
        readable = readable.checked_mul(2)?;
    }
    while readable - broken > 1 {
        let middle = broken + (readable - broken) / 2;
        match last.checked_add_unsigned(middle) {
            Some(from) if reads_from(old, &probe, from).await => readable = middle,
            _ => broken = middle,
        }
    }
    last.checked_add_unsigned(readable)
}

async fn reads_from(old: &mut Conn, probe: &str, from: i64) -> bool {
    match sqlx::query_scalar::<_, i64>(AssertSqlSafe(probe)).bind(from).fetch_optional(old).await {
        Ok(Some(rowid)) => rowid > from,
        Ok(None) => true,
        Err(_) => false,
    }
}

/// The numbers that depend on other rows.
async fn recount(new: &mut Conn) -> Result<(), sqlx::Error> {
    sqlx::query(
        "update sessions set messages = (select count(*) from messages where messages.session_id = sessions.id)",
    )
    .execute(new)
    .await?;
    Ok(())
}
