//! Messages with buttons that a turn waits on. A row is there while the buttons are to be answered.

use super::{Conn, Db, Result, Tx, outbox};
use crate::store::{NewReply, OpenCard, OutboxId};

/// Stores the parts of a reply, and that the buttons of the last one wait.
pub(in super::super) async fn send(tx: &mut Tx, reply: &NewReply) -> Result<Vec<OutboxId>> {
    let stored = outbox::send(tx, reply).await?;
    if let Some(last) = stored.last() {
        sqlx::query("insert into open_cards (id, target, created_at) values ($1, $2, $3)")
            .bind(last.0)
            .bind(serde_json::to_string(&reply.target)?)
            .bind(tx.now())
            .execute(&mut tx.conn)
            .await?;
    }
    Ok(stored)
}

/// The buttons wait no more. Only for a card that is open, so that no other reply is ever stopped.
pub(in super::super) async fn close(tx: &mut Tx, id: &OutboxId) -> Result<()> {
    let closed = sqlx::query("delete from open_cards where id = $1").bind(id.0).execute(&mut tx.conn).await?;
    if closed.rows_affected() > 0 {
        outbox::withdraw(tx, *id).await?;
    }
    Ok(())
}

/// Oldest first.
pub(in super::super) async fn open(conn: &mut Conn) -> Result<Vec<OpenCard>> {
    let rows: Vec<(i64, String, Option<String>)> = sqlx::query_as::<Db, _>(
        "select c.id, c.target, o.platform_id from open_cards c \
         left join outbox o on o.id = c.id and o.state = 'sent' order by c.id",
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|(id, target, message_id)| {
            Ok(OpenCard { id: OutboxId(id), target: serde_json::from_str(&target)?, message_id })
        })
        .collect()
}
