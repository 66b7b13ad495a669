//! The one sequence all rows are numbered from: Unix milliseconds above, a counter below, and never falling.

use std::sync::atomic::{AtomicI64, Ordering};

const COUNTER_BITS: u32 = 20;

/// Times beyond this (the year 2248) no longer fit above the counter.
const MAX_MS: i64 = i64::MAX >> COUNTER_BITS;

/// Gives ids that strictly rise, whatever the clock does.
#[derive(Debug)]
pub(super) struct Ids(AtomicI64);

impl Ids {
    /// Continues after `last`, the largest id that was ever given.
    pub(super) fn after(last: i64) -> Self {
        Self(AtomicI64::new(last))
    }

    /// The next id at `now` (Unix milliseconds).
    pub(super) fn next(&self, now: i64) -> i64 {
        let by_clock = first_of(now);
        let mut last = self.0.load(Ordering::Relaxed);
        loop {
            let next = by_clock.max(last.saturating_add(1));
            match self.0.compare_exchange_weak(last, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return next,
                Err(newer) => last = newer,
            }
        }
    }

    /// The largest id given so far.
    pub(super) fn last(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The smallest id of a millisecond.
fn first_of(now: i64) -> i64 {
    now.clamp(0, MAX_MS) << COUNTER_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_the_clock() {
        let ids = Ids::after(0);
        let first = ids.next(1_800_000_000_000);
        assert_eq!(first >> COUNTER_BITS, 1_800_000_000_000);
        assert_eq!(ids.next(1_800_000_000_000), first + 1);
        assert_eq!(ids.next(1_800_000_000_001) >> COUNTER_BITS, 1_800_000_000_001);
    }

    #[test]
    fn ids_rise_when_the_clock_falls_or_is_nonsense() {
        let ids = Ids::after(0);
        let mut last = 0;
        for now in [1_800_000_000_000, 5, -1, i64::MIN, 1_800_000_000_001, MAX_MS, 7] {
            let id = ids.next(now);
            assert!(id > last, "{id} after {last} at {now}");
            last = id;
        }
    }

    #[test]
    fn ids_continue_after_the_largest_stored_one() {
        let stored = first_of(1_900_000_000_000) + 17;
        assert_eq!(Ids::after(stored).next(1_800_000_000_000), stored + 1);
    }
}
