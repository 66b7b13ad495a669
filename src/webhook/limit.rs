//! How often something may happen in a minute: requests of a route, failed signatures of an address.
//!
//! A log of times per key that slides with the clock. Time is a parameter, memory is bounded whatever keys are offered.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The window of `rate_limit` and `failed_signatures_per_minute`.
pub const MINUTE: Duration = Duration::from_secs(60);

/// Counts what was let through, per key, within a sliding window.
#[derive(Debug)]
pub struct SlidingLog<K> {
    window: Duration,
    max_keys: usize,
    logs: Mutex<Logs<K>>,
}

#[derive(Debug)]
struct Logs<K> {
    by_key: HashMap<K, VecDeque<Instant>>,
    /// Shared by the keys that came while there was no room for them.
    others: VecDeque<Instant>,
    next_sweep: Option<Instant>,
}

/// Stands for one thing that was let through; give it to [`SlidingLog::refund`] when it shall not count.
#[derive(Debug)]
#[must_use = "it counts unless it is refunded"]
pub struct Ticket<K> {
    key: K,
    at: Instant,
    is_other: bool,
}

impl<K> Ticket<K> {
    /// Let it count.
    pub fn keep(self) {}
}

impl<K: Eq + Hash + Clone> SlidingLog<K> {
    /// At most `max_keys` keys have a log of their own; further ones share one until there is room again.
    pub fn new(window: Duration, max_keys: usize) -> Self {
        let logs = Logs { by_key: HashMap::new(), others: VecDeque::new(), next_sweep: None };
        Self { window, max_keys, logs: Mutex::new(logs) }
    }

    /// Lets one more through if fewer than `limit` were within the window, else says how long to wait (for
    /// `Retry-After`; more than zero). What is refused does not count.
    pub fn take(&self, key: K, limit: u32, now: Instant) -> Result<Ticket<K>, Duration> {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = !self.has_room(&mut logs, &key, now);
        let log = if is_other { &mut logs.others } else { logs.by_key.entry(key.clone()).or_default() };
        self.forget_old(log, now);
        let excess = log.len().checked_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        if let Some(excess) = excess {
            let free_at = log.get(excess).map_or(now + self.window, |enough_gone| *enough_gone + self.window);
            return Err(free_at.saturating_duration_since(now).max(Duration::from_millis(1)));
        }
        // Callers may arrive in another order than they read the clock; the log stays sorted.
        let at = log.back().map_or(now, |last| now.max(*last));
        log.push_back(at);
        Ok(Ticket { key, at, is_other })
    }

    /// Takes a ticket back, as if it had never been given.
    pub fn refund(&self, ticket: Ticket<K>) {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let Ticket { key, at, is_other } = ticket;
        let log = if is_other { Some(&mut logs.others) } else { logs.by_key.get_mut(&key) };
        if let Some(log) = log
            && let Ok(index) = log.binary_search(&at)
        {
            log.remove(index);
        }
    }

    fn has_room(&self, logs: &mut Logs<K>, key: &K, now: Instant) -> bool {
        if logs.by_key.len() < self.max_keys || logs.by_key.contains_key(key) {
            return true;
        }
        if logs.next_sweep.is_some_and(|next| now < next) {
            return false;
        }
        logs.next_sweep = Some(now + self.window / 60);
        logs.by_key.retain(|_, log| {
            self.forget_old(log, now);
            !log.is_empty()
        });
        logs.by_key.len() < self.max_keys
    }

    fn forget_old(&self, log: &mut VecDeque<Instant>, now: Instant) {
        while log.front().is_some_and(|oldest| now.saturating_duration_since(*oldest) >= self.window) {
            log.pop_front();
        }
    }
}

