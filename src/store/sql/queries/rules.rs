//! What was allowed for good.

use super::{Conn, Db, Result, Tx, status, text};
use crate::store::{NewRule, Rule};

/// In `marks`: the largest id that a rule ever had, so that none that people remember comes to mean another rule.
const LAST: &str = "last_rule";

type Row = (i64, String, String, String, i64);

fn rule_of((id, scope, key, granted_by, at): Row) -> Rule {
    Rule { id, scope, key, granted_by, at }
}

/// Stores a rule, unless the same is allowed already.
pub(in super::super) async fn allow(tx: &mut Tx, rule: &NewRule) -> Result<()> {
    let last: Option<i64> = sqlx::query_scalar::<Db, _>(
        "select max(id) from (select id from approval_rules union all select value from marks where name = $1) as given",
    )
    .bind(LAST)
    .fetch_one(&mut tx.conn)
    .await?;
    let id = last.unwrap_or(0).saturating_add(1);
    let stored = sqlx::query(
        "insert into approval_rules (id, scope, key, granted_by, at) values ($1, $2, $3, $4, $5) \
         on conflict (scope, key) do nothing",
    )
    .bind(id)
    .bind(text(&rule.scope))
    .bind(text(&rule.key))
    .bind(text(&rule.granted_by))
    .bind(tx.now())
    .execute(&mut tx.conn)
    .await?;
    if stored.rows_affected() > 0 {
        status::set_mark(tx, LAST, id).await?;
    }
    Ok(())
}

/// Oldest first.
pub(in super::super) async fn list(conn: &mut Conn) -> Result<Vec<Rule>> {
    let rows: Vec<Row> =
        sqlx::query_as::<Db, _>("select id, scope, key, granted_by, at from approval_rules order by id")
            .fetch_all(conn)
            .await?;
    Ok(rows.into_iter().map(rule_of).collect())
}

/// Deletes a rule; what it was.
pub(in super::super) async fn revoke(tx: &mut Tx, id: &i64) -> Result<Option<Rule>> {
    let row: Option<Row> =
        sqlx::query_as::<Db, _>("delete from approval_rules where id = $1 returning id, scope, key, granted_by, at")
            .bind(id)
            .fetch_optional(&mut tx.conn)
            .await?;
    Ok(row.map(rule_of))
}
