//! What was used up, by scope and day.

use super::{Conn, Db, Result, Tx, text};
use crate::store::Spent;

/// What [`spend`] is asked to add, to which scopes, and for which day.
pub(in super::super) struct Spending {
    pub(in super::super) scopes: Vec<String>,
    pub(in super::super) day: String,
    pub(in super::super) spent: Spent,
}

/// Adds to each scope. The sums stop at the largest number a column holds.
pub(in super::super) async fn spend(tx: &mut Tx, spending: &Spending) -> Result<()> {
    let Spending { scopes, day, spent: more } = spending;
    for scope in scopes {
        // Added here: databases differ in what they make of a sum that is too large.
        let before = of_scope(&mut tx.conn, scope, day).await?;
        sqlx::query(
            "insert into spent (scope, day, tokens, tool_calls, micros) values ($1, $2, $3, $4, $5) \
             on conflict (scope, day) do update set tokens = excluded.tokens, tool_calls = excluded.tool_calls, \
             micros = excluded.micros",
        )
        .bind(text(scope))
        .bind(text(day))
        .bind(sum(before.tokens, more.tokens))
        .bind(sum(before.tool_calls, more.tool_calls))
        .bind(sum(before.micros, more.micros))
        .execute(&mut tx.conn)
        .await?;
    }
    Ok(())
}

fn sum(before: u64, more: u64) -> i64 {
    i64::try_from(before.saturating_add(more)).unwrap_or(i64::MAX)
}

/// What each scope has used up, in the order asked.
pub(in super::super) async fn spent(conn: &mut Conn, scopes: &[String], day: &str) -> Result<Vec<Spent>> {
    let mut all = Vec::with_capacity(scopes.len());
    for scope in scopes {
        all.push(of_scope(conn, scope, day).await?);
    }
    Ok(all)
}

async fn of_scope(conn: &mut Conn, scope: &str, day: &str) -> Result<Spent> {
    let found: Option<(i64, i64, i64)> =
        sqlx::query_as::<Db, _>("select tokens, tool_calls, micros from spent where scope = $1 and day = $2")
            .bind(text(scope))
            .bind(text(day))
            .fetch_optional(conn)
            .await?;
    let (tokens, tool_calls, micros) = found.unwrap_or_default();
    let count = |stored: i64| u64::try_from(stored).unwrap_or(0);
    Ok(Spent { tokens: count(tokens), tool_calls: count(tool_calls), micros: count(micros) })
}