/// The key of a client address: an IPv6 client owns a whole /64, so that is what counts.
pub fn client_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_window_slides() {
        let (log, start) = (SlidingLog::new(MINUTE, 10), Instant::now());
        for seconds in [0, 10, 20, 30, 40] {
            log.take("r", 5, start + SECOND * seconds).expect("within the limit").keep();
        }
        assert_eq!(log.take("r", 5, start + SECOND * 50).map(Ticket::keep), Err(SECOND * 10));
        log.take("other", 5, start + SECOND * 50).expect("another key").keep();
        assert_eq!(log.take("r", 5, start + SECOND * 59).map(Ticket::keep), Err(SECOND));
        log.take("r", 5, start + SECOND * 60).expect("the first is a minute old; refusals did not count").keep();
        assert_eq!(log.take("r", 5, start + SECOND * 60).map(Ticket::keep), Err(SECOND * 10));
        assert_eq!(log.take("r", 2, start + SECOND * 60).map(Ticket::keep), Err(SECOND * 40), "the limit may change");
        log.take("r", 6, start + SECOND * 60).expect("room for one more").keep();
    }

    #[test]
    fn a_refund_makes_room() {
        let (log, now) = (SlidingLog::new(MINUTE, 10), Instant::now());
        let first = log.take(1, 2, now).expect("room");
        let second = log.take(1, 2, now).expect("room");
        assert!(log.take(1, 2, now).is_err());
        log.refund(first);
        let third = log.take(1, 2, now + SECOND).expect("room again");
        assert!(log.take(1, 2, now + SECOND).is_err());
        log.refund(third);
        log.refund(second);
        log.take(1, 1, now + SECOND).expect("all were refunded").keep();
        let late = log.take(2, 1, now).expect("room");
        log.take(2, 1, now + MINUTE).expect("expired").keep();
        log.refund(late);
        assert!(log.take(2, 1, now + MINUTE).is_err(), "a refund of an expired ticket frees nothing");
    }

    #[test]
    fn a_limit_of_zero_lets_nothing_through() {
        let (log, now) = (SlidingLog::new(MINUTE, 10), Instant::now());
        assert_eq!(log.take(1, 0, now).map(Ticket::keep), Err(MINUTE));
    }

    #[test]
    fn clocks_read_out_of_order_do_no_harm() {
        let (log, now) = (SlidingLog::new(MINUTE, 10), Instant::now() + MINUTE);
        log.take(1, 3, now).expect("room").keep();
        let early = log.take(1, 3, now - SECOND).expect("room");
        log.refund(early);
        log.take(1, 3, now).expect("room").keep();
        log.take(1, 3, now).expect("room").keep();
        let wait = log.take(1, 3, now - SECOND).map(Ticket::keep).expect_err("full");
        assert_eq!(wait, MINUTE + SECOND);
    }

    #[test]
    fn many_keys_share_bounded_memory() {
        let (log, now) = (SlidingLog::new(MINUTE, 100), Instant::now());
        let passed = (0..100_000).filter(|key| log.take(*key, 3, now).map(Ticket::keep).is_ok()).count();
        assert_eq!(passed, 100 + 3, "those without a log of their own share one");
        assert!(log.take(5, 3, now).map(Ticket::keep).is_ok(), "known keys keep theirs");
        assert_eq!(log.logs.lock().expect("not poisoned").by_key.len(), 100);
        log.take(100_001, 3, now + MINUTE).expect("old keys went").keep();
        assert_eq!(log.logs.lock().expect("not poisoned").by_key.len(), 1);
    }

    #[test]
    fn threads_never_exceed_the_limit() {
        let (log, now) = (SlidingLog::new(MINUTE, 10), Instant::now());
        let passed: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..100).filter(|_| log.take(1, 50, now).map(Ticket::keep).is_ok()).count()))
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(passed, 50);
    }

    #[test]
    fn an_ipv6_client_is_its_network() {
        let key = |text: &str| client_key(text.parse().expect("address"));
        assert_eq!(key("2001:db8:1:2:3:4:5:6"), key("2001:db8:1:2:ffff::1"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    }
}
