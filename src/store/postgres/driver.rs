//! What is special about Postgres: who owns a database, what to do when the server goes away, what its errors mean.
//! `../sql` is written against the names exported here (`Db`, `Conn`, `Pool`, …), which `../sqlite/driver.rs` has too.
//!
//! The writing connection holds an advisory lock, so whoever writes is the owner, and when the connection breaks the
//! server gives the lock back after the transaction under way has ended one way or the other. Each commit carries a
//! number in the same transaction; a new connection that has the lock reads it, and knows whether a commit whose answer
//! was lost has happened.

use std::borrow::Cow;
use std::fmt;
use std::future::{Ready, ready};
use std::io;
use std::str::FromStr as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgDatabaseError, PgPool, PgPoolOptions, PgRow, PgSeverity};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Postgres};
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use crate::store::{Failure, Fault, StoreError};

/// The database of this driver.
pub(super) type Db = Postgres;
/// One connection.
pub(super) type Conn = PgConnection;
/// A row of a result.
pub(super) type Row = PgRow;
/// The reading connections.
pub(super) type Pool = PgPool;

/// Whether finished rows are deleted early when the database is too large. A table does not shrink when its rows go, so
/// nobody could tell when to stop.
pub(super) const DELETES_FOR_SIZE: bool = false;

const READERS: u32 = 4;
/// How long connecting may take, and finding out whether an open connection still works.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a step of a transaction may take before the connection is given up.
const STEP: Duration = Duration::from_secs(40);
/// How long the lock may take: a process that was just killed holds it for a moment.
const LOCK: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Names our lock among the advisory locks of a database: `hook`.
const LOCK_CLASS: i32 = 0x686f_6f6b;

/// Lets the server notice within half a minute that a client is gone, so that its lock is free.
const WRITER_SETTINGS: &str = "set client_min_messages = warning; set idle_in_transaction_session_timeout = '60s'; \
     set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3";
/// Ends statements that hang, once the tables are made: a change of the schema takes its time.
const WRITER_LIMITS: &str = "set statement_timeout = '30s'; set lock_timeout = '10s'";
const READER_SETTINGS: &str = "set default_transaction_read_only = on; set statement_timeout = '30s'";

/// Where a database is, and as whom it is used.
#[derive(Clone)]
pub(super) struct Place {
    options: PgConnectOptions,
    /// Tells the connections of this process from those of others.
    application: String,
    /// What [`Place::own`] wrote.
    owner: Arc<OnceLock<i64>>,
}

