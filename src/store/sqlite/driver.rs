//! What is special about SQLite: where the file lies, how it is opened, what its errors mean, how it gives space back.
//! `../sql` is written against the names exported here (`Db`, `Conn`, `Pool`, …), which `../postgres/driver.rs` has too.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteRow, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Sqlite};

use super::repair::leave_mark;
use crate::store::{Failure, Fault, StoreError};

/// The database of this driver.
pub(super) type Db = Sqlite;
/// One connection.
pub(super) type Conn = SqliteConnection;
/// A row of a result.
pub(super) type Row = SqliteRow;
/// The reading connections.
pub(super) type Pool = SqlitePool;

/// How long one statement waits for another process; the writer tries again after that.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
const READERS: u32 = 4;
/// Pages in the write-ahead log before they are moved into the file: 8 MiB.
const CHECKPOINT_PAGES: &str = "2000";
/// The log is cut to this size once its pages have been moved.
const LOG_BYTES: &str = "67108864";
/// 16 MiB.
const WRITER_CACHE: &str = "-16384";

/// Whether finished rows are deleted early when the database is too large.
pub(super) const DELETES_FOR_SIZE: bool = true;

/// Where a database lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    path: PathBuf,
    /// What is left for the next start to check.
    check_mark: PathBuf,
}

impl Place {
    /// The file a path of `storage.url` names, relative to the home.
    pub(super) fn of(path: &str, home: &Path) -> Result<Self, StoreError> {
        let unusable = |text: String| Err(StoreError::Unusable(text));
        match std::path::absolute(home.join(path)) {
            // The driver takes paths as text.
            Ok(path) if path.to_str().is_some() => Ok(Self { path, check_mark: check_mark(home) }),
            Ok(path) => unusable(format!("the path of the database, {}, is not UTF-8", path.display())),
            Err(error) => unusable(format!("storage.url {path:?} does not name a usable path: {error}")),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What people call it.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }

    /// Another file of the same home.
    pub(super) fn sibling(&self, path: PathBuf) -> Self {
        Self { path, check_mark: self.check_mark.clone() }
    }

    /// The path with something appended: `hookgate.db` → `hookgate.db-wal`.
    pub(super) fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = OsString::from(&self.path);
        path.push(suffix);
        path.into()
    }

    /// The file that tells the next start to check the database.
    pub(super) fn check_mark(&self) -> &Path {
        &self.check_mark
    }

    pub(super) fn exists(&self) -> bool {
        self.path.exists()
    }

    /// The file's identity, to notice that it was deleted or replaced under a running gateway.
    pub(super) async fn identity(&self) -> Option<(u64, u64)> {
        tokio::fs::metadata(&self.path).await.ok().map(|file| (file.dev(), file.ino()))
    }

    /// Leaves word for the next start that the database is damaged.
    pub(super) fn note_damage(&self) {
        leave_mark(&self.check_mark);
    }

