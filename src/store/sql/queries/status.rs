//! Counts and the health check.

use super::{Conn, Db, Result, Tx, driver};
use crate::store::Counts;

pub(in super::super) async fn counts(conn: &mut Conn) -> Result<Counts> {
    let (inbox_waiting, inbox_running) = sqlx::query_as::<Db, _>(
        "select count(case when state = 'waiting' then 1 end), count(case when state = 'running' then 1 end) \
         from inbox where done_at is null",
    )
    .fetch_one(&mut *conn)
    .await?;
    let (outbox_waiting, marked): (i64, i64) = sqlx::query_as::<Db, _>(
        "select count(*), count(case when marked = 1 then 1 end) from outbox where left_queue_at is null",
    )
    .fetch_one(&mut *conn)
    .await?;
    let (dead, rest): (i64, i64) = sqlx::query_as::<Db, _>(
        "select count(case when state = 'dead' then 1 end), count(case when state <> 'dead' then 1 end) \
         from outbox where state in ('uncertain', 'held', 'dead') and withdrawn = 0",
    )
    .fetch_one(conn)
    .await?;
    Ok(Counts { inbox_waiting, inbox_running, outbox_waiting, outbox_uncertain: marked + rest, outbox_dead: dead })
}

/// Writes a number that is new each time; it is read back by [`probed`].
pub(in super::super) async fn probe(tx: &mut Tx, _: &()) -> Result<i64> {
    let value = tx.next_id();
    set_mark(tx, "probe", value).await?;
    Ok(value)
}

/// The number last written by [`probe`], or a later one.
pub(in super::super) async fn probed(conn: &mut Conn) -> Result<i64> {
    let value: Option<i64> =
        sqlx::query_scalar::<Db, _>("select value from marks where name = 'probe'").fetch_optional(conn).await?;
    Ok(value.unwrap_or(0))
}

pub(super) async fn set_mark(tx: &mut Tx, name: &str, value: i64) -> Result<()> {
    sqlx::query(
        "insert into marks (name, value) values ($1, $2) on conflict (name) do update set value = excluded.value",
    )
    .bind(name)
    .bind(value)
    .execute(&mut tx.conn)
    .await?;
    Ok(())
}

/// The largest id that was ever given. Reads each table's end.
pub(in super::super) async fn last_id(conn: &mut Conn) -> std::result::Result<i64, sqlx::Error> {
    let mut last = 0;
    for newest in [
        "select max(id) from inbox",
        "select max(id) from outbox",
        "select max(id) from messages",
        "select max(id) from deliveries",
        "select max(value) from marks",
    ] {
        let id: Option<i64> = sqlx::query_scalar::<Db, _>(newest).fetch_one(&mut *conn).await?;
        last = last.max(id.unwrap_or(0));
    }
    Ok(last)
}

/// Lets the database grow no further; see the driver.
pub(in super::super) async fn limit_pages(tx: &mut Tx, pages: &Option<u32>) -> Result<()> {
    Ok(driver::limit_pages(&mut tx.conn, *pages).await?)
}
