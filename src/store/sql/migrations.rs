//! The schema and its versions. Each step is one SQL file, run once and in order by sqlx's migrator, which keeps what it
//! ran in `_sqlx_migrations`. A step that was released is never edited; a change is a new file.

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, SqlSafeStr as _};

use super::driver::{self, Conn, Place};
use crate::store::StoreError;

const STEPS: &[(i64, &str, &str)] = &[
    (1, "start", include_str!("migrations/0001_start.sql")),
    (2, "reached", include_str!("migrations/0002_reached.sql")),
    (3, "open_sessions", include_str!("migrations/0003_open_sessions.sql")),
    (4, "cut_off", include_str!("migrations/0004_cut_off.sql")),
    (5, "guarded", include_str!("migrations/0005_guarded.sql")),
    (6, "turns", include_str!("migrations/0006_turns.sql")),
];

/// The schema this build writes.
pub(in super::super) const NEWEST: i64 = STEPS[STEPS.len() - 1].0;

/// The schema a database has: 0 when it is empty.
pub(in super::super) async fn version(conn: &mut Conn) -> Result<i64, sqlx::Error> {
    if !driver::has_table(conn, "_sqlx_migrations").await? {
        return Ok(0);
    }
    let newest: Option<i64> = sqlx::query_scalar("select max(version) from _sqlx_migrations").fetch_one(conn).await?;
    Ok(newest.unwrap_or(0))
}

/// Brings a database to [`NEWEST`].
pub(in super::super) async fn run(conn: &mut Conn) -> Result<(), MigrateError> {
    let steps = STEPS.iter().map(|(version, name, sql)| {
        let sql = AssertSqlSafe(driver::adapt_schema(sql)).into_sql_str();
        Migration::new(*version, (*name).into(), MigrationType::Simple, sql, false)
    });
    Migrator::with_migrations(steps.collect()).run_direct(None, conn, false).await
}

/// The sentence for a database of a later hookgate.
pub(in super::super) fn refuse_newer(place: &Place, version: i64) -> Result<(), StoreError> {
    if version <= NEWEST {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "{} was written by a newer hookgate (schema {version}, this build knows {NEWEST}); upgrade hookgate or restore \
         a backup",
        place.name()
    )))
}

/// Whether there is something to list, for a reader that changes nothing.
pub(in super::super) fn is_readable(place: &Place, version: i64) -> Result<bool, StoreError> {
    if version > 0 && version < NEWEST {
        return Err(StoreError::Unusable(format!(
            "{place} has the older schema {version}; start the gateway once to bring it to {NEWEST}"
        )));
    }
    refuse_newer(place, version)?;
    Ok(version > 0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_step_is_run() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/sql/migrations");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort_unstable();
        let steps = super::STEPS.iter().map(|(version, name, _)| format!("{version:04}_{name}.sql"));
        assert_eq!(files, steps.collect::<Vec<_>>());
    }
}