impl Place {
    /// The database a checked `storage.url` names. What it leaves out comes from the `PG…` variables and `~/.pgpass`.
    pub(super) fn of(url: &Url) -> Result<Self, StoreError> {
        let mut options = PgConnectOptions::from_str(url.as_str())
            .map_err(|error| StoreError::Unusable(format!("storage.url cannot be used: {error}")))?
            .disable_statement_logging();
        // An IPv6 address is connected to without its brackets.
        if let Some(host) = options.get_host().strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            let host = host.to_owned();
            options = options.host(&host);
        }
        let application = format!("hookgate {:016x}", rand::random::<u64>());
        Ok(Self { options, application, owner: Arc::default() })
    }

    /// What people call it.
    pub(super) fn name(&self) -> String {
        self.to_string()
    }

    /// A server keeps its databases apart; another one in place of this is known by its owner.
    pub(super) fn identity(&self) -> Ready<Option<(u64, u64)>> {
        ready(None)
    }

    /// A server repairs itself or is repaired by a person.
    pub(super) fn note_damage(&self) {}

    /// Opens the one connection that writes. It holds the lock that makes this process the owner; after an interruption
    /// it is made sure that nobody else has been the owner meanwhile.
    pub(super) async fn connect_writer(&self) -> Result<Conn, Failure> {
        let mut conn = connect(&self.options.clone().application_name(&self.application)).await?;
        within(CONNECT, conn.execute(WRITER_SETTINGS)).await?;
        self.lock(&mut conn).await?;
        if let Some(owner) = self.owner.get() {
            within(CONNECT, conn.execute(WRITER_LIMITS)).await?;
            let found = within(CONNECT, mark(&mut conn, "owner")).await;
            match found {
                Ok(found) if found == Some(*owner) => {}
                Err(error) if fault(&error) != Fault::Defect => return Err(error.into()),
                _ => {
                    return Err(Failure::Refused(StoreError::Lost(format!(
                        "{self} was used by another hookgate or replaced while the connection to it was broken, so it \
                         must be opened anew"
                    ))));
                }
            }
        }
        Ok(conn)
    }

    async fn lock(&self, conn: &mut Conn) -> Result<(), Failure> {
        // The server may not have noticed yet that our last connection is gone.
        let ours = "select pg_terminate_backend(pid) from pg_stat_activity \
                    where application_name = $1 and usename = current_user and pid <> pg_backend_pid()";
        within(CONNECT, sqlx::query(ours).bind(&self.application).execute(&mut *conn)).await?;
        let deadline = Instant::now() + LOCK;
        loop {
            let ask = "select pg_try_advisory_lock($1, hashtext(coalesce(current_schema(), '')))";
            let locked: bool = within(CONNECT, sqlx::query_scalar(ask).bind(LOCK_CLASS).fetch_one(&mut *conn)).await?;
            if locked {
                return Ok(());
            }
            if Instant::now() > deadline {
                let holder = within(CONNECT, lock_holder(conn)).await?;
                return Err(Failure::Refused(StoreError::Unavailable(format!(
                    "another hookgate{} uses {self}; stop it, or give this one a database of its own",
                    holder.map(|from| format!(" (at {from})")).unwrap_or_default()
                ))));
            }
            sleep(LOCK_PAUSE).await;
        }
    }

    /// Leaves word of who owns the database from now on.
    pub(super) async fn own(&self, conn: &mut Conn, owner: i64) -> Result<(), sqlx::Error> {
        let sql = "insert into marks (name, value) values ('owner', $1) \
                   on conflict (name) do update set value = excluded.value";
        within(CONNECT, sqlx::query(sql).bind(owner).execute(&mut *conn)).await?;
        within(CONNECT, conn.execute(WRITER_LIMITS)).await?;
        let _ = self.owner.set(owner);
        Ok(())
    }

    /// A connection that reads and cannot write.
    pub(super) async fn connect_reader(&self) -> Result<Conn, sqlx::Error> {
        let mut conn = connect(&self.reader_options()).await?;
        within(CONNECT, conn.execute(READER_SETTINGS)).await?;
        Ok(conn)
    }

    /// The connections that only read; they are made when they are needed, and tried before they are used again.
    pub(super) fn readers(&self) -> Pool {
        PgPoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(CONNECT)
            .idle_timeout(Duration::from_secs(60))
            .after_connect(|conn, _| {
                Box::pin(async move {
                    conn.execute(READER_SETTINGS).await?;
                    Ok(())
                })
            })
            .connect_lazy_with(self.reader_options())
    }

    fn reader_options(&self) -> PgConnectOptions {
        self.options.clone().application_name("hookgate reader")
    }

    /// The error for callers of the store, naming the database where a person must know it.
    pub(super) fn explain(&self, error: &sqlx::Error) -> StoreError {
        let user = self.options.get_username();
        let text = match error.as_database_error() {
            Some(error) => error.message().to_owned(),
            None => error.to_string(),
        };
        match (answer(error).map(PgDatabaseError::code), error) {
            (Some("28P01" | "28000"), _) => StoreError::Unusable(format!(
                "{self} refuses the user {user:?}: {text}; correct the user and the password in storage.url"
            )),
            (Some("3D000"), _) => {
                StoreError::Unusable(format!("the server cannot open {self}: {text}; create it or correct storage.url"))
            }
            (Some("42501" | "3F000"), _) => StoreError::Unusable(format!(
                "the user {user:?} may not do in {self} what hookgate must: {text}; make it the owner of the database"
            )),
            (Some("25006"), _) => StoreError::Unavailable(format!("{self} can only be read now: {text}")),
            (Some("XX001" | "XX002"), _) => StoreError::Unusable(format!(
                "the server says that {self} is damaged: {text}; restore it from a backup"
            )),
            (None, sqlx::Error::Tls(error)) => self.insecure(error),
            // What TLS thinks of the server's certificate arrives as bad data.
            (None, sqlx::Error::Io(error)) if error.kind() == io::ErrorKind::InvalidData => self.insecure(error),
            (None, sqlx::Error::Io(error)) => StoreError::Unavailable(format!("{self} cannot be reached: {error}")),
            (None, sqlx::Error::PoolTimedOut) => {
                StoreError::Unavailable(format!("{self} cannot be reached within {} seconds", CONNECT.as_secs()))
            }
            _ => match fault(error) {
                Fault::Busy | Fault::Away | Fault::Unavailable => StoreError::Unavailable(format!("{self}: {text}")),
                Fault::Damaged | Fault::Defect => StoreError::Internal(text),
            },
        }
    }

    fn insecure(&self, why: &dyn fmt::Display) -> StoreError {
        StoreError::Unusable(format!(
            "there is no secure connection to {self}: {why}; correct sslmode or sslrootcert in storage.url"
        ))
    }
}

