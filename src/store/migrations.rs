//! The schema and its versions. Each step is one SQL file, run once and in order by sqlx's migrator, which keeps what it
//! ran in `_sqlx_migrations`. A step that was released is never edited; a change is a new file.

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, SqlSafeStr as _};

use super::driver::{self, Conn};

const STEPS: &[(i64, &str, &str)] = &[(1, "start", include_str!("migrations/0001_start.sql"))];

/// The schema this build writes.
pub(super) const NEWEST: i64 = STEPS[STEPS.len() - 1].0;

/// The schema a database has: 0 when it is empty.
pub(super) async fn version(conn: &mut Conn) -> Result<i64, sqlx::Error> {
    if !driver::has_table(conn, "_sqlx_migrations").await? {
        return Ok(0);
    }
    let newest: Option<i64> = sqlx::query_scalar("select max(version) from _sqlx_migrations").fetch_one(conn).await?;
    Ok(newest.unwrap_or(0))
}

/// Brings a database to [`NEWEST`].
pub(super) async fn run(conn: &mut Conn) -> Result<(), MigrateError> {
    let steps = STEPS.iter().map(|(version, name, sql)| {
        let sql = AssertSqlSafe(driver::adapt_schema(sql)).into_sql_str();
        Migration::new(*version, (*name).into(), MigrationType::Simple, sql, false)
    });
    Migrator::with_migrations(steps.collect()).run_direct(None, conn, false).await
}