    /// Makes sure that there is a file that may be read and written, made with mode 0600.
    pub(super) fn prepare(&self) -> Result<(), StoreError> {
        match fs::metadata(&self.path) {
            Ok(found) if !found.is_file() => {
                return Err(StoreError::Unusable(format!(
                    "{} is not a file, so it cannot be the database; change storage.url or move it away",
                    self.path.display()
                )));
            }
            _ => {}
        }
        fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)
            .map(drop)
            .map_err(|error| self.refused(&error))
    }

    /// The sentence for a file that cannot be opened.
    fn refused(&self, error: &io::Error) -> StoreError {
        let path = self.path.display();
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StoreError::Unavailable(format!("cannot create {path}: {error}"))
            }
            io::ErrorKind::ReadOnlyFilesystem => StoreError::Unusable(format!(
                "{path} is on a read-only file system; hookgate must write its database there: mount it writable or \
                 choose another home"
            )),
            io::ErrorKind::PermissionDenied => {
                let what = if self.path.exists() { self.path.as_path() } else { directory };
                StoreError::Unusable(no_permission("write", what))
            }
            io::ErrorKind::NotFound => StoreError::Unusable(format!(
                "the directory {} does not exist; create it or change storage.url",
                directory.display()
            )),
            _ => StoreError::Unusable(format!("cannot open the database {path}: {error}")),
        }
    }

    /// Explains why opening for writing failed when it is something a person must change; everything else by [`fault`].
    pub(super) fn explain(&self, error: &sqlx::Error) -> StoreError {
        if cannot_open(error) {
            // The log and its index are made beside the file.
            return StoreError::Unusable(no_permission("write", self.path.parent().unwrap_or(Path::new("/"))));
        }
        store_error(error)
    }

    /// The same for reading.
    pub(super) fn explain_reading(&self, error: &sqlx::Error) -> StoreError {
        if cannot_open(error) { StoreError::Unusable(no_permission("read", &self.path)) } else { store_error(error) }
    }

    pub(super) fn options(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new()
            .filename(&self.path)
            .busy_timeout(BUSY_TIMEOUT)
            .pragma("temp_store", "memory")
            .disable_statement_logging()
    }

    /// From now on this process owns the database: the home's lock sees to that.
    #[expect(clippy::unused_async, reason = "on Postgres it is a statement")]
    pub(super) async fn own(&self, _: &mut Conn, _: i64) -> Result<(), sqlx::Error> {
        Ok(())
    }

    /// Opens the one connection that writes.
    pub(super) async fn connect_writer(&self) -> Result<Conn, Failure> {
        Ok(self.connect().await?)
    }

    /// A connection that writes. Every commit is on disk when it returns (WAL with synchronous=FULL).
    pub(super) async fn connect(&self) -> Result<Conn, sqlx::Error> {
        self.options()
            .foreign_keys(true)
            .auto_vacuum(SqliteAutoVacuum::Incremental)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
            .pragma("journal_size_limit", LOG_BYTES)
            .pragma("cache_size", WRITER_CACHE)
            .connect()
            .await
    }

    /// Opens the connections that only read; they are made when they are needed.
    pub(super) fn readers(&self) -> Pool {
        self.lazy_readers(self.options())
    }

    /// The same on the file as it stands, for places where no log can be made beside it.
    pub(super) fn settled_readers(&self) -> Pool {
        self.lazy_readers(self.options().immutable(true))
    }

    fn lazy_readers(&self, options: SqliteConnectOptions) -> Pool {
        SqlitePoolOptions::new()
            .max_connections(READERS)
            .test_before_acquire(false)
            .acquire_timeout(Duration::from_secs(15))
            .idle_timeout(Duration::from_secs(60))
            .max_lifetime(None)
            .connect_lazy_with(options.read_only(true))
    }

    /// Whether everything that was committed is in the file itself.
    pub(super) fn has_no_log(&self) -> bool {
        fs::metadata(self.beside("-wal")).map_or(true, |log| log.len() == 0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// Where a run that met damage leaves word for the next.
pub(super) fn check_mark(home: &Path) -> PathBuf {
    home.join("hookgate.db.check")
}

const PERM: i32 = 3;
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const NOMEM: i32 = 7;
const READONLY: i32 = 8;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const PROTOCOL: i32 = 15;
const AUTH: i32 = 23;
const NOTADB: i32 = 26;

/// The primary result code (<https://www.sqlite.org/rescode.html>).
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?;
    code.parse::<i32>().ok().map(|code| code & 0xff)
}

/// Sorts an error by what may be done next.
pub(super) fn fault(error: &sqlx::Error) -> Fault {
    match primary_code(error) {
        Some(BUSY | LOCKED | PROTOCOL) => Fault::Busy,
        Some(FULL | IOERR | READONLY | CANTOPEN | NOMEM | PERM | AUTH) => Fault::Unavailable,
        Some(CORRUPT | NOTADB) => Fault::Damaged,
        Some(_) => Fault::Defect,
        None => match error {
            sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Tls(_) => Fault::Unavailable,
            _ => Fault::Defect,
        },
    }
}

/// Whether the file is no database at all.
pub(super) fn is_no_database(error: &sqlx::Error) -> bool {
    primary_code(error) == Some(NOTADB)
}

/// Whether the file, or what must lie beside it, cannot be made or opened.
pub(super) fn cannot_open(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(CANTOPEN | READONLY | PERM))
}

/// The error for callers of the store.
pub(super) fn store_error(error: &sqlx::Error) -> StoreError {
    let text = match error.as_database_error() {
        Some(error) => error.message().to_owned(),
        None => error.to_string(),
    };
    match fault(error) {
        Fault::Busy | Fault::Away | Fault::Unavailable => StoreError::Unavailable(text),
        Fault::Damaged => StoreError::Damaged(text),
        Fault::Defect => StoreError::Internal(text),
    }
}

/// Names who we are and whose the file is, which is what goes wrong in containers.
fn no_permission(to: &str, path: &Path) -> String {
    let us = fs::metadata("/proc/self")
        .map_or_else(|_| String::new(), |own| format!(" (user {}, group {})", own.uid(), own.gid()));
    let owner = fs::metadata(path).map_or_else(
        |_| String::new(),
        |found| format!(" (owner {}, group {}, mode {:o})", found.uid(), found.gid(), found.mode() & 0o7777),
    );
    format!(
        "hookgate{us} may not {to} {}{owner}; change its owner or mode, or run hookgate as its owner",
        path.display()
    )
}

/// Whether the connection can be used on once its transaction is undone.
pub(super) fn keeps_connection(error: &sqlx::Error) -> bool {
    matches!(fault(error), Fault::Busy | Fault::Defect) || primary_code(error) == Some(FULL)
}

/// Whether a commit that failed so may have happened all the same. SQLite's has not.
pub(super) fn is_in_doubt(_: &sqlx::Error) -> bool {
    false
}

/// Begins a transaction that may write, so that a busy database is noticed before any work is done.
pub(super) async fn begin(conn: &mut Conn) -> Result<(), sqlx::Error> {
    sqlx::query("begin immediate").execute(conn).await?;
    Ok(())
}

/// Ends a transaction; on Postgres with a number by which it can be found again.
pub(super) async fn commit(conn: &mut Conn, _: i64) -> Result<(), sqlx::Error> {
    sqlx::query("commit").execute(conn).await?;
    Ok(())
}