impl fmt::Display for Place {
    /// `the database hookgate at db.example:5432`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.options;
        write!(f, "the database {} at ", options.get_database().unwrap_or_else(|| options.get_username()))?;
        match options.get_socket() {
            Some(directory) => write!(f, "{}", directory.display()),
            None if options.get_host().contains(':') => write!(f, "[{}]:{}", options.get_host(), options.get_port()),
            None => write!(f, "{}:{}", options.get_host(), options.get_port()),
        }
    }
}

impl fmt::Debug for Place {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

async fn connect(options: &PgConnectOptions) -> Result<Conn, sqlx::Error> {
    within(CONNECT, options.connect()).await
}

/// Where the owner of the lock is connected from, if we may know it.
async fn lock_holder(conn: &mut Conn) -> Result<Option<String>, sqlx::Error> {
    let ask = "select coalesce(host(client_addr), 'the same machine') from pg_locks join pg_stat_activity using (pid) \
               where locktype = 'advisory' and granted and classid::bigint = $1 and datname = current_database() limit 1";
    sqlx::query_scalar(ask).bind(i64::from(LOCK_CLASS)).fetch_optional(conn).await
}

async fn mark(conn: &mut Conn, name: &str) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar("select value from marks where name = $1").bind(name).fetch_optional(conn).await
}

/// Gives work so much time; then the connection is as good as broken.
async fn within<T, E: From<sqlx::Error>>(limit: Duration, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let late = |_| sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"));
    timeout(limit, work).await.map_err(late)?
}

/// Gives a step of a transaction its time.
pub(super) async fn in_time<T, E: From<sqlx::Error>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    within(STEP, work).await
}

