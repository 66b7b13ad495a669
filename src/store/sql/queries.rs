//! The statements, a file per table. Plain SQL that SQLite and Postgres both read: numbered parameters, `returning`,
//! `on conflict`, partial indexes, bigint times. A text from outside is bound as `text(…)`, which the database can store.
//! What a row means is told in `store.rs`; nothing here waits or retries.

pub(super) mod cards;
pub(super) mod deliveries;
pub(super) mod inbox;
pub(super) mod outbox;
pub(super) mod retention;
pub(super) mod rules;
pub(super) mod sessions;
pub(super) mod spending;
pub(super) mod status;

use super::driver;
use super::driver::{Conn, Db, Row, text};
use super::writer::Tx;
use crate::store::Failure;

type Result<T> = std::result::Result<T, Failure>;

/// The most rows one statement stores.
const ROWS: usize = 64;

/// Cuts rows into runs that one statement stores each. The lengths are powers of two, so that few different statements
/// have to be prepared.
fn runs<T>(mut rest: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let length = 1 << rest.len().min(ROWS).checked_ilog2()?;
        let (run, after) = rest.split_at(length);
        rest = after;
        Some(run)
    })
}

/// The parameters of two rows of two columns: `($1, $2), ($3, $4)`, each as the driver writes it.
fn placeholders(rows: usize, columns: usize) -> String {
    let mut text = String::with_capacity(rows * columns * 6);
    for n in 0..rows * columns {
        text.push_str(match n {
            0 => "(",
            n if n % columns == 0 => "), (",
            _ => ", ",
        });
        text.push_str(&driver::parameter(n + 1));
    }
    text.push(')');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_into_few_lengths() {
        let lengths = |count: usize| runs(&vec![(); count]).map(<[()]>::len).collect::<Vec<_>>();
        assert!(lengths(0).is_empty());
        assert_eq!(lengths(1), [1]);
        assert_eq!(lengths(7), [4, 2, 1]);
        assert_eq!(lengths(200), [64, 64, 64, 8]);
    }

    #[test]
    fn placeholders_count_through_all_rows() {
        let [a, b, c, d] = [1, 2, 3, 4].map(driver::parameter);
        assert_eq!(placeholders(1, 1), format!("({a})"));
        assert_eq!(placeholders(2, 2), format!("({a}, {b}), ({c}, {d})"));
    }
}