/// Whether the transaction of this number was committed; never asked, since none is in doubt.
#[expect(clippy::unused_async, reason = "on Postgres it is a query")]
pub(super) async fn is_committed(_: &mut Conn, _: i64) -> Result<bool, sqlx::Error> {
    Ok(false)
}

/// Work on a file ends by itself.
pub(super) async fn in_time<T, E>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    work.await
}

/// A text as a parameter: any text can be stored.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

/// The parameter of this number, from 1, in a statement with all of them in their order. Without its number: SQLite takes
/// a number for a name, and looks names up in a list that is long where many rows are stored at once.
pub(super) fn parameter(_number: usize) -> Cow<'static, str> {
    Cow::Borrowed("?")
}

/// Changes the common schema where SQLite needs it: only `integer primary key` is the row's own number; `bigint primary
/// key` would keep a second tree for it.
pub(super) fn adapt_schema(sql: &str) -> String {
    sql.replace("bigint primary key", "integer primary key")
}

/// The first thing found wrong in the whole database, which is read.
pub(super) async fn integrity(conn: &mut Conn) -> Result<Option<String>, sqlx::Error> {
    let verdict: String = sqlx::query_scalar("pragma integrity_check(1)").fetch_one(conn).await?;
    Ok((verdict != "ok").then_some(verdict))
}

/// Whether there is such a table.
pub(super) async fn has_table(conn: &mut Conn, name: &str) -> Result<bool, sqlx::Error> {
    let found: i64 = sqlx::query_scalar("select count(*) from sqlite_master where type = 'table' and name = $1")
        .bind(name)
        .fetch_one(conn)
        .await?;
    Ok(found > 0)
}

/// Bytes in use: pages that are free will be written again and do not count.
pub(super) async fn used_bytes(conn: &mut Conn) -> Result<u64, sqlx::Error> {
    let (pages, free, size) = page_counts(conn).await?;
    Ok(u64::try_from((pages - free).max(0) * size).unwrap_or(0))
}

async fn page_counts(conn: &mut Conn) -> Result<(i64, i64, i64), sqlx::Error> {
    let pages = sqlx::query_scalar("pragma page_count").fetch_one(&mut *conn).await?;
    let free = sqlx::query_scalar("pragma freelist_count").fetch_one(&mut *conn).await?;
    let size = sqlx::query_scalar("pragma page_size").fetch_one(conn).await?;
    Ok((pages, free, size))
}

/// Gives a bounded number of free pages back to the file system; whether there is more to give. Up to a quarter of the
/// file stays free, to be written again.
pub(super) async fn give_back(conn: &mut Conn) -> Result<bool, sqlx::Error> {
    let (pages, free, _) = page_counts(conn).await?;
    if free < 256 || free * 4 < pages {
        return Ok(false);
    }
    sqlx::query("pragma incremental_vacuum(256)").execute(conn).await?;
    Ok(true)
}

/// Lets the database grow no further than this many pages, as a full disk would; `None` lifts it.
pub(super) async fn limit_pages(conn: &mut Conn, pages: Option<u32>) -> Result<(), sqlx::Error> {
    let limit = pages.unwrap_or(u32::MAX - 1);
    sqlx::query(AssertSqlSafe(format!("pragma max_page_count = {limit}"))).execute(conn).await?;
    Ok(())
}

/// Closes a connection that is in doubt, which undoes what was under way on it.
pub(super) async fn give_up(conn: Conn) {
    close(conn).await;
}

/// Closes the writing connection; the last one to close moves the log into the file.
pub(super) async fn close(conn: Conn) {
    if let Err(error) = conn.close().await {
        tracing::warn!(%error, "the database did not close cleanly; the next start takes up its log");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_home() {
        for (written, path) in [
            ("hookgate.db", "/home/x/hookgate.db"),
            ("sub/a b.db", "/home/x/sub/a b.db"),
            ("/var/lib/a.db", "/var/lib/a.db"),
        ] {
            assert_eq!(Place::of(written, Path::new("/home/x")).unwrap().path(), Path::new(path));
        }
    }

    #[test]
    fn a_refused_file_is_explained() {
        let home = tempfile::tempdir().unwrap();
        let place = Place::of("hookgate.db", home.path()).unwrap();
        let text = |kind| place.refused(&io::Error::from(kind)).to_string();
        let denied = text(io::ErrorKind::PermissionDenied);
        assert!(denied.contains("owner") && denied.contains("mode"), "{denied}");
        assert!(text(io::ErrorKind::ReadOnlyFilesystem).contains("read-only"));
        assert!(text(io::ErrorKind::NotFound).contains("does not exist"));
        assert!(matches!(place.refused(&io::ErrorKind::StorageFull.into()), StoreError::Unavailable(_)));
    }

    #[test]
    fn the_file_is_made_for_its_owner_only() {
        let home = tempfile::tempdir().unwrap();
        let place = Place::of("hookgate.db", home.path()).unwrap();
        place.prepare().unwrap();
        assert_eq!(fs::metadata(place.path()).unwrap().mode() & 0o777, 0o600);
    }
}