fn answer(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// Sorts an error by what may be done next (<https://www.postgresql.org/docs/current/errcodes-appendix.html>).
pub(super) fn fault(error: &sqlx::Error) -> Fault {
    let Some(found) = answer(error) else {
        return match error {
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::PoolTimedOut => Fault::Away,
            sqlx::Error::Tls(_) | sqlx::Error::PoolClosed => Fault::Unavailable,
            _ => Fault::Defect,
        };
    };
    match found.code() {
        // The server is starting; two transactions were in each other's way.
        "57P03" | "40001" | "40P01" => Fault::Busy,
        "25006" | "42501" | "55P03" | "57014" | "XX001" | "XX002" => Fault::Unavailable,
        code if ["28", "3D", "53", "58"].iter().any(|class| code.starts_with(class)) => Fault::Unavailable,
        code if code.starts_with("08") || code.starts_with("57P") || ends_connection(found) => Fault::Away,
        _ => Fault::Defect,
    }
}

fn ends_connection(answer: &PgDatabaseError) -> bool {
    matches!(answer.severity(), PgSeverity::Fatal | PgSeverity::Panic)
}

/// Whether the connection can be used on once its transaction is undone.
pub(super) fn keeps_connection(error: &sqlx::Error) -> bool {
    fault(error) != Fault::Away && !answer(error).is_some_and(ends_connection)
}

/// Whether a commit that failed so may have happened all the same: when it was not answered with a plain no.
pub(super) fn is_in_doubt(error: &sqlx::Error) -> bool {
    !keeps_connection(error)
}

/// Begins a transaction; a connection that died in silence is noticed here.
pub(super) async fn begin(conn: &mut Conn) -> Result<(), sqlx::Error> {
    within(CONNECT, sqlx::query("begin").execute(conn)).await?;
    Ok(())
}

/// Ends a transaction together with its number, in one message to the server.
pub(super) async fn commit(conn: &mut Conn, number: i64) -> Result<(), sqlx::Error> {
    let sql = format!(
        "insert into marks (name, value) values ('commit', {number}) \
         on conflict (name) do update set value = excluded.value; commit"
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await?;
    Ok(())
}

/// Whether the transaction of this number, which was the last of this process, was committed. To be asked on a new writing
/// connection: what the old one did has ended then.
pub(super) async fn is_committed(conn: &mut Conn, number: i64) -> Result<bool, sqlx::Error> {
    Ok(mark(conn, "commit").await? == Some(number))
}

/// A text as a parameter: Postgres has no NUL in texts.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// The parameter of this number, from 1, in a statement with all of them in their order.
pub(super) fn parameter(number: usize) -> Cow<'static, str> {
    Cow::Owned(format!("${number}"))
}

/// The common schema is Postgres's.
pub(super) fn adapt_schema(sql: &str) -> String {
    sql.to_owned()
}

/// Reads every value there is: what cannot be read is an error.
pub(super) async fn integrity(conn: &mut Conn) -> Result<Option<String>, sqlx::Error> {
    conn.execute("set statement_timeout = 0").await?;
    for sql in [
        "select sum(length(t::text)) from sessions t",
        "select sum(length(t::text)) from messages t",
        "select sum(length(t::text)) from deliveries t",
        "select sum(length(t::text)) from inbox t",
        "select sum(length(t::text)) from outbox t",
        "select sum(length(t::text)) from open_cards t",
        "select sum(length(t::text)) from approval_rules t",
        "select sum(length(t::text)) from spent t",
        "select sum(length(t::text)) from marks t",
    ] {
        let _: Option<i64> = sqlx::query_scalar(sql).fetch_one(&mut *conn).await?;
    }
    conn.execute(READER_SETTINGS).await?;
    Ok(None)
}

/// Whether there is such a table where ours are.
pub(super) async fn has_table(conn: &mut Conn, name: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select to_regclass($1) is not null").bind(name).fetch_one(conn).await
}

/// Bytes of our tables with their indexes, free space included.
pub(super) async fn used_bytes(conn: &mut Conn) -> Result<u64, sqlx::Error> {
    let sql = "select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint from pg_class where oid in \
               (to_regclass('sessions'), to_regclass('messages'), to_regclass('deliveries'), to_regclass('inbox'), \
               to_regclass('outbox'), to_regclass('open_cards'), to_regclass('approval_rules'), to_regclass('spent'), \
               to_regclass('marks'))";
    let bytes: i64 = sqlx::query_scalar(sql).fetch_one(conn).await?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// The server's autovacuum makes room to be written again.
#[expect(clippy::unused_async, reason = "on SQLite it is a statement")]
pub(super) async fn give_back(_: &mut Conn) -> Result<bool, sqlx::Error> {
    Ok(false)
}

/// Only a file's size can be limited.
#[expect(clippy::unused_async, reason = "on SQLite it is a statement")]
pub(super) async fn limit_pages(_: &mut Conn, _: Option<u32>) -> Result<(), sqlx::Error> {
    Err(sqlx::Error::InvalidArgument("a server's disk has no limit of ours".to_owned()))
}

/// Leaves a connection as it is; the server ends what was under way on it.
#[expect(clippy::unused_async, reason = "on SQLite it is closed in order")]
pub(super) async fn give_up(conn: Conn) {
    drop(conn);
}

/// Closes a connection.
pub(super) async fn close(conn: Conn) {
    if let Err(error) = within(CONNECT, conn.close()).await {
        tracing::debug!(%error, "a connection to the database did not close cleanly");
    }
}
